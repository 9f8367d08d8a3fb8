import type { Pod, SecurityContext } from "postern/kubernetes/core/v1";
import { listContainers } from "postern/objects/pod";
import { addPolicyDefaults } from "./defaults.ts";
import { listPodOffences } from "./pod-offences.ts";
import { isWithinRanges, type PodSecurityPolicyObject } from "./policy.ts";

/** Fields of a securityContext to delete if a policy forbids their values. Without them, it sets its defaults. */
const deletableFields = (
  "fsGroup supplementalGroups runAsUser runAsGroup runAsNonRoot seLinuxOptions seccompProfile appArmorProfile " +
  "procMount readOnlyRootFilesystem allowPrivilegeEscalation"
).split(" ");

/**
 * Changes a pod: removes or replaces fields that break a PodSecurityPolicy. Afterwards, the pod may still break the
 * policy.
 */
export const fixPodForSecurityPolicy = (pod: Pod, policy: PodSecurityPolicyObject): void => {
  const { spec, metadata } = pod;
  if (!spec) return;
  const paths = [...listPodOffences(policy, addPolicyDefaults(policy, pod))].map(
    (offence) => offence.split(": ", 1)[0] ?? "",
  );
  // The names in the paths: `spec.securityContext.hostNetwork` has the name hostNetwork.
  const words = new Set(paths.flatMap((path) => path.split(/[.[\]]+/)));

  for (const key of ["hostNetwork", "hostPID", "hostIPC", "runtimeClassName"] as const)
    if (words.has(key)) delete spec[key];
  for (const key of Object.keys(metadata?.annotations ?? {}))
    if (paths.some((path) => path.endsWith(`annotations[${key}]`))) delete metadata?.annotations?.[key];
  const sysctls = spec.securityContext?.sysctls?.filter(
    (_, index) => !paths.some((path) => path.endsWith(`sysctls[${index}]`)),
  );
  if (spec.securityContext && words.has("sysctls")) spec.securityContext.sysctls = sysctls ?? [];
  // A forbidden volume becomes a PersistentVolumeClaim: mounts stay valid, and the pod waits until the claim exists.
  if (spec.volumes)
    spec.volumes = spec.volumes.map((volume, index) =>
      paths.some((path) => `${path}.`.startsWith(`spec.volumes[${index}].`))
        ? { name: volume.name, persistentVolumeClaim: { claimName: volume.name } }
        : volume,
    );
  const containers = listContainers(pod);
  // In upstream's paths, the name runAsGroup is missing: they end with `securityContext` (isGroupPath).
  for (const { securityContext } of [spec, ...containers.map(({ container }) => container)])
    deleteFields(
      securityContext,
      policy,
      (field) => words.has(field) || (field === "runAsGroup" && paths.some(isGroupPath)),
    );
  for (const { container, path } of containers) {
    for (const port of container.ports ?? [])
      if (port.hostPort && !isWithinRanges(port.hostPort, policy.spec.hostPorts)) delete port.hostPort;
    for (const [index, mount] of (container.volumeMounts ?? []).entries())
      if (paths.includes(`${path}.volumeMounts[${index}].readOnly`)) mount.readOnly = true;
  }
};

/**
 * Reports whether a refusal is about runAsGroup: only then, upstream's path ends with `containers[0].securityContext`.
 */
const isGroupPath = (path: string) => path.startsWith("spec.") && /ontainers\[\d+\]\.securityContext$/.test(path);

/** Deletes the fields of a securityContext that a policy forbids, to suggest a pod that fits the policy. */
const deleteFields = (
  context: SecurityContext = {},
  { spec }: PodSecurityPolicyObject,
  isForbidden: (field: string) => boolean,
): void => {
  for (const field of deletableFields) if (isForbidden(field)) Reflect.deleteProperty(context, field);
  if (!spec.privileged && context.privileged) delete context.privileged;
  if (!spec.privileged) delete context.windowsOptions?.hostProcess;
  const { defaultAddCapabilities = [], allowedCapabilities = [] } = spec;
  const addable = [...defaultAddCapabilities, ...allowedCapabilities];
  const { capabilities } = context;
  if (capabilities?.add && !addable.includes("*"))
    capabilities.add = capabilities.add.filter((capability) => addable.includes(capability));
};
