import { getErrorMessage } from "postern/failure";
import { isSame, toMap } from "postern/json";
import type { Namespace } from "postern/kubernetes/core/v1";
import type { RuntimeClass } from "postern/kubernetes/node/v1";
import type { Ledger } from "postern/ledger";
import type { ObjectPlace, ObjectReader, PageReader } from "postern/needs";
import { coversCluster, findCountedOwner, selectQuotas } from "./coverage.ts";
import type { CountedKind } from "./kinds.ts";
import { type Measure, measureWorkload } from "./measure.ts";
import { createOwnerReader, isCountedWithOwner, type ReadOwner } from "./remains.ts";
import {
  computeHash,
  getPartKey,
  getPartNumber,
  getQuotaKey,
  hasLapsed,
  hasMore,
  type Kept,
  measureReservation,
  partCount,
  type Reservation,
  replaceReservations,
  toSeen,
} from "./reservations.ts";
import { listCountedKinds, type Quota, type WorkloadQuotaSettings } from "./settings.ts";

/** The value in the ledger under the key `recount/CLUSTER`. All times are in milliseconds since 1970. */
export interface Recounts {
  /** When the last recount without faults ended. */
  completed?: number;
  last?: RecountResult;
  /** How far the current recount has come; absent between two recounts. */
  place?: RecountProgress;
}

/** What the last complete recount of a cluster found. */
interface RecountResult {
  began: number;
  /** A hash of the settings and the counted kinds. */
  settings: number;
  /** The number of objects that were read. */
  objects: number;
  /** The number of reservations that were missing or too small. */
  charged: number;
  /** The number of reservations that were too large although no review had released them. */
  credited: number;
  /** What could not be read or written. */
  faults: readonly string[];
}

/** How far a recount has come, as it is stored between two calls, and what it has found. */
interface RecountProgress extends RecountResult {
  /** The index of the kind that is being listed. */
  kind: number;
  /** The API version of the listed objects, once a page was read. */
  version?: string;
  /** A time before the first page of this list was requested: no page is older. */
  since: number;
  /** The last object that was read, as `namespace/name`. */
  after: string;
  /** The API server's token for the next page. */
  next: string;
  /** The most objects of the next page. */
  limit: number;
}

/** The part of a list that was read: each NAMESPACE/NAME after `after`, to the end or up to `upTo`, inclusive. */
interface ReadRange {
  /** A time before the first page was requested, in milliseconds since 1970. */
  since: number;
  after: string;
  upTo?: string | undefined;
}

/** An object in the cluster that at least one quota covers. */
interface SeenObject {
  quotas: readonly Quota[];
  version: string;
  /** The name of the counted object that controls it. */
  owner?: string | undefined;
  /** True if the object is counted as a part of its owner, and not separately. */
  isCountedWithOwner: boolean;
  /** What the object uses, or a sentence that says why this is unknown. */
  measureOrFault: Measure | string;
}

/** The objects of a cluster that were read since reservations were last compared with the cluster. */
interface Slice {
  /** A time before the first of them was read, in milliseconds since 1970. */
  began: number;
  /** The range of each kind, such as `apps/deployments`, that was read; undefined if no page of the kind was read. */
  ranges: Map<string, ReadRange | undefined>;
  /** At index N, by their keys: the objects whose reservations belong to part N of the ledger (getPartNumber). */
  parts: Map<string, SeenObject>[];
  /** The number of objects. */
  size: number;
}

/** The change of a reservation that differs from the object in the cluster. */
interface Correction {
  before: Reservation | undefined;
  after: Reservation | undefined;
}

/** What a recount of one cluster reads, writes and reports. */
export interface RecountContext {
  settings: WorkloadQuotaSettings;
  ledger: Ledger & { cluster: string };
  listPage: PageReader;
  workloads: ObjectReader;
  namespaces(place: ObjectPlace): Promise<Namespace | undefined>;
  runtimeClasses(place: ObjectPlace): Promise<RuntimeClass | undefined>;
  count(counts: readonly { metric: string; labels: { rule: string } }[]): void;
  readTime(): number;
  until: number;
}

