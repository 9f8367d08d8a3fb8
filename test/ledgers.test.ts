import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import fc from "fast-check";
import { createMemoryLedger, type Ledger, type LedgerTerms, prefixLedger } from "#lib/ledger.ts";

/** Tests the properties that all ledgers must have. */
const testLedger = (open: () => Ledger) => {
  let ledger: Ledger;
  beforeEach(() => {
    ledger = open();
    mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  });
  afterEach(() => mock.timers.reset());
  const count = (key: string, terms?: LedgerTerms) => ledger.change<number>(key, (kept = 0) => kept + 1, terms);
  const read = (key: string, terms?: LedgerTerms) => ledger.change(key, (value) => value, terms);

  it("keeps the result of a change for each key", async () => {
    assert.deepEqual([await count("a"), await count("a"), await count("b")], [1, 2, 1]);
    for (const key of ["__proto__", "constructor", ""]) assert.equal(await count(key), 1);
  });

  it("loses no change if several are made at the same time", async () => {
    await Promise.all(Array.from({ length: 20 }, () => count("a")));
    assert.equal(await count("a"), 21);
  });

  it("keeps no entry for undefined, and the old entry if a change fails", async () => {
    await count("a");
    const fail = () => {
      throw new Error("no");
    };
    await assert.rejects(async () => ledger.change("a", fail), /no/);
    assert.equal(await read("a"), 1);
    assert.equal(await ledger.change("a", () => undefined), undefined);
    assert.equal(await read("a"), undefined);
  });

  it("deletes an entry after its time without a change", async () => {
    await count("a", { seconds: 10 });
    mock.timers.setTime(1_009_999);
    assert.equal(await count("a", { seconds: 10 }), 2);
    mock.timers.setTime(1_019_999);
    assert.equal(await count("a"), 1);
  });

  it("keeps the most recently changed entries of a full shelf", async () => {
    const shelf = { name: "one", most: 2 };
    for (const key of ["a", "b", "a", "c"]) await count(key, { shelf });
    for (const key of ["d", "e"]) await count(key);
    await count("f", { shelf: { name: "two", most: 2 } });
    const kinds = await Promise.all(["a", "b", "c"].map((key) => read(key, { shelf })));
    assert.deepEqual(kinds, [2, undefined, 1]);
    assert.deepEqual(await Promise.all(["d", "e", "f"].map((key) => read(key))), [1, 1, 1]);
  });

  it("keeps an entry on the shelf of its last change", async () => {
    const shelf = { name: "one", most: 1 };
    await count("a");
    assert.equal(await count("a", { shelf }), 2);
    await count("b", { shelf });
    assert.equal(await read("a"), undefined);
  });

  it("returns entries that can't be edited", async () => {
    await ledger.change("a", () => ({ list: [1] }));
    const kept = await ledger.change<{ list: number[] }>("a", (value) => value);
    assert.throws(() => kept?.list.push(2), TypeError);
  });

  it("has separate entries for each prefix", async () => {
    const text = fc.string({ unit: fc.constantFrom("a", " ") });
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(fc.tuple(text, text), { selector: String }), async (uses) => {
        const all = open();
        for (const [place, key] of uses)
          assert.equal(
            await prefixLedger(all, `prod ${place.replaceAll(" ", "-")}`).change<number>(key, (kept = 0) => kept + 1),
            1,
          );
      }),
    );
  });
};

describe("a ledger in memory", () => testLedger(createMemoryLedger));
