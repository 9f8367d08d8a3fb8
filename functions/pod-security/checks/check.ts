import type { Container, PodSecurityContext, PodSpec, SecurityContext } from "kubernetes-types/core/v1.d.ts";

/** What is judged: a pod, or the template of one. */
export interface Subject {
  spec: PodSpec;
  annotations: Readonly<Record<string, string>>;
  /** All of them: first the init containers, then the regular, then the ephemeral. */
  containers: readonly Container[];
}

/** What a check has against a pod, shortly and at length. */
export interface Offence {
  reason: string;
  detail: string;
}

export type Judge = (subject: Subject) => Offence | undefined;

/** One control of the Pod Security Standards. */
export interface Check {
  level: "baseline" | "restricted";
  /** How it judges from a version on, in ascending order. */
  since: Readonly<Record<`1.${number}`, Judge>>;
  /** The baseline check in whose place it stands, from its own first version on. */
  insteadOf?: Check;
}

export type Context = PodSecurityContext & SecurityContext;

/** What a container says of its security, or nothing. */
export const contextOf = ({ securityContext }: Container): Context => securityContext ?? {};

/** What the pod says, and then what each of its containers says. */
const contextsOf = ({ spec, containers }: Subject): Context[] => [
  spec.securityContext ?? {},
  ...containers.map(contextOf),
];

export const namesOf = (containers: readonly Container[]) => containers.map(({ name = "" }) => name);

/** Judges containers by the forbidden values that each has; of these, `detail` gets each once. */
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

/** Judges what a pod and its containers say alike; `detail` gets the contexts that are forbidden. */
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

/** Windows knows none of what the newer of some checks ask for. */
export const unlessOnWindows =
  (judge: Judge): Judge =>
  (subject) =>
    subject.spec.os?.name === "windows" ? undefined : judge(subject);

/** Root in a user namespace of its own is nobody on the node. */
export const unlessAmongOwnUsers =
  (judge: Judge): Judge =>
  (subject) =>
    subject.spec.hostUsers === false ? undefined : judge(subject);

// How upstream puts what checks find.

/** `"a", "b"`, whatever is in them. */
export const quoted = (texts: readonly string[]) => texts.map((text) => `"${text}"`).join(", ");

export const plural = (count: number, one: string, several = `${one}s`) => (count === 1 ? one : several);

/** `container "a"`, `containers "a", "b"`. */
export const listed = (noun: string, names: readonly string[]) => `${plural(names.length, noun)} ${quoted(names)}`;

/** Each once, in the order of their bytes. */
export const sorted = (texts: Iterable<string>): string[] =>
  [...new Set(texts)].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));

/** The pod and the containers that set something: `pod and container "a"`; an empty text where none does. */
export const settersOf = ({ spec, containers }: Subject, does: (context: Context) => boolean): string => {
  const names = namesOf(containers.filter((container) => does(contextOf(container))));
  return [
    ...(does(spec.securityContext ?? {}) ? ["pod"] : []),
    ...(names.length > 0 ? [listed("container", names)] : []),
  ].join(" and ");
};
