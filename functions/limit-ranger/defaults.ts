import type { Container, LimitRange, Pod } from "postern/kubernetes/core/v1";

type Amounts = Record<string, string>;

/** Sets the defaults of a LimitRange in a pod's containers. An annotation lists what was set, as in upstream. */
export const addDefaults = (pod: Pod, { spec }: LimitRange): void => {
  const bounds = (spec?.limits ?? []).filter(({ type }) => type === "Container");
  const requests = mergeAmounts(bounds.map((bound) => bound.defaultRequest));
  const limits = mergeAmounts(bounds.map((bound) => bound.default));

  const descriptions: string[] = [];
  const addToContainers = (containers: Container[] | undefined, what: string) => {
    for (const container of containers ?? []) {
      const { name = "", resources } = container;
      const withRequests = addMissing(resources?.requests, requests);
      const withLimits = addMissing(resources?.limits, limits);
      if (withRequests) descriptions.push(`${withRequests.added.join(", ")} request for ${what} ${name}`);
      if (withLimits) descriptions.push(`${withLimits.added.join(", ")} limit for ${what} ${name}`);
      // Each container is written only once, because a pod may have tens of thousands of containers.
      if (withRequests || withLimits)
        container.resources = {
          ...resources,
          ...(withRequests && { requests: withRequests.amounts }),
          ...(withLimits && { limits: withLimits.amounts }),
        };
    }
  };
  addToContainers(pod.spec?.containers, "container");
  addToContainers(pod.spec?.initContainers, "init container");
  if (descriptions.length === 0) return;
  const annotations = { "kubernetes.io/limit-ranger": `LimitRanger plugin set: ${descriptions.join("; ")}` };
  pod.metadata = { ...pod.metadata, annotations: { ...pod.metadata?.annotations, ...annotations } };
};

/** Merges amounts, of which the last for a resource counts; also returns the sorted names of the resources. */
const mergeAmounts = (lists: (Amounts | undefined)[]) => {
  const amounts: Amounts = Object.fromEntries(lists.flatMap((list) => Object.entries(list ?? {})));
  return { amounts, resources: Object.keys(amounts).sort() };
};

/**
 * Returns `present` together with the defaults of resources that it lacks, and the names of these resources; undefined
 * if it lacks none. An amount of 0 isn't missing.
 */
const addMissing = (present: Amounts | undefined, defaults: ReturnType<typeof mergeAmounts>) => {
  if (defaults.resources.length === 0) return undefined;
  if (!present) return { amounts: defaults.amounts, added: defaults.resources };
  const added = defaults.resources.filter((resource) => !Object.hasOwn(present, resource));
  return added.length > 0 ? { amounts: { ...defaults.amounts, ...present }, added } : undefined;
};
