import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { measureQuotas } from "../bench/quotas.ts";
import { needs } from "../parts.ts";

describe("workload-quota with charges of one quota", await needs("DynamoDB Local"), () => {
  it("answers each charge, and reads and writes no more than its documentation says", async () => {
    const measured = await measureQuotas(1);
    assert.ok("rates" in measured && measured.rates.length > 0);
    for (const { rate, admitted, refused, failed } of measured.rates)
      assert.deepEqual([admitted + failed, refused], [rate, 0]);
    const conflicts = measured.rates.map(
      ({ rate, quotas, conflicts }) => rate === 100 && quotas === 1 && conflicts > 0,
    );
    assert.ok(conflicts.includes(true), "charges at the same time conflict");
    assert.deepEqual(
      measured.units.map(({ read, write }) => [read, write]),
      [
        [0, 0],
        [0, 0],
        [2, 4],
        [1, 1],
        [70, 0],
        [82, 24],
      ],
    );
  });
});
