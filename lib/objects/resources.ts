import type { Container, Pod } from "../kubernetes/core/v1.ts";
import { addQuantities, compareQuantities, type Quantity, requireQuantity } from "./quantity.ts";

export type QuantityByResource = ReadonlyMap<string, Quantity>;

export const parseAmounts = (stated: Record<string, string> = {}): QuantityByResource =>
  new Map(Object.entries(stated).map(([resource, written]) => [resource, requireQuantity(written)]));

export const addAmounts = (left: QuantityByResource, right: QuantityByResource): QuantityByResource =>
  sumAmounts([left, right]);

export const sumAmounts = (all: readonly QuantityByResource[]): QuantityByResource =>
  combineAmounts(all, addQuantities);

export const maximizeAmounts = (all: readonly QuantityByResource[]): QuantityByResource =>
  combineAmounts(all, chooseLarger);

const chooseLarger = (first: Quantity, second: Quantity) => (compareQuantities(second, first) > 0 ? second : first);

/** Combines amounts into one map: a copy for each of thousands of containers would take a time with their square. */
const combineAmounts = (all: readonly QuantityByResource[], combine: typeof addQuantities): QuantityByResource => {
  const combined = new Map<string, Quantity>();
  for (const amounts of all) for (const entry of amounts) putAmount(combined, entry, combine);
  return combined;
};

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
 * another before the regular ones; those that are always restarted keep running beside all later ones.
 */
export const computePeakUse = (
  { spec }: Pod,
  listAmounts: (container: Container) => QuantityByResource,
): QuantityByResource => {
  const staying = new Map<string, Quantity>();
  const starting = new Map<string, Quantity>();
  for (const container of spec?.initContainers ?? [])
    for (const [resource, amount] of listAmounts(container)) {
      const stayed = staying.get(resource);
      if (container.restartPolicy === "Always") {
        const sum = stayed ? addQuantities(stayed, amount) : amount;
        staying.set(resource, sum);
        putAmount(starting, [resource, sum], chooseLarger);
      } else putAmount(starting, [resource, stayed ? addQuantities(amount, stayed) : amount], chooseLarger);
    }
  const running = (spec?.containers ?? []).map(listAmounts);
  return maximizeAmounts([sumAmounts([...running, staying]), starting]);
};

/** Reports whether a resource can be set for a whole pod. */
export const isPodLevelResource = (resource: string): boolean =>
  resource === "cpu" || resource === "memory" || resource.startsWith("hugepages-");

/** Returns a pod's requests or limits, without overhead. Amounts set for the whole pod replace its containers' sum. */
export const computePodAmounts = (
  pod: Pod,
  kind: "requests" | "limits",
  isShared = isPodLevelResource,
): QuantityByResource => {
  const shared = [...parseAmounts(pod.spec?.resources?.[kind])].filter(([resource]) => isShared(resource));
  return new Map([...computePeakUse(pod, ({ resources }) => parseAmounts(resources?.[kind])), ...shared]);
};

/** Reports whether a resource is extended, by upstream's rules; `requests.<name>` must be a qualified name. */
export const isExtendedResource = (name: string): boolean =>
  !name.includes("kubernetes.io/") && !name.startsWith("requests.") && isQualifiedName(`requests.${name}`);

const label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const qualified = new RegExp(`^(?=[^/]{1,253}/)${label}([.]${label})*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$`);
const isQualifiedName = (name: string) => qualified.test(name);
