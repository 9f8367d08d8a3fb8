import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { formatLabelSelector, isSelected, type LabelSelector } from "./selection.ts";

const buildSelector = (operator: string, values?: string[]): LabelSelector => ({
  matchExpressions: [{ key: "app", operator: operator as "In", ...(values && { values }) }],
});

const table: [name: string, selector: LabelSelector, query: string | undefined, taken: string[], left: string[]][] = [
  ["takes all without requirements", {}, "", ["web", ""], []],
  ["takes a label and its value", { matchLabels: { app: "web" } }, "app in (web)", ["web"], ["api", ""]],
  ["takes one of several values", buildSelector("In", ["web", "api"]), "app in (web,api)", ["web", "api"], ["db"]],
  ["leaves those with a value", buildSelector("NotIn", ["web"]), "app notin (web)", ["api"], ["web"]],
  ["takes those with a label", buildSelector("Exists"), "app", ["web", ""], []],
  ["leaves those with a label", buildSelector("DoesNotExist"), "!app", [], ["web"]],
  ["takes nothing by a value that no label can have", { matchLabels: { app: "a,b" } }, undefined, [], ["a", "b"]],
  ["leaves nothing by a value that no label can have", buildSelector("NotIn", ["a)"]), "", ["a"], []],
  ["takes nothing by an operator that there isn't", buildSelector("Near", ["web"]), undefined, [], ["web"]],
  ["takes nothing without values to be in", buildSelector("In"), undefined, [], ["web"]],
];

describe("a label selector", () => {
  for (const [name, selector, query, taken, left] of table)
    it(name, () => {
      assert.equal(formatLabelSelector(selector), query);
      for (const app of taken) assert.ok(isSelected(selector, { app }), app);
      for (const app of left) assert.ok(!isSelected(selector, { app }), app);
    });

  it("selects an object without labels if a label must be absent", () => {
    assert.ok(isSelected(buildSelector("DoesNotExist"), undefined));
    assert.ok(!isSelected({ matchLabels: { constructor: "a" } }, {}));
  });
});
