import type { Container, PodSecurityContext, PodSpec, SecurityContext } from "postern/kubernetes/core/v1";
import type { Since } from "postern/since";

/** The parts of a pod or pod template that Pod Security checks read. */
export interface PodSubject {
  spec: PodSpec;
  annotations: Readonly<Record<string, string>>;
  /** All of the pod's containers: first the init containers, then the regular, then the ephemeral ones. */
  containers: readonly Container[];
}

/** A violation of the Pod Security Standards: upstream's short reason, and a detail with names and values. */
export interface PodSecurityViolation {
  reason: string;
  detail: string;
}

export type PodSecurityCheckFunction = (subject: PodSubject) => PodSecurityViolation | undefined;

/** A check of the Pod Security Standards, with its variants for Kubernetes versions. */
export interface PodSecurityCheck {
  level: "baseline" | "restricted";
  /** The variants of this check, each under the Kubernetes version from which it applies, in ascending order. */
  since: Since<PodSecurityCheckFunction>;
  /** The baseline check that this restricted check replaces, from the first version in `since` on. */
  insteadOf?: PodSecurityCheck;
}

/** The security context of a pod or of a container. */
export type AnyContext = PodSecurityContext & SecurityContext;

export const getContext = ({ securityContext }: Container): AnyContext => securityContext ?? {};

const listContexts = ({ spec, containers }: PodSubject): AnyContext[] => [
  spec.securityContext ?? {},
  ...containers.map(getContext),
];

/** Returns the names of containers. */
export const listNames = (containers: readonly Container[]) => containers.map(({ name = "" }) => name);

/** Reports whether a seccomp or AppArmor profile confines a container. */
export const isAllowedProfile = ({ type }: { type: string }) => type === "RuntimeDefault" || type === "Localhost";

/** Builds a check of containers. `describeDetail` gets names of containers, and each forbidden value once, sorted. */
export const buildContainersCheck =
  (
    reason: string,
    findForbidden: (container: Container, context: AnyContext) => readonly string[],
    describeDetail: (names: string[], values: string[]) => string,
  ): PodSecurityCheckFunction =>
  ({ containers }) => {
    const offenders = containers.filter((container) => findForbidden(container, getContext(container)).length > 0);
    if (offenders.length === 0) return undefined;
    const values = offenders.flatMap((container) => findForbidden(container, getContext(container)));
    return { reason, detail: describeDetail(listNames(offenders), sortUnique(values)) };
  };

/**
 * Builds a check of the security contexts of a pod and its containers. `setters` is `pod and container "a"`, for
 * example.
 */
export const buildSecurityContextsCheck =
  (
    reason: string,
    isForbidden: (context: AnyContext) => boolean,
    describeDetail: (setters: string, forbidden: AnyContext[]) => string,
  ): PodSecurityCheckFunction =>
  (subject) => {
    const setters = describeMatchingPodParts(subject, isForbidden);
    if (setters !== "") return { reason, detail: describeDetail(setters, listContexts(subject).filter(isForbidden)) };
  };

/** Returns a check that skips Windows pods, because Windows doesn't support the fields that the check requires. */
export const skipWindowsPods =
  (check: PodSecurityCheckFunction): PodSecurityCheckFunction =>
  (subject) =>
    subject.spec.os?.name === "windows" ? undefined : check(subject);

/** Returns a check that skips pods with their own user namespace: their root user has no privileges on the node. */
export const skipPodsWithUserNamespace =
  (check: PodSecurityCheckFunction): PodSecurityCheckFunction =>
  (subject) =>
    subject.spec.hostUsers === false ? undefined : check(subject);

// The following functions produce upstream's wording.

/** Returns texts in quotes, joined by commas: `"a", "b"`. It escapes nothing. */
export const quoteAll = (texts: readonly string[]) => texts.map((text) => `"${text}"`).join(", ");

export const chooseSingularOrPlural = (count: number, singular: string, plural = `${singular}s`) =>
  count === 1 ? singular : plural;

/** Returns quoted names after a noun in singular or plural, such as `containers "a", "b"`. */
export const formatQuotedNames = (noun: string, names: readonly string[]) =>
  `${chooseSingularOrPlural(names.length, noun)} ${quoteAll(names)}`;

export const sortUnique = (texts: Iterable<string>): string[] =>
  [...new Set(texts)].sort((left, right) => Buffer.compare(Buffer.from(left), Buffer.from(right)));

/** Describes the parts of a pod that match, such as `pod and container "a"`. Returns an empty text if none matches. */
export const describeMatchingPodParts = (
  { spec, containers }: PodSubject,
  isMatching: (context: AnyContext) => boolean,
): string => {
  const names = listNames(containers.filter((container) => isMatching(getContext(container))));
  return [
    ...(isMatching(spec.securityContext ?? {}) ? ["pod"] : []),
    ...(names.length > 0 ? [formatQuotedNames("container", names)] : []),
  ].join(" and ");
};
