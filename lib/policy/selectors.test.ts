import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { tables } from "../../infra/bench/example-policies.ts";
import type { Operation } from "../review.ts";
import { isLabelSelector, labelsMatch, selects, targets } from "./selectors.ts";

const pod = { apiVersion: "v1", kind: "Pod" };
const object = tables.selectorObject;

suite("a selector", () => {
  for (const { id, selector, match } of tables.selectors)
    test(`takes or leaves an object as measured: ${id}`, () =>
      assert.equal(selects([selector], object, object.metadata?.namespace), match));

  const field = (expression: object) => ({ ...pod, fieldSelector: { matchExpressions: [expression] } });
  const fields: [name: string, selector: unknown, takes: boolean][] = [
    [
      "takes what the fields' values of a file name",
      field({ field: "spec.field1", operator: "In", values: ["v1"] }),
      true,
    ],
    ["leaves what an In of nothing names", field({ field: "spec.field1", operator: "In" }), false],
    ["takes what a NotIn of nothing names", field({ field: "spec.field1", operator: "NotIn" }), true],
    ["leaves a field that is no text, whatever is said of it", field({ field: "spec", operator: "Exists" }), false],
    ["leaves a field below a text", field({ field: "kind.a", operator: "DoesNotExist" }), false],
    ["takes an object without such a field", field({ field: "a.b.c", operator: "DoesNotExist" }), true],
    ["knows no fields of the prototype", field({ field: "constructor.name", operator: "Exists" }), false],
    ["leaves everything where name is no text", { ...pod, name: 5 }, false],
    ["leaves everything where namespace is no text", { ...pod, namespace: {} }, false],
    ["leaves everything where labels are no selector", { ...pod, labelSelector: "app=web" }, false],
    [
      "leaves everything where fields are no selector",
      { ...pod, fieldSelector: { matchFields: [], matchExpressions: {} } },
      false,
    ],
    ["takes an empty name for none", { ...pod, name: "", namespace: "" }, true],
    ["is left out where it is none", null, false],
  ];
  for (const [name, selector, takes] of fields)
    test(name, () => assert.equal(selects([selector], object, "default"), takes));

  test("may be one of several", () => {
    const other = { ...pod, kind: "Node" };
    assert.equal(selects([other, pod], object, "default"), true);
    assert.equal(selects([other], object, "default"), false);
  });

  test("isn't needed: without any, everything is taken", () => {
    for (const none of [undefined, null, []]) assert.equal(selects(none, object, "default"), true);
    assert.equal(selects("Pod", object, "default"), false);
  });

  test("is matched with the namespace that is given, not with the one the object says", () => {
    assert.equal(selects([{ ...pod, namespace: "ns1" }], { ...pod, metadata: { name: "a" } }, "ns1"), true);
  });

  test("takes or leaves whatever it is given", () => {
    const fuzzed = fc.record({
      apiVersion: fc.constant("v1"),
      kind: fc.constant("Pod"),
      name: fc.option(fc.jsonValue(), { nil: undefined }),
      labelSelector: fc.oneof(
        fc.jsonValue(),
        fc.record({ matchLabels: fc.jsonValue(), matchExpressions: fc.array(fc.jsonValue()) }),
      ),
      fieldSelector: fc.jsonValue(),
    });
    fc.assert(
      fc.property(fuzzed, (selector) => assert.equal(typeof selects([selector], object, "default"), "boolean")),
    );
  });
});

suite("a label selector", () => {
  const labels = { app: "web", tier: "" };
  const matched: [name: string, selector: unknown, takes: boolean][] = [
    [
      "takes a value among those listed",
      { matchExpressions: [{ key: "app", operator: "In", values: ["a", "web"] }] },
      true,
    ],
    ["takes the empty value", { matchLabels: { tier: "" } }, true],
    ["leaves a key that is missing", { matchLabels: { other: "" } }, false],
    ["knows no labels of the prototype", { matchExpressions: [{ key: "constructor", operator: "Exists" }] }, false],
    [
      "wants everything that it says",
      { matchLabels: { app: "web" }, matchExpressions: [{ key: "tier", operator: "DoesNotExist" }] },
      false,
    ],
  ];
  for (const [name, selector, takes] of matched) test(name, () => assert.equal(labelsMatch(selector, labels), takes));

  const invalid: [name: string, selector: unknown][] = [
    ["In without values", { matchExpressions: [{ key: "a", operator: "In" }] }],
    ["NotIn without values", { matchExpressions: [{ key: "a", operator: "NotIn", values: [] }] }],
    ["DoesNotExist with values", { matchExpressions: [{ key: "a", operator: "DoesNotExist", values: ["b"] }] }],
    ["an unknown operator", { matchExpressions: [{ key: "a", operator: "Gt", values: ["1"] }] }],
    ["a key that no label can have", { matchExpressions: [{ key: "a b", operator: "DoesNotExist" }] }],
    ["a key with two slashes", { matchExpressions: [{ key: "a/b/c", operator: "DoesNotExist" }] }],
    ["a prefix that is no domain", { matchExpressions: [{ key: "A_b/c", operator: "DoesNotExist" }] }],
    ["a value that no label can have", { matchExpressions: [{ key: "a", operator: "NotIn", values: ["a,b=c"] }] }],
    ["a value that is no text", { matchLabels: { a: 1 } }],
    ["no map", []],
  ];
  for (const [name, selector] of invalid)
    test(`takes nothing with ${name}`, () => {
      assert.equal(isLabelSelector(selector), false);
      assert.equal(labelsMatch(selector, {}), false);
    });

  test("may have a prefix", () => {
    assert.equal(labelsMatch({ matchLabels: { "example.io/a_b.c": "1" } }, { "example.io/a_b.c": "1" }), true);
  });

  test("takes labels that are none for no labels", () => {
    assert.equal(labelsMatch({ matchExpressions: [{ key: "a", operator: "DoesNotExist" }] }, "labels"), true);
  });
});

suite("a rule", () => {
  const about: [operations: string[] | undefined, operation: Operation, is: boolean][] = [
    [undefined, "CREATE", true],
    [[], "DELETE", true],
    [["CREATE"], "CREATE", true],
    [["CREATE"], "UPDATE", false],
    [["*"], "CONNECT", true],
    [["create"], "CREATE", false],
  ];
  for (const [operations, operation, is] of about)
    test(`with ${JSON.stringify(operations)} is ${is ? "" : "not "}about ${operation}`, () =>
      assert.equal(targets(operations, operation), is));

  test("must list its operations", () => {
    assert.throws(() => targets("CREATE", "CREATE"), { message: "targetOperations must be a list of operations" });
  });
});
