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
export const contextsOf = ({ spec, containers }: Subject): Context[] => [
  spec.securityContext ?? {},
  ...containers.map(contextOf),
];

export const namesOf = (containers: readonly Container[]) => containers.map(({ name = "" }) => name);

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
