import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { suite, test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import type { PolicyConstant } from "../types.ts";
import { parseConstant } from "./constants.ts";
import { parseDecimal } from "./decimals.ts";

suite("a constant", () => {
  const values: [name: string, constant: PolicyConstant | undefined, value: unknown][] = [
    ["may be a text", { string: "a" }, "a"],
    ["may be an empty text", { string: "" }, ""],
    ["may be an integer", { integer: 0 }, 0],
    ["may be a float, exactly", { float: "5.0" }, parseDecimal("5.0")],
    ["may be a boolean", { boolean: false }, false],
    ["may be a list of texts", { stringSlice: ["a", ""] }, ["a", ""]],
    ["may be a list of integers", { integerSlice: [1, 2] }, [1, 2]],
    ["may be a list of floats", { floatSlice: ["1.5"] }, [parseDecimal("1.5")]],
    ["may be a map", { stringMap: { a: "b" } }, { a: "b" }],
    [
      "is the first field that is set, in the order string, integer, float, boolean, lists and map",
      { stringMap: { a: "b" }, boolean: true, integer: 1 },
      1,
    ],
    ["isn't an empty list or map", { stringSlice: [], stringMap: {}, floatSlice: ["1"] }, [parseDecimal("1")]],
    ["isn't null", { string: null, boolean: true } as never, true],
  ];
  for (const [name, constant, value] of values) test(name, () => assert.deepEqual(parseConstant(constant), { value }));

  for (const constant of [undefined, {}, { stringSlice: [] }, { other: 1 } as PolicyConstant])
    test(`is undefined for ${JSON.stringify(constant)}`, () => assert.equal(parseConstant(constant), undefined));

  const invalid: { constant: PolicyConstant; message: string }[] = parse(
    readFileSync(new URL("cases.yaml", import.meta.url), "utf8"),
  ).invalidConstants;
  for (const { constant, message } of invalid)
    test(`can't be ${JSON.stringify(constant)}`, () =>
      assert.throws(() => parseConstant(constant), { name: "Error", message }));

  test("a policy constant is parsed or refused in a sentence for any JSON", () => {
    const fields = ["string", "integer", "float", "boolean", "stringSlice", "integerSlice", "floatSlice", "stringMap"];
    const any = fc.oneof(fc.jsonValue(), fc.dictionary(fc.constantFrom(...fields), fc.jsonValue()));
    fc.assert(
      fc.property(any, (constant) => {
        try {
          parseConstant(constant as PolicyConstant);
        } catch (error) {
          assert.match(String(error), /^Error: value/);
        }
      }),
    );
  });
});
