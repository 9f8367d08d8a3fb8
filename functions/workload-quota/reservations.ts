import { isSame } from "postern/json";
import {
  addQuantities,
  canonicalizeQuantity,
  compareQuantities,
  type Quantity,
  requireQuantity,
  subtractQuantities,
  zeroQuantity,
} from "postern/objects/quantity";
import { getAmount, type Measure } from "./measure.ts";
import type { Quota } from "./settings.ts";

/** Amounts by the names that quotas have for them, as quantities. */
export type Amounts = Readonly<Record<string, string>>;

/** What one object has of a quota: the most that the cluster may store of it. */
export interface Reservation {
  used: Amounts;
  /** When this was last charged, released or seen, in milliseconds since 1970. */
  at: number;
  /**
   * "charged": a write may still come. "released": a write may have made the object smaller, or deleted it. "seen": the
   * cluster has been seen with just this.
   */
  phase: "charged" | "released" | "seen";
  /** The version in which the object was written last. */
  version: string;
  /** True if the object counts although a counted object controls it. */
  isOwned?: true;
}

/** The `hard` of a quota in one version of the rule's functions. During a canary there are two. */
interface RecordedHard {
  hard: Quota["hard"];
  until: number;
}

/** A value of the ledger: a quota with the sum of its reservations, or a part of the reservations. */
export interface Kept {
  used?: Amounts;
  hards?: readonly RecordedHard[];
  objects?: Readonly<Record<string, Reservation>>;
}

/** Values of the ledger by their keys. */
export type Ledgered = Map<string, Kept | undefined>;

/**
 * Milliseconds until no write that a review admitted can come any more: the API server's request timeout of 60 s, and
 * the most by which the clocks of two functions differ, because a ledger refuses a clock that is 5 s off.
 */
export const settleableAfter = 60_000 + 10_000;

/** The number of values over which the reservations of one quota in one cluster are spread. */
export const partCount = 64;

/** Where the reservation of an object is: the keys of two values of the ledger, and its key in the second. */
export interface ReservationPlace {
  scope: string;
  part: string;
  object: string;
}

export const getScopeKey = (quota: string): string => `quota/${quota}`;
export const getPartKey = (quota: string, cluster: string, part: number): string => `part/${quota}/${part}/${cluster}`;

export const computeHash = (text: string): number => {
  let hash = 0;
  for (let index = 0; index < text.length; index++) hash = (Math.imul(hash, 31) + text.charCodeAt(index)) >>> 0;
  return hash;
};

/** Returns the number of the part that has an object's reservation. */
export const getPartNumber = (object: string): number => computeHash(object) % partCount;

export const locate = (quota: string, cluster: string, object: string): ReservationPlace => ({
  scope: getScopeKey(quota),
  part: getPartKey(quota, cluster, getPartNumber(object)),
  object,
});

export const getReservation = (ledgered: Ledgered, { part, object }: ReservationPlace): Reservation | undefined => {
  const objects = ledgered.get(part)?.objects ?? {};
  return Object.hasOwn(objects, object) ? objects[object] : undefined;
};

/** Replaces some reservations of a part, and changes the quota's sum by the differences. Nothing else changes a sum. */
export const replaceReservations = (
  ledgered: Ledgered,
  { scope: scopeKey, part }: Omit<ReservationPlace, "object">,
  replaced: ReadonlyMap<string, Reservation | undefined>,
): void => {
  const objects = new Map(Object.entries(ledgered.get(part)?.objects ?? {}));
  const scope = ledgered.get(scopeKey) ?? {};
  const sum = new Map(Object.keys(scope.used ?? {}).map((name) => [name, get(scope.used, name)]));
  const add = (amounts: Amounts = {}, combine: typeof addQuantities) => {
    for (const name of Object.keys(amounts)) sum.set(name, combine(sum.get(name) ?? zeroQuantity, get(amounts, name)));
  };
  for (const [object, reservation] of replaced) {
    add(objects.get(object)?.used, subtractQuantities);
    add(reservation?.used, addQuantities);
    if (reservation) objects.set(object, reservation);
    else objects.delete(object);
  }
  ledgered.set(part, objects.size > 0 ? { objects: Object.fromEntries(objects) } : undefined);
  const used = toAmounts([...sum]);
  if (!isSame(used, scope.used ?? {})) ledgered.set(scopeKey, { ...scope, used });
};

const replaceReservation = (ledgered: Ledgered, place: ReservationPlace, reservation: Reservation | undefined): void =>
  replaceReservations(ledgered, place, new Map([[place.object, reservation]]));

const get = (amounts: Amounts = {}, name: string): Quantity => {
  const written = Object.hasOwn(amounts, name) ? amounts[name] : undefined;
  return written === undefined ? zeroQuantity : requireQuantity(written);
};

const toAmounts = (amounts: readonly (readonly [string, Quantity])[]): Amounts =>
  Object.fromEntries(
    amounts.flatMap(([name, amount]) => (amount.nanos === 0n ? [] : [[name, canonicalizeQuantity(amount)]])),
  );

/** Reports whether amounts have more of something than others. */
export const hasMore = (amounts: Amounts, others: Amounts): boolean =>
  Object.keys(amounts).some((name) => compareQuantities(get(amounts, name), get(others, name)) > 0);

