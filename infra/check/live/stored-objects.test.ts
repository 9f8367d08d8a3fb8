import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { describeOwner } from "./stored-objects.ts";

describe("the owner of a stored object", () => {
  for (const [title, kind, name, labels, owner] of [
    [
      "has no hash if the Pod is of a Deployment",
      "ReplicaSet",
      "web-7d9f",
      { "pod-template-hash": "7d9f" },
      "ReplicaSet web",
    ],
    ["keeps an end of its name that is in no label", "ReplicaSet", "web-front", { app: "web" }, "ReplicaSet web-front"],
    ["has no time if the Pod is of a CronJob", "Job", "backup-29384756", {}, "Job backup"],
    ["keeps a Job's own number", "Job", "migrate-7", {}, "Job migrate-7"],
    ["keeps the names of other kinds", "DaemonSet", "agent-29384756", { x: "29384756" }, "DaemonSet agent-29384756"],
    ["may have a name without a hyphen", "ReplicaSet", "web", { app: "web" }, "ReplicaSet web"],
  ] as const)
    it(title, () => {
      const ownerReferences = [
        { kind: "Other", name: "other" },
        { kind, name, controller: true },
      ];
      assert.equal(describeOwner({ metadata: { name: "a", labels, ownerReferences } } as object), owner);
    });

  it("the owner of a stored object is absent without a controller", () => {
    const wrong = [{ kind: "ReplicaSet", name: "web" }, { kind: "a\nb", name: "web", controller: true }, null];
    for (const ownerReferences of [undefined, [], "x", ...wrong.map((one) => [one])])
      assert.equal(describeOwner({ metadata: { ownerReferences } } as object), undefined);
  });
});
