import type { Pod } from "kubernetes-types/core/v1.d.ts";

/** Whether nothing was filled in but in ephemeral containers that are new; the rest of a running pod can't change. */
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
