import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { computeDeadline } from "./deadline.ts";

describe("the remaining time", () => {
  const table: [string, Parameters<typeof computeDeadline>, number][] = [
    ["is what the API server waits, less the way back", [{ timeout: 3000 }], 2700],
    ["is no more than Lambda has", [{ timeout: 30_000, since: undefined }, 5000], 4700],
    ["is Lambda's where nobody says how long they wait", [{}, 5000], 4700],
    ["ends when nobody says anything", [{}], 29_700],
    ["began when the request came, not when we did", [{ timeout: 3000, since: -900 }], 1800],
    ["doesn't depend on a clock that is ahead", [{ timeout: 3000, since: 900 }], 2700],
    ["doesn't depend on a clock that stands", [{ timeout: 3000, since: -60_000 }], 2700],
  ];
  for (const [name, [call, remaining], expected] of table)
    it(name, (test) => {
      test.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
      const since = call.since === undefined ? undefined : 1_000_000 + call.since;
      assert.equal(computeDeadline({ ...call, since }, remaining) - 1_000_000, expected);
    });
});
