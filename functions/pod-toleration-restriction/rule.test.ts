import assert from "node:assert/strict";
import { describe, it } from "node:test";
import podTolerationRestriction from "./rule.ts";

describe("settings of pod-toleration-restriction", () => {
  const unfit = (whitelist: unknown[]) => podTolerationRestriction.checkSettings?.({ default: [], whitelist });

  it("are fit where the API server would take every toleration from a pod", () =>
    assert.equal(
      unfit([
        { operator: "Exists" },
        { key: "a.example/b", value: "c", effect: "NoSchedule" },
        { key: "k", operator: "Exists", effect: "NoExecute", tolerationSeconds: 0 },
      ]),
      undefined,
    ));

  it("are unfit where it would not take one", () => {
    for (const [toleration, fault] of [
      ["k", "is no toleration"],
      [[], "is no toleration"],
      [{ key: 1 }, "is no toleration"],
      [{ key: "k", effect: "NoExecute", tolerationSeconds: "1" }, "is no toleration"],
      [{ value: "v" }, "must have the operator Exists, for it has no key"],
      [{ key: "k", operator: "Gt", value: "1" }, "has the operator Gt, neither Equal nor Exists"],
      [{ key: "k", operator: "Exists", value: "v" }, "must have no value, for it has the operator Exists"],
      [{ key: "k", effect: "NoRun" }, "has the effect NoRun, which there is not"],
      [{ key: "k", tolerationSeconds: 1 }, "has tolerationSeconds, which only NoExecute can"],
    ])
      assert.equal(
        unfit([{ operator: "Exists" }, toleration]),
        `must list tolerations under whitelist; whitelist[1] ${fault}`,
      );
    assert.match(String(unfit([{ key: "-k" }])), /whitelist\[0\] has a key whose name part must consist of/);
    assert.match(String(unfit([{ key: "k", value: "-" }])), /whitelist\[0\] has a value, but a valid label must/);
  });
});
