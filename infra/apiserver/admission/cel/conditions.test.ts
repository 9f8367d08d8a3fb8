import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { builtIn } from "./conditions.ts";
import { compilePattern } from "./expressions.ts";

const object = {
  metadata: { name: "x", labels: { tier: "a", "a.b/c": "d" } },
  spec: { replicas: 3, containers: [{ name: "main", image: "i:1" }], none: null },
};
const request = { operation: "CREATE", dryRun: false, userInfo: { username: "jane" } };

describe("a condition", () => {
  const table: [string, object][] = [
    ["object.spec.replicas == 3", { holds: true }],
    ["object.spec.replicas == 3.0", { holds: true }],
    ['object.spec.replicas == "3"', { holds: false }],
    ['object.metadata.labels["a.b/c"] == "d"', { holds: true }],
    ['object.spec.containers.all(c, c.image.matches("^[a-z]+:[0-9]+$"))', { holds: true }],
    ['object.metadata.labels.exists(k, k == "tier")', { holds: true }],
    ["has(object.spec.none)", { holds: true }],
    ["oldObject == null", { holds: true }],
    ["oldObject.spec.nope == 1", { error: "no such key: spec" }],
    ["object.nope == 1", { error: "no such key: nope" }],
    ["object.nope == 1 || true", { holds: true }],
    ["object.toString == 1", { error: "no such key: toString" }],
    ["object.spec.containers[4].name == 'a'", { error: "index out of bounds: 4" }],
    ["request.?namespace.orValue('') == ''", { holds: true }],
    ["namespaceObject == null", { holds: true }],
    ["object.spec", { unsupported: "the expression is no condition" }],
    ["1 +", { unsupported: "the expression isn't understood here" }],
    [
      "authorizer.group('').resource('pods').check('get').allowed()",
      { unsupported: "only the cluster's authorizer knows who may do what" },
    ],
    ["object.metadata.name.lowerAscii() == 'x'", { unsupported: "the function lowerAscii isn't known here" }],
    [
      "object.metadata.name.matches(object.metadata.name)",
      { unsupported: "a regular expression in it is invalid or isn't a literal" },
    ],
    ["params.x == 1", { unsupported: "params isn't known here" }],
  ];
  for (const [expression, expected] of table)
    it(`${expression} is ${JSON.stringify(expected)}`, () => {
      assert.deepEqual(builtIn.compile(expression)({ object, oldObject: null, request }), expected);
    });

  const many = { list: Array.from({ length: 2000 }, (_, index) => index) };
  it("that could cost more than is allowed is not guessed at", () => {
    const said = builtIn.compile("object.list.all(a, object.list.all(b, a + b >= 0))");
    assert.deepEqual(said({ object: many, oldObject: null, request }), {
      unsupported: "it may cost more than an API server allows",
    });
    assert.deepEqual(said({ object: { list: [1] }, oldObject: null, request }), { holds: true });
  });

  it("about numbers that aren't held exactly is not guessed at", () => {
    const said = builtIn.compile("object.n > 1");
    assert.ok("unsupported" in said({ object: { n: 2 ** 60 }, oldObject: null, request }));
    assert.ok("unsupported" in said({ object: { n: 2, spec: { list: [2 ** 60] } }, oldObject: null, request }));
  });

  it("sees each object as it is, though others had some of its parts", () => {
    const said = builtIn.compile("object.spec.n == 1 && object.metadata.name == oldObject.metadata.name");
    const [one, other] = [{ n: 1 }, { n: 2 }];
    const metadata = { name: "x" };
    const before = { metadata, spec: one };
    for (const [spec, name, holds] of [
      [one, "x", true],
      [other, "x", false],
      [one, "y", false],
      [one, "x", true],
    ] as const)
      assert.deepEqual(said({ object: { spec, metadata: { ...metadata, name } }, oldObject: before, request }), {
        holds,
      });
  });

  it("costs as much in the parts of an object as in the whole", () => {
    const said = builtIn.compile("object.spec.list.all(a, object.spec.list.all(b, a + b >= 0))");
    assert.ok("unsupported" in said({ object: { metadata: {}, spec: many }, oldObject: null, request }));
    // What is long, but not looked through, costs nothing.
    const short = { metadata: { labels: { other: many.list } }, spec: { list: [1] } };
    assert.deepEqual(said({ object: short, oldObject: null, request }), { holds: true });
  });
});

describe("a pattern", () => {
  const table: [string, string, boolean][] = [
    ["^a.c$", "abc", true],
    ["^a.c$", "a\nc", false],
    ["b+", "abbbc", true],
    ["^(a|bc)*$", "abca", true],
    ["^(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)+x{2,3}$", "a.b/c-d/xxx", true],
    ["^x{2,3}$", "xxxx", false],
    ["^[^a-c]$", "\u{1f600}", true],
    ["^\\d\\.\\w$", "1.z", true],
    ["", "anything", true],
    ["a$b", "ab", false],
    ["(?i)^k$", "\u212a", true],
    ["\\bb", "a b", true],
    ["^\\p{L}$", "\u{e9}", true],
  ];
  for (const [source, text, expected] of table)
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
    it(`${source} isn't understood`, () => {
      assert.equal(compilePattern(source), undefined);
    });

  it("that would take others for ever is as fast as any", () => {
    assert.equal(compilePattern("^(a+)+$")?.test(`${"a".repeat(2000)}b`), false);
  });
});
