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

/** Quantities by the names in a quota's `hard`: `{ "requests.cpu": "500m", pods: "3" }`. */
export type Amounts = Readonly<Record<string, string>>;

/** The amounts that a quota reserves for one object: the most that the stored object can use. */
export interface Reservation {
  used: Amounts;
  /** When the reservation was last charged or released, or the object last seen, in milliseconds since 1970. */
  at: number;
  /**
   * "charged": an admitted write may still be stored. "released": a write may have made the object smaller, or deleted
   * it. "seen": the object was read when no write could be stored any more, and uses exactly these amounts.
   */
  phase: "charged" | "released" | "seen";
  /** The API version of the last write of the object. */
  version: string;
  /** True if the object is counted although a counted object controls it. */
  isOwned?: true;
  /**
   * The part of `used` that no read of the object has confirmed: it was charged, but the cluster hasn't stored it as
   * far as is known. Only quotas that limit this part (getUnseenPercent) have it.
   */
  unseen?: Amounts;
  /**
   * True if the object was read while the charged write could still be stored. So the phase isn't "seen" yet: `used`
   * stayed as it was, and only `unseen` was corrected.
   */
  isRead?: true;
}

/** The `hard` of a quota in one version of the rule. During a canary, two versions are live. */
interface RecordedHard {
  hard: Quota["hard"];
  /** When `hard` stops to apply, unless a function records it again; in milliseconds since 1970. */
  until: number;
}

/** A value in the ledger: of a whole quota (the first three members), or of a part of its reservations (the others). */
export interface Kept {
  /** The sum of all reservations of the quota. */
  used?: Amounts;
  /** The limits of the versions of the rule that are live. */
  hards?: readonly RecordedHard[];
  /** For each cluster, the sum of what is reserved, but not found yet in objects of the cluster. */
  clusters?: Readonly<Record<string, { unseen: Amounts }>>;
  objects?: Readonly<Record<string, Reservation>>;
  /** When a reservation was last removed from the part, in milliseconds since 1970. */
  removed?: number | undefined;
}

/** Values of the ledger by their keys. */
export type LedgerValues = Map<string, Kept | undefined>;

/**
 * The milliseconds after which the API server can no longer store a write that a review admitted: its request timeout
 * of 60 s, and 10 s, by which the clocks of two functions may differ. The ledger refuses a clock that differs from its
 * own by more than 5 s, so one clock may be 5 s early and another one 5 s late.
 */
const lapseMilliseconds = 60_000 + 10_000;

/** The number of values in the ledger (parts) that contain the reservations of one quota in one cluster. */
export const partCount = 64;

/** A part with more characters accepts no new reservations. DynamoDB accepts items of at most 400 KB. */
const longestPart = 300_000;

/** Reports whether a reservation has lapsed: no admitted write is pending, so the stored object may replace it. */
export const hasLapsed = ({ at }: Pick<Reservation, "at">, now: number): boolean => at + lapseMilliseconds < now;

/** Where the reservation of an object is. */
export interface ReservationPlace {
  cluster: string;
  /** The key of the quota's own value in the ledger, which has the sum. */
  key: string;
  /** The key of the part in the ledger that has the reservation. */
  part: string;
  /** The key of the reservation in the part: `GROUP/RESOURCE/NAMESPACE/NAME`. */
  object: string;
}

export const getQuotaKey = (quota: string): string => `quota/${quota}`;
export const getPartKey = (quota: string, cluster: string, part: number): string => `part/${quota}/${part}/${cluster}`;

/** Returns a whole number below 2^32, which is the same for the same text. */
export const computeHash = (text: string): number => {
  let hash = 0;
  for (let index = 0; index < text.length; index++) hash = (Math.imul(hash, 31) + text.charCodeAt(index)) >>> 0;
  return hash;
};

/** Returns the number of the part that contains an object's reservation. */
export const getPartNumber = (object: string): number => computeHash(object) % partCount;

/**
 * Returns where an object's reservation is in the ledger. `key` is the key of the quota's sums, and `part` the key
 * of the value that contains the reservation itself: a quota's reservations in a cluster are divided into 64 parts.
 */
export const locate = (quota: string, cluster: string, object: string): ReservationPlace => ({
  cluster,
  key: getQuotaKey(quota),
  part: getPartKey(quota, cluster, getPartNumber(object)),
  object,
});

/** Returns an object's reservation. Its key has slashes, so it is never a name such as `constructor`. */
export const getReservation = (ledgered: LedgerValues, { part, object }: ReservationPlace): Reservation | undefined =>
  ledgered.get(part)?.objects?.[object];

