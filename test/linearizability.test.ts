import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createRandom } from "../infra/testing/random.ts";
import { isLinearizable, type Operation } from "./linearizability.ts";

/** Returns an operation on the keys `a` and `b`. Without an end, it is unknown whether the operation was done. */
const pair = (start: number, end: number | undefined, read: unknown[], wrote: unknown[]): Operation => ({
  keys: ["a", "b"],
  read,
  wrote,
  start,
  ...(end !== undefined && { end }),
});
/** Returns an operation on the key `a`. Without an end, it is unknown whether the operation was done. */
const one = (start: number, end: number | undefined, read: unknown, wrote: unknown): Operation => ({
  keys: ["a"],
  read: [read],
  wrote: [wrote],
  start,
  ...(end !== undefined && { end }),
});
/** The value of a key that is absent. */
const absent = undefined;
/** The end of an operation of which it is unknown whether it was done. */
const unknownEnd = undefined;

/** Histories of operations `one(start, end, read, wrote)`, and whether one order of the operations explains each. */
const histories: [title: string, Operation[], isExplained: boolean][] = [
  ["an empty history", [], true],
  ["changes one after the other", [one(1, 2, absent, "x"), one(3, 4, "x", "y"), one(5, 6, "y", "y")], true],
  ["changes at once in any order", [one(1, 9, "x", "y"), one(2, 8, absent, "x")], true],
  ["a lost change", [one(1, 2, absent, "x"), one(3, 6, "x", "y"), one(4, 5, "x", "z")], false],
  ["a read of an old value", [one(1, 2, absent, "x"), one(3, 4, absent, absent)], false],
  ["a read of an old value during the change", [one(1, 4, absent, "x"), one(2, 3, absent, absent)], true],
  ["values that go back", [one(1, 9, absent, "x"), one(2, 3, "x", "x"), one(4, 5, absent, absent)], false],
  ["a read of a value from nowhere", [one(1, 2, "x", "x")], false],
  ["an unknown change that was done", [one(1, unknownEnd, absent, "x"), one(8, 9, "x", "x")], true],
  ["an unknown change that was not done", [one(1, unknownEnd, absent, "x"), one(8, 9, absent, absent)], true],
  [
    "an unknown change that was done late",
    [one(1, unknownEnd, absent, "x"), one(3, 4, absent, absent), one(8, 9, "x", "x")],
    true,
  ],
  ["an unknown change that was done before its call", [one(1, 2, "x", "x"), one(3, unknownEnd, absent, "x")], false],
  [
    "a change that was done twice, after it was deleted",
    [one(1, 9, absent, "x"), one(2, 3, "x", absent), one(10, 11, "x", "x")],
    false,
  ],
  [
    "an unknown change that was done twice",
    [one(1, unknownEnd, absent, "x"), one(2, 3, "x", absent), one(4, 5, "x", absent)],
    false,
  ],
  [
    "a read of half a change",
    [pair(1, 2, [absent, absent], ["x", "y"]), pair(3, 4, ["x", absent], ["x", absent])],
    false,
  ],
  [
    "a read of half a change that goes on",
    [pair(1, 9, [absent, absent], ["x", "y"]), pair(3, 4, ["x", absent], ["x", absent])],
    false,
  ],
  ["a change of one of two keys", [pair(1, 2, [absent, absent], [absent, "y"]), one(3, 4, absent, absent)], true],
  [
    "two changes that each saw the other's key before it",
    [
      pair(1, 9, [absent, absent], ["x", absent]),
      pair(2, 8, [absent, absent], [absent, "y"]),
      pair(10, 11, ["x", "y"], ["x", "y"]),
    ],
    false,
  ],
];

/** Tries all orders of the operations that aren't done yet, and reports whether one of them explains what was read. */
const isLinearizableByPermutation = (toDo: Operation[], values: Record<string, unknown> = {}): boolean =>
  toDo.every(({ end }) => end === undefined) ||
  toDo.some((next) => {
    const { keys, read, wrote, start } = next;
    if (toDo.some(({ end }) => end !== undefined && end < start)) return false;
    if (keys.some((key, index) => values[key] !== read[index])) return false;
    const changed = { ...values, ...Object.fromEntries(keys.map((key, index) => [key, wrote[index]])) };
    const others = toDo.filter((other) => other !== next);
    return isLinearizableByPermutation(others, changed);
  });

describe("the checker of histories", () => {
  for (const [title, history, isExplained] of histories)
    it(`the checker of histories ${isExplained ? "explains" : "does not explain"} ${title}`, () => {
      assert.equal(isLinearizable(history), isExplained);
    });

  it("the checker explains exactly the histories that a search of all orders explains", () => {
    const value = fc.constantFrom(undefined, "x", "y");
    const operation = fc.constantFrom(["a"], ["b"], ["a", "b"]).chain((keys) =>
      fc
        .record({
          read: fc.array(value, { minLength: keys.length, maxLength: keys.length }),
          wrote: fc.array(value, { minLength: keys.length, maxLength: keys.length }),
          start: fc.nat(20),
          length: fc.option(fc.nat(10)),
        })
        // No operation begins when another one ends.
        .map(({ read, wrote, start, length }): Operation => {
          return { keys, read, wrote, start, ...(length !== null && { end: start + length + 0.5 }) };
        }),
    );
    let explainedHistories = 0;
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 6 }), (history) => {
        const expected = isLinearizableByPermutation(history);
        explainedHistories += Number(expected && history.length > 1);
        assert.equal(isLinearizable(history), expected);
      }),
      { numRuns: 2000 },
    );
    assert.ok(explainedHistories > 20, `${explainedHistories}`);
  });

  it("the checker of histories explains a long history of many clients, even if some results are unknown", () => {
    const history: Operation[] = [];
    const random = createRandom(1);
    const values: Record<string, unknown> = {};
    for (let time = 0; time < 2000; time++) {
      const keys = random.pick([["a"], ["b"], ["a", "b"]]);
      const read = keys.map((key) => values[key]);
      const wrote = keys.map(() => (random.decide(0.1) ? undefined : time));
      const isDone = random.decide(0.98);
      if (isDone) for (const [index, key] of keys.entries()) values[key] = wrote[index];
      const start = time - random.draw() * 8;
      const isKnown = isDone && random.decide(0.98);
      history.push({ keys, read, wrote, start, ...(isKnown && { end: time + random.draw() * 8 }) });
    }
    assert.equal(isLinearizable(history), true);
    // The values 1 can't have been read so late.
    const last = history.findLastIndex(({ keys, end }) => keys.length === 2 && end !== undefined);
    assert.equal(isLinearizable(history.with(last, { ...(history[last] as Operation), read: [1, 1] })), false);
  });
});
