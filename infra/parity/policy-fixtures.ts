import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import type { KubernetesObject } from "#lib/review.ts";
import type { Answer, Client } from "./control-plane/client.ts";
import { until } from "./rule-server.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

export type Manifest = KubernetesObject & { metadata: { name?: string; namespace?: string } } & Record<string, unknown>;

const places: Record<string, string> = {
  CustomResourceDefinition: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
  ClusterOverridePolicy: "/apis/policy.kcloudlabs.io/v1alpha1/clusteroverridepolicies",
  ClusterValidatePolicy: "/apis/policy.kcloudlabs.io/v1alpha1/clustervalidatepolicies",
  OverridePolicy: "/apis/policy.kcloudlabs.io/v1alpha1/namespaces/NAMESPACE/overridepolicies",
  ClusterRole: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
  ClusterRoleBinding: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
  MutatingWebhookConfiguration: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
  ValidatingWebhookConfiguration: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
  ConfigMap: "/api/v1/namespaces/NAMESPACE/configmaps",
  Deployment: "/apis/apps/v1/namespaces/NAMESPACE/deployments",
  Namespace: "/api/v1/namespaces",
  Pod: "/api/v1/namespaces/NAMESPACE/pods",
  ReplicaSet: "/apis/apps/v1/namespaces/NAMESPACE/replicasets",
  Service: "/api/v1/namespaces/NAMESPACE/services",
};
export const collectionOf = ({ kind = "", metadata }: KubernetesObject) =>
  String(places[kind]).replace("NAMESPACE", metadata?.namespace ?? "default");

export const said = ({ body }: Answer) => String(body.message);
export const of = (kind: string, name: string, spec: object, metadata: object = {}): Manifest => {
  return { apiVersion: "policy.kcloudlabs.io/v1alpha1", kind, metadata: { name, ...metadata }, spec };
};
export const pods = [{ apiVersion: "v1", kind: "Pod" }];
export const pod = (name: string, metadata: object = {}): Manifest => ({
  ...{ apiVersion: "v1", kind: "Pod", metadata: { name, namespace: "default", ...metadata } },
  ...{ spec: { containers: [{ name: "c", image: "nginx" }] } },
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
    ...{ method: "PATCH", contentType: "application/apply-patch+yaml", body: object },
    path: `${pathOf(object)}?fieldManager=kubectl&force=true`,
  });
export const pathOf = (object: KubernetesObject) => `${collectionOf(object)}/${object.metadata?.name}`;

/** Has a cluster serve the kinds of policies, from their files as they are. */
export const serveKinds = async (client: Client): Promise<void> => {
  for (const file of globSync("functions/*/crds/*.yaml", { cwd: root })) {
    const answer = await applyAs(client, parse(await readFile(join(root, file), "utf8")));
    assert.ok(answer.code < 300, said(answer));
  }
  const kinds = ["ClusterOverridePolicy", "ClusterValidatePolicy", "OverridePolicy"];
  const isServed = async (kind: string) => (await client({ method: "GET", path: collectionOf({ kind }) })).code === 200;
  await until("the kinds are not served", async () => (await Promise.all(kinds.map(isServed))).every(Boolean));
};