/** The milliseconds between the beginnings of two recounts. After a change of settings, a recount begins at once. */
const interval = 10 * 60_000;
/** The most objects of a page. */
const usualLimit = 500;
/** The most objects of a page after failures: a page may be too large, because one object may have 1.5 MB. */
const smallLimit = 10;
/** After so many objects in memory, no further page is read before reservations are compared with the objects. */
const mostObjects = 10_000;
/** The number of parts of the ledger that are corrected in parallel. */
const partsAtOnce = 16;
/** The most faults that the ledger keeps, and the most characters of one. */
const [mostFaults, longestFault] = [5, 300];

/** Continues the recount of a cluster, or begins one if the interval is over. Returns the result when it ends. */
export const recount = async (context: RecountContext): Promise<string | undefined> => {
  const { ledger, settings, readTime, until } = context;
  const key = `recount/${ledger.cluster}`;
  const kinds = listCountedKinds(settings);
  const settingsHash = computeHash(JSON.stringify([settings, kinds]));
  let [state] = await ledger.change<Recounts>([key], (values) => values);
  do {
    const began = readTime();
    const { place: unfinished, last } = state ?? {};
    if (!unfinished && last?.settings === settingsHash && began < last.began + interval) return undefined;
    const result = { began, settings: settingsHash, objects: 0, charged: 0, credited: 0, faults: [] };
    // An unfinished recount is continued, unless settings changed. A new one begins with the kind at index 0.
    const start = unfinished?.settings === settingsHash ? unfinished : beginKind(result, 0, began);
    const slice: Slice = {
      began,
      ranges: new Map(kinds.map((kind) => [toPlural(kind), undefined])), // the names read of each kind: none yet
      parts: Array.from({ length: partCount }, () => new Map()),
      size: 0,
    };
    const { progress: nextProgress, failure } = await readSlice(context, kinds, start, slice);
    const progress = await correctReservations(context, slice, nextProgress);
    const hasEnded = progress.kind === kinds.length; // the last kind was read
    const newState = hasEnded ? endRecount(state, progress, readTime()) : { ...state, place: progress };
    const oldState = state;
    // If another call was faster, `change` returns its state, and this call ends. To correct values twice is harmless.
    [state] = await ledger.change<Recounts>([key], ([stored]) => [isSame(stored, oldState) ? newState : stored]);
    if (failure) throw failure;
    if (hasEnded) return formatResult(progress);
    if (state !== newState) return undefined;
  } while (readTime() < until);
};

const toPlural = ({ group, resource }: { group: string; resource: string }) => `${group}/${resource}`;

/** Returns the progress at the start of a kind's list: no object was read (`after`), no next page is known (`next`). */
const beginKind = (
  { version: _apiVersionOfLastKind, ...result }: RecountResult & { version?: string },
  kind: number,
  now: number,
): RecountProgress => ({ ...result, kind, since: now, after: "", next: "", limit: usualLimit });

const addFault = (progress: RecountProgress, fault: string): RecountProgress => ({
  ...progress,
  faults: [...progress.faults, fault.slice(0, longestFault)].slice(0, mostFaults),
});

const endRecount = (kept: Recounts | undefined, progress: RecountProgress, now: number): Recounts => {
  const { began, settings, objects, charged, credited, faults } = progress;
  const completed = faults.length === 0 ? now : kept?.completed;
  return { ...(completed && { completed }), last: { began, settings, objects, charged, credited, faults } };
};

/** Describes a result. "Without a review": the API server couldn't call the rule for the deletion or the update. */
const formatResult = ({ objects, charged, credited, faults }: RecountResult): string =>
  [
    `read ${objects} objects, charged ${charged} that weren't counted, and credited ${credited} that were gone or smaller without a review`,
    ...faults,
  ].join("; ");

