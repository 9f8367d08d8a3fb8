// Functions with which `postern status` and `postern check` read the values in the ledger. No other file of the rule
// imports this file, so the rule's function in AWS doesn't contain it.
import { addQuantities, compareQuantities, subtractQuantities } from "postern/objects/quantity";
import type { Recounts } from "./recount.ts";
import {
  type Amounts,
  get,
  getPartKey,
  getQuotaKey,
  getReservation,
  hasMore,
  type Kept,
  type LedgerValues,
  partCount,
  replaceReservations,
  toAmounts,
} from "./reservations.ts";
import type { Quota } from "./settings.ts";

/**
 * What objects consume of a quota: `used` by objects that were read from the cluster after their last change, and
 * `reserved` by all other objects.
 */
export interface QuotaShare {
  used: Amounts;
  reserved: Amounts;
}

/**
 * A whole quota. `clusters` has the shares of the clusters that were read, and `used` is the sum of what these use.
 * `reserved` is the rest of the quota's charges: what these clusters reserve, and all that other clusters are charged.
 */
export interface QuotaState extends QuotaShare {
  hard: Amounts;
  clusters: Record<string, QuotaShare>;
}

/** When the last complete recount of a cluster ended, and what the last recount could not read or write. */
export interface RecountState {
  completed: string | null;
  faults: readonly string[];
}

/** Reads values of the rule's ledger, in the order of their keys. */
export type ValueReader = (keys: readonly string[]) => Promise<readonly unknown[]>;

/** Reads a cluster's amounts of a quota. The casts here are safe: only the rule writes values under its name. */
export const readShare = async (read: ValueReader, quota: string, cluster: string): Promise<QuotaShare> => {
  const parts = await read(Array.from({ length: partCount }, (_, part) => getPartKey(quota, cluster, part)));
  const reservations = (parts as readonly (Kept | undefined)[]).flatMap((part) => Object.values(part?.objects ?? {}));
  // A reservation in the phase "seen" has the amounts that the object in the cluster uses.
  const sumReservations = (isSeen: boolean) =>
    reservations
      .filter(({ phase }) => (phase === "seen") === isSeen)
      .reduce((sum, { used }) => combineAmounts(sum, used), {});
  return { used: sumReservations(true), reserved: sumReservations(false) };
};

/** Reads a quota with the sums of its clusters. Limits that live versions of the rule have recorded replace `hard`. */
export const readQuota = async (
  read: ValueReader,
  { name, hard }: Pick<Quota, "name" | "hard">,
  clusters: Record<string, QuotaShare>,
  now: number,
): Promise<QuotaState> => {
  const [quotaValue] = (await read([getQuotaKey(name)])) as (Kept | undefined)[];
  const used = Object.values(clusters).reduce((sum, share) => combineAmounts(sum, share.used), {});
  const liveHards = (quotaValue?.hards ?? []).filter(({ until }) => now < until);
  return {
    hard: findSmallest(liveHards.length > 0 ? liveHards.map((recorded) => recorded.hard) : [hard]),
    used,
    // `quotaValue.used` is what all objects use or reserve. Without what is used, the reserved amounts remain.
    reserved: combineAmounts(quotaValue?.used ?? {}, used, subtractQuantities),
    clusters,
  };
};

export const readRecounts = async (read: ValueReader, clusters: readonly string[]): Promise<RecountState[]> => {
  const values = await read(clusters.map((cluster) => `recount/${cluster}`));
  return (values as readonly (Recounts | undefined)[]).map(({ completed, last } = {}) => {
    return { completed: completed ? new Date(completed).toISOString() : null, faults: last?.faults ?? [] };
  });
};

/** Combines the amounts of each name, by default into their sum. The result has no amounts of zero. */
const combineAmounts = (left: Amounts, right: Amounts, combine = addQuantities): Amounts =>
  toAmounts(
    [...new Set([left, right].flatMap(Object.keys))].map((name) => [name, combine(get(left, name), get(right, name))]),
  );

/** Returns the smallest amount of each name: while two versions of the rule are live, the smaller `hard` applies. */
const findSmallest = (all: readonly Quota["hard"][]): Amounts => {
  const smallest: Record<string, string> = {};
  for (const [name, amount] of all.flatMap(Object.entries)) {
    const present = smallest[name];
    if (present === undefined || compareQuantities(String(amount), present) < 0) smallest[name] = String(amount);
  }
  return smallest;
};

/**
 * Returns the values for `keys` with which `postern check` reviews an object that it has already counted: without the
 * object's reservations, so that the review charges the object anew. An object without any was counted with its owner:
 * so that it isn't charged, `reserve` reserves more than it uses. A review charges only what exceeds the reservation.
 */
export const undoCount = (
  keys: readonly string[],
  values: readonly (Kept | undefined)[],
  object: string,
  reserve: (quota: string) => Amounts | undefined,
): (Kept | undefined)[] => {
  const ledgered: LedgerValues = new Map(keys.map((key, index) => [key, values[index]]));
  for (const part of keys) {
    const [kind, quota = "", , cluster = ""] = part.split("/");
    if (kind !== "part") continue;
    const place = { cluster, key: getQuotaKey(quota), part, object };
    const isReserved = getReservation(ledgered, place) !== undefined;
    const used = isReserved ? undefined : reserve(quota);
    if (isReserved) replaceReservations(ledgered, place, new Map([[object, undefined]]), 0);
    const reservation = used && { used, at: 0, phase: "seen" as const, version: "" };
    if (reservation) ledgered.set(part, { objects: { ...ledgered.get(part)?.objects, [object]: reservation } });
  }
  return keys.map((key) => ledgered.get(key));
};

/**
 * Returns a ledger value as `postern check` stores it after a review: without `unseen` amounts, reserved for objects
 * not found in a cluster yet, and without their sums (`clusters`). For a check, every counted object has been found.
 */
export const toStored = (ledgered: Kept | undefined): Kept | undefined => {
  if (!ledgered) return undefined;
  const { clusters: _, objects, ...rest } = ledgered;
  const withoutUnseen = Object.entries(objects ?? {}).map(([object, { unseen: _, ...reservation }]) => [
    object,
    reservation,
  ]);
  return { ...rest, ...(objects && { objects: Object.fromEntries(withoutUnseen) }) };
};

/** Returns the names of quotas whose sum is larger in `values` than in `before`. */
export const listCharged = (
  keys: readonly string[],
  values: readonly (Kept | undefined)[],
  before: readonly (Kept | undefined)[],
): string[] =>
  keys.flatMap((key, index) =>
    hasMore(values[index]?.used ?? {}, before[index]?.used ?? {}) ? [String(key.split("/")[1])] : [],
  );
