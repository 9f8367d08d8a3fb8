import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { between } from "#lib/patch.ts";
import { applyPatch, parseOperations } from "./json-patch.ts";

const document = { a: "1", list: ["x", "y"], map: { inner: { deep: true } }, less: "a<b", none: null };

describe("a patch", () => {
  const fine: [string, unknown[], object][] = [
    ["adds over what is there", [{ op: "add", path: "/a", value: "2" }], { a: "2" }],
    ["replaces what is not there", [{ op: "replace", path: "/b", value: 1 }], { b: 1 }],
    ["counts from the end", [{ op: "remove", path: "/list/-1" }], { list: ["x"] }],
    ["appends", [{ op: "add", path: "/list/-", value: "z" }], { list: ["x", "y", "z"] }],
    ["inserts", [{ op: "add", path: "/list/1", value: "z" }], { list: ["x", "z", "y"] }],
    ["adds null where no value is given", [{ op: "add", path: "/b" }], { b: null }],
    ["takes null for what isn't there", [{ op: "test", path: "/nothing", value: null }], {}],
    ["takes what is written as Go writes it", [{ op: "test", path: "/a", value: "1" }], {}],
    ["copies", [{ op: "copy", from: "/map/inner", path: "/b" }], { b: { deep: true } }],
    ["moves", [{ op: "move", from: "/a", path: "/map/a" }], { a: undefined, map: { inner: { deep: true }, a: "1" } }],
    ["takes a prototype's names for names", [{ op: "add", path: "/__proto__", value: 1 }], { ["__proto__"]: 1 }],
  ];
  for (const [what, changes, expected] of fine)
    it(what, () => {
      const before = structuredClone(document);
      const wanted = Object.fromEntries(
        Object.entries({ ...document, ...expected }).filter(([, one]) => one !== undefined),
      );
      assert.deepEqual({ ...(applyPatch(document, parseOperations(JSON.stringify(changes))) as object) }, wanted);
      assert.deepEqual(document, before);
    });

  const failing: [string, string, string][] = [
    ["is no list", "{}", "json: cannot unmarshal object into Go value of type jsonpatch.Patch"],
    ["has what is no operation", "[1]", "json: cannot unmarshal number into Go value of type jsonpatch.Operation"],
    [
      "removes what isn't there",
      '[{"op":"remove","path":"/b"}]',
      "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
    ],
    [
      "adds below nothing",
      '[{"op":"add","path":"/b/c"}]',
      'add operation does not apply: doc is missing path: "/b/c": missing value',
    ],
    [
      "adds below null",
      '[{"op":"add","path":"/none/c"}]',
      'add operation does not apply: doc is missing path: "/none/c": missing value',
    ],
    [
      "adds beyond a list",
      '[{"op":"add","path":"/list/7"}]',
      "error in add for path: '/list/7': Unable to access invalid index: 7: invalid index referenced",
    ],
    ["tests for another", '[{"op":"test","path":"/a","value":"2"}]', "testing value /a failed: test failed"],
    [
      "tests for a text that Go writes otherwise",
      '[{"op":"test","path":"/less","value":"a<b"}]',
      "testing value /less failed: test failed",
    ],
    ["does what nobody knows", '[{"op":"constructor","path":"/a"}]', "Unexpected kind: constructor"],
    [
      "looks for inherited members",
      '[{"op":"remove","path":"/toString"}]',
      "error in remove for path: '/toString': Unable to remove nonexistent key: toString: missing value",
    ],
  ];
  for (const [what, text, expected] of failing)
    it(`fails where it ${what}`, () => {
      assert.throws(() => applyPatch(document, parseOperations(text)), { message: expected });
    });

  it("may copy no more than an API server lets it", () => {
    const large = { text: "x".repeat(1024 * 1024) };
    const changes = [1, 2, 3].map((index) => ({ op: "copy", from: "/text", path: `/copy${index}` }));
    assert.throws(
      () => applyPatch(large, parseOperations(JSON.stringify(changes))),
      /accumulated size increase of copy/,
    );
  });

  it("of ours leads from any object to any other", () => {
    const json = fc.dictionary(fc.string({ maxLength: 4 }), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 });
    fc.assert(
      fc.property(json, json, (before, after) => {
        const [from, to] = [before, after].map((one) => JSON.parse(JSON.stringify(one)));
        const said = applyPatch(from, parseOperations(JSON.stringify(between(from, to, ""))));
        assert.deepEqual(JSON.parse(JSON.stringify(said)), to);
      }),
    );
  });
});
