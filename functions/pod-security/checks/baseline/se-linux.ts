// A container may choose only SELinux types that are meant for containers, and no SELinux user or role.
// Field: securityContext.seLinuxOptions.type of the pod and of each container. Allowed: unset, empty, container_t,
// container_init_t, container_kvm_t, and since 1.31 container_engine_t.
// Fields: seLinuxOptions.user and seLinuxOptions.role. Allowed: unset, empty.

import type { SELinuxOptions } from "postern/kubernetes/core/v1";
import {
  type AnyContext,
  buildSecurityContextsCheck,
  formatQuotedNames,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  sortUnique,
} from "../check-builders.ts";

/** Returns the check for SELinux options that allows the usual types and the given `types`. */
const buildSeLinuxCheck = (...types: string[]): PodSecurityCheckFunction => {
  const allowed = new Set(["", "container_t", "container_init_t", "container_kvm_t", ...types]);
  const hasOtherType = ({ type = "" }: SELinuxOptions) => !allowed.has(type);
  const isForbidden = ({ seLinuxOptions }: AnyContext) =>
    !!seLinuxOptions && (hasOtherType(seLinuxOptions) || !!seLinuxOptions.user || !!seLinuxOptions.role);
  return buildSecurityContextsCheck("seLinuxOptions", isForbidden, (setters, forbidden) => {
    const options = forbidden.map(({ seLinuxOptions }) => seLinuxOptions ?? {});
    const others = sortUnique(options.filter(hasOtherType).map(({ type = "" }) => type));
    const found = [
      ...(others.length > 0 ? [formatQuotedNames("type", others)] : []),
      ...(options.some(({ user }) => user) ? ["user may not be set"] : []),
      ...(options.some(({ role }) => role) ? ["role may not be set"] : []),
    ];
    return `${setters} set forbidden securityContext.seLinuxOptions: ${found.join("; ")}`;
  });
};
export const seLinuxOptions: PodSecurityCheck = {
  level: "baseline",
  since: { "1.0": buildSeLinuxCheck(), "1.31": buildSeLinuxCheck("container_engine_t") },
};