/**
 * Replaces reservations in `part`, one of the 64 ledger values with a quota's reservations in a cluster. Changes two
 * sums in the quota's own value by the differences: what all clusters have reserved (`used`), and how much of this
 * cluster's reservations was not found yet in objects of the cluster (`unseen`).
 */
export const replaceReservations = (
  ledgered: LedgerValues,
  { cluster, key, part }: Omit<ReservationPlace, "object">,
  replaced: ReadonlyMap<string, Reservation | undefined>,
  now: number,
): void => {
  let { objects: oldObjects = {}, removed } = ledgered.get(part) ?? {};
  const objects = new Map(Object.entries(oldObjects));
  const { clusters = {}, ...quotaValue } = ledgered.get(key) ?? {};
  const changeSum = (sum: Amounts = {}, member: "used" | "unseen"): Amounts => {
    const amounts = new Map(Object.keys(sum).map((name) => [name, get(sum, name)]));
    const combineAll = (operands: Amounts = {}, combine: typeof addQuantities) => {
      for (const name of Object.keys(operands))
        amounts.set(name, combine(amounts.get(name) ?? zeroQuantity, get(operands, name)));
    };
    for (const [object, reservation] of replaced) {
      combineAll(objects.get(object)?.[member], subtractQuantities);
      combineAll(reservation?.[member], addQuantities);
    }
    return toAmounts([...amounts]);
  };
  const usedOfQuota = changeSum(quotaValue.used, "used");
  const { [cluster]: ofCluster, ...otherClusters } = clusters;
  const unseenOfCluster = changeSum(ofCluster?.unseen, "unseen");
  const newClusters =
    Object.keys(unseenOfCluster).length > 0
      ? { ...otherClusters, [cluster]: { unseen: unseenOfCluster } }
      : otherClusters;
  for (const [object, reservation] of replaced)
    if (reservation) objects.set(object, reservation);
    else if (objects.delete(object)) removed = now; // recounts need the time of the last removal
  ledgered.set(part, { objects: Object.fromEntries(objects), removed });
  if (isSame(usedOfQuota, quotaValue.used ?? {}) && isSame(newClusters, clusters)) return;
  ledgered.set(key, {
    ...quotaValue,
    used: usedOfQuota,
    ...(Object.keys(newClusters).length > 0 && { clusters: newClusters }),
  });
};

/** Replaces an object's reservation in the values of the ledger; undefined removes it. */
const replaceReservation = (
  ledgered: LedgerValues,
  place: ReservationPlace,
  reservation: Reservation | undefined,
  now: number,
): void => replaceReservations(ledgered, place, new Map([[place.object, reservation]]), now);

export const get = (amounts: Amounts = {}, name: string): Quantity => {
  const written = Object.hasOwn(amounts, name) ? amounts[name] : undefined;
  return written === undefined ? zeroQuantity : requireQuantity(written);
};

export const toAmounts = (amounts: readonly (readonly [string, Quantity])[]): Amounts =>
  Object.fromEntries(
    amounts.flatMap(([name, amount]) => (amount.nanos === 0n ? [] : [[name, canonicalizeQuantity(amount)]])),
  );

/** Reports whether at least one amount is larger than the amount with the same name in `others`. */
export const hasMore = (amounts: Amounts, others: Amounts): boolean =>
  Object.keys(amounts).some((name) => compareQuantities(get(amounts, name), get(others, name)) > 0);

/**
 * Returns how much an object uses of each resource, such as `requests.cpu`: of those that a quota's `hard` names, and
 * of those in the object's reservation, because a version of the rule with another `hard` may have made it.
 */
export const measureReservation = (
  measure: Measure,
  { hard }: Pick<Quota, "hard">,
  reservation?: Reservation,
): Amounts => {
  const names = new Set([...Object.keys(hard), ...Object.keys(reservation?.used ?? {})]);
  return toAmounts([...names].map((name) => [name, getAmount(measure, name)]));
};

/**
 * Reports whether an object, as it was read, uses less for its Pods than it has reserved. `seen` is undefined if the
 * object is gone. Amounts such as `count/deployments.apps` are for the object itself, not for its Pods.
 */
export const usesLessForPods = ({ used }: Reservation, seen: Measure | undefined): boolean =>
  Object.keys(used).some((name) => {
    const seenAmount = seen ? getAmount(seen, name) : zeroQuantity;
    return !name.startsWith("count/") && compareQuantities(get(used, name), seenAmount) > 0;
  });

/** The milliseconds for which a version of `hard` applies after the last review by a function with this version. */
const hardMilliseconds = 10 * 60_000;

