import type { Pod, SecurityContext } from "postern/kubernetes/core/v1";
import { fillContainerCapabilities } from "./capabilities.ts";
import {
  type AnyContainer,
  chooseDefaultGroupId,
  chooseDefaultSeLinuxOptions,
  chooseDefaultUser,
  getEffectiveSecurityContext,
} from "./identity.ts";
import type { PodSecurityPolicyObject } from "./policy.ts";
import { chooseDefaultAppArmorProfile, choosePodSeccompProfile, findAnnotatedSeccompProfile } from "./profiles.ts";

/** Returns the pod with the policy's defaults for fields that are not set; the same object if nothing changes. */
export const addPolicyDefaults = (policy: PodSecurityPolicyObject, pod: Pod): Pod => {
  const podWithFields = fillPodFields(policy, pod);
  const { spec } = podWithFields;
  if (!spec) return podWithFields;
  const annotations: Record<string, string> = {};
  const fillContainers = <T extends AnyContainer>(containers: T[] | undefined, isAnnotated = true) => {
    const changed = containers?.map((container): T => {
      const appArmor = chooseDefaultAppArmorProfile(policy, podWithFields, container);
      if (isAnnotated) Object.assign(annotations, appArmor.annotations);
      const securityContext = fillContext(policy, podWithFields, container, appArmor.field);
      return securityContext === container.securityContext ? container : { ...container, securityContext };
    });
    return changed?.some((container, index) => container !== containers?.[index]) ? changed : containers;
  };
  const containers = {
    initContainers: fillContainers(spec.initContainers ?? undefined),
    containers: fillContainers(spec.containers ?? undefined),
    // `false`: the AppArmor annotations for ephemeral containers are not added, because a request that adds ephemeral
    // containers can't change annotations.
    ephemeralContainers: fillContainers(spec.ephemeralContainers ?? undefined, false),
  };
  return applyChanges(podWithFields, {
    spec: applyChanges(spec, containers),
    metadata: annotateMetadata(podWithFields, annotations),
  });
};

/** Returns the pod with the policy's defaults for fields of the whole pod; the same object if nothing changes. */
const fillPodFields = (policy: PodSecurityPolicyObject, pod: Pod): Pod => {
  const { spec } = pod;
  if (!spec) return pod;
  const { supplementalGroups, fsGroup, runtimeClass } = policy.spec;
  const present = spec.securityContext ?? {};
  const group = chooseDefaultGroupId(supplementalGroups);
  const seccomp = choosePodSeccompProfile(policy, pod);
  const securityContext = applyChanges(present, {
    supplementalGroups: present.supplementalGroups ?? (group === undefined ? undefined : [group]),
    fsGroup: present.fsGroup ?? chooseDefaultGroupId(fsGroup),
    seLinuxOptions: present.seLinuxOptions ?? chooseDefaultSeLinuxOptions(policy),
    seccompProfile: seccomp.field,
  });
  return applyChanges(pod, {
    metadata: annotateMetadata(pod, seccomp.annotations),
    spec: applyChanges(spec, {
      securityContext: securityContext === present ? spec.securityContext : securityContext,
      runtimeClassName: spec.runtimeClassName ?? runtimeClass?.defaultRuntimeClassName,
    }),
  });
};

/** Returns a container's security context with the policy's defaults; the same object if nothing changes. */
const fillContext = (
  policy: PodSecurityPolicyObject,
  pod: Pod,
  container: AnyContainer,
  appArmorProfile: SecurityContext["appArmorProfile"],
): SecurityContext | undefined => {
  const { readOnlyRootFilesystem, defaultAllowPrivilegeEscalation, allowPrivilegeEscalation } = policy.spec;
  const present = container.securityContext ?? {};
  const effective = getEffectiveSecurityContext(pod, container);
  const context = applyChanges(present, {
    ...chooseDefaultUser(policy, effective),
    runAsGroup: effective.runAsGroup === undefined ? chooseDefaultGroupId(policy.spec.runAsGroup) : undefined,
    seLinuxOptions: effective.seLinuxOptions === undefined ? chooseDefaultSeLinuxOptions(policy) : undefined,
    appArmorProfile,
    seccompProfile: findAnnotatedSeccompProfile(pod, container),
    capabilities: fillContainerCapabilities(policy, present.capabilities),
    readOnlyRootFilesystem: present.readOnlyRootFilesystem ?? (readOnlyRootFilesystem || undefined),
    allowPrivilegeEscalation:
      present.allowPrivilegeEscalation ??
      defaultAllowPrivilegeEscalation ??
      (allowPrivilegeEscalation === false ? false : undefined),
  });
  return context === present ? container.securityContext : context;
};

/** Returns a pod's metadata with these annotations; the same object if nothing changes. */
const annotateMetadata = ({ metadata = {} }: Pod, added: Record<string, string> = {}) => {
  const present = metadata.annotations ?? {};
  const annotations = applyChanges(present, added);
  // For applyChanges, undefined means no change.
  return applyChanges(metadata, { annotations: annotations === present ? undefined : annotations });
};

/** Returns the object with changes; the same object if nothing changes, so that callers can compare by identity. */
const applyChanges = <T extends object>(object: T, changes: { [Key in keyof T]?: T[Key] | undefined }): T => {
  const changed = Object.entries(changes).filter(
    ([key, value]) => value !== undefined && value !== Reflect.get(object, key),
  );
  return changed.length > 0 ? { ...object, ...Object.fromEntries(changed) } : object;
};

/** Reports whether defaults were set only in new ephemeral containers: no other part of a running pod can change. */
export const fillsOnlyNewEphemeralContainers = (pod: Pod, filled: Pod, old: Pod): boolean => {
  const { ephemeralContainers: before = [], ...spec } = pod.spec ?? {};
  const { ephemeralContainers: after = [], ...filledSpec } = filled.spec ?? {};
  const oldNames = new Set(old.spec?.ephemeralContainers?.map(({ name }) => name));
  // Parts without a change are the same objects in `filled` and in `pod`.
  return (
    filled.metadata === pod.metadata &&
    Object.entries(filledSpec).every(([key, value]) => value === Reflect.get(spec, key)) &&
    after.every((container, index) => container === before[index] || !oldNames.has(container.name))
  );
};
