import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { Toleration } from "../kubernetes/core/v1.ts";
import { createTolerationCheck, mergeTolerations } from "./toleration.ts";

const exists = { key: "k", operator: "Exists" };
const equal = { key: "k", operator: "Equal", value: "v" };

describe("tolerations", () => {
  it("tolerations are merged without each toleration that another toleration covers", () => {
    for (const [first, second, merged] of [
      [[], [], []],
      [[equal], [{ key: "l", operator: "Exists" }], [equal, { key: "l", operator: "Exists" }]],
      [[equal], [exists], [exists]],
      [[exists], [equal], [exists]],
      [[exists, equal, exists], [], [exists]],
      [[{ ...equal, effect: "NoSchedule" }], [equal], [equal]],
      [[{ operator: "Exists" }], [equal, exists], [{ operator: "Exists" }]],
    ] satisfies [first: Toleration[], second: Toleration[], merged: Toleration[]][])
      assert.deepEqual(mergeTolerations(first, second), merged);
  });

  it("tolerations are covered by an equal toleration, or by one that tolerates more", () => {
    const isCovered = (wide: Toleration, narrow: Toleration) => createTolerationCheck([wide])(narrow);
    const noExecute = { key: "k", operator: "Exists", effect: "NoExecute" };
    assert.ok(isCovered({ key: "k", effect: "", operator: "Exists" }, { key: "k", operator: "Exists" }));
    assert.ok(isCovered(exists, noExecute));
    assert.ok(isCovered({ key: "k", value: "v" }, equal));
    assert.ok(isCovered({ ...noExecute, tolerationSeconds: 5 }, { ...noExecute, tolerationSeconds: 5 }));
    assert.ok(isCovered({ ...noExecute, tolerationSeconds: 5 }, { ...noExecute, tolerationSeconds: 4 }));
    assert.ok(isCovered(noExecute, { ...noExecute, tolerationSeconds: 4 }));

    assert.ok(!isCovered({ ...noExecute, tolerationSeconds: 5 }, { ...noExecute, tolerationSeconds: 6 }));
    assert.ok(!isCovered({ ...noExecute, tolerationSeconds: 5 }, noExecute));
    assert.ok(!isCovered(noExecute, exists));
    assert.ok(!isCovered({ key: "", operator: "Equal", value: "v" }, equal));
    assert.ok(!isCovered({ ...equal, value: "w" }, equal));
    assert.ok(
      !isCovered({ ...equal, effect: "" }, { key: "k", value: "v", effect: "NoSchedule" }),
      "upstream doesn't treat an absent operator of the covered toleration as Equal",
    );
    assert.ok(!isCovered({ key: "k", operator: "Gt", value: "1" }, { key: "k", operator: "Equal", value: "1" }));
  });

  it("tolerations are merged and compared with the same result as by upstream's loops", () => {
    const tolerations = fc.array(
      fc.record(
        {
          key: fc.constantFrom("", "k", "l"),
          operator: fc.constantFrom("", "Equal", "Exists", "Gt"),
          value: fc.constantFrom("", "v"),
          effect: fc.constantFrom("", "NoSchedule", "NoExecute"),
          tolerationSeconds: fc.constantFrom(-1, 0, 300),
        },
        { requiredKeys: [] },
      ),
      { maxLength: 8 },
    );
    fc.assert(
      fc.property(tolerations, tolerations, (first, second) => {
        const merged = mergeTolerations(first, second);
        assert.deepEqual(merged, mergeByPairs([...first, ...second]));
        assert.deepEqual(mergeTolerations(merged, []), merged);
        const isAllowed = createTolerationCheck(first);
        for (const narrow of second)
          assert.equal(
            isAllowed(narrow),
            first.some((wide) => coversAsUpstream(wide, narrow)),
          );
      }),
      { numRuns: 2000 },
    );
  });
});

/** Merges tolerations with the loops of upstream's MergeTolerations, which compare each with each. */
const mergeByPairs = (tolerations: readonly Toleration[]): Toleration[] => {
  const merged: Toleration[] = [];
  for (const [index, toleration] of tolerations.entries()) {
    const isCovered =
      merged.some((earlier) => coversAsUpstream(earlier, toleration)) ||
      tolerations
        .slice(index + 1)
        .some((later) => !isEqualToleration(later, toleration) && coversAsUpstream(later, toleration));
    if (!isCovered) merged.push(toleration);
  }
  return merged;
};

const isEqualToleration = (left: Toleration, right: Toleration): boolean =>
  (["key", "operator", "value", "effect"] as const).every((key) => (left[key] ?? "") === (right[key] ?? "")) &&
  left.tolerationSeconds === right.tolerationSeconds;

/** Compares two tolerations as upstream's isSuperset does. */
const coversAsUpstream = (wide: Toleration, narrow: Toleration): boolean => {
  if (isEqualToleration(wide, narrow)) return true;
  const { key = "", operator = "", value = "", effect = "", tolerationSeconds = Infinity } = wide;
  if (key !== (narrow.key ?? "") && !(key === "" && operator === "Exists")) return false;
  if (effect !== (narrow.effect ?? "") && effect !== "") return false;
  if (effect === "NoExecute" && tolerationSeconds < (narrow.tolerationSeconds ?? Infinity)) return false;
  if (operator === "Equal" || operator === "") return narrow.operator === "Equal" && value === (narrow.value ?? "");
  return operator === "Exists";
};
