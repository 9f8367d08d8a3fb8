import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readCatalogue } from "../catalogue/registry.ts";
import { runCases } from "./case-runs.ts";

describe("a version without CUE", () => {
  it("does not get the cases that evaluate a script", async () => {
    const listed = (await readCatalogue()).find(({ name }) => name === "policy-validate");
    assert.ok(listed);
    const functions = { invoke: async () => ({ payload: {}, log: "", fault: undefined }) };
    const [able, unable] = [
      await runCases(functions, listed, "1"),
      await runCases(functions, listed, "1", { scripts: false }),
    ];
    assert.equal(able.cases - unable.cases, 2);
  });
});