/** Returns what an object has of a quota, by the names of `hard` and those that its reservation has. */
export const measureReservation = (measure: Measure, { hard }: Quota, before?: Reservation): Amounts => {
  const names = new Set([...Object.keys(hard), ...Object.keys(before?.used ?? {})]);
  return toAmounts([...names].map((name) => [name, getAmount(measure, name)]));
};

/** How long a version of `hard` counts after the last review by a function that has it. */
const hardMilliseconds = 10 * 60_000;

/** Records the `hard` of this function, and returns the smaller of all that are in use. */
export const recordHard = (
  ledgered: Ledgered,
  scopeKey: string,
  hard: Quota["hard"],
  now: number,
): Map<string, Quantity> => {
  const scope = ledgered.get(scopeKey) ?? {};
  const others = (scope.hards ?? []).filter((one) => now < one.until && !isSame(one.hard, hard));
  const own = scope.hards?.find((one) => isSame(one.hard, hard));
  const isFresh = own !== undefined && own.until - now > hardMilliseconds / 2;
  if (!isFresh)
    ledgered.set(scopeKey, { ...scope, hards: [...others, { hard: { ...hard }, until: now + hardMilliseconds }] });
  const smallest = new Map<string, Quantity>();
  for (const [name, written] of [hard, ...others.map((one) => one.hard)].flatMap((one) => Object.entries(one))) {
    const [amount, present] = [requireQuantity(written), smallest.get(name)];
    if (!present || compareQuantities(amount, present) < 0) smallest.set(name, amount);
  }
  return smallest;
};

/** An object's charge to a quota. */
export interface Charge {
  quota: Quota;
  place: ReservationPlace;
  measure: Measure;
  version: string;
  isOwned: boolean;
  /** False if only an object that has a reservation already is charged. */
  isNew: boolean;
}

/** What of a quota is exceeded by a charge. */
export interface Excess {
  quota: Quota;
  requested: Amounts;
  used: Amounts;
  limited: Amounts;
}

/** Charges a quota with the largest of what the object has of it and what it would use; or returns what is exceeded. */
export const charge = (
  ledgered: Ledgered,
  { quota, place, measure, version, isOwned, isNew }: Charge,
  now: number,
): Excess | undefined => {
  const before = getReservation(ledgered, place);
  if (!before && !isNew) return undefined;
  const limits = recordHard(ledgered, place.scope, quota.hard, now);
  const used = ledgered.get(place.scope)?.used;
  const largest = new Map(Object.keys(before?.used ?? {}).map((name) => [name, get(before?.used, name)]));
  const exceeded: [string, Quantity][] = [];
  for (const [name, limit] of limits) {
    const growth = subtractQuantities(getAmount(measure, name), get(before?.used, name));
    if (growth.nanos <= 0n) continue;
    largest.set(name, getAmount(measure, name));
    if (compareQuantities(addQuantities(get(used, name), growth), limit) > 0) exceeded.push([name, growth]);
  }
  if (exceeded.length > 0) {
    const select = (read: (name: string) => Quantity | undefined): Amounts =>
      Object.fromEntries(exceeded.map(([name]) => [name, canonicalizeQuantity(read(name) ?? zeroQuantity)]));
    const growths = new Map(exceeded);
    return {
      quota,
      requested: select((name) => growths.get(name)),
      used: select((name) => get(used, name)),
      limited: select((name) => limits.get(name)),
    };
  }
  const owned = isOwned || before?.isOwned ? { isOwned: true as const } : {};
  replaceReservation(ledgered, place, { used: toAmounts([...largest]), at: now, phase: "charged", version, ...owned });
};

/** Notes that an object may have become smaller, or be gone. Its reservation stays until the cluster has been seen. */
export const release = (ledgered: Ledgered, place: ReservationPlace, now: number): void => {
  const before = getReservation(ledgered, place);
  if (before) replaceReservation(ledgered, place, { ...before, at: now, phase: "released" });
};

/** Replaces a reservation by what the cluster was seen with, unless another review has changed it since. */
export const settle = (
  ledgered: Ledgered,
  place: ReservationPlace,
  before: Reservation,
  seen: Measure | undefined,
  now: number,
): void => {
  const current = getReservation(ledgered, place);
  if (!current || !isSame(current, before)) return;
  const limits = (ledgered.get(place.scope)?.hards ?? []).flatMap(({ hard }) => Object.keys(hard));
  const names = [...new Set([...limits, ...Object.keys(before.used)])];
  const used = seen && toAmounts(names.map((name) => [name, getAmount(seen, name)]));
  replaceReservation(ledgered, place, used && { ...before, used, at: now, phase: "seen" });
};

/** Returns a warning for each name of which a quota's use has reached the share of its `hard` that asks for one. */
export const buildWarnings = (ledgered: Ledgered, { name, hard, warnAt }: Quota): string[] => {
  if (warnAt === undefined) return [];
  const amounts = ledgered.get(getScopeKey(name))?.used;
  return Object.entries(hard).flatMap(([one, limit]) => {
    const used = get(amounts, one);
    const isNear = used.nanos * 100n >= requireQuantity(limit).nanos * BigInt(warnAt.slice(0, -1));
    return isNear && used.nanos > 0n ? [`quota ${name}: ${one}=${canonicalizeQuantity(used)} of ${limit} is used`] : [];
  });
};