/** Reads pages into a slice. Returns the progress, and a failure if a page of `smallLimit` objects fails. */
const readSlice = async (
  context: RecountContext,
  kinds: readonly CountedKind[],
  from: RecountProgress,
  slice: Slice,
): Promise<{ progress: RecountProgress; failure?: unknown }> => {
  const { readTime, until } = context;
  let progress = from;
  const readOwner = createOwnerReader(context.workloads);
  do {
    const { kind: kindIndex } = progress;
    const kind = kinds[kindIndex];
    if (!kind) break;
    try {
      progress = await readPage(context, kinds, kind, progress, slice, readOwner);
    } catch (failure) {
      // The page may be too large. If a small page fails, too, the recount continues with the next kind.
      if (progress.limit === smallLimit) {
        const next = beginKind(addFault(progress, getErrorMessage(failure)), kindIndex + 1, readTime());
        return { progress: next, failure };
      }
      progress = { ...progress, limit: Math.max(smallLimit, Math.floor(progress.limit / 2)) };
    }
  } while (slice.size < mostObjects && readTime() < until);
  return { progress };
};

/** Reads one page of a kind and adds its objects to the slice of this call. Returns the progress with this page. */
const readPage = async (
  { settings, ledger, listPage, namespaces, runtimeClasses, readTime }: RecountContext,
  kinds: readonly CountedKind[],
  kind: CountedKind,
  progress: RecountProgress,
  slice: Slice,
  readOwner: ReadOwner,
): Promise<RecountProgress> => {
  const { group, resource } = kind;
  const type = { group, resource, ...(progress.version !== undefined && { version: progress.version }) };
  const { items, version = "", next } = await listPage(type, progress.limit, progress.next);
  let { after } = progress;
  const positions = items.map((item) => {
    const { namespace, name } = toMap(toMap(item).metadata);
    const position = `${namespace}/${name}`;
    // The recount relies on this order: an object is gone if the list has objects before and after it, but not itself.
    if (position <= after)
      throw new Error(`the API server lists ${resource} in another order than by namespace and name`);
    after = position;
    return { item, position, namespace: String(namespace) };
  });
  const seen = await Promise.all(
    positions.map(async ({ item, position, namespace }) => {
      const quotas = await selectQuotas(settings.quotas, ledger.cluster, namespace, namespaces);
      if (quotas.length === 0) return [];
      const measureOrFault = await measureWorkload(item, kind, runtimeClasses);
      const owner = findCountedOwner(item, kinds);
      const hasPods = typeof measureOrFault === "string" || measureOrFault.pods > 0n;
      // To save reads, the owner isn't read for an object without Pods, such as each old ReplicaSet of a Deployment.
      const isWithOwner = owner && (!hasPods || (await isCountedWithOwner(item, kind, owner, namespace, readOwner)));
      const object: SeenObject = {
        quotas,
        version,
        measureOrFault,
        owner: owner?.name,
        isCountedWithOwner: isWithOwner ?? false,
      };
      return [[`${toPlural(kind)}/${position}`, object] as const];
    }),
  );
  for (const [key, object] of seen.flat()) {
    slice.parts[getPartNumber(key)]?.set(key, object);
    slice.size++;
  }
  const isEnd = next === "";
  // An object whose name is in this range (after `after` up to `upTo` or the end), but not in the slice, is gone or in
  // no quota, unless it was created after `since`: the pages of the range were read at this time or later.
  const range = slice.ranges.get(toPlural(kind)) ?? { since: progress.since, after: progress.after };
  slice.ranges.set(toPlural(kind), { ...range, upTo: isEnd ? undefined : after });
  const objects = progress.objects + items.length;
  // The current time becomes the next kind's `since`: none of its pages can be older.
  return isEnd
    ? beginKind({ ...progress, objects }, progress.kind + 1, readTime())
    : { ...progress, objects, ...(version && { version }), after, next };
};

/**
 * Corrects reservations that differ from the objects in the slice. Returns the progress with the number of corrections.
 */
