import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { readRows } from "../../../test/rows.ts";
import type { PolicyCondition, PolicyConstant } from "../types.ts";
import { isConditionMet } from "./conditions.ts";
import { parseConstant } from "./constants.ts";

const rows = readRows<{ name: string; condition: object; message: string }[]>(import.meta.filename);

/** Reports whether a condition is met that compares the tested value `data` (undefined if missing) with `value`. */
const isMet = (cond: string, data: unknown, value: unknown, rest: Partial<PolicyCondition> = {}) =>
  isConditionMet({ cond: cond as PolicyCondition["cond"], ...rest }, data === undefined ? undefined : { value: data }, {
    value,
  });
const parseValue = (constant: PolicyConstant) => parseConstant(constant)?.value;

const conds = ["Equal", "NotEqual", "Gt", "Gte", "Lt", "Lte"] as const;
type Cond = (typeof conds)[number];
const conditionsByOrder: Record<"below" | "same" | "above", Cond[]> = {
  below: ["NotEqual", "Lt", "Lte"],
  same: ["Equal", "Gte", "Lte"],
  above: ["NotEqual", "Gt", "Gte"],
};

suite("a condition", () => {
  const compared: [name: string, data: unknown, value: unknown, result: keyof typeof conditionsByOrder][] = [
    ["a text to itself", "b", "b", "same"],
    ["texts byte by byte", "B", "a", "below"],
    ["texts byte by byte beyond the first plane", "\u{10000}", "\uffff", "above"],
    ["numbers by their values", 5, parseValue({ float: "5.0" }), "same"],
    ["numbers exactly", 0.1, parseValue({ float: "0.1" }), "same"],
    [
      "numbers more exactly than floating point does",
      9007199254740992,
      parseValue({ float: "9007199254740992.5" }),
      "below",
    ],
    ["a text that is a number to a number", "13", 13, "same"],
    ["a text that is a quantity to a number", "1Gi", 1073741824, "same"],
    ["a number to a text that is a number", 4, "4.5", "below"],
    ["a float to a text", "1.40", parseValue({ float: "1.4" }), "same"],
  ];
  const listMet = (data: unknown, value: unknown) => conds.filter((cond) => isMet(cond, data, value));
  for (const [name, data, value, result] of compared)
    test(`compares ${name}`, () => assert.deepEqual(listMet(data, value), conditionsByOrder[result]));

  test("a policy condition compares texts for equality as texts and for order as quantities", () => {
    assert.deepEqual(listMet("1Gi", "1024Mi"), ["NotEqual", "Gte", "Lte"]);
    assert.deepEqual(listMet("1Gi", "500Mi"), ["NotEqual", "Gt", "Gte"]);
  });

  const equalityCases: [name: string, left: unknown, right: unknown, isEqual: boolean][] = [
    ["null and null", null, null, true],
    ["null and false", null, false, false],
    ["true and true", true, true, true],
    ["true and a text", true, "true", false],
    ["a number and a text that is no number", 1, "a", false],
    ["a number and an infinite one", Number.POSITIVE_INFINITY, 1, false],
    ["lists of equal elements", [1, ["a"]], [parseValue({ float: "1.0" }), ["a"]], true],
    ["lists in another order", ["a", "b"], ["b", "a"], false],
    ["lists of which one is longer", ["a"], ["a", "b"], false],
    ["maps in another order", { a: 1, b: "c" }, { b: "c", a: 1 }, true],
    ["maps with other keys", { a: 1 }, { b: 1 }, false],
    ["a map with an own member constructor and a map that inherits one", { constructor: undefined }, {}, false],
    ["a list and a map", [], {}, false],
    ["a map and a number", {}, 1, false],
  ];
  for (const [name, left, right, isEqual] of equalityCases)
    test(`finds ${name} ${isEqual ? "equal" : "different"}`, () => {
      assert.equal(isMet("Equal", left, right), isEqual);
      assert.equal(isMet("NotEqual", left, right), !isEqual);
    });

  const unordered: [data: unknown, value: unknown, sentence: string][] = [
    [true, true, "a boolean and a boolean can't be ordered"],
    [null, 1, "null and a number can't be ordered"],
    [1, null, "a number and null can't be ordered"],
    ["a", 1, "a string and a number can't be ordered"],
    [["a"], ["a"], "a list and a list can't be ordered"],
    [{}, parseValue({ float: "1" }), "an object and a number can't be ordered"],
  ];
  for (const [data, value, message] of unordered)
    test(`fails for values without an order: ${message}`, () => {
      for (const cond of ["Gt", "Gte", "Lt", "Lte"])
        assert.throws(() => isMet(cond, data, value), { name: "Error", message });
    });

  test("a policy condition finds elements of a list as Equal compares values", () => {
    assert.equal(isMet("In", "2", parseValue({ integerSlice: [1, 2] })), true);
    assert.equal(isMet("In", 1.5, parseValue({ floatSlice: ["1.50"] })), true);
    assert.equal(isMet("In", null, [null]), true);
    assert.equal(isMet("NotIn", "a", []), true);
    assert.equal(isMet("NotIn", ["a"], [["a"]]), false);
    for (const value of ["a", 1, { a: "a" }, null])
      assert.throws(() => isMet("In", "a", value), /^Error: In and NotIn need a list, and the value is/);
  });

  test("a policy condition is met by a missing value only for NotExist", () => {
    for (const cond of [...conds, "In", "NotIn", "Exist"]) assert.equal(isMet(cond, undefined, "a"), false);
    assert.equal(isMet("NotExist", undefined, undefined), true);
    assert.equal(isMet("Exist", null, undefined), true);
    for (const cond of [...conds, "In", "NotIn"])
      assert.equal(isConditionMet({ cond: cond as Cond }, { value: 1 }, undefined), false);
  });

  const computed: [value: unknown, operation: string, operationWith: string | number, result: unknown][] = [
    [10, "+", 2, 12],
    [10, "-", "0.5", 9.5],
    [10, "*", "50%", 5],
    [10, "+", "50%", 10.5],
    [10, "/", 4, 2.5],
    [10, "/", -3, "-3.3333333333333333333"],
    ["1Gi", "*", "50%", "512Mi"],
    [parseValue({ float: "0.1" }), "*", 3, "0.3"],
  ];
  for (const [value, operation, operationWith, result] of computed)
    test(`computes ${typeof value === "object" ? "a float" : value} ${operation} ${operationWith} exactly`, () => {
      const valueProcess = { operation, operationWith };
      // The result of 10 / -3 is not exact: it has no finite decimal, and is less than the text in the table.
      const isExact = operation !== "/" || operationWith !== -3;
      assert.equal(isMet("Equal", result, value, { valueProcess }), isExact);
      assert.equal(isMet("Gt", result, value, { valueProcess }), !isExact);
    });

  test("a policy condition ignores valueProcess for In and Exist", () => {
    const valueProcess = { operation: "%" };
    assert.equal(isMet("In", 1, [1], { valueProcess }), true);
    assert.equal(isMet("Exist", 1, undefined, { valueProcess }), true);
  });

  for (const { name, condition, message } of rows)
    test(`fails for ${name}`, () =>
      assert.throws(() => isConditionMet(condition as PolicyCondition, { value: 1 }, { value: 1 }), {
        name: "Error",
        message: new RegExp(message),
      }));

  test("a policy condition fails if the value to process is no number", () => {
    const valueProcess = { operation: "+", operationWith: 1 };
    for (const value of ["a", true, null, [1]])
      assert.throws(
        () => isMet("Equal", 1, value, { valueProcess }),
        /^Error: valueProcess needs a number, and the value is/,
      );
  });

  test("a policy condition fails for values that are nested too deeply", () => {
    const parseNested = () => JSON.parse(`${"[".repeat(100_000)}${"]".repeat(100_000)}`);
    assert.throws(
      () => isMet("Equal", parseNested(), parseNested()),
      /^Error: the values are nested deeper than 1000 levels$/,
    );
  });

  test("a policy condition finds any value equal to a copy of it", () => {
    fc.assert(fc.property(fc.jsonValue(), (value) => isMet("Equal", value, structuredClone(value))));
  });

  test("a policy condition orders numbers so that exactly one of Lt, Equal and Gt is met", () => {
    const scalar = fc.oneof(fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true }));
    fc.assert(
      fc.property(scalar, scalar, (left, right) => {
        const results = [isMet("Lt", left, right), isMet("Equal", left, right), isMet("Gt", left, right)];
        assert.equal(results.filter(Boolean).length, 1);
        assert.equal(isMet("Lte", left, right), !isMet("Gt", left, right));
      }),
    );
  });
});
