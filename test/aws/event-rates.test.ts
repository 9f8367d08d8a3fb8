import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { measureLedger } from "../bench/ledger.ts";
import { needs } from "../parts.ts";

describe("event-rate-limit with events that all count against one bucket", await needs("DynamoDB Local"), () => {
  it("admits no more than its limit, and answers each event", async () => {
    const duration = 0.5;
    const measured = await measureLedger(duration);
    assert.ok("rates" in measured && measured.rates.length === 6);
    for (const { rate, qps, seconds, admitted, refused, failed } of measured.rates) {
      assert.equal(admitted + refused + failed, rate * duration);
      assert.ok(admitted > 0 && admitted <= qps + qps * seconds, `${admitted} of ${rate} with ${qps} a second`);
    }
  });
});
