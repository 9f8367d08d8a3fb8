import { type Check, contextOf, type Judge, namesOf, unlessAmongOwnUsers } from "./check.ts";
import { listed, settersOf } from "./wording.ts";

const reason = "runAsNonRoot != true";

const judge: Judge = (subject) => {
  const setters = settersOf(subject, ({ runAsNonRoot }) => runAsNonRoot === false);
  if (setters !== "") return { reason, detail: `${setters} must not set securityContext.runAsNonRoot=false` };
  if (subject.spec.securityContext?.runAsNonRoot === true) return undefined;

  const without = namesOf(subject.containers.filter((container) => contextOf(container).runAsNonRoot === undefined));
  if (without.length > 0)
    return { reason, detail: `pod or ${listed("container", without)} must set securityContext.runAsNonRoot=true` };
};

export const runAsNonRoot: Check = {
  level: "restricted",
  since: { "1.0": judge, "1.35": unlessAmongOwnUsers(judge) },
};