/**
 * Records a quota's limits (`hard`) in this version of the rule. During a canary, another version with other limits
 * may be live: returns for each name the smallest of the limits whose time (`until`) is not over.
 */
export const recordHard = (
  ledgered: LedgerValues,
  quotaKey: string,
  hard: Quota["hard"],
  now: number,
): Map<string, Quantity> => {
  const quotaValue = ledgered.get(quotaKey) ?? {};
  const others = (quotaValue.hards ?? []).filter((recorded) => now < recorded.until && !isSame(recorded.hard, hard));
  const current = quotaValue.hards?.find((recorded) => isSame(recorded.hard, hard));
  const isFresh = current !== undefined && current.until - now > hardMilliseconds / 2;
  if (!isFresh)
    ledgered.set(quotaKey, { ...quotaValue, hards: [...others, { hard: { ...hard }, until: now + hardMilliseconds }] });
  const smallest = new Map<string, Quantity>();
  for (const [name, written] of [hard, ...others.map((other) => other.hard)].flatMap((amounts) =>
    Object.entries(amounts),
  )) {
    const amount = requireQuantity(written);
    const present = smallest.get(name);
    if (!present || compareQuantities(amount, present) < 0) smallest.set(name, amount);
  }
  return smallest;
};

/** The charge of one object to a quota. */
export interface Charge {
  quota: Quota;
  place: ReservationPlace;
  measure: Measure;
  /** The API version of the request. */
  version: string;
  /** True if an object of a counted kind controls the object. */
  isOwned: boolean;
  /** If false, the object is charged only if it already has a reservation. */
  mayReserve: boolean;
}

/** A charge that exceeds a limit of a quota. */
export interface Excess {
  quota: Quota;
  place: ReservationPlace;
  /**
   * "hard": the quota's `hard`. "unseen": the share of `hard` that one cluster may reserve for objects that the rule
   * hasn't read yet. "room": the largest size of a value in the ledger; the value for this reservation is full.
   */
  limit: "hard" | "unseen" | "room";
  requested: Amounts;
  used: Amounts;
  limited: Amounts;
}

/**
 * Charges a quota for an object. The new reservation has for each name the larger of two amounts: of the old
 * reservation and of the object. If the charge exceeds a limit, the function changes no reservation and returns the
 * excess.
 */
export const charge = (
  ledgered: LedgerValues,
  { quota, place, measure, version, isOwned, mayReserve }: Charge,
  now: number,
): Excess | undefined => {
  const before = getReservation(ledgered, place);
  if (!before && !mayReserve) return undefined;
  const limits = recordHard(ledgered, place.key, quota.hard, now);
  const quotaValue = ledgered.get(place.key) ?? {};
  const largest = new Map(Object.keys(before?.used ?? {}).map((name) => [name, get(before?.used, name)]));
  const growths = new Map<string, Quantity>();
  for (const name of limits.keys()) {
    const growth = subtractQuantities(getAmount(measure, name), get(before?.used, name));
    if (growth.nanos <= 0n) continue;
    largest.set(name, getAmount(measure, name));
    growths.set(name, growth);
  }
  /** Returns an excess if for some name, the sum of the used and the added amount is greater than the limit. */
  const findExcess = (
    exceededLimit: Excess["limit"],
    getUsed: (name: string) => Quantity,
    added: ReadonlyMap<string, Quantity>,
    getLimit: (limit: Quantity, name: string) => Quantity,
  ): Excess | undefined => {
    const exceeded = [...limits].flatMap(([name, quotaLimit]) => {
      const [requested, used, limited] = [added.get(name) ?? zeroQuantity, getUsed(name), getLimit(quotaLimit, name)];
      const isExceeded = requested.nanos > 0n && compareQuantities(addQuantities(used, requested), limited) > 0;
      return isExceeded ? [{ name, requested, used, limited }] : [];
    });
    const select = (member: "requested" | "used" | "limited"): Amounts =>
      Object.fromEntries(exceeded.map((excess) => [excess.name, canonicalizeQuantity(excess[member])]));
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
    (name) => get(quotaValue.used, name),
    growths,
    (limit) => limit,
  );
  if (excess) return excess;
  if (!before && JSON.stringify(ledgered.get(place.part) ?? {}).length > longestPart)
    return { quota, place, limit: "room", requested: {}, used: {}, limited: {} };

  // The API server may never store the admitted write, so the growth is unseen. If the object also wasn't read since
  // the charge before this one, no read has confirmed any of the reservation, so the whole reservation is unseen.
  const isConfirmed = !before || before.phase === "seen" || before.isRead;
  const unseen = new Map<string, Quantity>();
  const percent = getUnseenPercent(quota);
  if (percent !== undefined)
    for (const [name, amount] of largest) {
      const unseenGrowth = addQuantities(get(before?.unseen, name), growths.get(name) ?? zeroQuantity);
      unseen.set(name, isConfirmed ? unseenGrowth : amount);
    }
  /** Returns the unseen amount of all other objects of the cluster. */
  const getUnseenOfOthers = (name: string) =>
    subtractQuantities(get(quotaValue.clusters?.[place.cluster]?.unseen, name), get(before?.unseen, name));
  const excessUnseen = findExcess("unseen", getUnseenOfOthers, unseen, (limit, name) => {
    const share = { ...limit, nanos: (limit.nanos * (percent ?? 100n)) / 100n };
    // Only amounts of CPU (`cpu`, `requests.cpu`, `limits.cpu`) may be fractions.
    return /(^|\.)cpu$/.test(name) ? share : roundUpToUnits(share);
  });
  if (excessUnseen) return excessUnseen;
  const owned = isOwned || before?.isOwned ? { isOwned: true as const } : {};
  // If reviews are concurrent, the later review may have changed the ledger first.
  const at = Math.max(before?.at ?? 0, now);
  const reservation = { used: toAmounts([...largest]), at, phase: "charged" as const, version, ...owned };
  const newReservation = { ...reservation, ...(unseen.size > 0 && { unseen: toAmounts([...unseen]) }) };
  replaceReservation(ledgered, place, newReservation, now);
};

