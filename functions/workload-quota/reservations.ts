import { isSame } from "postern/json";
import {
  addQuantities,
  canonicalizeQuantity,
  compareQuantities,
  type Quantity,
  requireQuantity,
  roundUpToUnits,
  subtractQuantities,
  zeroQuantity,
} from "postern/objects/quantity";
import { getAmount, type Measure } from "./measure.ts";
import { getUnseenPercent, type Quota } from "./settings.ts";

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
  /** The part of `used` with which no read of the cluster has shown the object. Only quotas that limit it keep it. */
  unseen?: Amounts;
  /** True if the cluster has been read since the last charge, for `unseen` alone. */
  isRead?: true;
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
  /** By cluster, the sum of what its reservations have as `unseen`. */
  clusters?: Readonly<Record<string, { unseen: Amounts }>>;
  objects?: Readonly<Record<string, Reservation>>;
}

/** Values of the ledger by their keys. */
export type Ledgered = Map<string, Kept | undefined>;

/**
 * Milliseconds until no write that a review admitted can come any more: the API server's request timeout of 60 s, and
 * the most by which the clocks of two functions differ, because a ledger refuses a clock that is 5 s off.
 */
const lapseMilliseconds = 60_000 + 10_000;

/** The number of values over which the reservations of one quota in one cluster are spread. */
export const partCount = 64;

/** The most characters that the reservations in one value may have before new ones. An item has at most 400 KB. */
const longestPart = 300_000;

/** Reports whether a reservation has lapsed: no write can come any more, so what the cluster has now may replace it. */
export const hasLapsed = ({ at }: Reservation, now: number): boolean => at + lapseMilliseconds < now;

/** Where the reservation of an object is: the keys of two values of the ledger, and its key in the second. */
export interface ReservationPlace {
  cluster: string;
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
  cluster,
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
  { cluster, scope: scopeKey, part }: Omit<ReservationPlace, "object">,
  replaced: ReadonlyMap<string, Reservation | undefined>,
): void => {
  const objects = new Map(Object.entries(ledgered.get(part)?.objects ?? {}));
  const { clusters = {}, ...scope } = ledgered.get(scopeKey) ?? {};
  const changeSum = (sum: Amounts = {}, member: "used" | "unseen"): Amounts => {
    const amounts = new Map(Object.keys(sum).map((name) => [name, get(sum, name)]));
    const add = (more: Amounts = {}, combine: typeof addQuantities) => {
      for (const name of Object.keys(more))
        amounts.set(name, combine(amounts.get(name) ?? zeroQuantity, get(more, name)));
    };
    for (const [object, reservation] of replaced) {
      add(objects.get(object)?.[member], subtractQuantities);
      add(reservation?.[member], addQuantities);
    }
    return toAmounts([...amounts]);
  };
  const used = changeSum(scope.used, "used");
  const { [cluster]: own, ...others } = clusters;
  const unseen = changeSum(own?.unseen, "unseen");
  const sums = Object.keys(unseen).length > 0 ? { ...others, [cluster]: { unseen } } : others;
  for (const [object, reservation] of replaced)
    if (reservation) objects.set(object, reservation);
    else objects.delete(object);
  ledgered.set(part, objects.size > 0 ? { objects: Object.fromEntries(objects) } : undefined);
  if (isSame(used, scope.used ?? {}) && isSame(sums, clusters)) return;
  ledgered.set(scopeKey, { ...scope, used, ...(Object.keys(sums).length > 0 && { clusters: sums }) });
};

const replaceReservation = (ledgered: Ledgered, place: ReservationPlace, reservation: Reservation | undefined): void =>
  replaceReservations(ledgered, place, new Map([[place.object, reservation]]));

export const get = (amounts: Amounts = {}, name: string): Quantity => {
  const written = Object.hasOwn(amounts, name) ? amounts[name] : undefined;
  return written === undefined ? zeroQuantity : requireQuantity(written);
};

export const toAmounts = (amounts: readonly (readonly [string, Quantity])[]): Amounts =>
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

