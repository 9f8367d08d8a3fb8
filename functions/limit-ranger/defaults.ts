import type { Container, LimitRange, Pod } from "postern/kubernetes/core/v1";

type Amounts = Record<string, string>;

export const addDefaults = (pod: Pod, { spec }: LimitRange): void => {
  const bounds = (spec?.limits ?? []).filter(({ type }) => type === "Container");
  const [requests, limits] = [
    mergeAmounts(bounds.map((bound) => bound.defaultRequest)),
    mergeAmounts(bounds.map((bound) => bound.default)),
  ];

  const addToContainers = (containers: Container[] | undefined, what: string) =>
    (containers ?? []).flatMap((container) => [
      ...describeAdded(addMissing(container, "requests", requests), `request for ${what} ${container.name ?? ""}`),
      ...describeAdded(addMissing(container, "limits", limits), `limit for ${what} ${container.name ?? ""}`),
    ]);
  const all = [
    ...addToContainers(pod.spec?.containers, "container"),
    ...addToContainers(pod.spec?.initContainers, "init container"),
  ];
  if (all.length === 0) return;

  const annotations = { "kubernetes.io/limit-ranger": `LimitRanger plugin set: ${all.join("; ")}` };
  pod.metadata = { ...pod.metadata, annotations: { ...pod.metadata?.annotations, ...annotations } };
};

const mergeAmounts = (lists: (Amounts | undefined)[]): Amounts =>
  Object.fromEntries(lists.flatMap((list) => Object.entries(list ?? {})));

/** Adds the defaults that a container lacks; returns the resources that got one. An amount of 0 isn't missing. */
const addMissing = (container: Container, kind: "requests" | "limits", defaults: Amounts): string[] => {
  const present: Amounts = container.resources?.[kind] ?? {};
  const missing = Object.entries(defaults).filter(([resource]) => !Object.hasOwn(present, resource));
  if (missing.length > 0)
    container.resources = { ...container.resources, [kind]: { ...present, ...Object.fromEntries(missing) } };
  return missing.map(([resource]) => resource).sort();
};

const describeAdded = (resources: string[], what: string) =>
  resources.length > 0 ? [`${resources.join(", ")} ${what}`] : [];
