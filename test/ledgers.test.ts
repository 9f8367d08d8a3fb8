import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createMemoryLedger } from "#lib/ledger.ts";
import { testLedger } from "./ledger-suite.ts";

// test/aws/dynamodb-ledger.test.ts runs the suite on the ledger of functions in AWS.

describe("a ledger in memory", () => {
  testLedger((readTime) => createMemoryLedger(undefined, readTime));

  it("deletes the entries that were changed the longest ago, beyond its most", async () => {
    const ledger = createMemoryLedger(2);
    for (const key of ["a", "b", "a", "c"]) await ledger.change<number>([key], ([kept = 0]) => [kept + 1]);
    assert.deepEqual(await ledger.change(["a", "b", "c"], (kept) => kept), [2, undefined, 1]);
  });
});
