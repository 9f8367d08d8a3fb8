import type { Container, Pod } from "kubernetes-types/core/v1.d.ts";
import { add, compareQuantities, type Quantity, quantity } from "./quantity.ts";

export interface Stated {
  requests?: Record<string, string>;
  limits?: Record<string, string>;
}

/** A pod with resources for all its containers together; newer than kubernetes-types. */
export type SharingPod = Pod & { spec?: { resources?: Stated } };

export type Amounts = ReadonlyMap<string, Quantity>;

export const amountsOf = (stated: Record<string, string> = {}): Amounts =>
  new Map(Object.entries(stated).map(([resource, written]) => [resource, quantity(written)]));

export const together = (one: Amounts, other: Amounts): Amounts => combined(one, other, add);

const larger = (one: Amounts, other: Amounts): Amounts =>
  combined(one, other, (first, second) => (compareQuantities(second, first) > 0 ? second : first));

const combined = (one: Amounts, other: Amounts, combine: typeof add): Amounts => {
  const both = new Map(one);
  for (const [resource, amount] of other) {
    const present = both.get(resource);
    both.set(resource, present ? combine(present, amount) : amount);
  }
  return both;
};

/**
 * Returns the most that a pod's containers use at one time, as the scheduler counts. Init containers run one after
 * another before the regular ones; those that are always restarted keep running beside all later ones.
 */
export const takenAtOnce = ({ spec }: Pod, by: (container: Container) => Amounts): Amounts => {
  let staying: Amounts = new Map();
  let starting: Amounts = new Map();
  for (const container of spec?.initContainers ?? []) {
    const stays = container.restartPolicy === "Always";
    if (stays) staying = together(staying, by(container));
    starting = larger(starting, stays ? staying : together(by(container), staying));
  }
  const running = (spec?.containers ?? []).map(by).reduce(together, new Map());
  return larger(together(running, staying), starting);
};

/** Returns a pod's requests or limits, without overhead. Amounts set for the whole pod replace its containers' sum. */
export const amountsInSpec = (
  pod: SharingPod,
  kind: keyof Stated,
  isShared = (resource: string) => resource === "cpu" || resource === "memory" || resource.startsWith("hugepages-"),
): Amounts => {
  const shared = [...amountsOf(pod.spec?.resources?.[kind])].filter(([resource]) => isShared(resource));
  return new Map([...takenAtOnce(pod, ({ resources }) => amountsOf(resources?.[kind])), ...shared]);
};