/** Reports whether an object was seen with less than its reservation of what its Pods have. */
export const hasPodsLess = ({ used }: Reservation, seen: Measure | undefined): boolean =>
  Object.keys(used).some((name) => {
    const left = seen ? getAmount(seen, name) : zeroQuantity;
    return !name.startsWith("count/") && compareQuantities(get(used, name), left) > 0;
  });

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
  const current = scope.hards?.find((one) => isSame(one.hard, hard));
  const isFresh = current !== undefined && current.until - now > hardMilliseconds / 2;
  if (!isFresh)
    ledgered.set(scopeKey, { ...scope, hards: [...others, { hard: { ...hard }, until: now + hardMilliseconds }] });
  const smallest = new Map<string, Quantity>();
  for (const [name, written] of [hard, ...others.map((one) => one.hard)].flatMap((one) => Object.entries(one))) {
    const amount = requireQuantity(written);
    const present = smallest.get(name);
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

/** A limit of a quota that a charge exceeds. */
export interface Excess {
  quota: Quota;
  place: ReservationPlace;
  /**
   * "hard" is the quota's `hard`. "unseen" is what may be reserved in the object's cluster without having been seen there.
   * "room" means that the ledger's value for the reservation is full.
   */
  limit: "hard" | "unseen" | "room";
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
  const scope = ledgered.get(place.scope) ?? {};
  const largest = new Map(Object.keys(before?.used ?? {}).map((name) => [name, get(before?.used, name)]));
  const growths = new Map<string, Quantity>();
  for (const name of limits.keys()) {
    const growth = subtractQuantities(getAmount(measure, name), get(before?.used, name));
    if (growth.nanos <= 0n) continue;
    largest.set(name, getAmount(measure, name));
    growths.set(name, growth);
  }
  /** Returns an excess if what is used, with what is added to it, is above its limit. */
  const findExcess = (
    exceededLimit: Excess["limit"],
    getUsed: (name: string) => Quantity,
    added: ReadonlyMap<string, Quantity>,
    getLimit: (limit: Quantity, name: string) => Quantity,
  ): Excess | undefined => {
    const exceeded = [...limits].flatMap(([name, whole]) => {
      const [requested, used, limited] = [added.get(name) ?? zeroQuantity, getUsed(name), getLimit(whole, name)];
      const isExceeded = requested.nanos > 0n && compareQuantities(addQuantities(used, requested), limited) > 0;
      return isExceeded ? [{ name, requested, used, limited }] : [];
    });
    const select = (member: "requested" | "used" | "limited"): Amounts =>
      Object.fromEntries(exceeded.map((one) => [one.name, canonicalizeQuantity(one[member])]));
    if (exceeded.length === 0) return undefined;
    return {
      quota,
      place,
      limit: exceededLimit,
      requested: select("requested"),
      used: select("used"),
      limited: select("limited"),
    };
  };
  const excess = findExcess(
    "hard",
    (name) => get(scope.used, name),
    growths,
    (limit) => limit,
  );
  if (excess) return excess;
  if (!before && JSON.stringify(ledgered.get(place.part) ?? {}).length > longestPart)
    return { quota, place, limit: "room", requested: {}, used: {}, limited: {} };

  // The API server may never store what a charge makes larger, or what it only keeps from lapsing. What it has stored is
  // known only if the cluster has been read since the charge before.
  const isKnown = !before || before.phase === "seen" || before.isRead;
  const unseen = new Map<string, Quantity>();
  const percent = getUnseenPercent(quota);
  if (percent !== undefined)
    for (const [name, amount] of largest) {
      const known = addQuantities(get(before?.unseen, name), growths.get(name) ?? zeroQuantity);
      unseen.set(name, isKnown ? known : amount);
    }
  const getOthers = (name: string) =>
    subtractQuantities(get(scope.clusters?.[place.cluster]?.unseen, name), get(before?.unseen, name));
  const excessUnseen = findExcess("unseen", getOthers, unseen, (limit, name) => {
    const most = { ...limit, nanos: (limit.nanos * (percent ?? 100n)) / 100n };
    return /(^|\.)cpu$/.test(name) ? most : roundUpToUnits(most);
  });
  if (excessUnseen) return excessUnseen;
  const owned = isOwned || before?.isOwned ? { isOwned: true as const } : {};
  // Of concurrent reviews, the later one may come first.
  const at = Math.max(before?.at ?? 0, now);
  const reservation = { used: toAmounts([...largest]), at, phase: "charged" as const, version, ...owned };
  replaceReservation(ledgered, place, { ...reservation, ...(unseen.size > 0 && { unseen: toAmounts([...unseen]) }) });
};

/** A reservation, and what the cluster was seen with; `seen` is undefined if the object is gone. */
export interface Sighting {
  place: ReservationPlace;
  before: Reservation;
  seen: Measure | undefined;
}

/** Returns a reservation after the cluster has been seen with just this. */
export const toSeen = ({ unseen: _, isRead: __, ...before }: Reservation, used: Amounts, now: number): Reservation => ({
  ...before,
  used,
  at: now,
  phase: "seen",
});

/** Notes that an object may have become smaller, or be gone. Its reservation stays until the cluster has been seen. */
export const release = (ledgered: Ledgered, place: ReservationPlace, now: number): void => {
  const before = getReservation(ledgered, place);
  // Repeated releases don't keep a reservation from lapsing.
  if (before && before.phase !== "released")
    replaceReservation(ledgered, place, { ...before, at: Math.max(before.at, now), phase: "released" });
};

/**
 * Replaces a reservation by what its object was seen to use, unless another review has changed the reservation since.
 * While the reviewed write may still reach the cluster, only `unseen` is replaced.
 */
export const applySighting = (ledgered: Ledgered, { place, before, seen }: Sighting, now: number): void => {
  const current = getReservation(ledgered, place);
  if (!current || !isSame(current, before)) return;
  const limits = (ledgered.get(place.scope)?.hards ?? []).flatMap(({ hard }) => Object.keys(hard));
  const names = [...new Set([...limits, ...Object.keys(before.used)])];
  const used = seen && toAmounts(names.map((name) => [name, getAmount(seen, name)]));
  if (hasLapsed(before, now)) {
    replaceReservation(ledgered, place, used && toSeen(before, used, now));
    return;
  }
  const unseen = Object.keys(before.used).map((name) => {
    const missing = subtractQuantities(get(before.used, name), get(used, name));
    return [name, missing.nanos > 0n ? missing : zeroQuantity] as const;
  });
  replaceReservation(ledgered, place, { ...before, unseen: toAmounts(unseen), isRead: true });
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
