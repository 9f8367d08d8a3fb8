import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { Toleration } from "../kubernetes/core/v1.ts";
import { areTolerationsCovered, mergeTolerations } from "./toleration.ts";

const exists = { key: "k", operator: "Exists" };
const equal = { key: "k", operator: "Equal", value: "v" };

describe("tolerations", () => {
  it("are merged without those that others cover", () => {
    for (const [first, second, merged] of [
      [[], [], []],
      [[equal], [{ key: "l", operator: "Exists" }], [equal, { key: "l", operator: "Exists" }]],
      [[equal], [exists], [exists]],
      [[exists], [equal], [exists]],
      [[exists, equal, exists], [], [exists]],
      [[{ ...equal, effect: "NoSchedule" }], [equal], [equal]],
      [[{ operator: "Exists" }], [equal, exists], [{ operator: "Exists" }]],
    ] satisfies [Toleration[], Toleration[], Toleration[]][])
      assert.deepEqual(mergeTolerations(first, second), merged);
  });

  it("are covered by wider or equal ones", () => {
    const isCovered = (wide: Toleration, narrow: Toleration) => areTolerationsCovered([wide], [narrow]);
    const lost = { key: "k", operator: "Exists", effect: "NoExecute" };
    assert.ok(isCovered({ key: "k", effect: "", operator: "Exists" }, { key: "k", operator: "Exists" }));
    assert.ok(isCovered(exists, lost));
    assert.ok(isCovered({ key: "k", value: "v" }, equal));
    assert.ok(isCovered({ ...lost, tolerationSeconds: 5 }, { ...lost, tolerationSeconds: 5 }));
    assert.ok(isCovered({ ...lost, tolerationSeconds: 5 }, { ...lost, tolerationSeconds: 4 }));
    assert.ok(isCovered(lost, { ...lost, tolerationSeconds: 4 }));

    assert.ok(!isCovered({ ...lost, tolerationSeconds: 5 }, { ...lost, tolerationSeconds: 6 }));
    assert.ok(!isCovered({ ...lost, tolerationSeconds: 5 }, lost));
    assert.ok(!isCovered(lost, exists));
    assert.ok(!isCovered({ key: "", operator: "Equal", value: "v" }, equal));
    assert.ok(!isCovered({ ...equal, value: "w" }, equal));
    assert.ok(!isCovered({ ...equal, effect: "" }, { key: "k", value: "v", effect: "NoSchedule" }), "has no operator");
    assert.ok(!isCovered({ key: "k", operator: "Gt", value: "1" }, { key: "k", operator: "Equal", value: "1" }));
  });

  it("are unchanged by a second merge, and cover both lists", () => {
    const some = fc.array(
      fc.record(
        {
          key: fc.constantFrom("", "k", "l"),
          operator: fc.constantFrom("", "Equal", "Exists", "Gt"),
          value: fc.constantFrom("", "v"),
          effect: fc.constantFrom("", "NoSchedule", "NoExecute"),
          tolerationSeconds: fc.constantFrom(0, 300),
        },
        { requiredKeys: [] },
      ),
      { maxLength: 6 },
    );
    fc.assert(
      fc.property(some, some, (first, second) => {
        const merged = mergeTolerations(first, second);
        assert.ok(areTolerationsCovered(merged, [...first, ...second]));
        assert.deepEqual(mergeTolerations(merged, []), merged);
      }),
    );
  });
});
