import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ledgerUses } from "../../infra/rollout/plan/cost.ts";
import { measureQuotas } from "../bench/quotas.ts";
import { needs } from "../parts.ts";

describe("the measured rates of workload-quota", await needs("DynamoDB Local"), () => {
  it("workload-quota refuses no charge that fits, and uses as many read and write units as documented", async () => {
    const measured = await measureQuotas(1); // each rate for one second
    assert.ok("rates" in measured && measured.rates.length > 0);
    // A charge may fail, because charges conflict.
    for (const { rate, admitted, refused, failed } of measured.rates)
      assert.deepEqual([admitted + failed, refused], [rate, 0]);
    const highest = measured.rates.find(({ rate, quotas }) => rate === 100 && quotas === 1);
    assert.ok(highest && highest.conflicts > 0, "charges at the same time conflict");
    const counted = measured.units.map(({ what, read, write }) => ({ review: what, read, write }));
    assert.deepEqual(counted, [
      { review: "a creation that no quota covers", read: 0, write: 0 },
      { review: "an update that changes no amount", read: 0, write: 0 },
      ...(ledgerUses["workload-quota"] ?? []),
      { review: "a charge of two quotas", read: 4, write: 8 },
      { review: "a release of two quotas", read: 2, write: 4 },
    ]);
  });
});
