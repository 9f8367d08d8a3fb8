import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { measureLedger } from "../bench/ledger.ts";
import { needs } from "../parts.ts";

describe("event-rate-limit with events that all count against one bucket", await needs("DynamoDB Local"), () => {
  it("event-rate-limit admits no more events than its limit, and answers each event", async () => {
    /** In seconds. */
    const duration = 0.5;
    const measured = await measureLedger(duration);
    // Two limits for each of three rates.
    assert.ok("rates" in measured && measured.rates.length === 6);
    for (const { rate, qps, seconds, admitted, refused, failed } of measured.rates) {
      assert.equal(admitted + refused + failed, rate * duration);
      // The bucket begins with `qps` tokens.
      assert.ok(admitted > 0 && admitted <= qps + qps * seconds, `${admitted} of ${rate} with ${qps} a second`);
    }
  });
});
