import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import { draft, applied as patched } from "../../patch.ts";
import { type PatchOperation, patchWith } from "./plaintext.ts";

const object = () => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "web" },
  spec: { a: 1, list: ["x", "y", "z"], none: null, "b/c": 1, "~1": { d: 1 } },
});

const changed = (...operations: PatchOperation[]) => {
  const value = object();
  const isChanged = patchWith(value, operations);
  assert.equal(isChanged, JSON.stringify(value) !== JSON.stringify(object()));
  return value;
};

describe("a patch of a policy", () => {
  const done: [name: string, operations: PatchOperation[], place: "spec" | "metadata", expected: unknown][] = [
    ["adds a key", [{ op: "add", path: "/spec/b", value: [1] }], "spec", { ...object().spec, b: [1] }],
    ["adds over a key", [{ op: "add", path: "/spec/a", value: 2 }], "spec", { ...object().spec, a: 2 }],
    ["replaces an absent key", [{ op: "replace", path: "/spec/b", value: 2 }], "spec", { ...object().spec, b: 2 }],
    ["takes no value for null", [{ op: "add", path: "/spec/b" }], "spec", { ...object().spec, b: null }],
    [
      "inserts into a list",
      [{ op: "add", path: "/spec/list/1", value: 0 }],
      "spec",
      { ...object().spec, list: ["x", 0, "y", "z"] },
    ],
    [
      "inserts at a list's end",
      [{ op: "add", path: "/spec/list/3", value: 0 }],
      "spec",
      { ...object().spec, list: ["x", "y", "z", 0] },
    ],
    [
      "appends to a list",
      [{ op: "add", path: "/spec/list/-", value: 0 }],
      "spec",
      { ...object().spec, list: ["x", "y", "z", 0] },
    ],
    [
      "counts from behind the end where it inserts",
      [{ op: "add", path: "/spec/list/-1", value: 0 }],
      "spec",
      { ...object().spec, list: ["x", "y", "z", 0] },
    ],
    [
      "counts from the end where it replaces",
      [{ op: "replace", path: "/spec/list/-1", value: 0 }],
      "spec",
      { ...object().spec, list: ["x", "y", 0] },
    ],
    ["removes from a list", [{ op: "remove", path: "/spec/list/-3" }], "spec", { ...object().spec, list: ["y", "z"] }],
    [
      "unescapes keys once",
      [{ op: "replace", path: "/spec/~01/d", value: 2 }],
      "spec",
      { ...object().spec, "~1": { d: 2 } },
    ],
    ["unescapes a slash", [{ op: "replace", path: "/spec/b~1c", value: 2 }], "spec", { ...object().spec, "b/c": 2 }],
    [
      "makes missing annotations",
      [{ op: "replace", path: "/metadata/annotations/a", value: "b" }],
      "metadata",
      { name: "web", annotations: { a: "b" } },
    ],
    [
      "makes missing labels",
      [{ op: "add", path: "/metadata/labels/a~1b", value: "c" }],
      "metadata",
      { name: "web", labels: { "a/b": "c" } },
    ],
    [
      "tests a value and changes nothing",
      [{ op: "test", path: "/spec/list", value: ["x", "y", "z"] }],
      "spec",
      object().spec,
    ],
    [
      "takes what is absent for null when it tests",
      [{ op: "test", path: "/spec/no", value: null }],
      "spec",
      object().spec,
    ],
    [
      "adds what is there, and changes nothing",
      [{ op: "add", path: "/spec/list", value: ["x", "y", "z"] }],
      "spec",
      object().spec,
    ],
    [
      "tells each operation what the last one did",
      [
        { op: "add", path: "/spec/m", value: {} },
        { op: "add", path: "/spec/m/n", value: 1 },
      ],
      "spec",
      { ...object().spec, m: { n: 1 } },
    ],
    [
      "replaces the whole object",
      [{ op: "replace", path: "", value: { ...object(), spec: { b: 1 } } }],
      "spec",
      { b: 1 },
    ],
    [
      "may remove the kind for a while",
      [
        { op: "remove", path: "/kind" },
        { op: "add", path: "/kind", value: "Pod" },
        { op: "add", path: "/spec", value: 1 },
      ],
      "spec",
      1,
    ],
  ];
  for (const [name, operations, place, expected] of done)
    it(name, () => assert.deepEqual(changed(...operations)[place], expected));

  const refused: [name: string, operation: unknown, message: RegExp][] = [
    [
      "a parent that doesn't exist",
      { op: "add", path: "/spec/no/b", value: 1 },
      /add "\/spec\/no\/b": the parent doesn't exist/,
    ],
    ["a parent that is null", { op: "add", path: "/spec/none/b", value: 1 }, /the parent doesn't exist/],
    ["a parent that is a number", { op: "add", path: "/spec/a/b", value: 1 }, /the parent doesn't exist/],
    ["a parent of the prototype", { op: "add", path: "/spec/constructor/b", value: 1 }, /the parent doesn't exist/],
    ["removing an absent key", { op: "remove", path: "/spec/no" }, /remove "\/spec\/no": the key doesn't exist/],
    ["removing what only the prototype has", { op: "remove", path: "/spec/toString" }, /the key doesn't exist/],
    [
      "removing from missing annotations",
      { op: "remove", path: "/metadata/annotations/a" },
      /the parent doesn't exist/,
    ],
    [
      "replacing beyond a list",
      { op: "replace", path: "/spec/list/3", value: 1 },
      /the list has no such index, but 3 elements/,
    ],
    ["removing behind the end", { op: "remove", path: "/spec/list/-" }, /the list has no such index/],
    ["inserting beyond the end", { op: "add", path: "/spec/list/4" }, /the list has no such index/],
    ["an index that is none", { op: "add", path: "/spec/list/length", value: 0 }, /the list has no such index/],
    ["an index too far from the end", { op: "remove", path: "/spec/list/-4" }, /the list has no such index/],
    ["a failing test", { op: "test", path: "/spec/a", value: 2 }, /test "\/spec\/a": the value there is another one/],
    [
      "copying",
      { op: "copy", path: "/spec/a", from: "/spec/list" },
      /op "copy" at \/spec\/a must be one of add, remove, replace, test/,
    ],
    ["moving", { op: "move", path: "/spec/a", from: "/spec/list" }, /must be one of/],
    ["an op of the prototype", { op: "constructor", path: "/spec/a" }, /must be one of/],
    ["no op", { path: "/spec/a" }, /must be one of/],
    ["no path", { op: "add", value: 1 }, /path of an operation must be a text of at most 4096 characters/],
    [
      "a path that is too long",
      { op: "add", path: "/a".repeat(4000) },
      /path of an operation must be a text of at most/,
    ],
    [
      "a path without a slash in front",
      { op: "add", path: "spec/a", value: 1 },
      /the path "spec\/a" must begin with a slash/,
    ],
    ["removing the whole object", { op: "remove", path: "" }, /that can't be done to the whole object/],
    ["a list as the whole object", { op: "replace", path: "", value: [] }, /that can't be done to the whole object/],
    ["removing the kind", { op: "remove", path: "/kind" }, /a patch must leave the object its kind/],
    ["a kind that is none", { op: "replace", path: "/kind", value: 1 }, /a patch must leave the object its kind/],
    ["removing apiVersion", { op: "remove", path: "/apiVersion" }, /a patch must leave the object its apiVersion/],
    [
      "metadata that is a text",
      { op: "replace", path: "/metadata", value: "x" },
      /a patch must leave the object's metadata a map/,
    ],
    ["a value that JSON hasn't", { op: "add", path: "/spec/a", value: Number.NaN }, /NaN is no number that JSON has/],
    ["an operation that is a text", "add", /an operation of a patch must be a map/],
  ];
  for (const [name, operation, message] of refused)
    it(`refuses ${name}`, () =>
      assert.throws(() => patchWith(object(), [operation as PatchOperation]), { name: "Error", message }));

  it("refuses a value that is nested without end", () => {
    let value: unknown = 1;
    for (let depth = 0; depth < 50_000; depth++) value = [value];
    assert.throws(() => patchWith(object(), [{ op: "add", path: "/spec/a", value }]), /nested more than 1000 levels/);
  });

  it("sets __proto__ as a key", () => {
    const value = object();
    patchWith(value, [{ op: "add", path: "/metadata/labels/__proto__", value: "x" }]);
    assert.equal(JSON.stringify(value.metadata), '{"name":"web","labels":{"__proto__":"x"}}');
  });

  it("shares nothing with the policy", () => {
    const value = { a: [1] };
    const [one, other] = Object.values(
      changed({ op: "add", path: "/spec/b", value }, { op: "add", path: "/spec/c", value }).spec,
    ).slice(-2);
    assert.notEqual(one, value);
    assert.notEqual(one, other);
  });

  it("does to a draft what it does to an object, and the object stays as it was", () => {
    const key = fc.constantFrom("a", "b", "0", "1", "-1", "-", "__proto__", "annotations", "metadata", "spec");
    const operation = fc.record({
      op: fc.constantFrom("add", "remove", "replace", "test"),
      path: fc.array(key, { minLength: 1, maxLength: 4 }).map((keys) => `/${keys.join("/")}`),
      value: fc.jsonValue({ maxDepth: 2 }),
    });
    const document = fc.record({
      kind: fc.constant("Pod"),
      metadata: fc.constant({ name: "x" }),
      spec: fc.oneof(fc.jsonValue(), fc.constant({ a: [{ b: [1, 2] }, 2], b: { a: 1 } })),
    });
    fc.assert(
      fc.property(document, fc.array(operation, { maxLength: 6 }), (original, operations) => {
        const before = JSON.stringify(original);
        const plain: KubernetesObject = JSON.parse(before);
        const { value, changes } = draft<KubernetesObject>(original);
        const outcome = (target: KubernetesObject) => {
          try {
            return patchWith(target, operations);
          } catch (error) {
            assert.equal(error instanceof Error && error.name, "Error");
            return String(error);
          }
        };
        assert.deepEqual(outcome(value), outcome(plain));
        assert.equal(JSON.stringify(patched(original, changes()), sorted), JSON.stringify(plain, sorted));
        assert.equal(JSON.stringify(original), before);
      }),
      { numRuns: 2000 },
    );
  });
});

/** Members in the order of their names. */
const sorted = (_: string, value: unknown) =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
    : value;
