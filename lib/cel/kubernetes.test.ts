import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../test/rows.ts";
import { newestKubernetes, type Since, selectSince } from "../since.ts";
import { compileExpression, createAdmissionEnvironment, evaluateExpression } from "./kubernetes.ts";

const rows = readRows<{ expression: string; since: Since<string> }[]>(import.meta.filename);

const object = { list: [1, 2], labels: { "a.b/c": "d" } };

/** Returns the value of an expression as JSON, or the first line of its error. */
const evaluate = (text: string, kubernetes?: string): string | undefined => {
  const context = { ...(kubernetes !== undefined && { kubernetes }), isMutation: true };
  const compiled = compileExpression(text, createAdmissionEnvironment(context), undefined);
  if ("error" in compiled) return compiled.error.replace("compilation failed: ", "").split("\n", 1)[0];
  const result = evaluateExpression(text, compiled, { find: () => object }, { left: 1_000_000 });
  if ("value" in result) return JSON.stringify(result.value);
  return "error" in result ? result.error.replace(/^expression .* resulted in error: /, "") : result.exhausted;
};

describe("an expression", () => {
  for (const { expression, since } of rows)
    for (const minor of ["1.33", "1.34", "1.35", "1.36", "1.37", "1.38"]) {
      // `since` has results by the minor version that introduced them. The newest of those up to `minor` comes last.
      const expected = Object.values(selectSince(since, minor)).at(-1);
      if (expected !== undefined)
        it(`has the result of Kubernetes ${minor}: ${expression}`, () =>
          assert.equal(evaluate(expression, minor), expected));
    }

  it("a CEL expression has the result of the newest minor version if no version is known", () => {
    for (const { expression } of rows) assert.equal(evaluate(expression), evaluate(expression, newestKubernetes));
  });
});
