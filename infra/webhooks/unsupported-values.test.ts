import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../testing/rows.ts";
import { findUnsupportedValue, mayNestObject } from "./unsupported-values.ts";

const rows = readRows<Record<"safe" | "unsafe" | "converted" | "unconverted", string[]>>(import.meta.filename);

describe("the CEL expression of a JSON patch", () => {
  for (const text of rows.safe)
    it(`has no Object{} in a list or a map, with which API servers could panic: ${text}`, () =>
      assert.equal(mayNestObject(text), false));
  for (const text of rows.unsafe)
    it(`may have an Object{} in a list or a map: ${text}`, () => assert.equal(mayNestObject(text), true));
});

describe("findUnsupportedValue", () => {
  const find = (expression: string, kubernetes: string) =>
    findUnsupportedValue(
      {
        variables: [{ name: "parts", expression: "'a,b'.split(',')" }],
        mutations: [
          { patchType: "any", [expression.startsWith("[") ? "jsonPatch" : "applyConfiguration"]: { expression } },
        ],
      },
      kubernetes,
    );
  const reason =
    "API servers of Kubernetes 1.36 can't convert some lists in an Object{}: those that split or findAll return, and lists of maps or of lists that are joined by +";
  for (const text of rows.converted) it(`finds nothing in ${text}`, () => assert.equal(find(text, "1.36"), undefined));
  for (const text of rows.unconverted)
    it(`finds a list that API servers before 1.37 can't convert to JSON for the patch: ${text}`, () => {
      assert.equal(find(text, "1.36"), reason);
      assert.equal(find(text, "1.37"), undefined);
    });
});
