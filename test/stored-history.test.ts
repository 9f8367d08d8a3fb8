import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { findHighestSum, findUnchanged, type StoredWrite } from "./cluster/stored-history.ts";

/** A write: the object, its number of pods (undefined: deleted), and the times between which the write was stored. */
type WriteRow = [object: string, pods: number | undefined, earliest: number, latest: number];
const buildWrites = (writes: WriteRow[]): StoredWrite[] =>
  writes.map(([object, pods, earliest, latest], index) => {
    return { object, amounts: pods === undefined ? undefined : { pods }, earliest, latest, revision: index + 1 };
  });

describe("the highest sum of a history of writes", () => {
  // Each write in the clusters `east` and `west` is [object, number of pods, earliest time, latest time of storing].
  const cases: [name: string, east: WriteRow[], west: WriteRow[], certain: number, possible: number][] = [
    ["is zero without writes", [], [], 0, 0],
    [
      "includes all objects that existed at the same time",
      [
        ["a", 2, 1, 2],
        ["b", 3, 3, 4],
      ],
      [["a", 4, 5, 6]],
      9,
      9,
    ],
    [
      "includes an object only once, with its largest amount",
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
      "doesn't include an object that had been deleted before",
      [
        ["a", 2, 1, 2],
        ["a", undefined, 3, 4],
      ],
      [["a", 3, 5, 6]],
      3,
      3,
    ],
    [
      "is possibly higher, but not certainly, by an object that may have been deleted before",
      [
        ["a", 2, 1, 2],
        ["a", undefined, 3, 7],
      ],
      [["a", 3, 5, 6]],
      3,
      5,
    ],
    [
      // `certain` needs a time at which a sum is certain. At each time, east's `a` may not exist yet, or not any more.
      "counts the second write of an object as later than the first, though their times overlap",
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
    it(`the highest sum ${name}`, () => {
      const found = findHighestSum([buildWrites(east), buildWrites(west)], ({ amounts }) => amounts?.pods ?? 0);
      assert.deepEqual(found, { certain, possible });
    });
});

it("findUnchanged returns the amounts that an object certainly had during a whole interval, if any", () => {
  // Each write is [object, number of pods, earliest time, latest time of storing].
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
