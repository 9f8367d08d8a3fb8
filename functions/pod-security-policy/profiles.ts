import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { goQuoted } from "postern/objects/go-quoted";
import type { AnyContainer } from "./identity.ts";
import { forbiddenAt, type Offences } from "./offence.ts";
import type { Policy } from "./policy.ts";

/** A seccomp or AppArmor profile as a field of current pods. When policies were written, profiles were annotations. */
interface Profile {
  type: "RuntimeDefault" | "Unconfined" | "Localhost";
  localhostProfile?: string;
}

/** Prefixes of policy annotations, by field; in annotations of containers, the prefix follows `container.`. */
const prefixes = {
  appArmorProfile: "apparmor.security.beta.kubernetes.io/",
  seccompProfile: "seccomp.security.alpha.kubernetes.io/",
};
type Field = keyof typeof prefixes;

const ofPods = "seccomp.security.alpha.kubernetes.io/pod";

const annotated = ({ metadata }: Pod | Policy, key: string): string | undefined => metadata?.annotations?.[key];
const toKey = (field: Field, { name = "" }: AnyContainer) => `container.${prefixes[field]}${name}`;

type Holder = AnyContainer | NonNullable<Pod["spec"]>;
const fieldOf = (field: Field, holder: Holder | undefined) => holder?.securityContext?.[field] as Profile | undefined;

/** Returns the field's profile in the notation of annotations. */
const textOf = (field: Field, holder: Holder | undefined): string | undefined => {
  const profile = fieldOf(field, holder);
  if (profile === undefined) return undefined;
  if (profile.type === "Localhost") return `localhost/${profile.localhostProfile ?? ""}`;
  return profile.type === "Unconfined" ? "unconfined" : "runtime/default";
};

/** Parses the notation of annotations; returns undefined if the text is no profile. */
export const profileOf = (text = ""): Profile | undefined => {
  const local = "localhost/";
  if (text === "runtime/default" || text === "docker/default") return { type: "RuntimeDefault" };
  if (text === "unconfined") return { type: "Unconfined" };
  return text.startsWith(local) && text.length > local.length
    ? { type: "Localhost", localhostProfile: text.slice(local.length) }
    : undefined;
};

/** Upstream knows only the annotation. */
const placeOf = (field: Field, pod: Pod, key: string, holder: Holder | undefined, at: string) =>
  fieldOf(field, holder) && annotated(pod, key) === undefined
    ? `${at}.securityContext.${field}`
    : `pod.metadata.annotations[${key}]`;

/** Chooses the profile as the kubelet does. */
const appArmorOf = (pod: Pod, container: AnyContainer) =>
  textOf("appArmorProfile", container) ??
  annotated(pod, toKey("appArmorProfile", container)) ??
  textOf("appArmorProfile", pod.spec) ??
  "";

export const appArmorFor = (policy: Policy, pod: Pod, container: AnyContainer) => {
  const text = annotated(policy, `${prefixes.appArmorProfile}defaultProfileName`);
  if (!text || appArmorOf(pod, container)) return {};
  return { annotations: { [toKey("appArmorProfile", container)]: text }, field: profileOf(text) };
};

export function* appArmorOffences(policy: Policy, pod: Pod, container: AnyContainer, at: string): Offences {
  const text = annotated(policy, `${prefixes.appArmorProfile}allowedProfileNames`);
  if (text === undefined) return;

  const profile = appArmorOf(pod, container);
  const path = placeOf("appArmorProfile", pod, toKey("appArmorProfile", container), container, at);
  if (profile === "") yield forbiddenAt(path, "AppArmor profile must be set");
  else if (!text.split(",").includes(profile))
    yield forbiddenAt(path, `${profile} is not an allowed profile. Allowed values: ${goQuoted(text)}`);
}

/** Sets the annotation and the field; current kubelets read only the field. */
export const seccompForPod = (policy: Policy, pod: Pod) => {
  if (fieldOf("seccompProfile", pod.spec)) return {};
  const text = annotated(pod, ofPods) || annotated(policy, `${prefixes.seccompProfile}defaultProfileName`);
  return text ? { annotations: { [ofPods]: text }, field: profileOf(text) } : {};
};

export const seccompForContainer = (pod: Pod, container: AnyContainer): Profile | undefined =>
  fieldOf("seccompProfile", container) ? undefined : profileOf(annotated(pod, toKey("seccompProfile", container)));

export function* seccompOffencesOfPod(policy: Policy, pod: Pod): Offences {
  yield* seccompOffencesAt(policy, seccompOf(pod), placeOf("seccompProfile", pod, ofPods, pod.spec, "spec"));
}

export function* seccompOffences(policy: Policy, pod: Pod, container: AnyContainer, at: string): Offences {
  const key = toKey("seccompProfile", container);
  const profile = textOf("seccompProfile", container) ?? annotated(pod, key) ?? seccompOf(pod);
  yield* seccompOffencesAt(policy, profile, placeOf("seccompProfile", pod, key, container, at));
}

const seccompOf = (pod: Pod) => textOf("seccompProfile", pod.spec) ?? annotated(pod, ofPods) ?? "";

function* seccompOffencesAt(policy: Policy, profile: string, path: string): Offences {
  const text = annotated(policy, `${prefixes.seccompProfile}allowedProfileNames`);
  const allowed = text?.split(",") ?? [];
  if (allowed.includes("*")) return;
  if (allowed.length === 0) {
    if (profile !== "") yield forbiddenAt(path, "seccomp may not be set");
  } else if (!alike(profile).some((name) => allowed.includes(name)))
    yield forbiddenAt(path, `${profile} is not an allowed seccomp profile. Valid values are ${text}`);
}

/** The container runtime's default profile has two names. */
const alike = (profile: string) => {
  const names = ["runtime/default", "docker/default"];
  return names.includes(profile) ? names : [profile];
};
