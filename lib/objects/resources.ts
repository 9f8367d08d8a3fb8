import type { Container, Pod } from "kubernetes-types/core/v1.d.ts";
import { add, compareQuantities, type Quantity, quantity } from "./quantity.ts";

/** Quantities by resource, as an object states them. */
export interface Stated {
  requests?: Record<string, string>;
  limits?: Record<string, string>;
}

/** With what a pod sets for all its containers together; younger than kubernetes-types. */
export type SharingPod = Pod & { spec?: { resources?: Stated } };

/** Quantities by resource. */
export type Amounts = ReadonlyMap<string, Quantity>;

export const amountsOf = (stated: Record<string, string> = {}): Amounts =>
  new Map(Object.entries(stated).map(([resource, written]) => [resource, quantity(written)]));

/** Of each resource both amounts together. */
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
 * What a pod's containers take at most at one time, as the scheduler counts. Init containers run one after another
 * before the regular ones; those that are always restarted stay beside all that come after them.
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

/** What the spec of a pod says that it takes, without overhead. What it sets for all its containers replaces their sum. */
export const amountsInSpec = (
  pod: SharingPod,
  kind: keyof Stated,
  isShared = (resource: string) => resource === "cpu" || resource === "memory" || resource.startsWith("hugepages-"),
): Amounts => {
  const shared = [...amountsOf(pod.spec?.resources?.[kind])].filter(([resource]) => isShared(resource));
  return new Map([...takenAtOnce(pod, ({ resources }) => amountsOf(resources?.[kind])), ...shared]);
};
