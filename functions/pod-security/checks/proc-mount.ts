import { type Check, contextOf, type Judge, namesOf, unlessAmongOwnUsers } from "./check.ts";
import { listed, quoted, sorted } from "./wording.ts";

const judge: Judge = ({ containers }) => {
  const offenders = containers.filter((container) => (contextOf(container).procMount ?? "Default") !== "Default");
  if (offenders.length === 0) return undefined;

  const mounts = sorted(offenders.map((container) => contextOf(container).procMount ?? ""));
  return {
    reason: "procMount",
    detail: `${listed("container", namesOf(offenders))} must not set securityContext.procMount to ${quoted(mounts)}`,
  };
};

export const procMount: Check = { level: "baseline", since: { "1.0": judge, "1.35": unlessAmongOwnUsers(judge) } };

/** Restricted stays as it was. */
export const procMountRestricted: Check = { level: "restricted", since: { "1.35": judge }, insteadOf: procMount };
