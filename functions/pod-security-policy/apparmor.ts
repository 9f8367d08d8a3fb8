import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { forbiddenAt, type Offences, quoted } from "./offence.ts";
import type { AnyContainer } from "./pod.ts";
import type { Policy } from "./policy.ts";
import { type Profile, profileOf, textOf } from "./profile.ts";

const ofContainers = "container.apparmor.security.beta.kubernetes.io/";
const ofPolicies = "apparmor.security.beta.kubernetes.io/";

const fieldOf = ({ securityContext }: AnyContainer | NonNullable<Pod["spec"]>) =>
  securityContext?.appArmorProfile as Profile | undefined;
const toKey = ({ name = "" }: AnyContainer) => `${ofContainers}${name}`;

/** As the kubelet chooses it. */
const profileFor = ({ metadata, spec }: Pod, container: AnyContainer) =>
  textOf(fieldOf(container)) ?? metadata?.annotations?.[toKey(container)] ?? (spec && textOf(fieldOf(spec))) ?? "";

/** What a container gets: as an annotation, and as the field. */
export const appArmorFor = ({ metadata }: Policy, pod: Pod, container: AnyContainer) => {
  const text = metadata.annotations?.[`${ofPolicies}defaultProfileName`];
  if (!text || profileFor(pod, container)) return {};
  return { annotations: { [toKey(container)]: text }, field: profileOf(text) };
};

export function* appArmorOffences({ metadata }: Policy, pod: Pod, container: AnyContainer, at: string): Offences {
  const text = metadata.annotations?.[`${ofPolicies}allowedProfileNames`];
  if (text === undefined) return;

  const profile = profileFor(pod, container);
  const key = toKey(container);
  // Upstream knows the annotation alone.
  const path =
    fieldOf(container) && pod.metadata?.annotations?.[key] === undefined
      ? `${at}.securityContext.appArmorProfile`
      : `pod.metadata.annotations[${key}]`;
  if (profile === "") yield forbiddenAt(path, "AppArmor profile must be set");
  else if (!text.split(",").includes(profile))
    yield forbiddenAt(path, `${profile} is not an allowed profile. Allowed values: ${quoted(text)}`);
}
