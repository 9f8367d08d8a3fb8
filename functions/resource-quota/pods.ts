import { toMap } from "postern/json";
import type { Container, ContainerStatus, Pod, PodAffinityTerm } from "postern/kubernetes/core/v1";
import { listContainers } from "postern/objects/pod";
import { requireQuantity } from "postern/objects/quantity";
import {
  addAmounts,
  computePeakUse,
  isExtendedResource,
  isPodLevelResource,
  maximizeAmounts,
  parseAmounts,
  type QuantityByResource,
} from "postern/objects/resources";
import type { Evaluator } from "./evaluator.ts";
import { type Scope, selectsClass } from "./scopes.ts";
import type { QuotaGates } from "./versions.ts";

const countedNames = [
  "count/pods",
  "pods",
  ...["cpu", "memory", "ephemeral-storage"].flatMap((name) => [name, `requests.${name}`, `limits.${name}`]),
];

/** If a quota has one of these names, every container must state the amount. Upstream checks this for old clients. */
const required = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

const devicePrefix = "deviceclass.resource.kubernetes.io/";

/** Returns the functions that find out what a pod uses of a quota. */
export const createPodEvaluator = (now: Date, gates: QuotaGates): Evaluator<Pod> => ({
  selectNames: (names) =>
    names.filter(
      (name) =>
        countedNames.includes(name) ||
        name.startsWith("hugepages-") ||
        name.startsWith("requests.hugepages-") ||
        isExtendedQuotaName(name, gates),
    ),
  measure: (pod) => measurePod(pod, now, gates),
  findLack: (pod, names) =>
    gates.hasPodLevelResources && hasPodLevelResources(pod) ? undefined : describeUnstatedAmounts(pod, names),
  scopes: { classScope: "PriorityClass", includes: (scope, pod) => isInScope(scope, pod, gates) },
});

/** Reports whether a name in a quota limits requests of an extended resource, such as `requests.nvidia.com/gpu`. */
export const isExtendedQuotaName = (name: string, gates: QuotaGates): boolean =>
  name.startsWith("requests.") &&
  ((name.includes("/") && !name.includes("kubernetes.io/")) ||
    (gates.hasImplicitExtendedResources && name.startsWith(`requests.${devicePrefix}`)));

/** Returns the amounts that a pod uses. A pod that ended, or whose grace period is over, counts only as an object. */
export const measurePod = (pod: Pod, now: Date, gates: QuotaGates): QuantityByResource => {
  const counted = new Map([["count/pods", requireQuantity("1")]]);
  if (hasEnded(pod, now)) return counted;
  const overhead = parseAmounts(pod.spec?.overhead);
  const requests = addAmounts(measureContainers(pod, "requests", gates), overhead);
  const limits = measureContainers(pod, "limits", gates);
  const limited = new Map([...overhead].filter(([name]) => (limits.get(name)?.nanos ?? 0n) !== 0n));
  return new Map([
    ...counted,
    ["pods", requireQuantity("1")],
    ...nameAmounts(requests, addAmounts(limits, limited), gates),
  ]);
};

const hasEnded = ({ metadata, status }: Pod, now: Date): boolean => {
  if (status?.phase === "Failed" || status?.phase === "Succeeded") return true;
  const { deletionTimestamp, deletionGracePeriodSeconds } = metadata ?? {};
  if (deletionTimestamp === undefined || deletionGracePeriodSeconds === undefined) return false;
  return now.getTime() > Date.parse(deletionTimestamp) + deletionGracePeriodSeconds * 1000;
};

/** Returns requests and limits by the names in quotas: a request of cpu becomes `cpu` and `requests.cpu`. */
const nameAmounts = (
  requests: QuantityByResource,
  limits: QuantityByResource,
  gates: QuotaGates,
): QuantityByResource => {
  const isBasic = (name: string) => ["cpu", "memory", "ephemeral-storage"].includes(name);
  const isExtended = (name: string) =>
    isExtendedResource(name) || (gates.hasImplicitExtendedResources && name.startsWith(devicePrefix));
  return new Map([
    ...[...requests].flatMap(([name, amount]) => {
      const requested = [`requests.${name}`, amount] as const;
      if (isBasic(name) || name.startsWith("hugepages-")) return [[name, amount] as const, requested];
      return isExtended(name) ? [requested] : [];
    }),
    ...[...limits].filter(([name]) => isBasic(name)).map(([name, amount]) => [`limits.${name}`, amount] as const),
  ]);
};

type AmountKind = "requests" | "limits";

/** Returns the requests or limits of a pod without its overhead. */
const measureContainers = (pod: Pod, kind: AmountKind, gates: QuotaGates): QuantityByResource => {
  // A container's amounts in the spec and in the status can differ. Since 1.37, upstream sums each of them over the
  // containers, and takes the largest sum. Before, it took each container's largest amount, and summed these.
  const measured = gates.countsLargestPodSum ? findLargestSum(pod, kind) : sumLargestAmounts(pod, kind);
  if (!gates.hasPodLevelResources) return measured;
  const statedForPod = parseAmounts(pod.spec?.resources?.[kind]);
  return new Map([...measured, ...[...statedForPod].filter(([name]) => isPodLevelResource(name))]);
};

/**
 * Returns for each resource the largest of three sums over a pod's containers: of the `planned` amounts in the spec
 * (none if the kubelet can't carry out a resize), of the amounts that the kubelet has `granted`, and of the `present`
 * amounts. Without a present amount, a container counts with the granted one, and without that, with the planned one.
 */
