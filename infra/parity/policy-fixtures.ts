import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import type { KubernetesObject } from "#lib/review.ts";
import { type Answer, type Client, getCollectionPath, getObjectPath } from "./control-plane/client.ts";
import { until } from "./rule-server.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

export type Manifest = KubernetesObject & { metadata: { name?: string; namespace?: string } } & Record<string, unknown>;

/** Adds the namespace `default` to an object of a namespaced kind. */
const withNamespace = (object: KubernetesObject): KubernetesObject => {
  if (/^(Cluster|CustomResourceDefinition$|Namespace$)|WebhookConfiguration$/.test(object.kind ?? "")) return object;
  return { ...object, metadata: { namespace: "default", ...object.metadata } };
};
export const collectionOf = (object: KubernetesObject) => getCollectionPath(withNamespace(object));
export const pathOf = (object: KubernetesObject) => getObjectPath(withNamespace(object));

export const said = ({ body }: Answer) => String(body.message);
export const of = (kind: string, name: string, spec: object, metadata: object = {}): Manifest => {
  return { apiVersion: "policy.kcloudlabs.io/v1alpha1", kind, metadata: { name, ...metadata }, spec };
};
export const pods = [{ apiVersion: "v1", kind: "Pod" }];
export const pod = (name: string, metadata: object = {}): Manifest => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "default", ...metadata },
  spec: { containers: [{ name: "c", image: "nginx" }] },
});
/** Writes an annotation. */
export const writes = (key: string, value: string, resourceSelectors: object[] = pods) => ({
  resourceSelectors,
  overrideRules: [
    { overriders: { template: { type: "annotations", operation: "add", path: key, value: { string: value } } } },
  ],
});

/** As `kubectl apply --server-side` does it. */
export const applyAs = (client: Client, object: KubernetesObject): Promise<Answer> =>
  client({
    method: "PATCH",
    contentType: "application/apply-patch+yaml",
    body: object,
    path: `${pathOf(object)}?fieldManager=kubectl&force=true`,
  });

/** Has a cluster serve the kinds of policies, from their files as they are. */
export const serveKinds = async (client: Client): Promise<void> => {
  for (const file of globSync("functions/*/crds/*.yaml", { cwd: root })) {
    const answer = await applyAs(client, parse(await readFile(join(root, file), "utf8")));
    assert.ok(answer.code < 300, said(answer));
  }
  const kinds = ["ClusterOverridePolicy", "ClusterValidatePolicy", "OverridePolicy"];
  const isServed = async (kind: string) =>
    (await client({ method: "GET", path: collectionOf(of(kind, "any", {})) })).code === 200;
  await until("the kinds are not served", async () => (await Promise.all(kinds.map(isServed))).every(Boolean));
};