/** A reservation, and the measure of its object as it was read from the cluster; undefined if the object is gone. */
export interface Sighting {
  place: ReservationPlace;
  before: Reservation;
  seen: Measure | undefined;
}

/** Returns a reservation in the phase "seen": with what its object uses, without members of other phases. */
export const toSeen = ({ unseen: _, isRead: __, ...before }: Reservation, used: Amounts, now: number): Reservation => ({
  ...before,
  used,
  at: now,
  phase: "seen",
});

/** Notes that an object may be smaller or gone. Its reservation stays until it has lapsed; then a read corrects it. */
export const release = (ledgered: LedgerValues, place: ReservationPlace, now: number): void => {
  const before = getReservation(ledgered, place);
  // A second release keeps the time (`at`). Otherwise, repeated releases could put off the correction for ever.
  if (before && before.phase !== "released")
    replaceReservation(ledgered, place, { ...before, at: Math.max(before.at, now), phase: "released" }, now);
};

/**
 * Corrects an object's reservation `before` after a read, which found the measure `seen` (undefined: no object), unless
 * another review has changed it since then. If it has lapsed, it gets what the object uses. If not, an admitted write
 * may not be stored yet: the reserved amounts stay, and `unseen` becomes these amounts less what the object uses.
 */
export const applySighting = (ledgered: LedgerValues, { place, before, seen }: Sighting, now: number): void => {
  const current = getReservation(ledgered, place);
  if (!current || !isSame(current, before)) return;
  const limits = (ledgered.get(place.key)?.hards ?? []).flatMap(({ hard }) => Object.entries(hard));
  // `hard` may have names that the reservation lacks, if `hard` was changed.
  const usedByObject = seen && measureReservation(seen, { hard: Object.fromEntries(limits) }, before);
  if (hasLapsed(before, now)) {
    replaceReservation(ledgered, place, usedByObject && toSeen(before, usedByObject, now), now);
    return;
  }
  const unseen = Object.keys(before.used).map((name) => {
    const missing = subtractQuantities(get(before.used, name), get(usedByObject, name));
    return [name, missing.nanos > 0n ? missing : zeroQuantity] as const;
  });
  replaceReservation(ledgered, place, { ...before, unseen: toAmounts(unseen), isRead: true }, now);
};

/** Returns a warning for each resource of a quota whose used amount has reached `warnAt`, a percentage of its limit. */
export const buildWarnings = (ledgered: LedgerValues, { name, hard, warnAt }: Quota): string[] => {
  if (warnAt === undefined) return [];
  const amounts = ledgered.get(getQuotaKey(name))?.used;
  return Object.entries(hard).flatMap(([resource, limit]) => {
    const used = get(amounts, resource);
    const isNear = used.nanos * 100n >= requireQuantity(limit).nanos * BigInt(warnAt.slice(0, -1));
    return isNear && used.nanos > 0n
      ? [`quota ${name}: ${resource}=${canonicalizeQuantity(used)} of ${limit} is used`]
      : [];
  });
};
