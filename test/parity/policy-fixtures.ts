import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import type { KubernetesObject } from "#lib/review.ts";
import {
  getCollectionPath,
  getObjectApiPath,
  type TestClusterClient,
  type TestClusterResponse,
} from "../control-plane/client.ts";
import { waitUntil } from "./rule-server.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** An object in kinitiras' test files. Other members than metadata are not checked. */
export type KinitirasFixtureObject = KubernetesObject & { metadata: { name?: string; namespace?: string } } & Record<
    string,
    unknown
  >;

/** Adds the namespace `default` to an object of a namespaced kind that states no namespace. */
const addNamespace = (object: KubernetesObject): KubernetesObject => {
  if (/^(Cluster|CustomResourceDefinition$|Namespace$)|WebhookConfiguration$/.test(object.kind ?? "")) return object;
  return { ...object, metadata: { namespace: "default", ...object.metadata } };
};
export const getFixtureCollectionPath = (object: KubernetesObject) => getCollectionPath(addNamespace(object));
export const getFixtureApiPath = (object: KubernetesObject) => getObjectApiPath(addNamespace(object));

export const getMessage = ({ body }: TestClusterResponse) => String(body.message);
export const buildFixturePolicy = (
  kind: string,
  name: string,
  spec: object,
  metadata: object = {},
): KinitirasFixtureObject => {
  return { apiVersion: "policy.kcloudlabs.io/v1alpha1", kind, metadata: { name, ...metadata }, spec };
};
/** The `resourceSelectors` of a policy for all pods. */
export const allPodsResourceSelectors = [{ apiVersion: "v1", kind: "Pod" }];
export const buildFixturePod = (name: string, metadata: object = {}): KinitirasFixtureObject => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "default", ...metadata },
  spec: { containers: [{ name: "c", image: "nginx" }] },
});
/** Builds the spec of a policy that adds an annotation. */
export const buildAnnotatingPolicySpec = (
  key: string,
  value: string,
  resourceSelectors: object[] = allPodsResourceSelectors,
) => ({
  resourceSelectors,
  overrideRules: [
    { overriders: { template: { type: "annotations", operation: "add", path: key, value: { string: value } } } },
  ],
});

/** Applies an object as `kubectl apply --server-side` does. */
export const applyObject = (client: TestClusterClient, object: KubernetesObject): Promise<TestClusterResponse> =>
  client({
    method: "PATCH",
    contentType: "application/apply-patch+yaml",
    body: object,
    path: `${getFixtureApiPath(object)}?fieldManager=kubectl&force=true`,
  });

/**
 * Creates the CustomResourceDefinitions of kinitiras' policy kinds from their files, and waits until the cluster
 * serves them.
 */
export const installKinitirasPolicyCrds = async (client: TestClusterClient): Promise<void> => {
  for (const file of globSync("functions/*/crds/*.yaml", { cwd: root })) {
    const answer = await applyObject(client, parse(await readFile(join(root, file), "utf8")));
    assert.ok(answer.code < 300, getMessage(answer));
  }
  const kinds = ["ClusterOverridePolicy", "ClusterValidatePolicy", "OverridePolicy"];
  const isServed = async (kind: string) =>
    (await client({ method: "GET", path: getFixtureCollectionPath(buildFixturePolicy(kind, "any", {})) })).code === 200;
  await waitUntil("the kinds are not served", async () => (await Promise.all(kinds.map(isServed))).every(Boolean));
};
