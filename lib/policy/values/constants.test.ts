import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import type { Constant } from "../kinds.ts";
import { constantOf } from "./constants.ts";
import { parseDecimal } from "./decimals.ts";

suite("a constant", () => {
  const values: [name: string, constant: Constant | undefined, value: unknown][] = [
    ["may be a text", { string: "a" }, "a"],
    ["may be an empty text", { string: "" }, ""],
    ["may be an integer", { integer: 0 }, 0],
    ["may be a float, exactly", { float: "5.0" }, parseDecimal("5.0")],
    ["may be a boolean", { boolean: false }, false],
    ["may be a list of texts", { stringSlice: ["a", ""] }, ["a", ""]],
    ["may be a list of integers", { integerSlice: [1, 2] }, [1, 2]],
    ["may be a list of floats", { floatSlice: ["1.5"] }, [parseDecimal("1.5")]],
    ["may be a map", { stringMap: { a: "b" } }, { a: "b" }],
    ["is the first that is set", { stringMap: { a: "b" }, boolean: true, integer: 1 }, 1],
    ["isn't an empty list or map", { stringSlice: [], stringMap: {}, floatSlice: ["1"] }, [parseDecimal("1")]],
    ["isn't null", { string: null, boolean: true } as never, true],
  ];
  for (const [name, constant, value] of values) test(name, () => assert.deepEqual(constantOf(constant), { value }));

  for (const constant of [undefined, {}, { stringSlice: [] }, { other: 1 } as Constant])
    test(`is none where it is ${JSON.stringify(constant)}`, () => assert.equal(constantOf(constant), undefined));

  const refused: [constant: unknown, sentence: string][] = [
    ["a", "value must be an object with a field such as string or integer"],
    [{ string: 1 }, "value.string must be a string"],
    [{ integer: 1.5 }, "value.integer must be an integer"],
    [{ integer: "1" }, "value.integer must be an integer"],
    [{ float: 1.5 }, "value.float must be a decimal number in a string"],
    [{ float: "1Gi" }, "value.float must be a decimal number in a string"],
    [{ boolean: "true" }, "value.boolean must be true or false"],
    [{ stringSlice: "a" }, "value.stringSlice must be a list of strings"],
    [{ stringSlice: [1] }, "value.stringSlice must be a list of strings"],
    [{ integerSlice: ["1"] }, "value.integerSlice must be a list of integers"],
    [{ floatSlice: ["a"] }, "value.floatSlice must be a list of decimal numbers in strings"],
    [{ stringMap: ["a"] }, "value.stringMap must be a map of strings"],
    [{ stringMap: { a: 1 } }, "value.stringMap must be a map of strings"],
  ];
  for (const [constant, message] of refused)
    test(`must not be ${JSON.stringify(constant)}`, () => {
      const given = constant as Constant;
      assert.throws(() => constantOf(given), { name: "Error", message });
    });

  test("is read or refused in a sentence, whatever it is", () => {
    const fields = ["string", "integer", "float", "boolean", "stringSlice", "integerSlice", "floatSlice", "stringMap"];
    const any = fc.oneof(fc.jsonValue(), fc.dictionary(fc.constantFrom(...fields), fc.jsonValue()));
    fc.assert(
      fc.property(any, (constant) => {
        try {
          constantOf(constant as Constant);
        } catch (error) {
          assert.match(String(error), /^Error: value/);
        }
      }),
    );
  });
});
