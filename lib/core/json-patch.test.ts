import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../test/rows.ts";
import { exactJson } from "../exact-json.ts";
import { applyJsonPatchAsApiServer, parsePatchOperations } from "./json-patch.ts";
import { computePatch } from "./patch.ts";

const { fine, failing } = readRows<{ fine: [string, unknown[], object][]; failing: [string, string, string][] }>(
  import.meta.filename,
);

const document = { a: "1", list: ["x", "y"], map: { inner: { deep: true } }, less: "a<b", none: null };

describe("a patch", () => {
  for (const [what, changes, expected] of fine)
    it(what, () => {
      const before = structuredClone(document);
      const wanted = { ...document, ...expected };
      assert.deepEqual(applyJsonPatchAsApiServer(document, parsePatchOperations(JSON.stringify(changes))), wanted);
      assert.deepEqual(document, before);
    });

  for (const [what, text, expected] of failing)
    it(`fails if it ${what}`, () => {
      assert.throws(() => applyJsonPatchAsApiServer(document, parsePatchOperations(text)), { message: expected });
    });

  it("a patch fails if it copies more bytes than an API server allows", () => {
    const large = { text: "x".repeat(1024 * 1024) };
    const changes = [1, 2, 3].map((index) => ({ op: "copy", from: "/text", path: `/copy${index}` }));
    assert.throws(
      () => applyJsonPatchAsApiServer(large, parsePatchOperations(JSON.stringify(changes))),
      /accumulated size increase of copy/,
    );
  });

  it("a patch computed by lib/core/patch.ts turns any object into any other object", () => {
    const json = fc.dictionary(fc.string({ maxLength: 4 }), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 });
    fc.assert(
      fc.property(json, json, (before, after) => {
        const [from, to] = [before, after].map((value) => JSON.parse(JSON.stringify(value)));
        const result = applyJsonPatchAsApiServer(
          from,
          parsePatchOperations(JSON.stringify(computePatch(from, to, ""))),
        );
        assert.deepEqual(JSON.parse(exactJson.stringify(result)), to);
      }),
    );
  });
});
