import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { computeDeadline } from "./deadline.ts";

describe("the time until the deadline", () => {
  const now = 1_000_000;
  // All times are in milliseconds. `since` is relative to `now`. 300 ms are reserved to send the answer.
  const table: [title: string, parameters: Parameters<typeof computeDeadline>, expected: number][] = [
    ["is the API server's timeout without the reserved time", [{ timeout: 3000 }], 2700],
    ["is at most Lambda's remaining time", [{ timeout: 30_000, since: undefined }, 5000], 4700],
    ["is Lambda's remaining time if the request has no timeout", [{}, 5000], 4700],
    ["is the longest timeout of an API server if no time is known", [{}], 29_700],
    ["starts when the request began", [{ timeout: 3000, since: -900 }], 1800],
    ["ignores a start in the future (clocks differ)", [{ timeout: 3000, since: 900 }], 2700],
    ["ignores a start longer ago than the timeout (clocks differ)", [{ timeout: 3000, since: -60_000 }], 2700],
  ];
  for (const [title, [caller, remaining], expected] of table)
    it(title, (test) => {
      test.mock.timers.enable({ apis: ["Date"], now });
      const since = caller.since === undefined ? undefined : now + caller.since;
      assert.equal(computeDeadline({ ...caller, since }, remaining) - now, expected);
    });
});
