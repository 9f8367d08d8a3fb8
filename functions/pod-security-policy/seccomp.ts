import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { forbiddenAt, type Offences } from "./offence.ts";
import type { AnyContainer } from "./pod.ts";
import type { Policy } from "./policy.ts";
import { type Profile, profileOf, textOf } from "./profile.ts";

const ofPods = "seccomp.security.alpha.kubernetes.io/pod";
const ofContainers = "container.seccomp.security.alpha.kubernetes.io/";
const ofPolicies = "seccomp.security.alpha.kubernetes.io/";

const annotated = ({ metadata }: Pod, key: string) => metadata?.annotations?.[key];
const fieldOf = ({ securityContext }: AnyContainer | NonNullable<Pod["spec"]>) =>
  securityContext?.seccompProfile as Profile | undefined;
const toKey = ({ name = "" }: AnyContainer) => `${ofContainers}${name}`;

/** What a pod gets: as an annotation, and as the field, which alone today's kubelets heed. */
export const seccompForPod = ({ metadata }: Policy, pod: Pod) => {
  if (pod.spec && fieldOf(pod.spec)) return {};
  const text = annotated(pod, ofPods) || metadata.annotations?.[`${ofPolicies}defaultProfileName`];
  return text ? { annotations: { [ofPods]: text }, field: profileOf(text) } : {};
};

/** What the annotation of a container says, where its field doesn't. */
export const seccompForContainer = (pod: Pod, container: AnyContainer): Profile | undefined =>
  fieldOf(container) ? undefined : profileOf(annotated(pod, toKey(container)));

export function* seccompOffencesOfPod(policy: Policy, pod: Pod): Offences {
  yield* offences(policy, podProfile(pod), placeOf(pod, ofPods, pod.spec, "spec"));
}

export function* seccompOffences(policy: Policy, pod: Pod, container: AnyContainer, at: string): Offences {
  const key = toKey(container);
  const profile = textOf(fieldOf(container)) ?? annotated(pod, key) ?? podProfile(pod);
  yield* offences(policy, profile, placeOf(pod, key, container, at));
}

/** Upstream knows the annotation alone. */
const placeOf = (pod: Pod, key: string, { securityContext }: Pick<AnyContainer, "securityContext"> = {}, at: string) =>
  securityContext?.seccompProfile && annotated(pod, key) === undefined
    ? `${at}.securityContext.seccompProfile`
    : `pod.metadata.annotations[${key}]`;

const podProfile = (pod: Pod) => (pod.spec && textOf(fieldOf(pod.spec))) ?? annotated(pod, ofPods) ?? "";

function* offences({ metadata }: Policy, profile: string, path: string): Offences {
  const text = metadata.annotations?.[`${ofPolicies}allowedProfileNames`];
  const allowed = text?.split(",") ?? [];
  if (allowed.includes("*")) return;
  if (allowed.length === 0) {
    if (profile !== "") yield forbiddenAt(path, "seccomp may not be set");
  } else if (!alike(profile).some((name) => allowed.includes(name)))
    yield forbiddenAt(path, `${profile} is not an allowed seccomp profile. Valid values are ${text}`);
}

/** The runtime's own profile has two names. */
const alike = (profile: string) => {
  const names = ["runtime/default", "docker/default"];
  return names.includes(profile) ? names : [profile];
};
