import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { findHighestSum, findUnchanged, type StoredWrite } from "./cluster/stored-history.ts";

/** An object, what it has since a write, and the times between which that was stored. */
type Row = [object: string, pods: number | undefined, after: number, before: number];
const buildWrites = (rows: Row[]): StoredWrite[] =>
  rows.map(([object, pods, after, before], index) => {
    return { object, amounts: pods === undefined ? undefined : { pods }, after, before, revision: index + 1 };
  });

describe("the highest sum of a history of writes", () => {
  const cases: [name: string, east: Row[], west: Row[], certain: number, possible: number][] = [
    ["is zero without a write", [], [], 0, 0],
    [
      "has all objects that were stored at one time",
      [
        ["a", 2, 1, 2],
        ["b", 3, 3, 4],
      ],
      [["a", 4, 5, 6]],
      9,
      9,
    ],
    [
      "has an object once",
      [
        ["a", 2, 1, 2],
        ["a", 5, 3, 4],
        ["a", 1, 5, 6],
      ],
      [],
      5,
      5,
    ],
    [
      "doesn't have an object that was gone before",
      [
        ["a", 2, 1, 2],
        ["a", undefined, 3, 4],
      ],
      [["a", 3, 5, 6]],
      3,
      3,
    ],
    [
      "doesn't have for certain what may have been gone",
      [
        ["a", 2, 1, 2],
        ["a", undefined, 3, 7],
      ],
      [["a", 3, 5, 6]],
      3,
      5,
    ],
    [
      "is certain of what followed in one cluster",
      [
        ["a", 4, 1, 9],
        ["a", undefined, 2, 9],
      ],
      [["a", 3, 0, 1]],
      3,
      7,
    ],
  ];
  for (const [name, east, west, certain, possible] of cases)
    it(name, () => {
      const found = findHighestSum([buildWrites(east), buildWrites(west)], ({ amounts }) => amounts?.pods ?? 0);
      assert.deepEqual(found, { certain, possible });
    });

  it("knows what an object had all the time between two times", () => {
    const writes = buildWrites([
      ["a", 2, 1, 2],
      ["a", 3, 5, 8],
    ]);
    assert.deepEqual(findUnchanged(writes, 2, 5), { pods: 2 });
    for (const [start, end] of [
      [1, 5],
      [2, 6],
      [5, 9],
    ] as const)
      assert.equal(findUnchanged(writes, start, end), undefined);
    assert.deepEqual(findUnchanged(writes, 8, 99), { pods: 3 });
  });
});
