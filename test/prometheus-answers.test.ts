import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { Failure } from "#lib/failure.ts";
import { parsePrometheusUsage } from "../functions/initial-resources/usage-history.ts";

describe("an answer of Prometheus to the rule initial-resources", () => {
  const objectWithOddKeys = fc.dictionary(
    fc.constantFrom("metric", "is", "value", "toString", "valueOf", "__proto__"),
    fc.jsonValue(),
  );
  const anyValue = fc.oneof(fc.constant(null), fc.jsonValue(), objectWithOddKeys);
  const toBody = (result: unknown) => JSON.stringify({ status: "success", data: { resultType: "vector", result } });

  it("an answer of Prometheus gives finite numbers that aren't negative, for any series", () => {
    const metric = fc.oneof(fc.record({ is: fc.constantFrom("usage", "samples") }), anyValue);
    const value = fc.oneof(fc.tuple(fc.double(), fc.oneof(fc.double().map(String), anyValue)), anyValue);
    const series = fc.array(fc.oneof(fc.record({ metric, value }), anyValue), { maxLength: 5 });
    fc.assert(
      fc.property(series, (result) => {
        for (const number of Object.values(parsePrometheusUsage({ status: 200, body: toBody(result) })))
          assert.ok(Number.isFinite(number) && number >= 0);
      }),
      { numRuns: 1000 },
    );
  });
  it("an answer of Prometheus without a series makes the rule throw a Failure", () => {
    const answer = fc.record({ status: fc.oneof(fc.constant("success"), anyValue), data: anyValue, error: anyValue });
    const body = fc.oneof(
      fc.oneof(answer, anyValue).map((value) => JSON.stringify(value)),
      fc.string(),
    );
    fc.assert(
      fc.property(fc.constantFrom(200, 400, 503), body, (status, body) =>
        assert.throws(() => parsePrometheusUsage({ status, body }), Failure),
      ),
      { numRuns: 1000 },
    );
  });
});