const correctReservations = async (
  { settings, ledger, workloads, count, readTime }: RecountContext,
  slice: Slice,
  progress: RecountProgress,
): Promise<RecountProgress> => {
  let after = progress;
  const metrics: string[] = [];
  const correctPart = async (quota: Quota, part: number, reserved: ReadonlySet<string> | undefined) => {
    const [quotaKey, partKey] = [getQuotaKey(quota.name), getPartKey(quota.name, ledger.cluster, part)];
    // If the quota no longer covers this cluster, its reservations are removed, whatever the slice contains.
    const isCovered = coversCluster(quota, ledger.cluster);
    const findTime = (object: string) => {
      // A time before the page was read that has the object, or would have it; undefined if this slice lacks that page.
      const since = isCovered ? findReadTime(slice, object) : slice.began;
      // Pods are read first, and not counted while their owner exists. If the owner is deleted after that, the review
      // of the deletion renews its reservation, so it hasn't lapsed by `began`. The next recount counts these Pods.
      return since && Math.min(since, progress.began);
    };
    const [seen] = await ledger.change<Kept>([partKey], (values) => values);
    const corrections = listCorrections(seen, quota, slice.parts[part], reserved, findTime, readTime());
    for (const [object, { before, after }] of corrections) {
      // An object without a reservation may have been deleted after its page was listed, and its reservation removed. So
      // if the part has lost a reservation since the list began, the object is read again.
      if (before || !after || hasLapsed({ at: seen?.removed ?? 0 }, findTime(object) ?? 0)) continue;
      const [group = "", resource = "", namespace, name = ""] = object.split("/");
      const kind = { group, resource, version: after.version };
      // If this read fails, the object is charged.
      if (!(await workloads.get(kind, name, namespace).catch(() => after))) corrections.delete(object);
    }
    if (corrections.size === 0) return;
    let made: [string, Correction][] = [];
    await ledger.change<Kept>([quotaKey, partKey], ([quotaValue, kept]) => {
      // A reservation that has changed meanwhile is left to the next recount.
      made = [...corrections].filter(([object, { before }]) => isSame(kept?.objects?.[object], before));
      const ledgered = new Map([
        [quotaKey, quotaValue],
        [partKey, kept],
      ]);
      const replaced = new Map(made.map(([object, { after }]) => [object, after]));
      if (replaced.size > 0)
        replaceReservations(ledgered, { cluster: ledger.cluster, key: quotaKey, part: partKey }, replaced, readTime());
      return [...ledgered.values()];
    });
    metrics.push(...made.flatMap(findMetric));
  };
  for (const quota of settings.quotas) {
    // A quota with users or groups counts only objects of these users, but an object doesn't say which user created it.
    // So it is charged only if it belongs to an object with a reservation: `reserved` has their namespaces and names.
    const reserved = quota.users || quota.groups ? new Set<string>() : undefined;
    const forEachPart = async (act: (part: number) => Promise<void>) => {
      for (let part = 0; part < partCount; part += partsAtOnce)
        await Promise.all(
          Array.from({ length: partsAtOnce }, async (_, index) => {
            // A failure doesn't stop the corrections of other parts.
            await act(part + index).catch((failure) => {
              after = addFault(after, getErrorMessage(failure));
            });
          }),
        );
    };
    if (reserved)
      await forEachPart(async (part) => {
        const [kept] = await ledger.change<Kept>([getPartKey(quota.name, ledger.cluster, part)], (values) => values);
        for (const object of Object.keys(kept?.objects ?? {})) reserved.add(object.split("/").slice(2).join("/"));
      });
    await forEachPart((part) => correctPart(quota, part, reserved));
  }
  count(metrics.map((metric) => ({ metric, labels: { rule: "workload-quota" } })));
  const countMetric = (name: string) => metrics.filter((metric) => metric === name).length;
  const charged = after.charged + countMetric("drift_charged");
  return { ...after, charged, credited: after.credited + countMetric("drift_credited") };
};

/**
 * Reports whether an object may be left over from a deleted owner, or owner's owner, that had a reservation.
 * `names` has the `NAMESPACE/NAME` of objects with reservations; an object's key is GROUP/RESOURCE/NAMESPACE/NAME.
 * It looks for all beginnings of the owner's name: a Pod `web-7d4b-x2x` has the owner `web-7d4b`, which belonged to the
 * Deployment `web`. With `isCountedWithOwner`, the owner still exists, so the object isn't left over.
 */
