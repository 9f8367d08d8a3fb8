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
  /** The amounts that the object uses after the write; undefined if the write deleted it. */
  amounts: Amounts | undefined;
  /** The bounds of the unknown time at which the write was stored, in milliseconds of this process's clock. */
  earliest: number;
  latest: number;
}

/** An object that is stored now. */
export interface StoredObject {
  metadata: { name: string; namespace: string; uid: string; resourceVersion: string; deletionTimestamp?: string };
  spec: object;
  status?: { conditions?: { type: string; status: string }[] };
}

/**
 * Watches collections of a cluster, which must be empty, and records each write.
 *
 * The exact time of a write is unknown. A write was stored before its watch event arrived. It was stored after each
 * write with a smaller revision, and after its request was sent. `noteCause` states when the request was sent, if the
 * answer proves which write the request caused.
 */
export const watchWrites = async (
  { server, ca, getToken, admin }: TestCluster,
  collections: Readonly<Record<string, string>>,
  measure: (object: string, stored: StoredObject) => Amounts,
) => {
  const writes: (StoredWrite & { cause: string })[] = [];
  /** The times at which requests were sent, by the writes that they caused. */
  const sentTimes = new Map<string, number>();
  const stored = new Map<string, StoredObject>();
  const faults: string[] = [];
  const opening = Object.entries(collections).map(async ([resource, path]) => {
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
        const latest = performance.now();
        const { type, object } = JSON.parse(line);
        if (type === "ERROR") return void faults.push(line);
        const { name, namespace, uid, resourceVersion } = object.metadata;
        const key = `${resource}/${namespace}/${name}`;
        const isDeleted = type === "DELETED";
        if (isDeleted) stored.delete(key);
        else stored.set(key, object);
        const amounts = isDeleted ? undefined : measure(key, object);
        const cause = isDeleted ? uid : resourceVersion;
        writes.push({ revision: Number(resourceVersion), object: key, amounts, earliest: 0, latest, cause });
      });
    });
    request.on("error", ({ message }) => faults.push(message));
    return request;
  });
  const requests = await Promise.all(opening);
  return {
    /** The objects that are stored now, as far as events have arrived. */
    stored,
    faults,
    /**
     * Records when the request of a write was sent. `cause` is the write's revision, or the uid of a deleted object.
     */
    noteCause: (cause: string, sent: number) => {
      sentTimes.set(cause, Math.min(sent, sentTimes.get(cause) ?? sent));
    },
    /** Returns the writes in the order of their revisions. */
    readWrites: (): StoredWrite[] => {
      const sorted = writes.toSorted((left, right) => left.revision - right.revision);
      let latestSent = 0;
      const bounded = sorted.map(({ cause, ...write }) => {
        latestSent = Math.max(latestSent, sentTimes.get(cause) ?? 0);
        return { ...write, earliest: latestSent };
      });
      // The event of a later write may have arrived earlier, because each collection has its own watch.
      let earliestArrival = Number.POSITIVE_INFINITY;
      for (const write of bounded.toReversed()) {
        earliestArrival = Math.min(earliestArrival, write.latest);
        write.latest = earliestArrival;
      }
      return bounded;
    },
    stop: () => {
      for (const request of requests) request.destroy();
    },
  };
};

/** The highest total of an amount, such as pods, that all clusters had at one time: from `certain` to `possible`. */
export interface HighestSum {
  certain: number;
  possible: number;
}

/**
 * Returns bounds of the largest sum of an amount that all clusters together stored at one time. `count` returns the
 * amount of an object after a write. The writes of a cluster are in the order in which they were stored.
 *
 * The exact time of a write is unknown. So at each time, some writes of a cluster were certainly stored, and some later
 * writes were possibly stored. The cluster's sum at this time lies between the smallest and the largest of the sums
 * that it had from the last certain write to the last possible one. For each time, the bounds of all clusters are
 * added. Returns the maximum of each bound over all times.
 */
export const findHighestSum = (
  clusters: readonly StoredWrite[][],
  count: (write: StoredWrite) => number,
): HighestSum => {
  const times = clusters
    .flatMap((writes) => writes.flatMap(({ earliest, latest }) => [earliest, latest]))
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

/**
 * Returns a function that returns the smallest and the largest possible sum of an amount at a time. `writes` are in the
 * order in which they were stored, each at an unknown time between `earliest` and `latest`. `count` returns the amount
 * of an object after a write. The function must be called with times that don't decrease.
 */
const createSumReader = (writes: StoredWrite[], count: (write: StoredWrite) => number) => {
  const amounts = new Map<string, number>();
  let total = 0;
  // The sum after each number of writes.
  const sums = [0];
  for (const write of writes) {
    const amount = write.amounts === undefined ? 0 : count(write);
    total += amount - (amounts.get(write.object) ?? 0);
    amounts.set(write.object, amount);
    sums.push(total);
  }
  // The numbers of writes that were certainly stored, and possibly stored, at the time of the last call.
  let [certainCount, possibleCount] = [0, 0];
  return (time: number) => {
    while ((writes[certainCount]?.latest ?? time + 1) <= time) certainCount++;
    while ((writes[possibleCount]?.earliest ?? time + 1) <= time) possibleCount++;
    // At its `latest`, a write was certainly stored, even if `earliest`, which is measured separately, is a later time.
    const possibleSums = sums.slice(certainCount, Math.max(certainCount, possibleCount) + 1);
    return { least: Math.min(...possibleSums), most: Math.max(...possibleSums) };
  };
};

const sum = (numbers: number[]) => numbers.reduce((left, right) => left + right, 0);

/**
 * Returns the amounts that an object used, as quotas count them, all the time from `start` to `end`; undefined if they
 * may have changed, or the object didn't exist. Each write was stored at an unknown time from `earliest` to `latest`.
 */
export const findUnchanged = (writes: readonly StoredWrite[], start: number, end: number): Amounts | undefined => {
  const index = writes.findLastIndex(({ latest }) => latest <= start);
  const next = writes[index + 1];
  return next === undefined || next.earliest >= end ? writes[index]?.amounts : undefined;
};
