import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { KubernetesObject } from "#lib/review.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath, type TestClusterClient } from "../control-plane/client.ts";
import { bootCluster } from "../control-plane/cluster.ts";
import { buildKindDefinition } from "../parity/generators/validating-policies.ts";
import {
  createTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  serveTestRules,
  waitUntil,
} from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

// Tests which types numbers have in CEL: in a policy that the API server evaluates, and in the same policy as a setting
// of the rule.

/** Returns a policy and its binding. The policy's warning names the types of these values. */
const buildPolicies = (name: string, rule: object, values: readonly string[]) => {
  const apiVersion = "admissionregistration.k8s.io/v1";
  const resourceRules = [{ ...rule, apiVersions: ["v1"], operations: ["CREATE", "UPDATE"] }];
  const types = values.map(
    (value) => `(type(${value}) == int ? 'int' : type(${value}) == double ? 'double' : 'other')`,
  );
  const validations = [{ expression: "false", messageExpression: types.join(" + ' ' + ") }];
  const [kind, metadata] = ["ValidatingAdmissionPolicy", { name }];
  return [
    { apiVersion, kind, metadata, spec: { matchConstraints: { resourceRules }, validations } },
    { apiVersion, kind: `${kind}Binding`, metadata, spec: { policyName: name, validationActions: ["Warn"] } },
  ];
};
/** Returns a policy for the numbers in a custom resource, and one for those in a ControllerRevision. */
const buildAllPolicies = (prefix: string) => [
  ...buildPolicies(`${prefix}-counters`, { apiGroups: ["example.com"], resources: ["counters"] }, [
    "object.spec.count",
    "object.spec.any.n",
  ]),
  ...buildPolicies(`${prefix}-revisions`, { apiGroups: ["apps"], resources: ["controllerrevisions"] }, [
    "object.data.n",
    "object.data.m",
  ]),
];

// This function is missing in TypeScript's types.
const { rawJSON } = JSON as JSON & { rawJSON(text: string): object };
const [onePointZero, thousand] = [rawJSON("1.0"), rawJSON("1e3")];

const metadata = { name: "a", namespace: "default" };
const counter = {
  apiVersion: "example.com/v1",
  kind: "Counter",
  metadata,
  spec: { count: onePointZero, any: { n: thousand } },
};
const revision = {
  apiVersion: "apps/v1",
  kind: "ControllerRevision",
  metadata,
  revision: 1,
  data: { n: onePointZero, m: thousand },
};

describe("an integer that is written with a fraction or an exponent", await needs("API server"), () => {
  const stack = new AsyncDisposableStack();
  let admin: TestClusterClient;

  before(async () => {
    const folder = await mkdtemp(join(tmpdir(), "postern-numbers-"));
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const cluster = await bootCluster(await requireBinaries(), {});
    stack.defer(cluster.stop);
    admin = cluster.admin;
    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const rules = { "validating-admission-policy": { settings: { policies: buildAllPolicies("own") } } };
    const served = await serveTestRules(await readCatalogue(), JSON.stringify({ rules }), { certificate });
    stack.defer(served.stop);
    const fields = {
      count: { type: "integer" },
      any: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
    };
    for (const object of [buildKindDefinition("Counter", fields), ...buildAllPolicies("native")]) {
      const { code, body } = await send("POST", object as KubernetesObject);
      assert.equal(code, 201, String(body.message));
    }
    await createTestWebhookConfigurations(admin, extendWebhookTimeoutsForTests(served.manifests()));
    for (const object of [counter, revision])
      await waitUntil(`the API server does not warn of a ${object.kind}`, async () => {
        const { warnings } = await send("POST", object, "?dryRun=All");
        return warnings.length === 2;
      });
  });
  after(() => stack.disposeAsync());

  const send = (method: "POST" | "PATCH", body: object, rest = "") =>
    admin({ method, path: `${getCollectionPath(body as KubernetesObject)}${rest}`, body });
  /**
   * Creates an object and changes its labels. Returns, for each of these two requests, the types of the object's values
   * in the policy that the API server evaluates (`native`) and in the rule's policy (`own`).
   */
  const listTypes = async (object: KubernetesObject) => {
    const created = await send("POST", object);
    assert.equal(created.code, 201, String(created.body.message));
    const path = `${getCollectionPath(object)}/a`;
    const body = { metadata: { labels: { a: "b" } } };
    const changed = await admin({ method: "PATCH", path, body, contentType: "application/merge-patch+json" });
    return [created, changed].map(({ warnings }) =>
      Object.fromEntries(
        // A warning ends with ": " and the types.
        warnings.map((text) => [/'(native|own)-/.exec(text)?.[1], text.split(": ").at(-1)]),
      ),
    );
  };

  it("1.0 in a custom resource is a double at its creation, and an int later and for the rule", async () => {
    assert.deepEqual(await listTypes(counter), [
      { native: "double double", own: "int int" },
      { native: "int int", own: "int int" },
    ]);
  });

  it("1.0 in a ControllerRevision is a double for the API server, but an int for the rule", async () => {
    const types = { native: "double double", own: "int int" };
    assert.deepEqual(await listTypes(revision), [types, types]);
  });
});
