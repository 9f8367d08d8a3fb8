import type { EphemeralContainer, Pod, PodTemplateSpec } from "postern/kubernetes/core/v1";
import { listContainers } from "postern/objects/pod";
import type { PodSubject } from "./checks/check-builders.ts";
import type { PodSecuritySettings } from "./settings.ts";

/** Returns the parts of a pod or pod template that the checks read. */
export const toSubject = (pod: Pod | PodTemplateSpec): PodSubject => ({
  spec: pod.spec ?? { containers: [] },
  annotations: pod.metadata?.annotations ?? {},
  containers: listContainers(pod).map(({ container }) => container),
});

/** Reports whether a pod is exempt from Pod Security by its RuntimeClass, which isolates it in another way. */
export const hasExemptRuntimeClass = ({ spec }: Pod | PodTemplateSpec, { exemptions }: PodSecuritySettings) =>
  !!spec?.runtimeClassName && exemptions.runtimeClasses.includes(spec.runtimeClassName);

/** Reports whether an update adds containers or changes images. Other changes of a pod don't affect the checks. */
export const changesContainersOrImages = ({ spec }: Pod, { spec: old }: Pod): boolean => {
  const oldKeys = new Set(old?.ephemeralContainers?.map(toContainerKey));
  return (
    (["containers", "initContainers"] as const).some((kind) => {
      const [containers, oldContainers] = [spec?.[kind] ?? [], old?.[kind] ?? []];
      return (
        containers.length !== oldContainers.length ||
        containers.some(({ image }, index) => (image ?? "") !== (oldContainers[index]?.image ?? ""))
      );
    }) || (spec?.ephemeralContainers ?? []).some((container) => !oldKeys.has(toContainerKey(container)))
  );
};

const toContainerKey = ({ name, image = "" }: EphemeralContainer) => JSON.stringify([name, image]);

/** The places of the Pod template in objects of different kinds, such as PodTemplate, Deployment and CronJob. */
export interface PodTemplateHolder {
  template?: PodTemplateSpec;
  spec?: { template?: PodTemplateSpec; jobTemplate?: { spec?: { template?: PodTemplateSpec } } };
}

export const getTemplate = ({ template, spec }: PodTemplateHolder): PodTemplateSpec | undefined =>
  template ?? spec?.jobTemplate?.spec?.template ?? spec?.template;
