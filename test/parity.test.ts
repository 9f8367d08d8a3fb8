import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { type Comparable, compare, diffOf } from "./cluster/compare.ts";
import { sequencesFor } from "./cluster/generator.ts";

const everything = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*" as const] }];

describe("generated requests", () => {
  const sampled = (seed: number) => fc.sample(sequencesFor(everything), { seed, numRuns: 2000 });

  it("are the same for the same seed", () => {
    assert.deepEqual(sampled(7), sampled(7));
    assert.notDeepEqual(sampled(7), sampled(8));
  });

  it("are of every kind and verb, by every user", () => {
    const sequences = sampled(7);
    const steps = sequences.flatMap(({ steps }) => steps);
    assert.equal(new Set(sequences.map(({ kind }) => kind)).size, 8);
    assert.equal(new Set(steps.map(({ verb }) => verb)).size, 6);
    assert.equal(new Set(steps.map(({ user }) => user)).size, 3);
    assert.equal(new Set(steps.flatMap((step) => (step.verb === "patch" ? [step.type] : []))).size, 3);
    const subresources = steps.flatMap((step) => ("subresource" in step ? [step.subresource] : []));
    for (const one of ["status", "ephemeralcontainers", "binding", "eviction", "resize", "scale"])
      assert.ok(subresources.includes(one), one);
  });
});

describe("a comparison", () => {
  const answer = (code: number, body: object): Comparable => ({ code, body, warnings: [] });

  it("sees codes, warnings and what is said", () => {
    const one = answer(403, { reason: "Forbidden", message: "a", details: { name: "b" } });
    const others = [
      { ...one, code: 422 },
      { ...one, warnings: ["c"] },
      answer(403, { reason: "Invalid", message: "a", details: { name: "b" } }),
      answer(403, { reason: "Forbidden", message: "b", details: { name: "b" } }),
      answer(403, { reason: "Forbidden", message: "a", details: { name: "c" } }),
      answer(403, { reason: "Forbidden", message: "a" }),
    ];
    assert.deepEqual(compare(one, structuredClone(one)), { verdict: "equal" });
    for (const other of others) assert.deepEqual(compare(one, other), { verdict: "different" });
  });

  it("says of a known difference why it is there, and knows no other that looks like it", () => {
    const upstream = answer(500, { code: 500, message: "pods is forbidden" });
    const ours = answer(403, { code: 403, reason: "Forbidden", message: "pods is forbidden" });
    assert.equal(compare(upstream, ours).verdict, "known");
    assert.equal(compare(ours, upstream).verdict, "different");
    assert.equal(compare(upstream, answer(403, { reason: "Forbidden", message: "no" })).verdict, "different");

    const pod = (...keys: string[]) => answer(201, { spec: { tolerations: keys.map((key) => ({ key })) } });
    assert.equal(compare(pod("a", "b"), pod("b", "a")).verdict, "known");
    assert.equal(compare(pod("a", "b"), pod("b")).verdict, "different");
  });

  it("shows both sides, and what they share only where they part", () => {
    const body = { a: 1, b: 2, c: 3, d: 4, e: 5 };
    assert.equal(
      diffOf(answer(200, body), answer(200, { ...body, e: 6 })),
      ['      "c": 3,', '      "d": 4,', '-     "e": 5', '+     "e": 6', "    },", '    "code": 200,'].join("\n"),
    );
  });
});
