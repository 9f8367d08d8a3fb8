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

  /** Checks an expression, encodes it as JSON, and returns the lookup that finds and decodes it. */
  const encodeForLookup = (...check: Parameters<typeof checkExpression>) => {
    const text = JSON.stringify(encodeChecks(collectChecks(() => checkExpression(...check))));
    return createCheckLookup(() => JSON.parse(text)).checkExpression;
  };

  for (const text of ["1", "-0.0", "9223372036854775807", "5u", "b'\\xff'", "'\\u2028'", "[{true: null}]", "int"])
    it(`have the literal ${text}`, () => {
      const lookUp = encodeForLookup(text, plain, undefined);
      const decoded = lookUp(text, plain, undefined);
      const compiled = compileExpression(text, plain, undefined);
      assert.ok("expression" in decoded && "program" in compiled);
      const find = () => undefined;
      assert.deepEqual(compile(decoded, plain).evaluate({ find }), compiled.program.evaluate({ find }));
      assert.deepEqual(decoded.type, compiled.program.type);
    });

  it("the JSON of checked expressions contains the errors of an expression", () => {
    const error = "must evaluate to bool but got int";
    const lookUp = encodeForLookup("1", plain, [bool]);
    assert.deepEqual(lookUp("1", plain, [bool]), { error });
  });

  it("a checked expression is found only for the same text, environment and type", () => {
    const lookUp = encodeForLookup("1 == 1", withVariable(int), [bool]);
    assert.ok("expression" in lookUp("1 == 1", withVariable(int), [bool]));
    const others: Parameters<typeof lookUp>[] = [
      ["1 == 2", withVariable(int), [bool]],
      ["1 == 1", withVariable(string), [bool]],
      ["1 == 1", withVariable(int), undefined],
      ["1 == 1", plain, [bool]],
      ["1 == 1", withParams, [bool]],
      ["__proto__", withVariable(int), [bool]],
    ];
    for (const other of others)
      assert.throws(() => lookUp(...other), /isn't in the settings that this function was built with$/);
  });
});
