import type { JsonMap } from "#lib/json.ts";
import { toApiPath } from "#lib/objects/api-version.ts";
import type { Random } from "../../../infra/testing/random.ts";
import type { TestClusterRequest } from "../../control-plane/client.ts";

/** The labels of the namespaces in the cluster. */
export const namespaces: Record<string, Record<string, string>> = {
  plain: {},
  tiers: { tier: "a" },
  envs: { tier: "b", env: "x" },
};

const labels = [undefined, undefined, {}, { tier: "a" }, { tier: "b" }, { env: "x" }, { tier: "a", env: "y" }];
const annotations = [undefined, undefined, { count: "xx" }, { note: "<&>" }];

const template = { metadata: { labels: { app: "a" } }, spec: { containers: [{ name: "main", image: "i:1" }] } };
const target = { apiVersion: "apps/v1", kind: "Deployment", name: "base" };
const createCpuMetric = (averageUtilization: number) => {
  return [{ type: "Resource", resource: { name: "cpu", target: { type: "Utilization", averageUtilization } } }];
};

/** A kind of the written objects. `content` returns the object's fields beside apiVersion, kind and metadata. */
interface Kind {
  apiVersion: string;
  kind: string;
  resource: string;
  content(random: Random): JsonMap;
}

/** The kinds of the written objects. A kind may occur several times, with different contents or versions. */
const kinds: Kind[] = [
  {
    apiVersion: "v1",
    kind: "ConfigMap",
    resource: "configmaps",
    content: (random) => ({ data: random.pick([{}, { a: "1" }, { a: "<b>" }]) }),
  },
  { apiVersion: "v1", kind: "ConfigMap", resource: "configmaps", content: () => ({}) },
  { apiVersion: "v1", kind: "Pod", resource: "pods", content: () => ({ spec: template.spec }) },
  {
    apiVersion: "apps/v1",
    kind: "Deployment",
    resource: "deployments",
    content: (random) => ({
      spec: { replicas: random.pick([1, 4]), selector: { matchLabels: { app: "a" } }, template },
    }),
  },
  {
    apiVersion: "autoscaling/v1",
    kind: "HorizontalPodAutoscaler",
    resource: "horizontalpodautoscalers",
    content: (random) => ({
      spec: {
        maxReplicas: 5,
        minReplicas: 1,
        scaleTargetRef: target,
        targetCPUUtilizationPercentage: random.pick([50, 70]),
      },
    }),
  },
  {
    apiVersion: "autoscaling/v2",
    kind: "HorizontalPodAutoscaler",
    resource: "horizontalpodautoscalers",
    content: (random) => ({
      spec: { maxReplicas: 5, minReplicas: 2, scaleTargetRef: target, metrics: createCpuMetric(random.pick([40, 60])) },
    }),
  },
  {
    apiVersion: "example.com/v1",
    kind: "Widget",
    resource: "widgets",
    content: () => ({ spec: { size: 1, replicas: 2 } }),
  },
  {
    apiVersion: "example.com/v2",
    kind: "Widget",
    resource: "widgets",
    content: (random) => ({ spec: { size: random.drawBelow(4), replicas: 3 } }),
  },
];

/** Returns the calls that create the kinds and namespaces of the test. */
export const listFixtureCalls = (): TestClusterRequest[] => [
  { method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: widgets },
  ...Object.entries(namespaces).map(([name, labels]): TestClusterRequest => {
    return { method: "POST", path: "/api/v1/namespaces", body: { metadata: { name, labels } } };
  }),
];

/** Returns the calls that create an object of each resource in each namespace, for later updates and deletions. */
export const listObjectCalls = (random: Random): TestClusterRequest[] =>
  Object.keys(namespaces).flatMap((namespace) =>
    // Of several entries with the same resource, the Map keeps the last one.
    [...new Map(kinds.map((kind) => [kind.resource, kind])).values()].map(
      ({ apiVersion, kind, resource, content }): TestClusterRequest => {
        const metadata = { name: "base", labels: { tier: "a" } };
        return {
          method: "POST",
          path: `${toApiPath(apiVersion)}/namespaces/${namespace}/${resource}`,
          body: { apiVersion, kind, metadata, ...content(random) },
        };
      },
    ),
  );

const createVersion = (name: string, { storage }: { storage: boolean }) => {
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  const scale = { specReplicasPath: ".spec.replicas", statusReplicasPath: ".status.replicas" };
  return { name, served: true, storage, schema, subresources: { status: {}, scale } };
};

