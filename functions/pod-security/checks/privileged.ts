import { type Check, contextOf, type Judge, namesOf } from "./check.ts";
import { listed } from "./wording.ts";

const judge: Judge = ({ containers }) => {
  const names = namesOf(containers.filter((container) => contextOf(container).privileged === true));
  if (names.length > 0)
    return {
      reason: "privileged",
      detail: `${listed("container", names)} must not set securityContext.privileged=true`,
    };
};

export const privileged: Check = { level: "baseline", since: { "1.0": judge } };
