import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import fc from "fast-check";
import { type Ledger, openRuleLedger } from "#lib/ledger.ts";

/**
 * Tests the properties that all ledgers must have. `open` opens an empty ledger with the clock `readTime`. The test
 * with random keys makes `numRuns` runs.
 */
export const testLedger = (open: (readTime: () => number) => Ledger, numRuns = 100) => {
  let now: number;
  let ledger: Ledger;
  const readTime = () => now;
  beforeEach(() => {
    now = 1_000_000;
    ledger = open(readTime);
  });
  const countAll = (keys: string[], seconds?: number, inLedger = ledger) =>
    inLedger.change<number>(keys, (kept) => kept.map((count = 0) => count + 1), seconds);
  const count = async (key: string, seconds?: number) => (await countAll([key], seconds))[0];
  const read = (...keys: string[]) => ledger.change(keys, (kept) => kept);

  it("keeps the result of a change for each key", async () => {
    assert.deepEqual([await count("a"), await count("a"), await count("b")], [1, 2, 1]);
    for (const key of ["__proto__", "constructor", ""]) assert.equal(await count(key), 1);
  });

  it("changes several keys at once", async () => {
    await count("b");
    assert.deepEqual(await countAll(["a", "b", "c"]), [1, 2, 1]);
    const swapped = await ledger.change(["a", "b", "c"], ([a, b]) => [b, a, undefined]);
    assert.deepEqual(
      [swapped, await read("c", "a", "b")],
      [
        [2, 1, undefined],
        [undefined, 2, 1],
      ],
    );
  });

  it("loses no change if several are made at the same time", async () => {
    const keyLists = [["a", "b"], ["b", "c"], ["c", "a"], ["a"]];
    await Promise.all(Array.from({ length: 20 }, (_, index) => countAll(keyLists[index % 4] ?? [])));
    assert.deepEqual(await read("a", "b", "c"), [15, 10, 10]);
  });

  it("changes nothing if a change fails", async () => {
    await countAll(["a", "b"]);
    const fail = () => {
      throw new Error("no");
    };
    await assert.rejects(ledger.change(["a", "b"], fail), /no/);
    await assert.rejects(
      ledger.change(["a", "b"], () => [5]),
      /must return 2 values, not 1/,
    );
    await assert.rejects(
      ledger.change(["a", "a"], () => [5, 6]),
      /a key twice/,
    );
    assert.deepEqual(await read("a", "b"), [1, 1]);
  });

  it("deletes an entry that wasn't changed for the number of seconds that its last change stated", async () => {
    await countAll(["a", "b"], 10);
    now += 9_999;
    assert.deepEqual([await count("a", 10), await read("b")], [2, [1]]);
    now += 1;
    assert.deepEqual(await read("a", "b"), [2, undefined]);
    now += 9_999;
    assert.equal(await count("a"), 1);
  });

  it("returns entries that can't be edited", async () => {
    await ledger.change(["a"], () => [{ list: [1] }]);
    const [kept] = await ledger.change<{ list: number[] }>(["a"], (values) => values);
    assert.throws(() => kept?.list.push(2), TypeError);
  });

  it("has separate entries for each rule, cluster and key", async () => {
    const keys = fc.oneof(fc.string({ unit: fc.constantFrom("a", "/", "#", "\ud800") }), fc.string({ minLength: 257 }));
    const name = fc.constantFrom("a", "b", "a-b");
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(fc.tuple(name, name, keys), { selector: JSON.stringify }), async (uses) => {
        const all = open(readTime);
        for (const [rule, cluster, key] of uses)
          assert.deepEqual(await countAll([key], undefined, openRuleLedger(all, rule, cluster)), [1]);
      }),
      { numRuns },
    );
  });
};
