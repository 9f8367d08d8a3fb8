import type { Container, LimitRange, Pod } from "kubernetes-types/core/v1.d.ts";

type Amounts = Record<string, string>;

export const fillIn = (pod: Pod, { spec }: LimitRange): void => {
  const bounds = (spec?.limits ?? []).filter(({ type }) => type === "Container");
  const [requests, limits] = [
    merged(bounds.map((one) => one.defaultRequest)),
    merged(bounds.map((one) => one.default)),
  ];

  const notes = (containers: Container[] | undefined, what: string) =>
    (containers ?? []).flatMap((container) => [
      ...note(added(container, "requests", requests), `request for ${what} ${container.name ?? ""}`),
      ...note(added(container, "limits", limits), `limit for ${what} ${container.name ?? ""}`),
    ]);
  const all = [...notes(pod.spec?.containers, "container"), ...notes(pod.spec?.initContainers, "init container")];
  if (all.length === 0) return;

  const annotations = { "kubernetes.io/limit-ranger": `LimitRanger plugin set: ${all.join("; ")}` };
  pod.metadata = { ...pod.metadata, annotations: { ...pod.metadata?.annotations, ...annotations } };
};

const merged = (lists: (Amounts | undefined)[]): Amounts =>
  Object.fromEntries(lists.flatMap((list) => Object.entries(list ?? {})));

/** An amount of 0 counts as present. */
const added = (container: Container, kind: "requests" | "limits", defaults: Amounts): string[] => {
  const present: Amounts = container.resources?.[kind] ?? {};
  const missing = Object.entries(defaults).filter(([resource]) => !Object.hasOwn(present, resource));
  if (missing.length > 0)
    container.resources = { ...container.resources, [kind]: { ...present, ...Object.fromEntries(missing) } };
  return missing.map(([resource]) => resource).sort();
};

const note = (resources: string[], what: string) => (resources.length > 0 ? [`${resources.join(", ")} ${what}`] : []);
