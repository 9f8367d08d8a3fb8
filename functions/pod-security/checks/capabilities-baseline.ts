import { type Check, contextOf, type Judge, namesOf } from "./check.ts";
import { listed, quoted, sorted } from "./wording.ts";

const allowed = new Set([
  ...["AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"],
  ...["SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"],
]);

const judge: Judge = ({ containers }) => {
  const offenders = containers.filter((container) => forbiddenOf(contextOf(container)).length > 0);
  if (offenders.length === 0) return undefined;

  const added = sorted(offenders.flatMap((container) => forbiddenOf(contextOf(container))));
  return {
    reason: "non-default capabilities",
    detail: `${listed("container", namesOf(offenders))} must not include ${quoted(added)} in securityContext.capabilities.add`,
  };
};

const forbiddenOf = ({ capabilities }: ReturnType<typeof contextOf>) =>
  (capabilities?.add ?? []).filter((capability) => !allowed.has(capability));

export const capabilitiesBaseline: Check = { level: "baseline", since: { "1.0": judge } };
