import assert from "node:assert/strict";
import { it } from "node:test";
import { createEndpoint } from "#lib/core/endpoint.ts";
import { rule } from "#lib/rule.ts";
import { callEndpoint, checkHost } from "./endpoint-calls.ts";

it("callEndpoint answers that a rule is unsupported if its call takes longer than 30 seconds", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const match = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] as const }];
  const endless = rule({
    summary: "Never answers.",
    match,
    needs: {},
    validate: () => new Promise<undefined>(() => {}),
  });
  const endpoint = createEndpoint(endless, { rule: "endless", clusters: {} }, checkHost);
  const request = {
    uid: "u",
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
    operation: "CREATE" as const,
    userInfo: {},
    object: { apiVersion: "v1", kind: "Pod", metadata: { name: "a" } },
  };
  const answer = callEndpoint(
    {
      phase: "validate",
      variant: undefined,
      needsExactIntegers: false,
      open: () => ({ endpoint, capabilities: undefined }),
    },
    "local",
    { kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request },
    {},
  );
  t.mock.timers.tick(30_000);
  assert.deepEqual(await answer, { unsupported: "the rule did not answer in time" });
});
