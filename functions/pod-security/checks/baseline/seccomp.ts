// A pod may choose among seccomp profiles, but not turn seccomp off.
// Annotations, before 1.19: seccomp.security.alpha.kubernetes.io/pod, and for each container
// container.seccomp.security.alpha.kubernetes.io/NAME. Allowed: unset, runtime/default, docker/default, localhost/*.
// Field, since 1.19: securityContext.seccompProfile.type of the pod and of each container. Allowed: unset,
// RuntimeDefault, Localhost.

import { quoteAsGo } from "postern/objects/go/quoted";
import {
  buildSecurityContextsCheck,
  chooseSingularOrPlural,
  isAllowedProfile,
  listNames,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  quoteAll,
  sortUnique,
} from "../check-builders.ts";

/** Returns which seccomp annotations break the standard. Old clusters read these annotations. */
const checkSeccompAnnotations: PodSecurityCheckFunction = ({ annotations, containers }) => {
  const containerKeys = listNames(containers).map((name) => `container.seccomp.security.alpha.kubernetes.io/${name}`);
  const forbidden = ["seccomp.security.alpha.kubernetes.io/pod", ...containerKeys].flatMap((key) => {
    const value = Object.hasOwn(annotations, key) ? (annotations[key] ?? "") : undefined;
    return value === undefined || isAllowedSeccomp(value) ? [] : [`${key}=${quoteAsGo(value)}`];
  });
  const distinct = sortUnique(forbidden);
  if (distinct.length > 0)
    return {
      reason: "seccompProfile",
      detail: `forbidden ${chooseSingularOrPlural(distinct.length, "annotation")} ${distinct.join(", ")}`,
    };
};

const isAllowedSeccomp = (value: string) =>
  value === "runtime/default" || value === "docker/default" || value.startsWith("localhost/");

/** Seccomp profiles must not be of the type Unconfined. */
export const checkSeccomp = buildSecurityContextsCheck(
  "seccompProfile",
  ({ seccompProfile }) => !!seccompProfile && !isAllowedProfile(seccompProfile),
  (setters, forbidden) => {
    const types = forbidden.map(({ seccompProfile }) => seccompProfile?.type ?? "");
    return `${setters} must not set securityContext.seccompProfile.type to ${quoteAll(sortUnique(types))}`;
  },
);
export const seccompProfileBaseline: PodSecurityCheck = {
  level: "baseline",
  since: { "1.0": checkSeccompAnnotations, "1.19": checkSeccomp },
};