const mayHaveOwnerIn = (names: ReadonlySet<string>, object: string, { owner, isCountedWithOwner }: SeenObject) => {
  if (owner === undefined || isCountedWithOwner) return false;
  const words = owner.split("-");
  const [, , namespace] = object.split("/");
  return words.some((_, index) => names.has(`${namespace}/${words.slice(0, index + 1).join("-")}`));
};

/**
 * Lists, by object, corrections of reservations in a part (of 64) of the ledger that differ from the cluster's objects.
 * If the quota counts only some users, `reservedNames` has the objects with reservations: these users created them. An
 * object doesn't name its creator. So without a reservation, it is charged only if its deleted owner may have had one.
 */
const listCorrections = (
  ledgerPart: Kept | undefined,
  quota: Quota,
  clusterObjects: ReadonlyMap<string, SeenObject> = new Map(),
  reservedNames: ReadonlySet<string> | undefined,
  findListTime: (object: string) => number | undefined,
  now: number,
): Map<string, Correction> => {
  const reservations = new Map(Object.entries(ledgerPart?.objects ?? {}));
  const corrections = new Map<string, Correction>();
  for (const [object, before] of reservations) {
    const listTime = findListTime(object);
    // For 70 s after a review, until the reservation lapses, the admitted write may be stored later than the list.
    if (listTime === undefined || !hasLapsed(before, listTime)) continue;
    const found = clusterObjects.get(object);
    // An object that is counted with its owner isn't counted by itself, unless it was charged separately (`isOwned`).
    const isCounted = found?.quotas.includes(quota) && (before.isOwned || !found.isCountedWithOwner);
    const measure = isCounted ? found?.measureOrFault : undefined;
    if (typeof measure === "string") continue;
    const used = measure && measureReservation(measure, quota, before);
    // The reservation already states what was read from the cluster ("seen"), and the object still uses the same.
    if (before.phase === "seen" && isSame(before.used, used)) continue;
    corrections.set(object, { before, after: used && toSeen(before, used, now) });
  }
  for (const [object, found] of clusterObjects) {
    const { quotas, version, isCountedWithOwner, measureOrFault } = found;
    if (reservations.has(object) || isCountedWithOwner || !quotas.includes(quota) || typeof measureOrFault === "string")
      continue;
    if (reservedNames && !mayHaveOwnerIn(reservedNames, object, found)) continue;
    const used = measureReservation(measureOrFault, quota);
    if (Object.keys(used).length > 0)
      corrections.set(object, { before: undefined, after: { used, at: now, phase: "seen", version } });
  }
  return corrections;
};

/**
 * Returns a time before the API server listed the page that has the object, or would have it by its name if it existed.
 * Returns undefined if the slice doesn't contain this page: then it can't say whether the object exists.
 */
const findReadTime = ({ began, ranges }: Slice, object: string): number | undefined => {
  const [group = "", resource = "", namespace, name] = object.split("/");
  const plural = toPlural({ group, resource });
  // Kinds that `ranges` lacks are no longer counted: the caller removes their reservations that had lapsed by `began`.
  if (!ranges.has(plural)) return began;
  const range = ranges.get(plural); // undefined if no page of the kind was read
  const position = `${namespace}/${name}`;
  return range && position > range.after && (range.upTo === undefined || position <= range.upTo)
    ? range.since
    : undefined;
};

/** Returns the name of the metric, if any, that counts the correction of a reservation to what its object uses. */
const findMetric = ([, { before, after }]: [string, Correction]): string[] => {
  if (!before || (after && hasMore(after.used, before.used))) return ["drift_charged"];
  // A review reserves the most that an object may use ("charged"), so it isn't drift if a found object uses less.
  // If no object is found (`after`), the write was admitted, but never stored.
  if (before.phase === "charged") return after ? [] : ["unseen_reservations"];
  // In the phase "released", a review has noted that the object may use less. So its correction isn't drift.
  return before.phase === "seen" ? ["drift_credited"] : [];
};
