import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createCheckLookup, encodeChecks } from "./checked-expressions.ts";
import { checkExpression, collectChecks } from "./expression-check.ts";
import { compileExpression, createAdmissionEnvironment } from "./kubernetes.ts";
import { compile } from "./program/program.ts";
import { bool, int, string } from "./types.ts";

describe("checked expressions as JSON", () => {
  const [plain, withParams] = [createAdmissionEnvironment({}), createAdmissionEnvironment({ hasParams: true })];
  const withVariable = (type: typeof int) => createAdmissionEnvironment({ variables: new Map([["a", type]]) });

  /** Returns the lookup that finds one checked expression. */
  const encode = (...check: Parameters<typeof checkExpression>) => {
    const text = JSON.stringify(encodeChecks(collectChecks(() => checkExpression(...check))));
    return createCheckLookup(() => JSON.parse(text)).checkExpression;
  };

  for (const text of ["1", "-0.0", "9223372036854775807", "5u", "b'\\xff'", "'\\u2028'", "[{true: null}]", "int"])
    it(`have the literal ${text}`, () => {
      const checked = encode(text, plain, undefined)(text, plain, undefined);
      const compiled = compileExpression(text, plain, undefined);
      assert.ok("expression" in checked && "program" in compiled);
      const find = () => undefined;
      assert.deepEqual(compile(checked, plain).evaluate({ find }), compiled.program.evaluate({ find }));
      assert.deepEqual(checked.type, compiled.program.type);
    });

  it("the JSON of checked expressions contains the errors of an expression", () => {
    const error = "must evaluate to bool but got int";
    assert.deepEqual(encode("1", plain, [bool])("1", plain, [bool]), { error });
  });

  it("a checked expression is found only for the same text, environment and type", () => {
    const check = encode("1 == 1", withVariable(int), [bool]);
    assert.ok("expression" in check("1 == 1", withVariable(int), [bool]));
    const others: Parameters<typeof check>[] = [
      ["1 == 2", withVariable(int), [bool]],
      ["1 == 1", withVariable(string), [bool]],
      ["1 == 1", withVariable(int), undefined],
      ["1 == 1", plain, [bool]],
      ["1 == 1", withParams, [bool]],
      ["__proto__", withVariable(int), [bool]],
    ];
    for (const other of others)
      assert.throws(() => check(...other), /isn't in the settings that this function was built with$/);
  });
});
