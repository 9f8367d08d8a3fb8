// A pod may choose among AppArmor profiles, but not turn AppArmor off.
// Field: securityContext.appArmorProfile.type of the pod and of each container. Allowed: unset, RuntimeDefault,
// Localhost.
// Annotations: container.apparmor.security.beta.kubernetes.io/*. Allowed: unset, empty, runtime/default, localhost/*.

import { quoteAsGo } from "postern/objects/go/quoted";
import {
  chooseSingularOrPlural,
  describeMatchingPodParts,
  isAllowedProfile,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  quoteAll,
  sortUnique,
} from "../check-builders.ts";

const appArmorPrefix = "container.apparmor.security.beta.kubernetes.io/";

/** Reports whether an annotation names a forbidden AppArmor profile. The annotation is older than the field. */
const isForbiddenAnnotation = ([key, value]: [string, string]) =>
  key.startsWith(appArmorPrefix) && value !== "" && value !== "runtime/default" && !value.startsWith("localhost/");

/** Returns how AppArmor fields or annotations of a pod break the standard; undefined if they don't. */
const checkAppArmor: PodSecurityCheckFunction = (subject) => {
  const types = new Set<string>();
  const setters = describeMatchingPodParts(subject, ({ appArmorProfile }) => {
    if (!appArmorProfile || isAllowedProfile(appArmorProfile)) return false;
    types.add(appArmorProfile.type ?? "");
    return true;
  });
  const annotations = Object.entries(subject.annotations)
    .filter(isForbiddenAnnotation)
    .map(([key, value]) => `${key}=${quoteAsGo(value)}`);
  if (setters === "" && annotations.length === 0) return undefined;
  const values = [...sortUnique(types), ...sortUnique(annotations)];
  const subjects = [
    ...(setters === "" ? [] : [setters]),
    ...(annotations.length > 0 ? [chooseSingularOrPlural(annotations.length, "annotation")] : []),
  ];
  return {
    reason: chooseSingularOrPlural(values.length, "forbidden AppArmor profile"),
    detail: `${subjects.join(" and ")} must not set AppArmor profile type to ${quoteAll(values)}`,
  };
};
export const appArmorProfile: PodSecurityCheck = { level: "baseline", since: { "1.0": checkAppArmor } };
