import type { Container, PodSecurityContext, PodSpec, SecurityContext } from "kubernetes-types/core/v1.d.ts";

export interface Subject {
  spec: PodSpec;
  annotations: Readonly<Record<string, string>>;
  /** The init containers, then the regular, then the ephemeral ones. */
  containers: readonly Container[];
}

export interface Offence {
  reason: string;
  detail: string;
}

export type Judge = (subject: Subject) => Offence | undefined;

export interface Check {
  level: "baseline" | "restricted";
  /** The check by the Kubernetes version from which it applies, in ascending order. */
  since: Readonly<Record<`1.${number}`, Judge>>;
  /** The baseline check that this check replaces, from its own first version on. */
  insteadOf?: Check;
}

export type Context = PodSecurityContext & SecurityContext;

export const contextOf = ({ securityContext }: Container): Context => securityContext ?? {};

const contextsOf = ({ spec, containers }: Subject): Context[] => [
  spec.securityContext ?? {},
  ...containers.map(contextOf),
];

export const namesOf = (containers: readonly Container[]) => containers.map(({ name = "" }) => name);

/** `detail` gets each forbidden value once. */
export const judgeContainers =
  (
    reason: string,
    findForbidden: (container: Container, context: Context) => readonly string[],
    detail: (names: string[], values: string[]) => string,
  ): Judge =>
  ({ containers }) => {
    const offenders = containers.filter((container) => findForbidden(container, contextOf(container)).length > 0);
    if (offenders.length === 0) return undefined;
    const values = offenders.flatMap((container) => findForbidden(container, contextOf(container)));
    return { reason, detail: detail(namesOf(offenders), sorted(values)) };
  };

export const judgeContexts =
  (
    reason: string,
    isForbidden: (context: Context) => boolean,
    detail: (setters: string, forbidden: Context[]) => string,
  ): Judge =>
  (subject) => {
    const setters = settersOf(subject, isForbidden);
    if (setters !== "") return { reason, detail: detail(setters, contextsOf(subject).filter(isForbidden)) };
  };

/** Newer versions of some checks require fields that Windows doesn't support. */
export const unlessOnWindows =
  (judge: Judge): Judge =>
  (subject) =>
    subject.spec.os?.name === "windows" ? undefined : judge(subject);

/** Root in a pod's own user namespace has no privileges on the node. */
export const unlessAmongOwnUsers =
  (judge: Judge): Judge =>
  (subject) =>
    subject.spec.hostUsers === false ? undefined : judge(subject);

// These functions produce upstream's wording.

/** Returns `"a", "b"`, without escaping. */
export const quoted = (texts: readonly string[]) => texts.map((text) => `"${text}"`).join(", ");

export const plural = (count: number, one: string, several = `${one}s`) => (count === 1 ? one : several);

export const listed = (noun: string, names: readonly string[]) => `${plural(names.length, noun)} ${quoted(names)}`;

export const sorted = (texts: Iterable<string>): string[] =>
  [...new Set(texts)].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));

/** Returns the pod and containers that match, as `pod and container "a"`; an empty text if none does. */
export const settersOf = ({ spec, containers }: Subject, does: (context: Context) => boolean): string => {
  const names = namesOf(containers.filter((container) => does(contextOf(container))));
  return [
    ...(does(spec.securityContext ?? {}) ? ["pod"] : []),
    ...(names.length > 0 ? [listed("container", names)] : []),
  ].join(" and ");
};
