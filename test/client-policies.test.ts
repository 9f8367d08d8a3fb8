import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import { guard } from "#lib/client/client.ts";
import { evaluateCue } from "#lib/cue/engine.ts";
import type { Capabilities, HttpsRequest } from "#lib/needs.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { rule } from "#lib/rule.ts";
import { createRecordedCluster } from "../infra/apiserver/kinds/served.ts";
import { benchPolicyCases, normalizeObjectForComparison, type PolicyCase } from "./bench/inputs/example-policies.ts";
import { createRecorder } from "./client/recorder.ts";
import { getCollectionPath } from "./control-plane/client.ts";

// Runs the cases of policies with measured results as writes of a program with a guard.
const server = "https://cluster.example";

const createCapabilities = ({ cluster = [], http = [] }: PolicyCase): Capabilities => {
  // Objects of a cluster always have a name.
  const objects = cluster as (KubernetesObject & { metadata: { name: string } })[];
  const answer = async ({ url }: HttpsRequest) => {
    const { status = 200, body, raw } = http.find(({ path }) => path === new URL(url).pathname) ?? { status: 404 };
    const headers = { "content-type": ["text/plain; charset=utf-8"] };
    return { status, body: raw ?? JSON.stringify(body ?? {}), headers, trailers: {} };
  };
  return { ...createRecordedCluster({ objects }), http: answer, https: answer };
};

/** Cases whose object lacks its namespace: a guard, like the API server, adds the namespace before admission. */
const excludedCases = new Set(["ns-from-request"]);

/** Sends the request of a policy's case as a write through a guard that has only the case's policies. */
const sendCase = async (policyCase: PolicyCase) => {
  const { operation, object, oldObject = object, policies, requestNamespace } = policyCase;
  const target = (operation === "DELETE" ? oldObject : object) ?? {};
  const name = target.metadata?.name ?? "unnamed";
  const namespace = target.metadata?.namespace ?? requestNamespace;
  const collection = getCollectionPath({ ...target, metadata: namespace === undefined ? {} : { namespace } });
  const path = operation === "CREATE" ? collection : `${collection}/${name}`;
  const { send, writes } = createRecorder(operation === "CREATE" ? {} : { [path]: oldObject });
  const allowed = { http: { hosts: ["mock"] }, reads: [{ group: "", resource: "secrets" }] };
  const guarded = guard(send, { policies, references: allowed, capabilities: () => createCapabilities(policyCase) });
  const method = { CREATE: "POST", UPDATE: "PUT", DELETE: "DELETE" }[String(operation)] ?? "GET";
  const body = operation === "DELETE" ? null : JSON.stringify(object);
  const response = await guarded(`${server}${path}`, { method, headers: { "content-type": "application/json" }, body });
  return { response, writes: writes(), text: await response.text() };
};

describe("policies in a guard", () => {
  // The start of CUE may take longer than the time limit of a script, so CUE starts before the tests.
  before(() => evaluateCue("1"));

  for (const policyCase of benchPolicyCases) {
    const { id, operation, expect, object } = policyCase;
    if (operation === "CONNECT" || expect.policy === "rejected" || excludedCases.has(id)) continue;
    it(`policies in a guard give the result that was measured with kinitiras: ${id}`, async () => {
      const { response, writes, text } = await sendCase(policyCase);
      if (expect.error) {
        assert.equal(response.status, 500, text);
        assert.match(JSON.parse(text).message, /^Internal error occurred: failed calling webhook "policy-/);
      } else if (expect.allowed === false) {
        assert.equal(response.status, 403, text);
        const { message } = JSON.parse(text);
        const reason = expect.reason || message.replace(/.*denied the request: /, "");
        assert.equal(message, `admission webhook "policy-validate.postern.dev" denied the request: ${reason}`);
      } else {
        assert.ok(response.ok, text);
        if (operation !== "DELETE")
          assert.deepEqual(
            normalizeObjectForComparison(writes[0]?.body),
            normalizeObjectForComparison(expect.object ?? object),
          );
      }
      assert.equal(writes.length, response.ok ? 1 : 0);
    });
  }

  const buildPolicy = (op: { op: "add"; path: string; value: string }) => ({
    apiVersion: "policy.kcloudlabs.io/v1alpha1",
    kind: "ClusterOverridePolicy" as const,
    metadata: { name: "p" },
    spec: { overrideRules: [{ overriders: { plaintext: [op] } }] },
  });
  const createConfigMap = (guarded: typeof fetch, metadata: object) =>
    guarded(`${server}/api/v1/namespaces/a/configmaps`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "x", ...metadata } }),
    });

  it("policies in a guard are applied once, even if a rule changes the object after the policies", async () => {
    const { send, writes } = createRecorder();
    const appending = buildPolicy({ op: "add", path: "/metadata/finalizers/-", value: "b.example/b" });
    const stamps = rule<KubernetesObject>({
      summary: "Stamps.",
      match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
      mutate(object) {
        object.metadata = { ...object.metadata, labels: { stamp: "1" } };
      },
    });
    const guarded = guard(send, { policies: [appending], rules: { stamps: { rule: stamps } } });
    await createConfigMap(guarded, { finalizers: ["a.example/a"] });
    const { finalizers, labels } = Object(writes()[0]?.body).metadata;
    assert.deepEqual([finalizers, labels], [["a.example/a", "b.example/b"], { stamp: "1" }]);
  });

  it("policies in a guard are listed again for each write, if a function lists the policies", async () => {
    const { send, writes } = createRecorder();
    let owner = "one";
    const listPolicies = async () => [buildPolicy({ op: "add", path: "/metadata/labels/owner", value: owner })];
    const guarded = guard(send, { policies: listPolicies });
    await createConfigMap(guarded, {});
    owner = "two";
    await createConfigMap(guarded, {});
    assert.deepEqual(
      writes().map(({ body }) => Object(body).metadata.labels),
      [{ owner: "one" }, { owner: "two" }],
    );
  });
});
