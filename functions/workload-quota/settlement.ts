import { getErrorMessage } from "postern/failure";
import type { Ledger } from "postern/ledger";
import type { Measure } from "./measure.ts";
import {
  getPartKey,
  type Kept,
  locate,
  partCount,
  type Reservation,
  type ReservationPlace,
  settleableAfter,
} from "./reservations.ts";

/** A reservation, and what the cluster was seen with; `seen` is undefined if the object is gone. */
export interface Sighting {
  place: ReservationPlace;
  before: Reservation;
  seen: Measure | undefined;
}

export interface Settlement {
  sightings: Sighting[];
  /** What a refusal says if not all that may have lapsed could be read. */
  note: string;
  /** Why an object could not be read, for the audit log: a user needn't know other users' objects. */
  fault?: string;
}

/** The most objects that one review reads. */
const mostReads = 10;
const partsAtOnce = 16;

/** Reads the objects of a quota's reservations in a cluster that may have lapsed: first those that changed longest ago. */
export const readLapsed = async (
  quotas: readonly string[],
  { cluster, change }: Ledger & { cluster: string },
  now: number,
  readObject: (quota: string, object: string, reservation: Reservation) => Promise<Measure | undefined | string>,
): Promise<Settlement> => {
  const lapsed: { quota: string; object: string; before: Reservation }[] = [];
  for (const quota of quotas)
    for (let part = 0; part < partCount; part += partsAtOnce) {
      const keys = Array.from({ length: partsAtOnce }, (_, index) => getPartKey(quota, cluster, part + index));
      // Each value is read by itself, because a read of several at one moment fails while one of them is written.
      const values = await Promise.all(keys.map((key) => change<Kept>([key], (kept) => kept)));
      // A recount finds objects that are gone without a review.
      for (const [object, before] of values.flatMap(([kept]) => Object.entries(kept?.objects ?? {})))
        if (before.phase !== "seen" && before.at + settleableAfter < now) lapsed.push({ quota, object, before });
    }
  const chosen = lapsed.sort((left, right) => left.before.at - right.before.at).slice(0, mostReads);
  const faults: string[] = [];
  const sightings = await Promise.all(
    chosen.map(async ({ quota, object, before }): Promise<Sighting[]> => {
      const seen = await readObject(quota, object, before).catch(getErrorMessage);
      if (typeof seen === "string") faults.push(seen);
      return typeof seen === "string" ? [] : [{ place: locate(quota, cluster, object), before, seen }];
    }),
  );
  const notes = [
    ...(lapsed.length > mostReads
      ? [`${mostReads} of ${lapsed.length} objects that may use less by now were read: try again`]
      : []),
    ...(faults.length > 0 ? [`${faults.length} objects that may use less by now could not be read`] : []),
  ];
  const [fault] = faults;
  return { sightings: sightings.flat(), note: notes.map((note) => `; ${note}`).join(""), ...(fault && { fault }) };
};
