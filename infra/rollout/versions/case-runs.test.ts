import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readCases } from "../../catalogue/cases.ts";
import { readCatalogue } from "../../catalogue/registry.ts";
import { runCases } from "./case-runs.ts";

describe("a version without CUE", () => {
  it("a version without CUE does not get the cases that evaluate a script", async () => {
    const listed = (await readCatalogue()).find(({ name }) => name === "policy-validate");
    assert.ok(listed);
    const functions = { invoke: async () => ({ payload: {}, log: "", fault: undefined }) };
    const [able, unable] = [
      await runCases(functions, listed, "1"),
      await runCases(functions, listed, "1", { runsScripts: false }),
    ];
    // Two cases of policy-validate evaluate a script.
    assert.equal(able.cases - unable.cases, 2);
  });
});

describe("any version", () => {
  it("cases with CEL are left out, because a version can evaluate only the expressions in its settings", async () => {
    const listed = (await readCatalogue()).find(({ name }) => name === "validating-admission-policy");
    assert.ok(listed);
    const expressions: string[] = [];
    const invoke = async (_: string, __: string, event: object) => {
      // For instance "expression": or "messageExpression":
      expressions.push(...(JSON.stringify(event).match(/xpression":/g) ?? []));
      return { payload: {}, log: "", fault: undefined };
    };
    const { cases } = await runCases({ invoke }, listed, "1");
    assert.deepEqual(expressions, []);
    assert.ok(cases > 0 && cases < (await readCases(listed)).length, `${cases} cases`);
  });
});
