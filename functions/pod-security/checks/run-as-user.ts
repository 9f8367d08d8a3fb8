import { type Check, type Judge, unlessAmongOwnUsers } from "./check.ts";
import { settersOf } from "./wording.ts";

const judge: Judge = (subject) => {
  const setters = settersOf(subject, ({ runAsUser }) => runAsUser === 0);
  if (setters !== "") return { reason: "runAsUser=0", detail: `${setters} must not set runAsUser=0` };
};

export const runAsUser: Check = { level: "restricted", since: { "1.23": judge, "1.35": unlessAmongOwnUsers(judge) } };
