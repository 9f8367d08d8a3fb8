import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { struct } from "../cel/types.ts";
import { exactJson } from "../exact-json.ts";
import type { JsonMap } from "../json.ts";
import { createPolicyCompiler, evaluatePass, mostPassCost } from "./expressions.ts";
import { applyConfigurationValue, MutationError } from "./mutation.ts";

interface Row {
  expression: string;
  becomes?: object;
  refused?: string;
}

const rows: Row[] = parse(readFileSync(new URL("mutation.test.yaml", import.meta.url), "utf8"));

const pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "p", labels: { l: "m" }, finalizers: ["f"] },
  spec: { containers: [{ name: "c", image: "i" }] },
};

describe("an ApplyConfiguration", () => {
  const compiler = createPolicyCompiler({}, { isMutation: true, hasVariables: false });
  const apply = (text: string, object: JsonMap = pod) => {
    const expression = compiler.compile(text, [struct("Object")]);
    const noVariables = new Map();
    const noTypedVariables: string[] = [];
    const budget = { left: mostPassCost };
    // A pass is the evaluation of a list of expressions with one budget for their cost.
    const results = evaluatePass([expression], noVariables, { object: pod }, budget, noTypedVariables);
    const [result] = "exhausted" in results ? [] : results;
    assert.ok(result && "value" in result, JSON.stringify(result));
    return applyConfigurationValue(result.value, object, { group: "", version: "v1", kind: "Pod" }, []);
  };

  it("an ApplyConfiguration keeps and merges integers that are too large for a number", () => {
    const object = { ...pod, spec: { ...pod.spec, activeDeadlineSeconds: 9007199254740993n } };
    const merged = apply("Object{spec: Object.spec{priority: -9007199254740995}}", object);
    const expected = { ...object, spec: { ...object.spec, priority: -9007199254740995n } };
    // The values are compared as texts, because a failing test can't send a bigint to its runner.
    assert.equal(exactJson.stringify(merged), exactJson.stringify(expected));
  });

  for (const { expression, becomes, refused } of rows)
    it(`${expression} ${refused === undefined ? "is merged" : "is refused"}`, () => {
      if (refused === undefined) assert.deepEqual(apply(expression), { ...pod, ...becomes });
      else
        assert.throws(
          () => apply(expression),
          new MutationError(`error applying patch: failed to convert patch object to typed object: ${refused}`),
        );
    });
});
