import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../../test/rows.ts";
import { celEvaluator } from "./conditions.ts";
import { compilePattern } from "./expressions.ts";

const { conditions, patterns } = readRows<{ conditions: [string, object][]; patterns: [string, string, boolean][] }>(
  import.meta.filename,
);

const object = {
  metadata: { name: "x", labels: { tier: "a", "a.b/c": "d" } },
  spec: { replicas: 3, containers: [{ name: "main", image: "i:1" }], none: null },
};
const request = { operation: "CREATE", dryRun: false, userInfo: { username: "jane" } };

describe("a condition", () => {
  for (const [expression, expected] of conditions)
    it(`${expression} is ${JSON.stringify(expected)}`, () => {
      assert.deepEqual(celEvaluator.compile(expression)({ object, oldObject: null, request }), expected);
    });

  const many = { list: Array.from({ length: 2000 }, (_, index) => index) };
  it("is unsupported if it could exceed the cost limit", () => {
    const evaluate = celEvaluator.compile("object.list.all(a, object.list.all(b, a + b >= 0))");
    assert.deepEqual(evaluate({ object: many, oldObject: null, request }), {
      unsupported: "it may cost more than an API server allows",
    });
    assert.deepEqual(evaluate({ object: { list: [1] }, oldObject: null, request }), { holds: true });
  });

  it("is unsupported if a number isn't held exactly", () => {
    const evaluate = celEvaluator.compile("object.n > 1");
    assert.ok("unsupported" in evaluate({ object: { n: 2 ** 60 }, oldObject: null, request }));
    assert.ok("unsupported" in evaluate({ object: { n: 2, spec: { list: [2 ** 60] } }, oldObject: null, request }));
  });

  it("is evaluated for each object, even if objects share parts", () => {
    const evaluate = celEvaluator.compile("object.spec.n == 1 && object.metadata.name == oldObject.metadata.name");
    const [sameSpec, otherSpec] = [{ n: 1 }, { n: 2 }];
    const metadata = { name: "x" };
    const oldObject = { metadata, spec: sameSpec };
    for (const [spec, name, holds] of [
      [sameSpec, "x", true],
      [otherSpec, "x", false],
      [sameSpec, "y", false],
      [sameSpec, "x", true],
    ] as const)
      assert.deepEqual(evaluate({ object: { spec, metadata: { ...metadata, name } }, oldObject, request }), {
        holds,
      });
  });

  it("has the same cost for an object and for its parts", () => {
    const evaluate = celEvaluator.compile("object.spec.list.all(a, object.spec.list.all(b, a + b >= 0))");
    assert.ok("unsupported" in evaluate({ object: { metadata: {}, spec: many }, oldObject: null, request }));
    // A long list that the expression doesn't read costs nothing.
    const short = { metadata: { labels: { other: many.list } }, spec: { list: [1] } };
    assert.deepEqual(evaluate({ object: short, oldObject: null, request }), { holds: true });
  });
});

describe("a pattern", () => {
  for (const [source, text, expected] of patterns)
    it(`${source} ${expected ? "matches" : "doesn't match"} ${JSON.stringify(text)}`, () => {
      assert.equal(compilePattern(source)?.test(text), expected);
    });

  for (const source of [
    "(?=a)",
    "\\1",
    "a**",
    "[a",
    "(a",
    "a)",
    "x{1001}",
    "((((a{100}){100}){100}){100})",
    "(a{500}){3}",
  ])
    it(`${source} is refused`, () => {
      assert.equal(compilePattern(source), undefined);
    });

  it("takes linear time for any expression", () => {
    assert.equal(compilePattern("^(a+)+$")?.test(`${"a".repeat(2000)}b`), false);
  });
});
