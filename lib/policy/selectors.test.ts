import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { suite, test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { kinitirasCaseTables } from "../../test/bench/inputs/example-policies.ts";
import type { Operation } from "../review.ts";
import { isLabelSelector, matchesAnySelector, matchesLabels, matchesTargetOperations } from "./selectors.ts";

const pod = { apiVersion: "v1", kind: "Pod" };
const object = kinitirasCaseTables.selectorObject;

interface Case {
  name: string;
  selector: object;
  matches: boolean;
}
const cases: Record<"objects" | "labels" | "invalid", Case[]> = parse(
  readFileSync(new URL("selectors.yaml", import.meta.url), "utf8"),
);

suite("a selector", () => {
  for (const { id, selector, match } of kinitirasCaseTables.selectors)
    test(`matches an object as in kinitiras: ${id}`, () =>
      assert.equal(matchesAnySelector([selector], object, object.metadata?.namespace), match));

  for (const { name, selector, matches } of cases.objects)
    test(name, () => assert.equal(matchesAnySelector([{ ...pod, ...selector }], object, "default"), matches));

  test("null selects nothing", () => assert.equal(matchesAnySelector([null], object, "default"), false));

  test("a selector can be one of several selectors, of which one must match", () => {
    const node = { ...pod, kind: "Node" };
    assert.equal(matchesAnySelector([node, pod], object, "default"), true);
    assert.equal(matchesAnySelector([node], object, "default"), false);
  });

  test("without selectors, everything matches; with a value that is no list, nothing matches", () => {
    for (const none of [undefined, null, []]) assert.equal(matchesAnySelector(none, object, "default"), true);
    assert.equal(matchesAnySelector("Pod", object, "default"), false);
  });

  test("a selector is matched with the given namespace, not with the object's", () => {
    assert.equal(matchesAnySelector([{ ...pod, namespace: "ns1" }], { ...pod, metadata: { name: "a" } }, "ns1"), true);
  });

  test("a selector returns a boolean for any JSON", () => {
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
      fc.property(fuzzed, (selector) =>
        assert.equal(typeof matchesAnySelector([selector], object, "default"), "boolean"),
      ),
    );
  });
});

suite("a label selector", () => {
  const labels = { app: "web", tier: "" };
  for (const { name, selector, matches } of cases.labels)
    test(name, () => assert.equal(matchesLabels(selector, labels), matches));

  for (const { name, selector } of cases.invalid)
    test(`matches nothing with ${name}`, () => {
      assert.equal(isLabelSelector(selector), false);
      assert.equal(matchesLabels(selector, {}), false);
    });

  test("a label selector can have a key with a prefix", () => {
    assert.equal(matchesLabels({ matchLabels: { "example.io/a_b.c": "1" } }, { "example.io/a_b.c": "1" }), true);
  });

  test("a label selector treats labels that aren't a map as if there were none", () => {
    assert.equal(matchesLabels({ matchExpressions: [{ key: "a", operator: "DoesNotExist" }] }, "labels"), true);
  });
});

suite("a rule", () => {
  const operationCases: [targetOperations: string[] | undefined, operation: Operation, applies: boolean][] = [
    [undefined, "CREATE", true],
    [[], "DELETE", true],
    [["CREATE"], "CREATE", true],
    [["CREATE"], "UPDATE", false],
    [["*"], "CONNECT", true],
    [["create"], "CREATE", false],
  ];
  for (const [targetOperations, operation, applies] of operationCases)
    test(`with targetOperations ${JSON.stringify(targetOperations)} ${applies ? "applies" : "does not apply"} to ${operation}`, () =>
      assert.equal(matchesTargetOperations(targetOperations, operation), applies));

  test("a policy rule fails if its operations are no list", () => {
    assert.throws(() => matchesTargetOperations("CREATE", "CREATE"), {
      message: "targetOperations must be a list of operations",
    });
  });
});
