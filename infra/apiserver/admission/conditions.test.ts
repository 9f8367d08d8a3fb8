import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../test/rows.ts";
import { celEvaluator } from "./conditions.ts";

const conditions = readRows<[string, object][]>(import.meta.filename);

const object = {
  metadata: { name: "x", labels: { tier: "a", "a.b/c": "d" } },
  spec: { replicas: 3, containers: [{ name: "main", image: "i:1" }], none: null },
};
const resource = { group: "apps", version: "v1", resource: "deployments" };
const request = { operation: "CREATE", resource, dryRun: false, userInfo: { username: "jane" } };

/** Evaluates a condition in an API server of a minor version, by default of the newest. */
const evaluate = (expression: string, object: object, kubernetes?: string, budget = celEvaluator.createBudget()) =>
  celEvaluator.compile(expression, kubernetes)({ object, oldObject: null, readRequest: () => request }, budget);

describe("a condition", () => {
  for (const [expression, expected] of conditions)
    it(`${expression} is ${JSON.stringify(expected)}`, () => {
      assert.deepEqual(evaluate(expression, object), expected);
    });

  it("a condition may cost as much as an API server allows for one condition and for all conditions together", () => {
    const squares = "object.list.all(a, object.list.all(b, a + b >= 0))";
    const createList = (length: number) => ({ list: Array.from({ length }, (_, index) => index) });
    assert.deepEqual(evaluate(squares, createList(2000)), {
      error: `expression '${squares}' resulted in error: operation cancelled: actual cost limit exceeded`,
    });
    const budget = celEvaluator.createBudget();
    // Two conditions that compare each pair of 300 numbers are within the budget, and four are not.
    const results = [1, 2, 3, 4].map(() => evaluate(squares, createList(300), undefined, budget));
    assert.deepEqual(results.slice(0, 2), [{ holds: true }, { holds: true }]);
    assert.deepEqual(results[3], {
      exhausted: "validation failed due to running out of cost budget, no further validation rules will be run",
    });
  });

  it("a condition compares integers of 64 bits exactly, and larger ones as doubles", () => {
    assert.deepEqual(evaluate("object.n == 9007199254740993", { n: 9007199254740993n }), { holds: true });
    assert.deepEqual(evaluate("object.n == 9007199254740993", { n: 9007199254740992n }), { holds: false });
    assert.deepEqual(evaluate("type(object.n) == double", { n: 2 ** 63 }), { holds: true });
  });

  it("a condition may call the functions that the API server's minor version accepts in new expressions", () => {
    const rows: [expression: string, unknown: string, known: string][] = [
      ["semver('1.2.3').major() == 1", "1.33", "1.34"],
      ["[1, 2].reverse() == [2, 1]", "1.34", "1.35"],
      ["[1, 2].sortBy(i, -i) == [2, 1]", "1.34", "1.35"],
    ];
    for (const [expression, unknown, known] of rows) {
      assert.deepEqual(evaluate(expression, {}, known), { holds: true });
      assert.match(Object(evaluate(expression, {}, unknown)).unsupported, /undeclared reference to '/);
    }
  });
});
