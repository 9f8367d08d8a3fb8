import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import type { LedgerReach } from "#lib/needs.ts";
import { testLedger } from "./ledger-suite.ts";

// test/aws/dynamodb-ledger.test.ts runs the same suite on the ledger of functions in AWS.

describe("a ledger in memory", () => {
  testLedger((readTime) => createMemoryLedger(undefined, readTime));

  it("a ledger in memory deletes the entries with the oldest changes if it has more than it may keep", async () => {
    const ledger = createMemoryLedger(2);
    for (const key of ["a", "b", "a", "c"]) await ledger.change<number>([key], ([kept = 0]) => [kept + 1]);
    assert.deepEqual(await ledger.change(["a", "b", "c"], (kept) => kept), [2, undefined, 1]);
  });
});

it("the ledger of a process has separate values for each process, rule and cluster", async () => {
  const shared = createMemoryLedger();
  const openFunction = () => createLiveCapabilities({}, { openLedger: () => shared });
  const count = async (
    open: ReturnType<typeof openFunction>,
    cluster: string,
    rule: string,
    reach: LedgerReach = "process",
  ) =>
    open(cluster, 10_000)
      .ledger(rule, reach)
      .change<number>(["key"], ([kept = 0]) => [kept + 1]);
  const [first, second] = [openFunction(), openFunction()];
  assert.deepEqual(await count(first, "prod", "a"), [1]);
  assert.deepEqual(await count(first, "prod", "a"), [2]);
  assert.deepEqual(await count(first, "test", "a"), [1]);
  assert.deepEqual(await count(first, "prod", "b"), [1]);
  assert.deepEqual(await count(second, "prod", "a"), [1]);
  assert.deepEqual(await count(first, "prod", "a", "cluster"), [1]);
  assert.deepEqual(await count(second, "prod", "a", "cluster"), [2]);
  assert.deepEqual(await count(first, "prod", "a", "clusters"), [1]);
  assert.deepEqual(await count(second, "test", "a", "clusters"), [2]);
  assert.deepEqual(await count(second, "test", "b", "clusters"), [1]);
});
