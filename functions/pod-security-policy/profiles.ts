import type { Pod } from "postern/kubernetes/core/v1";
import { quoteAsGo } from "postern/objects/go/quoted";
import type { AnyContainer } from "./identity.ts";
import { describeForbidden, type PodSecurityPolicyOffences } from "./offence.ts";
import type { PodSecurityPolicyObject } from "./policy.ts";

/** A seccomp or AppArmor profile as a field of pods. PodSecurityPolicies know profiles only as annotations. */
interface Profile {
  type: "RuntimeDefault" | "Unconfined" | "Localhost";
  localhostProfile?: string;
}

/**
 * The prefixes of a PodSecurityPolicy's annotations about profiles, by field. A pod's annotation for one container
 * begins with `container.` and this prefix.
 */
const prefixes = {
  appArmorProfile: "apparmor.security.beta.kubernetes.io/",
  seccompProfile: "seccomp.security.alpha.kubernetes.io/",
};
type Field = keyof typeof prefixes;

const podKey = "seccomp.security.alpha.kubernetes.io/pod";

const getAnnotation = ({ metadata }: Pod | PodSecurityPolicyObject, key: string): string | undefined =>
  metadata?.annotations?.[key];
const toKey = (field: Field, { name = "" }: AnyContainer) => `container.${prefixes[field]}${name}`;

type ProfileHolder = AnyContainer | NonNullable<Pod["spec"]>;
const getProfileField = (field: Field, holder: ProfileHolder | undefined) =>
  holder?.securityContext?.[field] as Profile | undefined;

/** Returns the field's profile as an annotation would name it, for instance `localhost/profile.json`. */
const formatFieldProfile = (field: Field, holder: ProfileHolder | undefined): string | undefined => {
  const profile = getProfileField(field, holder);
  if (profile === undefined) return undefined;
  if (profile.type === "Localhost") return `localhost/${profile.localhostProfile ?? ""}`;
  return profile.type === "Unconfined" ? "unconfined" : "runtime/default";
};

/** Parses a seccomp or AppArmor profile as annotations state it, such as `localhost/a.json`; undefined if invalid. */
export const parseProfileAnnotation = (text = ""): Profile | undefined => {
  const local = "localhost/";
  if (text === "runtime/default" || text === "docker/default") return { type: "RuntimeDefault" };
  if (text === "unconfined") return { type: "Unconfined" };
  return text.startsWith(local) && text.length > local.length
    ? { type: "Localhost", localhostProfile: text.slice(local.length) }
    : undefined;
};

/**
 * Returns the path of a seccomp or AppArmor profile for a refusal: of the field or of the annotation. Upstream knows
 * only annotations.
 */
const describePath = (field: Field, pod: Pod, key: string, holder: ProfileHolder | undefined, at: string) =>
  getProfileField(field, holder) && getAnnotation(pod, key) === undefined
    ? `${at}.securityContext.${field}`
    : `pod.metadata.annotations[${key}]`;

/** Returns a container's AppArmor profile, as annotations write it. Fields and annotations have the kubelet's order. */
const getAppArmorProfile = (pod: Pod, container: AnyContainer) =>
  formatFieldProfile("appArmorProfile", container) ??
  getAnnotation(pod, toKey("appArmorProfile", container)) ??
  formatFieldProfile("appArmorProfile", pod.spec) ??
  "";

export const chooseDefaultAppArmorProfile = (policy: PodSecurityPolicyObject, pod: Pod, container: AnyContainer) => {
  const text = getAnnotation(policy, `${prefixes.appArmorProfile}defaultProfileName`);
  if (!text || getAppArmorProfile(pod, container)) return {};
  return { annotations: { [toKey("appArmorProfile", container)]: text }, field: parseProfileAnnotation(text) };
};

/** Lists an AppArmor profile of a container that the policy's annotation doesn't name. */
export function* listAppArmorOffences(
  policy: PodSecurityPolicyObject,
  pod: Pod,
  container: AnyContainer,
  at: string,
): PodSecurityPolicyOffences {
  const text = getAnnotation(policy, `${prefixes.appArmorProfile}allowedProfileNames`);
  if (text === undefined) return;

  const profile = getAppArmorProfile(pod, container);
  const path = describePath("appArmorProfile", pod, toKey("appArmorProfile", container), container, at);
  if (profile === "") yield describeForbidden(path, "AppArmor profile must be set");
  else if (!text.split(",").includes(profile))
    yield describeForbidden(path, `${profile} is not an allowed profile. Allowed values: ${quoteAsGo(text)}`);
}

/**
 * Returns the seccomp profile to set in a pod, as an annotation and as a field; empty if the pod's field is set.
 * Current kubelets read only the field.
 */
export const choosePodSeccompProfile = (policy: PodSecurityPolicyObject, pod: Pod) => {
  if (getProfileField("seccompProfile", pod.spec)) return {};
  const text = getAnnotation(pod, podKey) || getAnnotation(policy, `${prefixes.seccompProfile}defaultProfileName`);
  return text ? { annotations: { [podKey]: text }, field: parseProfileAnnotation(text) } : {};
};

export const findAnnotatedSeccompProfile = (pod: Pod, container: AnyContainer): Profile | undefined =>
  getProfileField("seccompProfile", container)
    ? undefined
    : parseProfileAnnotation(getAnnotation(pod, toKey("seccompProfile", container)));

export function* listPodSeccompOffences(policy: PodSecurityPolicyObject, pod: Pod): PodSecurityPolicyOffences {
  yield* checkSeccompProfile(policy, getPodProfile(pod), describePath("seccompProfile", pod, podKey, pod.spec, "spec"));
}

/** Lists a seccomp profile of a container that the policy doesn't allow. */
export function* listSeccompOffences(
  policy: PodSecurityPolicyObject,
  pod: Pod,
  container: AnyContainer,
  at: string,
): PodSecurityPolicyOffences {
  const key = toKey("seccompProfile", container);
  const profile = formatFieldProfile("seccompProfile", container) ?? getAnnotation(pod, key) ?? getPodProfile(pod);
  yield* checkSeccompProfile(policy, profile, describePath("seccompProfile", pod, key, container, at));
}

const getPodProfile = (pod: Pod) => formatFieldProfile("seccompProfile", pod.spec) ?? getAnnotation(pod, podKey) ?? "";

/** Lists a profile such as "localhost/audit" that the policy's annotation doesn't name. */
function* checkSeccompProfile(
  policy: PodSecurityPolicyObject,
  profile: string,
  path: string,
): PodSecurityPolicyOffences {
  const text = getAnnotation(policy, `${prefixes.seccompProfile}allowedProfileNames`);
  const allowed = text?.split(",") ?? [];
  if (allowed.includes("*")) return;
  if (allowed.length === 0) {
    if (profile !== "") yield describeForbidden(path, "seccomp may not be set");
  } else if (!listProfileNames(profile).some((name) => allowed.includes(name)))
    yield describeForbidden(path, `${profile} is not an allowed seccomp profile. Valid values are ${text}`);
}

/** Returns all names of a seccomp profile: the container runtime's default profile has two. */
const listProfileNames = (profile: string) => {
  const names = ["runtime/default", "docker/default"];
  return names.includes(profile) ? names : [profile];
};
