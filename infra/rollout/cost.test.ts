import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { estimateDollarsPerMillionCalls, type RuleCostFactors } from "./cost.ts";

const small: RuleCostFactors = { endpointType: "url", memoryMegabytes: 256, milliseconds: 5, asks: false };

describe("the cost of a million reviews", () => {
  /** Half a dollar, for a kilobyte of log for each review. */
  const log = 0.5;
  const examples: [string, RuleCostFactors, number][] = [
    ["a function URL", small, 0.22],
    ["the HTTP API", { ...small, endpointType: "http" }, 1.22],
    ["a rule that reads its cluster", { ...small, milliseconds: 30, asks: true }, 0.31],
    ["four times the memory", { ...small, memoryMegabytes: 1024 }, 0.29],
    ["a second each", { ...small, milliseconds: 1000 }, 3.54],
    ["the requests alone", { ...small, memoryMegabytes: 0 }, 0.2],
  ];
  for (const [name, use, dollars] of examples)
    it(`is the price of ${name}, and of the log`, () =>
      assert.equal(estimateDollarsPerMillionCalls(use).toFixed(2), (dollars + log).toFixed(2)));

  it("is a dollar more behind the HTTP API, and not less for more time or memory", () => {
    const use = fc.record({
      ...{ endpointType: fc.constantFrom("http" as const, "url" as const), asks: fc.boolean() },
      memoryMegabytes: fc.integer({ min: 128, max: 10_240 }),
      milliseconds: fc.integer({ min: 0, max: 30_000 }),
    });
    const check = (one: RuleCostFactors, more: number) => {
      const cost = estimateDollarsPerMillionCalls(one);
      const apart =
        estimateDollarsPerMillionCalls({ ...one, endpointType: "http" }) -
        estimateDollarsPerMillionCalls({ ...one, endpointType: "url" });
      assert.ok(Math.abs(apart - 1) < 1e-9);
      assert.ok(estimateDollarsPerMillionCalls({ ...one, milliseconds: one.milliseconds + more }) > cost);
      assert.ok(estimateDollarsPerMillionCalls({ ...one, memoryMegabytes: one.memoryMegabytes + more }) > cost);
      assert.ok(estimateDollarsPerMillionCalls({ ...one, asks: true }) >= cost);
    };
    fc.assert(fc.property(use, fc.integer({ min: 1, max: 1000 }), check));
  });
});
