import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { decode } from "#lib/review.ts";
import { ratioOf } from "./ratios.ts";
import { reviewOfPod } from "./reviews.ts";

describe("bench", () => {
  it("says the median, and between what eight of ten ratios lie", () => {
    assert.deepEqual(ratioOf([11, 3, 2, 10, 1, 9, 4, 8, 5, 7, 6]), { median: 6, p10: 2, p90: 10 });
    assert.deepEqual(ratioOf([1.5]), { median: 1.5, p10: 1.5, p90: 1.5 });
  });

  for (const bytes of [5_000, 50_000, 1_000_000])
    it(`measures with reviews that are reviews, of ${bytes} bytes within a tenth`, () => {
      const body = reviewOfPod(bytes);
      assert.equal(decode(body).request.operation, "CREATE");
      assert.ok(Math.abs(body.length / bytes - 1) < 0.1, `${body.length} bytes`);
    });
});