const findLargestSum = (pod: Pod, kind: AmountKind): QuantityByResource => {
  const isImpossible = isResizeImpossible(pod);
  const statuses = indexStatuses(pod);
  const sum = (read: (container: Container, status?: ContainerStatus) => Record<string, string> | undefined) =>
    computePeakUse(pod, (container) => parseAmounts(read(container, statuses.get(container.name))));
  const getPlanned = ({ resources }: Container) => (isImpossible ? undefined : resources?.[kind]);
  // The status has granted requests, but no granted limits.
  const getGranted = (status?: ContainerStatus) => (kind === "requests" ? status?.allocatedResources : undefined);
  const granted = sum((container, status) => getGranted(status) ?? getPlanned(container));
  const present = sum((container, status) => status?.resources?.[kind] ?? getGranted(status) ?? getPlanned(container));
  const planned = sum(getPlanned);
  return maximizeAmounts([planned, present, granted]);
};

/**
 * Returns the requests or limits as upstream did before 1.37: computePeakUse sums the largest amount of each container.
 * It ignores the statuses of init containers except sidecars (`restartPolicy: Always`).
 */
const sumLargestAmounts = (pod: Pod, kind: AmountKind): QuantityByResource => {
  const isImpossible = isResizeImpossible(pod);
  const statuses = indexStatuses(pod);
  const starting = new Set(pod.spec?.initContainers?.filter(({ restartPolicy }) => restartPolicy !== "Always"));
  return computePeakUse(pod, (container) => {
    const stated = parseAmounts(container.resources?.[kind]);
    const status = starting.has(container) ? undefined : statuses.get(container.name);
    if (!status?.resources) return stated;
    const granted = kind === "requests" ? [parseAmounts(status.allocatedResources)] : [];
    const present = parseAmounts(status.resources[kind]);
    // If the kubelet can't carry out a resize, the amounts in the spec don't count.
    return maximizeAmounts([...(isImpossible ? [] : [stated]), present, ...granted]);
  });
};

/** Returns the statuses of containers by name. It is a map, because a forged pod may have thousands of containers. */
const indexStatuses = ({ status }: Pod): Map<string, ContainerStatus> =>
  new Map(
    // The list is reversed, so that the first of several statuses with the same name counts.
    [...(status?.containerStatuses ?? []), ...(status?.initContainerStatuses ?? [])]
      .reverse()
      .map((containerStatus) => [containerStatus.name, containerStatus]),
  );

const isResizeImpossible = ({ status }: Pod): boolean =>
  status?.conditions?.find(({ type }) => type === "PodResizePending")?.reason === "Infeasible";

const hasPodLevelResources = ({ spec }: Pod): boolean =>
  [spec?.resources?.requests, spec?.resources?.limits].some((stated) =>
    Object.keys(stated ?? {}).some(isPodLevelResource),
  );

/** Returns a sentence about the containers that don't state amounts which a quota with these names requires. */
const describeUnstatedAmounts = (pod: Pod, names: readonly string[]): string | undefined => {
  const lacks = required.flatMap((name) => {
    if (!names.includes(name)) return [];
    const [resource = "", kind] = name.startsWith("limits.")
      ? [name.slice("limits.".length), "limits" as const]
      : [name.replace("requests.", ""), "requests" as const];
    const containerNames = listContainers(pod, ["containers", "initContainers"])
      .filter(({ container }) => container.resources?.[kind]?.[resource] === undefined)
      .map(({ container }) => container.name);
    return containerNames.length > 0 ? [`${name} for: ${[...new Set(containerNames)].sort().join()}`] : [];
  });
  return lacks.length > 0 ? `must specify ${lacks.join("; ")}` : undefined;
};

/** Reports whether a pod has a deadline (`activeDeadlineSeconds`), after which it ends by itself. */
export const isTerminating = ({ spec }: { spec?: unknown }): boolean =>
  Number(toMap(spec).activeDeadlineSeconds ?? -1) >= 0;

/** Reports whether a scope of a quota, such as BestEffort, contains a pod. */
const isInScope = (scope: Scope, pod: Pod, gates: QuotaGates): boolean => {
  switch (scope.scopeName) {
    case "Terminating":
      return isTerminating(pod);
    case "NotTerminating":
      return !isTerminating(pod);
    case "BestEffort":
      return isBestEffort(pod, gates);
    case "NotBestEffort":
      return !isBestEffort(pod, gates);
    case "PriorityClass":
      return selectsClass(scope, pod.spec?.priorityClassName ? [pod.spec.priorityClassName] : []);
    case "CrossNamespacePodAffinity":
      return listAffinityTerms(pod).some(
        ({ namespaces = [], namespaceSelector }) => namespaces.length > 0 || namespaceSelector !== undefined,
      );
    default:
      return false;
  }
};

/** Reports whether a pod is of the QoS class BestEffort: by its status or, if that has no class, by its amounts. */
const isBestEffort = (pod: Pod, gates: QuotaGates): boolean => {
  const { qosClass } = pod.status ?? {};
  if (qosClass) return qosClass === "BestEffort";
  const stated =
    gates.hasPodLevelResources && hasPodLevelResources(pod)
      ? [pod.spec?.resources]
      : [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].map(({ resources }) => resources);
  return stated
    .flatMap((resources) => [resources?.requests, resources?.limits])
    .every((amounts = {}) =>
      [amounts.cpu, amounts.memory].every((amount = "0") => requireQuantity(amount).nanos === 0n),
    );
};

const listAffinityTerms = ({ spec }: Pod): PodAffinityTerm[] =>
  [spec?.affinity?.podAffinity, spec?.affinity?.podAntiAffinity].flatMap((rules) => [
    ...(rules?.requiredDuringSchedulingIgnoredDuringExecution ?? []),
    ...(rules?.preferredDuringSchedulingIgnoredDuringExecution ?? []).flatMap(
      ({ podAffinityTerm }) => podAffinityTerm ?? [],
    ),
  ]);
