import { getErrorMessage } from "postern/failure";
import type { Ledger } from "postern/ledger";
import type { Measure } from "./measure.ts";
import type { countRunningPods } from "./remains.ts";
import {
  computeHash,
  type Excess,
  getPartKey,
  hasLapsed,
  hasPodsLess,
  type Kept,
  partCount,
  type Reservation,
  type ReservationPlace,
  type Sighting,
} from "./reservations.ts";

/** The results of reading the objects of reservations that may have lapsed. */
export interface ReadReservations {
  sightings: Sighting[];
  /** The end of a refusal's message if some of these objects could not be read. */
  note: string;
  /** Why an object could not be read, for the audit log: a user needn't know other users' objects. */
  fault?: string;
}

/** The most objects that one review reads. */
const mostReads = 10;
const partsAtOnce = 16;
const isPod = (object: string) => object.startsWith("/pods/");

/**
 * Reads the objects of reservations that may use less than they have reserved. If too much of a quota is unseen, these are
 * the objects of all its unseen reservations, and the object of the request. Which ones are read depends on the request's
 * uid, so that objects that can't be read don't keep others from being read.
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
      const all = Array.from({ length: partsAtOnce }, (_, index) =>
        getPartKey(quota.name, place.cluster, start + index),
      );
      const keys = all.filter((part) => limit !== "room" || part === place.part);
      // Each value is read by itself, because a read of several at one moment fails while one of them is written.
      const values = await Promise.all(keys.map((key) => change<Kept>([key], (kept) => kept)));
      for (const [index, part] of keys.entries())
        for (const [object, before] of Object.entries(values[index]?.[0]?.objects ?? {})) {
          reserved.add(`${quota.name} ${object}`);
          const isOwn = part === place.part && object === place.object;
          // A recount finds objects that are gone without a review.
          const isLapsed = before.phase !== "seen" && hasLapsed(before, now);
          if (!isLapsed && !(limit === "unseen" && (isOwn || before.unseen))) continue;
          const order = isOwn ? -1 : computeHash(`${object} ${uid}`) + (before.isRead ? 2 ** 32 : 0);
          lapsed.push({ quota: quota.name, place: { ...place, part, object }, before, order });
        }
    }
  const chosen = lapsed.sort((left, right) => left.order - right.order).slice(0, mostReads);
  const faults: string[] = [];
  let remaining = 0;
  const running = new Map<string, ReturnType<typeof countRunningPods>>();
  /** Reports whether more Pods of an object may run than it was seen with. */
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
      const look = async (): Promise<Sighting[]> => {
        const seen = await readObject(quota, place.object, before);
        if (typeof seen === "string") throw new Error(seen);
        const hasFewer = hasLapsed(before, now) && hasPodsLess(before, seen) && !isPod(place.object);
        if (!hasFewer || !(await mayRunMore(quota, place.object, seen))) return [{ place, before, seen }];
        remaining++;
        return [];
      };
      return look().catch((failure) => {
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
