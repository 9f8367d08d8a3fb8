import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse, stringify } from "yaml";
import { computePatch } from "#lib/patch.ts";
import { parseManifests } from "../manifests/manifests.ts";
import { applyFixes } from "./fix.ts";

/** A file after its first object became another. */
const applyChange = (text: string, change: (object: any) => void, fill: (object: any) => void = () => {}): string => {
  const [manifest] = parseManifests({ name: "a.yaml", text }).manifests;
  assert.ok(manifest);
  const before = structuredClone(manifest.object);
  fill(before);
  const after = structuredClone(before);
  change(after);
  const result = applyFixes(text, [{ manifest, patch: computePatch(before, after, ""), after }]);
  return "text" in result ? result.text : result.kept;
};

const head = "apiVersion: v1\nkind: Pod\n";

describe("applyFixes", () => {
  const cases: [name: string, text: string, change: (object: any) => void, wanted: string][] = [
    [
      "takes a new value and keeps the comment beside it",
      "a: 1 # one\nb:   2\n",
      (o) => Object.assign(o, { a: 3 }),
      "a: 3 # one\nb:   2\n",
    ],
    [
      "takes a new key behind the last, and what stands there",
      "a:\n    b: 1 # one\n\n# end\n",
      (o) => Object.assign(o.a, { c: { d: "x" } }),
      "a:\n    b: 1 # one\n    c:\n        d: x\n\n# end\n",
    ],
    [
      "takes a new item in lists that are level with their keys",
      "a:\n- b: 1\n",
      (o) => o.a.push({ b: 2, c: [3] }),
      "a:\n- b: 1\n- b: 2\n  c:\n  - 3\n",
    ],
    [
      "takes a new item in lists that are not",
      "a:\n  - b: 1 # x\n",
      (o) => o.a.push({ b: 2, c: [3] }),
      "a:\n  - b: 1 # x\n  - b: 2\n    c:\n      - 3\n",
    ],
    ["takes a new item in front", "a:\n- b: 1\n", (o) => o.a.unshift({ b: 0 }), "a:\n- b: 0\n- b: 1\n"],
    [
      "takes what comes into braces",
      "a: {b: 1}\n",
      (o) => Object.assign(o.a, { c: { d: ["100m"] } }),
      "a: {b: 1, c: {d: [100m]}}\n",
    ],
    [
      "takes a list in the place of an empty one",
      "a: [] # none\nb: 1\n",
      (o) => o.a.push({ c: 1 }),
      "a: # none\n- c: 1\nb: 1\n",
    ],
    ["loses a key with its line", "a:\n  b: 1 # one\n  c: 2\n", (o) => delete o.a.b, "a:\n  c: 2\n"],
    [
      "ends its lines as they ended",
      'a:\r\n  - b: "x" # x\r\nc: |\r\n  y\r\n\r\n',
      (o) => o.a.push({ b: "1\n2\n", d: [3] }),
      'a:\r\n  - b: "x" # x\r\n  - b: |\r\n      1\r\n      2\r\n    d:\r\n      - 3\r\nc: |\r\n  y\r\n\r\n',
    ],
    [
      "keeps texts in quotes that would be something else",
      "a: b\n",
      (o) => Object.assign(o, { a: "yes", c: "1", d: "0x1", e: "12:30" }),
      'a: "yes"\nc: "1"\nd: "0x1"\ne: "12:30"\n',
    ],
  ];
  for (const [name, text, change, wanted] of cases)
    it(name, () => {
      const top = text.includes("\r") ? head.replaceAll("\n", "\r\n") : head;
      assert.equal(applyChange(top + text, change), top + wanted);
    });

  it("makes what leads to a change where only the API server filled it in", () => {
    const text = `${head}spec:\n  containers:\n  - name: a\n`;
    const fill = (object: any) =>
      Object.assign(object.spec.containers[0], { resources: {}, ports: [], pull: "Always" });
    const change = (object: any) => {
      object.spec.containers[0].resources.requests = { cpu: "1" };
      object.spec.containers[0].ports.push({ port: 1 });
      object.spec.containers[0].pull = "Never";
    };
    assert.deepEqual(parse(applyChange(text, change, fill)).spec.containers, [
      { name: "a", resources: { requests: { cpu: "1" } }, ports: [{ port: 1 }], pull: "Never" },
    ]);
  });

  it("keeps JSON, on one line or many", () => {
    const object = { apiVersion: "v1", kind: "Pod", a: { b: [1] } };
    const change = (given: any) => Object.assign(given.a, { c: { d: 1 } });
    assert.equal(
      applyChange(JSON.stringify(object), change),
      '{"apiVersion":"v1","kind":"Pod","a":{"b":[1], "c": {"d":1}}}',
    );
    const changed = { ...object, a: { b: [1], c: { d: 1 } } };
    for (const space of [2, 4, "\t"])
      assert.equal(applyChange(JSON.stringify(object, null, space), change), JSON.stringify(changed, null, space));
    // A longer document is printed anew.
    const filler = "x".repeat(256 * 1024);
    for (const space of [0, 2, "\t"]) {
      const print = (object: object) => `\n${JSON.stringify({ ...object, filler }, null, space)}\n`;
      assert.equal(applyChange(print(object), change), print(changed));
    }
  });

  it("keeps other documents as they are, to the last blank", () => {
    const text = `${head}a: 1\n--- # next\n${head}b:   [ 1 ]   \n\n---\n# nothing\n`;
    assert.equal(
      applyChange(text, (o) => Object.assign(o, { a: 2 })),
      text.replace("a: 1", "a: 2"),
    );
  });

  it("is left alone where aliases are in it", () => {
    assert.match(
      applyChange(`${head}a: &a { b: 1 }\nc: *a\n`, (o) => Object.assign(o.a, { b: 2 })),
      /^it has aliases/,
    );
  });

  it("may be a stream of JSON, of which another part stays as it is", () => {
    const text = '{"apiVersion":"v1","kind":"A","a":1}\n{"apiVersion":"v1","kind":"B","a": 1}\n';
    const [, manifest] = parseManifests({ name: "a.json", text }).manifests;
    assert.ok(manifest);
    const after = { ...manifest.object, a: 2 };
    assert.deepEqual(applyFixes(text, [{ manifest, patch: computePatch(manifest.object, after, ""), after }]), {
      text: text.replace('"a": 1', '"a": 2'),
    });
  });

  it("holds what it should, whatever it held and however that was written", () => {
    const key = fc.constantFrom("a", "b", "c", "k8s.io/d", "__proto__", "x y", "on", "1");
    const scalar = fc.oneof(
      fc.constantFrom<unknown>("x", "", "yes", "1", "a\nb", "a\nb\n", " lead\n", "# no", "a: b", "~"),
      fc.integer(),
      fc.boolean(),
      fc.constant(null),
    );
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { depthSize: "small" },
        scalar,
        fc.array(tie("value"), { maxLength: 3 }),
        fc.dictionary(key, tie("value"), { maxKeys: 3, noNullPrototype: true }),
      ),
    }));
    const objects = fc.dictionary(fc.constantFrom("spec", "data", "other"), value, {
      minKeys: 1,
      noNullPrototype: true,
    });
    const style = fc.record({
      indent: fc.constantFrom(2, 4),
      indentSeq: fc.boolean(),
      collectionStyle: fc.constantFrom("any" as const, "flow" as const),
    });
    fc.assert(
      fc.property(objects, objects, style, (before, after, style) => {
        const text = stringify(
          { apiVersion: "v1", kind: "A", ...before },
          { ...style, version: "1.1", aliasDuplicateObjects: false },
        );
        const [manifest] = parseManifests({ name: "a", text }).manifests;
        assert.ok(manifest);
        const wanted = JSON.parse(JSON.stringify({ apiVersion: "v1", kind: "A", ...after }));
        const result = applyFixes(text, [
          { manifest, patch: computePatch(manifest.object, wanted, ""), after: wanted },
        ]);
        assert.ok("text" in result, text);
        assert.deepEqual(parseManifests({ name: "a", text: result.text }).manifests[0]?.object, wanted);
      }),
      { numRuns: 500 },
    );
  });
});
