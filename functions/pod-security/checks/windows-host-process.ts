import type { Check, Judge } from "./check.ts";
import { settersOf } from "./wording.ts";

const judge: Judge = (subject) => {
  const setters = settersOf(subject, ({ windowsOptions }) => windowsOptions?.hostProcess === true);
  if (setters !== "")
    return { reason: "hostProcess", detail: `${setters} must not set securityContext.windowsOptions.hostProcess=true` };
};

export const windowsHostProcess: Check = { level: "baseline", since: { "1.0": judge } };
