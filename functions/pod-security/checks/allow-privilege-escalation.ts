import { type Check, contextOf, type Judge, namesOf, unlessOnWindows } from "./check.ts";
import { listed } from "./wording.ts";

const judge: Judge = ({ containers }) => {
  const names = namesOf(containers.filter((container) => contextOf(container).allowPrivilegeEscalation !== false));
  if (names.length > 0)
    return {
      reason: "allowPrivilegeEscalation != false",
      detail: `${listed("container", names)} must set securityContext.allowPrivilegeEscalation=false`,
    };
};

export const allowPrivilegeEscalation: Check = {
  level: "restricted",
  since: { "1.8": judge, "1.25": unlessOnWindows(judge) },
};
