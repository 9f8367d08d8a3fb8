import type { SELinuxOptions } from "kubernetes-types/core/v1.d.ts";
import { type Check, type Context, contextsOf, type Judge } from "./check.ts";
import { listed, settersOf, sorted } from "./wording.ts";

const judging = (...types: string[]): Judge => {
  const allowed = new Set(["", ...types]);
  const hasOtherType = ({ type = "" }: SELinuxOptions) => !allowed.has(type);
  const isForbidden = ({ seLinuxOptions }: Context) =>
    !!seLinuxOptions && (hasOtherType(seLinuxOptions) || !!seLinuxOptions.user || !!seLinuxOptions.role);

  return (subject) => {
    const setters = settersOf(subject, isForbidden);
    if (setters === "") return undefined;

    const options = contextsOf(subject).map(({ seLinuxOptions }) => seLinuxOptions ?? {});
    const others = sorted(options.filter(hasOtherType).map(({ type = "" }) => type));
    const found = [
      ...(others.length > 0 ? [listed("type", others)] : []),
      ...(options.some(({ user }) => user) ? ["user may not be set"] : []),
      ...(options.some(({ role }) => role) ? ["role may not be set"] : []),
    ];
    return {
      reason: "seLinuxOptions",
      detail: `${setters} set forbidden securityContext.seLinuxOptions: ${found.join("; ")}`,
    };
  };
};

const first = ["container_t", "container_init_t", "container_kvm_t"];

export const seLinuxOptions: Check = {
  level: "baseline",
  since: { "1.0": judging(...first), "1.31": judging(...first, "container_engine_t") },
};