/** The definition of a custom kind with two versions. */
const widgets = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.com" },
  spec: {
    group: "example.com",
    scope: "Namespaced",
    names: { plural: "widgets", singular: "widget", kind: "Widget" },
    versions: [createVersion("v1", { storage: true }), createVersion("v2", { storage: false })],
  },
};

/** Returns a random write. Names of new objects contain the number of the write, so that they are unique. */
export const createWrite = (number: number, random: Random): TestClusterRequest => {
  const isDryRun = random.decide(0.8);
  const buildMetadata = (name: object): JsonMap => {
    const [chosenLabels, chosenAnnotations] = [random.pick(labels), random.pick(annotations)];
    return {
      ...name,
      ...(chosenLabels && { labels: chosenLabels }),
      ...(chosenAnnotations && { annotations: chosenAnnotations }),
    };
  };
  // A number from 0 to 1 chooses the write: below 0.08, a namespace is created; from 0.08 to 0.11, one is updated.
  const choice = random.draw();
  if (choice < 0.08) {
    const body = { apiVersion: "v1", kind: "Namespace", metadata: buildMetadata({ name: `n${number}` }) };
    return { method: "POST", path: "/api/v1/namespaces?dryRun=All", body };
  }
  if (choice < 0.11) {
    const body = { apiVersion: "v1", kind: "Namespace", metadata: buildMetadata({ name: "tiers" }) };
    return { method: "PUT", path: "/api/v1/namespaces/tiers?dryRun=All", body };
  }
  if (choice < 0.13) return { method: "DELETE", path: "/api/v1/namespaces/envs?dryRun=All" };
  if (choice < 0.14) {
    const spec = { resourceAttributes: { verb: "get", resource: "pods" } };
    const body = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec };
    return { method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?dryRun=All", body };
  }
  if (choice < 0.15) {
    const apiVersion = "admissionregistration.k8s.io/v1";
    const metadata = buildMetadata({ name: `v${number}` });
    const body = { apiVersion, kind: "ValidatingWebhookConfiguration", metadata };
    return { method: "POST", path: `/apis/${apiVersion}/validatingwebhookconfigurations?dryRun=All`, body };
  }
  const namespace = random.pick(Object.keys(namespaces));
  const getCollection = (apiVersion: string, resource: string) =>
    `${toApiPath(apiVersion)}/namespaces/${namespace}/${resource}`;
  if (choice < 0.21) {
    const [apiVersion, resource] = random.pick([
      ["apps/v1", "deployments"],
      ["example.com/v1", "widgets"],
      ["example.com/v2", "widgets"],
    ] as const);
    const spec = { replicas: random.drawBelow(6) };
    const body = { apiVersion: "autoscaling/v1", kind: "Scale", metadata: { name: "base", namespace }, spec };
    return { method: "PUT", path: `${getCollection(apiVersion, resource)}/base/scale?dryRun=All`, body };
  }
  if (choice < 0.23)
    return { method: "GET", path: `${getCollection("v1", "pods")}/base/exec?command=true&stdout=true` };
  const { apiVersion, kind, resource, content } = random.pick(kinds);
  if (choice < 0.25) {
    const metadata = buildMetadata({ name: "base" });
    const deployment = kinds.find((one) => one.kind === "Deployment")?.content(random);
    const body = { apiVersion: "apps/v1", kind: "Deployment", metadata, ...deployment, status: { replicas: 1 } };
    return { method: "PUT", path: `${getCollection("apps/v1", "deployments")}/base/status?dryRun=All`, body };
  }
  if (choice < 0.33) return { method: "DELETE", path: `${getCollection(apiVersion, resource)}/base?dryRun=All` };
  if (choice < 0.55 && resource !== "pods") {
    const body = { apiVersion, kind, metadata: buildMetadata({ name: "base" }), ...content(random) };
    const path = `${getCollection(apiVersion, resource)}/base?dryRun=All`;
    // A PUT of a custom resource needs its resourceVersion, which the test doesn't know. A PATCH needs none.
    if (resource === "widgets") return { method: "PATCH", path, body, contentType: "application/merge-patch+json" };
    return { method: "PUT", path, body };
  }
  const name = random.decide(0.15) ? { generateName: "g-" } : { name: `${random.pick(["g", "o"])}${number}` };
  const body = { apiVersion, kind, metadata: buildMetadata(name), ...content(random) };
  // Only ConfigMaps may be stored: all other creations are dry runs.
  const creationQuery = kind === "ConfigMap" && !isDryRun ? "" : "?dryRun=All";
  return { method: "POST", path: `${getCollection(apiVersion, resource)}${creationQuery}`, body };
};
