import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Ledger } from "postern/ledger";
import { createRecordedCapabilities } from "postern/test";
import { type EventLimit, getShare, takeToken } from "./token-bucket.ts";

/**
 * Returns a ledger in memory whose changes aren't immediate: if two changes are concurrent, the later one is computed
 * again. `changes` counts attempts to write.
 */
const createSlowLedger = (): Ledger & { changes: number } => {
  const { change } = createRecordedCapabilities({}).ledger("event-rate-limit");
  const ledger = {
    changes: 0,
    change: (async (keys, computeValues, seconds) => {
      for (;;) {
        const read = await change<object>(keys, (stored) => stored);
        const written = computeValues(read as never) as (object | undefined)[];
        if (written.every((value, index) => value === read[index])) return written as never;
        ledger.changes++;
        await null; // Here, a concurrent change may be made.
        let isCurrent = false;
        await change<object>(
          keys,
          (stored) => {
            isCurrent = stored.every((value, index) => value === read[index]);
            return isCurrent ? written : stored;
          },
          seconds,
        );
        if (isCurrent) return written as never;
      }
    }) as Ledger["change"],
  };
  return ledger;
};

const openProcesses = (count: number) => Array.from({ length: count }, () => createRecordedCapabilities({}).ledger(""));
const createLimit = (qps: number, burst: number): EventLimit => ({ type: "Server", qps, burst });

describe("a bucket that several processes share", () => {
  it("a shared bucket gives at most its burst, its refill, and the tokens that processes kept", async () => {
    // `count` is the number of processes, `difference` the largest difference of their clocks in milliseconds.
    for (const [qps, burst, count, difference] of [
      [1, 5, 3, 0],
      [20, 1, 8, 0],
      [20, 1, 8, 300],
      [100, 30, 2, 0],
      [500, 300, 5, 0],
      [500, 30, 5, 50],
      [5000, 20, 8, 0],
      [5000, 300, 8, 0],
      [5000, 300, 8, 10_000],
    ] as const) {
      const limit = createLimit(qps, burst);
      const buckets = createSlowLedger();
      const processes = openProcesses(count);
      const taken: number[] = [];
      let now = 0;
      for (let round = 0; round < 60; round++) {
        // Pauses of 0 to 96 ms, and 0 to 40 concurrent requests, in an order without a pattern.
        now += (round * round * 31) % 97;
        const takes = Array.from({ length: (round * round * 17) % 41 }, async (_, index) => {
          const process = (index * index + round) % count;
          const clock = now + (difference * process) / (count - 1);
          const reserves = processes[process] as Ledger;
          if (await takeToken(limit, "", clock, { buckets, reserves })) taken.push(now);
        });
        await Promise.all(takes);
        for (const [first, start] of taken.entries()) {
          const keptBefore = first === 0 ? 0 : count * (getShare(limit) - 1);
          const maximum = burst + (qps * (now - start + difference)) / 1000 + keptBefore;
          if (taken.length - first > maximum + 1e-6)
            assert.fail(`${taken.length - first} since ${start} ms, at most ${maximum}`);
        }
      }
      assert.ok(taken.length >= burst, `${taken.length} of ${burst}`);
    }
  });
  it("a shared bucket gives all its tokens, even if there are many more requests", async () => {
    for (const [qps, count] of [
      [10, 8],
      [100, 1],
      [500, 1],
      [1000, 8],
    ] as const) {
      const limit = createLimit(qps, qps);
      const [buckets, processes] = [createSlowLedger(), openProcesses(count)];
      let taken = 0;
      for (let now = 0; now < 10_000; now++)
        for (const reserves of processes) if (await takeToken(limit, "", now, { buckets, reserves })) taken++;
      // The burst (one second) and ten seconds.
      const available = 11 * qps;
      const kept = count * getShare(limit);
      assert.ok(
        taken <= available && taken >= available - kept - 1,
        `${qps} a second, ${count} processes: ${taken} of ${available}`,
      );
    }
  });
  it("a shared bucket is written at most 50 times a second by each process", async () => {
    const limit = createLimit(1000, 1000);
    const [buckets, processes] = [createSlowLedger(), openProcesses(4)];
    for (let now = 0; now < 10_000; now++)
      await Promise.all(processes.map((reserves) => takeToken(limit, "", now, { buckets, reserves })));
    // Eleven seconds, because the bucket was full at the beginning.
    assert.ok(buckets.changes <= 11 * 50 * processes.length, `${buckets.changes}`);
  });
  it("a process takes one token below 100 a second, and otherwise the tokens of 20 ms, at most the burst", () => {
    assert.deepEqual([getShare(createLimit(99, 500)), getShare(createLimit(100, 500))], [1, 2]);
    assert.deepEqual([getShare(createLimit(5000, 500)), getShare(createLimit(5000, 5))], [100, 5]);
  });
});
