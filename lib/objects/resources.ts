import type { Container, Pod } from "../kubernetes/core/v1.ts";
import { addQuantities, compareQuantities, type Quantity, requireQuantity } from "./quantity.ts";

export type QuantityByResource = ReadonlyMap<string, Quantity>;

export const parseAmounts = (stated: Record<string, string> = {}): QuantityByResource =>
  new Map(Object.entries(stated).map(([resource, written]) => [resource, requireQuantity(written)]));

export const addAmounts = (left: QuantityByResource, right: QuantityByResource): QuantityByResource =>
  combineAmounts(left, right, addQuantities);

const maximizeAmounts = (left: QuantityByResource, right: QuantityByResource): QuantityByResource =>
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

/** Returns a pod's requests or limits, without overhead. Amounts set for the whole pod replace its containers' sum. */
export const computePodAmounts = (
  pod: Pod,
  kind: "requests" | "limits",
  isShared = (resource: string) => resource === "cpu" || resource === "memory" || resource.startsWith("hugepages-"),
): QuantityByResource => {
  const shared = [...parseAmounts(pod.spec?.resources?.[kind])].filter(([resource]) => isShared(resource));
  return new Map([...computePeakUse(pod, ({ resources }) => parseAmounts(resources?.[kind])), ...shared]);
};
