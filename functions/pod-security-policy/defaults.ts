import type { Pod, SecurityContext } from "kubernetes-types/core/v1.d.ts";
import { capabilitiesFor } from "./capabilities.ts";
import { type AnyContainer, groupFor, runsAs, seLinuxFor, userFor } from "./identity.ts";
import type { Policy } from "./policy.ts";
import { appArmorFor, seccompForContainer, seccompForPod } from "./profiles.ts";

/** Returns the pod with the policy's defaults for fields that are not set; the same object if nothing changes. */
export const filled = (policy: Policy, pod: Pod): Pod => {
  const whole = filledPod(policy, pod);
  const { spec } = whole;
  if (!spec) return whole;

  const annotations: Record<string, string> = {};
  const each = <T extends AnyContainer>(containers: T[] | undefined, isAnnotated = true) => {
    const made = containers?.map((container): T => {
      const appArmor = appArmorFor(policy, whole, container);
      if (isAnnotated) Object.assign(annotations, appArmor.annotations);
      const securityContext = contextFor(policy, whole, container, appArmor.field);
      return securityContext === container.securityContext ? container : { ...container, securityContext };
    });
    return made?.some((container, index) => container !== containers?.[index]) ? made : containers;
  };
  const containers = {
    initContainers: each(spec.initContainers ?? undefined),
    containers: each(spec.containers ?? undefined),
    // A request that adds ephemeral containers can't change annotations.
    ephemeralContainers: each(spec.ephemeralContainers ?? undefined, false),
  };
  return withChanges(whole, { spec: withChanges(spec, containers), metadata: annotated(whole, annotations) });
};

const filledPod = (policy: Policy, pod: Pod): Pod => {
  const { spec } = pod;
  if (!spec) return pod;
  const { supplementalGroups, fsGroup, runtimeClass } = policy.spec;
  const present = spec.securityContext ?? {};
  const group = groupFor(supplementalGroups);
  const seccomp = seccompForPod(policy, pod);
  const securityContext = withChanges(present, {
    supplementalGroups: present.supplementalGroups ?? (group === undefined ? undefined : [group]),
    fsGroup: present.fsGroup ?? groupFor(fsGroup),
    seLinuxOptions: present.seLinuxOptions ?? seLinuxFor(policy),
    seccompProfile: seccomp.field,
  });
  return withChanges(pod, {
    metadata: annotated(pod, seccomp.annotations),
    spec: withChanges(spec, {
      securityContext: securityContext === present ? spec.securityContext : securityContext,
      runtimeClassName: spec.runtimeClassName ?? runtimeClass?.defaultRuntimeClassName,
    }),
  });
};

const contextFor = (
  policy: Policy,
  pod: Pod,
  container: AnyContainer,
  appArmorProfile: SecurityContext["appArmorProfile"],
): SecurityContext | undefined => {
  const { readOnlyRootFilesystem, defaultAllowPrivilegeEscalation, allowPrivilegeEscalation } = policy.spec;
  const present = container.securityContext ?? {};
  const runs = runsAs(pod, container);
  const context = withChanges(present, {
    ...userFor(policy, runs),
    runAsGroup: runs.runAsGroup === undefined ? groupFor(policy.spec.runAsGroup) : undefined,
    seLinuxOptions: runs.seLinuxOptions === undefined ? seLinuxFor(policy) : undefined,
    appArmorProfile,
    seccompProfile: seccompForContainer(pod, container),
    capabilities: capabilitiesFor(policy, present.capabilities),
    readOnlyRootFilesystem: present.readOnlyRootFilesystem ?? (readOnlyRootFilesystem || undefined),
    allowPrivilegeEscalation:
      present.allowPrivilegeEscalation ??
      defaultAllowPrivilegeEscalation ??
      (allowPrivilegeEscalation === false ? false : undefined),
  });
  return context === present ? container.securityContext : context;
};

const annotated = ({ metadata = {} }: Pod, added: Record<string, string> = {}) => {
  const present = metadata.annotations ?? {};
  const annotations = withChanges(present, added);
  return withChanges(metadata, { annotations: annotations === present ? undefined : annotations });
};

/** Returns the same object if nothing changes, so that callers can compare by identity. */
const withChanges = <T extends object>(object: T, changes: { [Key in keyof T]?: T[Key] | undefined }): T => {
  const made = Object.entries(changes).filter(
    ([key, value]) => value !== undefined && value !== Reflect.get(object, key),
  );
  return made.length > 0 ? { ...object, ...Object.fromEntries(made) } : object;
};

/** Reports whether only new ephemeral containers were filled in; the rest of a running pod can't change. */
export const isOnlyInNewDebuggers = (pod: Pod, filled: Pod, old: Pod): boolean => {
  const { ephemeralContainers: before = [], ...spec } = pod.spec ?? {};
  const { ephemeralContainers: after = [], ...filledSpec } = filled.spec ?? {};
  const known = new Set(old.spec?.ephemeralContainers?.map(({ name }) => name));
  return (
    filled.metadata === pod.metadata &&
    Object.entries(filledSpec).every(([key, value]) => value === Reflect.get(spec, key)) &&
    after.every((container, index) => container === before[index] || !known.has(container.name))
  );
};
