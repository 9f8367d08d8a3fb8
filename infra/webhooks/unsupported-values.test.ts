import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../testing/rows.ts";
import { mayNestObject } from "./unsupported-values.ts";

const { safe, unsafe } = readRows<Record<"safe" | "unsafe", string[]>>(import.meta.filename);

describe("the operands of JSON patches", () => {
  for (const text of safe)
    it(`have no Object in a list or a map: ${text}`, () => assert.equal(mayNestObject(text), false));
  for (const text of unsafe)
    it(`may have an Object in a list or a map: ${text}`, () => assert.equal(mayNestObject(text), true));
});
