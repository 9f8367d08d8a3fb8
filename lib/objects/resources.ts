import type { Container, Pod } from "../kubernetes/core/v1.ts";
import { addQuantities, compareQuantities, type Quantity, requireQuantity } from "./quantity.ts";

export type QuantityByResource = ReadonlyMap<string, Quantity>;

export const parseAmounts = (texts: Record<string, string> = {}): QuantityByResource =>
  new Map(Object.entries(texts).map(([resource, written]) => [resource, requireQuantity(written)]));

export const addAmounts = (left: QuantityByResource, right: QuantityByResource): QuantityByResource =>
  sumAmounts([left, right]);

export const sumAmounts = (amountsList: readonly QuantityByResource[]): QuantityByResource =>
  combineAmounts(amountsList, addQuantities);

/** Returns the largest amount of each resource. */
export const maximizeAmounts = (amountsList: readonly QuantityByResource[]): QuantityByResource =>
  combineAmounts(amountsList, chooseLarger);

const chooseLarger = (first: Quantity, second: Quantity) => (compareQuantities(second, first) > 0 ? second : first);

/**
 * Combines the amounts of each resource. It fills one map: a copy of the map for each container would take quadratic
 * time for thousands of containers.
 */
const combineAmounts = (
  amountsList: readonly QuantityByResource[],
  combine: typeof addQuantities,
): QuantityByResource => {
  const combined = new Map<string, Quantity>();
  for (const amounts of amountsList) for (const entry of amounts) putAmount(combined, entry, combine);
  return combined;
};

/** Sets a resource's amount. If one is set already, `combine` makes a single amount of both, for instance their sum. */
const putAmount = (
  amounts: Map<string, Quantity>,
  [resource, amount]: [string, Quantity],
  combine: typeof addQuantities,
) => {
  const present = amounts.get(resource);
  amounts.set(resource, present ? combine(present, amount) : amount);
};

/**
 * Returns the most that a pod's containers use at one time, as the scheduler counts. Init containers run one after
 * another before the regular containers. An init container with restartPolicy Always (a sidecar) keeps running beside
 * all containers that follow it.
 */
export const computePeakUse = (
  { spec }: Pod,
  listAmounts: (container: Container) => QuantityByResource,
): QuantityByResource => {
  /** The sum of the sidecars so far. */
  const sidecars = new Map<string, Quantity>();
  /** The most that is used at one time before the regular containers start. */
  const startPeak = new Map<string, Quantity>();
  for (const container of spec?.initContainers ?? [])
    for (const [resource, amount] of listAmounts(container)) {
      const sidecarAmount = sidecars.get(resource);
      if (container.restartPolicy === "Always") {
        const sum = sidecarAmount ? addQuantities(sidecarAmount, amount) : amount;
        sidecars.set(resource, sum);
        putAmount(startPeak, [resource, sum], chooseLarger);
      } else
        putAmount(startPeak, [resource, sidecarAmount ? addQuantities(amount, sidecarAmount) : amount], chooseLarger);
    }
  const regular = (spec?.containers ?? []).map(listAmounts);
  return maximizeAmounts([sumAmounts([...regular, sidecars]), startPeak]);
};

/** Reports whether a resource can be set in `spec.resources`, for a whole pod. */
export const isPodLevelResource = (resource: string): boolean =>
  resource === "cpu" || resource === "memory" || resource.startsWith("hugepages-");

/** Returns a pod's requests or limits, without overhead. Amounts in `spec.resources` replace those of containers. */
export const computePodAmounts = (
  pod: Pod,
  kind: "requests" | "limits",
  isPodLevel = isPodLevelResource,
): QuantityByResource => {
  const podLevel = [...parseAmounts(pod.spec?.resources?.[kind])].filter(([resource]) => isPodLevel(resource));
  return new Map([...computePeakUse(pod, ({ resources }) => parseAmounts(resources?.[kind])), ...podLevel]);
};

/** Reports whether a resource is extended, such as example.com/gpu. As upstream, tests `requests.<name>` as a name. */
export const isExtendedResource = (name: string): boolean =>
  !name.includes("kubernetes.io/") && !name.startsWith("requests.") && isQualifiedName(`requests.${name}`);

const label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
/** A prefix of at most 253 characters, such as `requests.example.com`, a slash, and a name of at most 63 characters. */
const qualified = new RegExp(`^(?=[^/]{1,253}/)${label}([.]${label})*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$`);
const isQualifiedName = (name: string) => qualified.test(name);
