import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { formatLabelSelector, isSelected, type LabelSelector } from "./selection.ts";

const buildSelector = (operator: string, values?: string[]): LabelSelector => ({
  matchExpressions: [{ key: "app", operator: operator as "In", ...(values && { values }) }],
});

/** Selectors, their form as a query parameter, and values of the label app that they select or don't select. */
const table: [
  name: string,
  selector: LabelSelector,
  query: string | undefined,
  selected: string[],
  notSelected: string[],
][] = [
  ["selects all objects without requirements", {}, "", ["web", ""], []],
  ["selects a label with its value", { matchLabels: { app: "web" } }, "app in (web)", ["web"], ["api", ""]],
  ["selects each of several values", buildSelector("In", ["web", "api"]), "app in (web,api)", ["web", "api"], ["db"]],
  ["excludes a value", buildSelector("NotIn", ["web"]), "app notin (web)", ["api"], ["web"]],
  ["selects a label with any value", buildSelector("Exists"), "app", ["web", ""], []],
  ["excludes a label with any value", buildSelector("DoesNotExist"), "!app", [], ["web"]],
  ["selects nothing if no label can have its value", { matchLabels: { app: "a,b" } }, undefined, [], ["a", "b"]],
  ["excludes nothing if no label can have its value", buildSelector("NotIn", ["a)"]), "", ["a"], []],
  ["selects nothing if its operator is unknown", buildSelector("Near", ["web"]), undefined, [], ["web"]],
  ["selects nothing with In and no values", buildSelector("In"), undefined, [], ["web"]],
];

describe("a label selector", () => {
  for (const [name, selector, query, selected, notSelected] of table)
    it(name, () => {
      assert.equal(formatLabelSelector(selector), query);
      for (const app of selected) assert.ok(isSelected(selector, { app }), app);
      for (const app of notSelected) assert.ok(!isSelected(selector, { app }), app);
    });

  it("a label selector selects an object without labels only if a label must be absent", () => {
    assert.ok(isSelected(buildSelector("DoesNotExist"), undefined));
    assert.ok(!isSelected({ matchLabels: { constructor: "a" } }, {}));
  });
});
