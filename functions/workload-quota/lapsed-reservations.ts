import { getErrorMessage } from "postern/failure";
import type { Ledger } from "postern/ledger";
import type { Measure } from "./measure.ts";
import type { countRunningPods } from "./remains.ts";
import {
  computeHash,
  type Excess,
  getPartKey,
  hasLapsed,
  type Kept,
  partCount,
  type Reservation,
  type ReservationPlace,
  type Sighting,
  usesLessForPods,
} from "./reservations.ts";

/** The results of reading objects that may use less by now than their reservations. */
export interface ReadReservations {
  /** The reservations whose objects were read, each with what its object uses now. */
  sightings: Sighting[];
  /** The end of a refusal's message if some of these objects could not be read. */
  note: string;
  /** Why an object could not be read. This is only for the audit log, because it may name objects of other users. */
  fault?: string;
}

/** The most objects that one review reads. */
const mostReads = 10;
/** The number of parts of the ledger that are read in parallel. */
const partsAtOnce = 16;
const isPod = (object: string) => object.startsWith("/pods/");

/**
 * Reads objects that may use less than they have reserved, after a request exceeded quotas. These are the objects of
 * lapsed reservations. If the request exceeded the limit `unseen`, these are also the objects of all unseen
 * reservations, and the object of the request. It reads at most `mostReads` objects. They are chosen by the request's
 * uid, so that another request tries other objects, and objects that can't be read don't prevent that the rest is read.
 */
export const readLapsed = async (
  excesses: readonly Excess[],
  { change }: Ledger,
  now: number,
  uid: string,
  readObject: (quota: string, object: string, reservation: Reservation) => Promise<Measure | undefined | string>,
  countRunning: (namespace: string, isReserved: (object: string) => boolean) => ReturnType<typeof countRunningPods>,
): Promise<ReadReservations> => {
  const reserved = new Set<string>();
  const lapsed: { quota: string; place: ReservationPlace; before: Reservation; order: number }[] = [];
  for (const { quota, place, limit } of excesses)
    for (let start = 0; start < partCount; start += partsAtOnce) {
      const partKeys = Array.from({ length: partsAtOnce }, (_, index) =>
        getPartKey(quota.name, place.cluster, start + index),
      );
      const keys = partKeys.filter((part) => limit !== "room" || part === place.part);
      // Each value is read separately, because a read of several in one transaction fails if one is being written.
      const values = await Promise.all(keys.map((key) => change<Kept>([key], (kept) => kept)));
      for (const [index, part] of keys.entries())
        for (const [object, before] of Object.entries(values[index]?.[0]?.objects ?? {})) {
          reserved.add(`${quota.name} ${object}`);
          const isOwn = part === place.part && object === place.object;
          // Reservations in the phase "seen" aren't read here: the recount finds objects deleted without a review.
          const isLapsed = before.phase !== "seen" && hasLapsed(before, now);
          if (!isLapsed && !(limit === "unseen" && (isOwn || before.unseen))) continue;
          // The order is: the request's object, objects that weren't read since their charge, other objects.
          const order = isOwn ? -1 : computeHash(`${object} ${uid}`) + (before.isRead ? 2 ** 32 : 0);
          lapsed.push({ quota: quota.name, place: { ...place, part, object }, before, order });
        }
    }
  const chosen = lapsed.sort((left, right) => left.order - right.order).slice(0, mostReads);
  const faults: string[] = [];
  let remaining = 0;
  const running = new Map<string, ReturnType<typeof countRunningPods>>();
  /** Reports whether more Pods of an object may be running than the object, as it was read, has. */
  const mayRunMore = async (quota: string, object: string, seen: Measure | undefined): Promise<boolean> => {
    const [, , namespace = ""] = object.split("/");
    const key = `${quota} ${namespace}`;
    const counting = running.get(key) ?? countRunning(namespace, (other) => reserved.has(`${quota} ${other}`));
    running.set(key, counting);
    const counts = await counting;
    return !counts || counts.has("") || BigInt(counts.get(object) ?? 0) > (seen?.pods ?? 0n);
  };
  const sightings = await Promise.all(
    chosen.map(async ({ quota, place, before }): Promise<Sighting[]> => {
      const readSighting = async (): Promise<Sighting[]> => {
        const seen = await readObject(quota, place.object, before);
        if (typeof seen === "string") throw new Error(seen);
        const hasFewer = hasLapsed(before, now) && usesLessForPods(before, seen) && !isPod(place.object);
        if (!hasFewer || !(await mayRunMore(quota, place.object, seen))) return [{ place, before, seen }];
        remaining++;
        return [];
      };
      return readSighting().catch((failure) => {
        faults.push(getErrorMessage(failure));
        return [];
      });
    }),
  );
  const notes = [
    ...(lapsed.length > mostReads
      ? [`${mostReads} of ${lapsed.length} objects that may use less by now were read: try again`]
      : []),
    ...(remaining > 0
      ? [`${remaining} objects that use less by now may have Pods that still run: the next recount counts these`]
      : []),
    ...(faults.length > 0 ? [`${faults.length} objects that may use less by now could not be read`] : []),
  ];
  const [fault] = faults;
  return { sightings: sightings.flat(), note: notes.map((note) => `; ${note}`).join(""), ...(fault && { fault }) };
};
