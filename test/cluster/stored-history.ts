import { get } from "node:https";
import { createInterface } from "node:readline";
import type { TestCluster } from "../control-plane/cluster.ts";

/** Amounts by their names in quotas, as whole numbers. */
export type Amounts = Readonly<Record<string, number>>;

/** A write that an API server stored. */
export interface StoredWrite {
  /** etcd's revision, which orders the writes of a cluster. */
  revision: number;
  /** The object's group, resource, namespace and name. */
  object: string;
  /** What the object has since then; undefined if it was deleted. */
  amounts: Amounts | undefined;
  /** The write was stored at an unknown time between these two, in milliseconds of this process's clock. */
  after: number;
  before: number;
}

/** An object that is stored now. */
export interface StoredObject {
  metadata: { name: string; namespace: string; uid: string; resourceVersion: string; deletionTimestamp?: string };
  spec: object;
  status?: { conditions?: { type: string; status: string }[] };
}

/**
 * Watches collections of a cluster from when they are empty, and notes each write.
 *
 * The time of a write is known only in part. It was stored before its watch event arrived. It was stored after each
 * write with a smaller revision, and after the request that caused it was sent. `noteCause` says when that was, if the
 * answer proves which write the request caused.
 */
export const watchWrites = async (
  { server, ca, getToken, admin }: TestCluster,
  collections: Readonly<Record<string, string>>,
  measure: (object: string, stored: StoredObject) => Amounts,
) => {
  const writes: (StoredWrite & { cause: string })[] = [];
  const causes = new Map<string, number>();
  const stored = new Map<string, StoredObject>();
  const faults: string[] = [];
  const open = Object.entries(collections).map(async ([resource, path]) => {
    const { body } = await admin({ method: "GET", path });
    const { resourceVersion } = Object(body.metadata);
    const headers = { authorization: `Bearer ${getToken("admin")}` };
    const url = `${server}${path}?watch=true&resourceVersion=${resourceVersion}`;
    const request = get(url, { ca, headers, agent: false }, (response) => {
      response.on("error", ({ message }) => faults.push(message));
      if (response.statusCode !== 200) faults.push(`the watch of ${resource} was answered with ${response.statusCode}`);
      const lines = createInterface({ input: response });
      lines.on("error", () => {});
      lines.on("line", (line) => {
        const before = performance.now();
        const { type, object } = JSON.parse(line);
        if (type === "ERROR") return void faults.push(line);
        const { name, namespace, uid, resourceVersion } = object.metadata;
        const key = `${resource}/${namespace}/${name}`;
        const isDeleted = type === "DELETED";
        if (isDeleted) stored.delete(key);
        else stored.set(key, object);
        const amounts = isDeleted ? undefined : measure(key, object);
        const cause = isDeleted ? uid : resourceVersion;
        writes.push({ revision: Number(resourceVersion), object: key, amounts, after: 0, before, cause });
      });
    });
    request.on("error", ({ message }) => faults.push(message));
    return request;
  });
  const requests = await Promise.all(open);
  return {
    /** The objects that are stored now, as far as events have arrived. */
    stored,
    faults,
    /** Notes that a write was caused by a request that was sent at a time: a write by its revision, a deletion by the uid. */
    noteCause: (cause: string, sent: number) => {
      causes.set(cause, Math.min(sent, causes.get(cause) ?? sent));
    },
    /** Returns the writes in the order of their revisions. */
    readWrites: (): StoredWrite[] => {
      const sorted = writes.toSorted((left, right) => left.revision - right.revision);
      let last = 0;
      const bounded = sorted.map(({ cause, ...write }) => {
        last = Math.max(last, causes.get(cause) ?? 0);
        return { ...write, after: last };
      });
      // The event of a later write may have arrived first, because each collection has a watch of its own.
      let first = Number.POSITIVE_INFINITY;
      for (const write of bounded.toReversed()) {
        first = Math.min(first, write.before);
        write.before = first;
      }
      return bounded;
    },
    stop: () => {
      for (const request of requests) request.destroy();
    },
  };
};

/** The largest sums of a history: at some moment at least `certain` was stored, and at no moment more than `possible`. */
export interface HighestSum {
  certain: number;
  possible: number;
}

/**
 * Returns the largest sum of an amount in several clusters at one moment.
 *
 * A cluster's sums follow each other in the order of its revisions. At a time t, the cluster has one of the sums from the
 * one after the last write that was certainly stored before t, to the one after the last write that may have been stored
 * before t. So the smallest of these, added over the clusters, was stored at t, and not more than the largest.
 */
export const findHighestSum = (
  clusters: readonly StoredWrite[][],
  count: (write: StoredWrite) => number,
): HighestSum => {
  const times = clusters
    .flatMap((writes) => writes.flatMap(({ after, before }) => [after, before]))
    .sort((left, right) => left - right);
  const readers = clusters.map((writes) => createSumReader(writes, count));
  const highest = { certain: 0, possible: 0 };
  for (const time of times) {
    const sums = readers.map((read) => read(time));
    highest.certain = Math.max(highest.certain, sum(sums.map(({ least }) => least)));
    highest.possible = Math.max(highest.possible, sum(sums.map(({ most }) => most)));
  }
  return highest;
};

/** Returns a function that gives the least and the most of a cluster's possible sums at times that never decrease. */
const createSumReader = (writes: StoredWrite[], count: (write: StoredWrite) => number) => {
  const amounts = new Map<string, number>();
  let total = 0;
  const sums = [0];
  for (const write of writes) {
    const amount = write.amounts === undefined ? 0 : count(write);
    total += amount - (amounts.get(write.object) ?? 0);
    amounts.set(write.object, amount);
    sums.push(total);
  }
  let [first, last] = [0, 0];
  return (time: number) => {
    for (; (writes[first]?.before ?? time + 1) <= time; first++);
    for (; (writes[last]?.after ?? time + 1) <= time; last++);
    const possible = sums.slice(first, Math.max(first, last) + 1);
    return { least: Math.min(...possible), most: Math.max(...possible) };
  };
};

const sum = (numbers: number[]) => numbers.reduce((left, right) => left + right, 0);

/** Returns what an object had during a whole period, by its writes; undefined if it changed, was absent, or it is unknown. */
export const findUnchanged = (writes: readonly StoredWrite[], start: number, end: number): Amounts | undefined => {
  const index = writes.findLastIndex(({ before }) => before <= start);
  const next = writes[index + 1];
  return next === undefined || next.after >= end ? writes[index]?.amounts : undefined;
};
