import type { Container, LimitRange, Pod } from "postern/kubernetes/core/v1";

type Amounts = Record<string, string>;

export const addDefaults = (pod: Pod, { spec }: LimitRange): void => {
  const bounds = (spec?.limits ?? []).filter(({ type }) => type === "Container");
  const requests = mergeAmounts(bounds.map((bound) => bound.defaultRequest));
  const limits = mergeAmounts(bounds.map((bound) => bound.default));

  const all: string[] = [];
  const addToContainers = (containers: Container[] | undefined, what: string) => {
    for (const container of containers ?? []) {
      const { name = "", resources } = container;
      const withRequests = addMissing(resources?.requests, requests);
      const withLimits = addMissing(resources?.limits, limits);
      if (withRequests) all.push(`${withRequests.added.join(", ")} request for ${what} ${name}`);
      if (withLimits) all.push(`${withLimits.added.join(", ")} limit for ${what} ${name}`);
      // One write for each container: a pod may have tens of thousands.
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
  if (all.length === 0) return;

  const annotations = { "kubernetes.io/limit-ranger": `LimitRanger plugin set: ${all.join("; ")}` };
  pod.metadata = { ...pod.metadata, annotations: { ...pod.metadata?.annotations, ...annotations } };
};

const mergeAmounts = (lists: (Amounts | undefined)[]) => {
  const amounts: Amounts = Object.fromEntries(lists.flatMap((list) => Object.entries(list ?? {})));
  return { amounts, resources: Object.keys(amounts).sort() };
};

/** Returns amounts with the defaults that they lack, and the added resources. An amount of 0 isn't missing. */
const addMissing = (present: Amounts | undefined, defaults: ReturnType<typeof mergeAmounts>) => {
  if (defaults.resources.length === 0) return undefined;
  if (!present) return { amounts: defaults.amounts, added: defaults.resources };
  const added = defaults.resources.filter((resource) => !Object.hasOwn(present, resource));
  return added.length > 0 ? { amounts: { ...defaults.amounts, ...present }, added } : undefined;
};
