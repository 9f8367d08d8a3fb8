import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse, stringify } from "yaml";
import { computePatch } from "#lib/core/patch.ts";
import { readRows } from "../../../test/rows.ts";
import { parseManifests } from "../../manifests/manifests.ts";
import { applyFixes } from "./fix.ts";

/**
 * Returns a file's text after a fix that changes its first object, or the reason why the fix keeps the text as it is.
 * `fill` sets the defaults of an API server before.
 */
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
const rows = readRows<{ name: string; text: string; after: object; fixed: string }[]>(import.meta.filename);

describe("a fix", () => {
  for (const { name, text, after, fixed } of rows)
    it(name, () => {
      const top = text.includes("\r") ? head.replaceAll("\n", "\r\n") : head;
      assert.equal(
        applyChange(top + text, (object) => Object.assign(object, after)),
        top + fixed,
      );
    });

  it("a fix adds the parents of a changed field if only the API server's defaults have them", () => {
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

  it("a fix keeps JSON on one line or on several lines", () => {
    const object = { apiVersion: "v1", kind: "Pod", a: { b: [1] } };
    const change = (given: any) => Object.assign(given.a, { c: { d: 1 } });
    assert.equal(
      applyChange(JSON.stringify(object), change),
      '{"apiVersion":"v1","kind":"Pod","a":{"b":[1], "c": {"d":1}}}',
    );
    const changed = { ...object, a: { b: [1], c: { d: 1 } } };
    for (const space of [2, 4, "\t"])
      assert.equal(applyChange(JSON.stringify(object, null, space), change), JSON.stringify(changed, null, space));
    // A document that is too long for edits is printed as a whole.
    const filler = "x".repeat(256 * 1024);
    for (const space of [0, 2, "\t"]) {
      const print = (object: object) => `\n${JSON.stringify({ ...object, filler }, null, space)}\n`;
      assert.equal(applyChange(print(object), change), print(changed));
    }
  });

  it("a fix does not change other documents of a file, not even their spaces", () => {
    const text = `${head}a: 1\n--- # next\n${head}b:   [ 1 ]   \n\n---\n# nothing\n`;
    assert.equal(
      applyChange(text, (o) => Object.assign(o, { a: 2 })),
      text.replace("a: 1", "a: 2"),
    );
  });

  it("a fix does not change a document with aliases", () => {
    assert.match(
      applyChange(`${head}a: &a { b: 1 }\nc: *a\n`, (o) => Object.assign(o.a, { b: 2 })),
      /^it has aliases/,
    );
  });

  it("a fix changes one object in a stream of JSON objects, and no other object", () => {
    const text = '{"apiVersion":"v1","kind":"A","a":1}\n{"apiVersion":"v1","kind":"B","a": 1}\n';
    const [, manifest] = parseManifests({ name: "a.json", text }).manifests;
    assert.ok(manifest);
    const after = { ...manifest.object, a: 2 };
    assert.deepEqual(applyFixes(text, [{ manifest, patch: computePatch(manifest.object, after, ""), after }]), {
      text: text.replace('"a": 1', '"a": 2'),
    });
  });

  it("a fix makes a text that has the wanted object, for any object in any style of YAML", () => {
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
