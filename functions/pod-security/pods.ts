import type { EphemeralContainer, Pod, PodTemplateSpec } from "kubernetes-types/core/v1.d.ts";
import { containersOf } from "postern/objects/pod";
import type { Subject } from "./checks/check.ts";
import type { Settings } from "./settings.ts";

export const subjectOf = (pod: Pod | PodTemplateSpec): Subject => {
  return {
    spec: pod.spec ?? { containers: [] },
    annotations: pod.metadata?.annotations ?? {},
    containers: containersOf(pod).map(({ container }) => container),
  };
};

/** Its RuntimeClass keeps it from the node in another way. */
export const isSparedByClass = ({ spec }: Pod | PodTemplateSpec, { exemptions }: Settings) =>
  !!spec?.runtimeClassName && exemptions.runtimeClasses.includes(spec.runtimeClassName);

/** Whether an update brings containers or images; what else can change in a pod makes it neither better nor worse. */
export const isSignificant = ({ spec }: Pod, { spec: old }: Pod): boolean => {
  const debuggers = new Set(old?.ephemeralContainers?.map(likeness));
  return (
    (["containers", "initContainers"] as const).some((kind) => {
      const [now, before] = [spec?.[kind] ?? [], old?.[kind] ?? []];
      return now.length !== before.length || now.some(({ image }, at) => (image ?? "") !== (before[at]?.image ?? ""));
    }) || (spec?.ephemeralContainers ?? []).some((one) => !debuggers.has(likeness(one)))
  );
};

const likeness = ({ name, image = "" }: EphemeralContainer) => JSON.stringify([name, image]);

/** A workload, as far as it has a template. */
export interface Workload {
  template?: PodTemplateSpec;
  spec?: { template?: PodTemplateSpec; jobTemplate?: { spec?: { template?: PodTemplateSpec } } };
}

/** Of a PodTemplate, of a CronJob, of all others. */
export const templateOf = ({ template, spec }: Workload): PodTemplateSpec | undefined =>
  template ?? spec?.jobTemplate?.spec?.template ?? spec?.template;
