import type { Container, Pod } from "../kubernetes/core/v1.ts";
import { addQuantities, compareQuantities, type Quantity, requireQuantity } from "./quantity.ts";

export type QuantityByResource = ReadonlyMap<string, Quantity>;

export const parseAmounts = (stated: Record<string, string> = {}): QuantityByResource =>
  new Map(Object.entries(stated).map(([resource, written]) => [resource, requireQuantity(written)]));

export const addAmounts = (left: QuantityByResource, right: QuantityByResource): QuantityByResource =>
  combineAmounts(left, right, addQuantities);

export const maximizeAmounts = (left: QuantityByResource, right: QuantityByResource): QuantityByResource =>
  combineAmounts(left, right, (first, second) => (compareQuantities(second, first) > 0 ? second : first));

const combineAmounts = (
  left: QuantityByResource,
  right: QuantityByResource,
  combine: typeof addQuantities,
): QuantityByResource => {
  const both = new Map(left);
  for (const [resource, amount] of right) {
    const present = both.get(resource);
    both.set(resource, present ? combine(present, amount) : amount);
  }
  return both;
};

/**
 * Returns the most that a pod's containers use at one time, as the scheduler counts. Init containers run one after
 * another before the regular ones; those that are always restarted keep running beside all later ones.
 */
export const computePeakUse = (
  { spec }: Pod,
  listAmounts: (container: Container) => QuantityByResource,
): QuantityByResource => {
  let staying: QuantityByResource = new Map();
  let starting: QuantityByResource = new Map();
  for (const container of spec?.initContainers ?? []) {
    const stays = container.restartPolicy === "Always";
    if (stays) staying = addAmounts(staying, listAmounts(container));
    starting = maximizeAmounts(starting, stays ? staying : addAmounts(listAmounts(container), staying));
  }
  const running = (spec?.containers ?? []).map(listAmounts).reduce(addAmounts, new Map());
  return maximizeAmounts(addAmounts(running, staying), starting);
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
