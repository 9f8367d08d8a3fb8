import assert from "node:assert/strict";
import type { TestClusterClient } from "../control-plane/client.ts";
import { waitUntilWebhooksCalled } from "../parity/rule-server.ts";
import { buildReviewAnswer, type TestEndpointScript } from "../parity/scripted-endpoints.ts";

/** The objects that a webhook got, by name. */
export type Seen = Map<string, Record<string, unknown>>;

/** Returns a script that stores every object that it gets. */
export const createObserver =
  (seen: Seen): TestEndpointScript =>
  (review) => {
    const { object } = Object(review.request);
    seen.set(object.metadata.name, object);
    return { body: buildReviewAnswer(review) };
  };

/**
 * Registers a webhook at a path of `url`, and waits until the API server calls it. The webhook adds objects to `seen`.
 * The API server calls webhooks in the order of their names, so `witness` comes last and gets the others' changes.
 */
export const registerWitness = async (
  admin: TestClusterClient,
  url: string,
  ca: string,
  seen: Seen,
  kind = "MutatingWebhookConfiguration",
  path = "witness",
): Promise<void> => {
  const entry = {
    name: "witness.example.com",
    clientConfig: { url: `${url}/${path}`, caBundle: Buffer.from(ca).toString("base64") },
    rules: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["CREATE"] }],
    sideEffects: "None",
    matchPolicy: "Exact",
    ...(kind === "MutatingWebhookConfiguration" && { reinvocationPolicy: "IfNeeded" }),
    admissionReviewVersions: ["v1"],
  };
  const body = {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind,
    metadata: { name: "witness" },
    webhooks: [entry],
  };
  const collection = `/apis/admissionregistration.k8s.io/v1/${kind.toLowerCase()}s`;
  assert.equal((await admin({ method: "POST", path: collection, body })).code, 201);
  const first = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "first" } };
  await waitUntilWebhooksCalled(
    () => admin({ method: "POST", path: "/api/v1/namespaces/default/configmaps?dryRun=All", body: first }),
    () => seen.has("first"),
  );
};
