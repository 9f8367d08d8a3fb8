import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createStartMeter } from "./cold-start.ts";

/**
 * Returns for how many milliseconds each review waited for the function's start. `end` is in milliseconds since the
 * start of Node. The function's start ended at 200.
 */
const measure = (initializationType: string | undefined, reviews: { end: number; duration: number }[]) => {
  let now = 200;
  const nodeStart = 1_795_000_000_000;
  const readStart = createStartMeter(
    initializationType,
    () => nodeStart + now,
    () => now / 1000,
  );
  return reviews.map(({ end, duration }) => {
    now = end;
    return readStart(duration);
  });
};

describe("the time for which a review waited for a function's start", () => {
  const rows: [
    name: string,
    initializationType: string | undefined,
    reviews: { end: number; duration: number }[],
    expected: number[],
  ][] = [
    ["is measured for the first review", "on-demand", [{ end: 215, duration: 5.25 }], [210]],
    ["is measured if Lambda doesn't say how it started the function", undefined, [{ end: 215, duration: 10 }], [205]],
    [
      "is 0 for later reviews",
      "on-demand",
      [
        { end: 215, duration: 5 },
        { end: 225, duration: 5 },
      ],
      [210, 0],
    ],
    ["is measured if the first review takes long", "on-demand", [{ end: 9210, duration: 9000 }], [210]],
    ["is 0 if the function was started ahead of time", "on-demand", [{ end: 61_000, duration: 5 }], [0]],
    ["is 0 with provisioned concurrency", "provisioned-concurrency", [{ end: 215, duration: 5 }], [0]],
  ];
  for (const [name, initializationType, reviews, expected] of rows)
    it(name, () => assert.deepEqual(measure(initializationType, reviews), expected));

  it("the time for which a review waited for a function's start is at most the time since the process started", () => {
    const waited = createStartMeter("on-demand")(0);
    assert.ok(waited > 0 && waited <= Math.round(process.uptime() * 1000), `${waited}`);
  });
});
