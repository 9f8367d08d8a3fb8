import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import fc from "fast-check";
import { exactJson } from "#lib/exact-json.ts";
import { isMap, toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { findModule } from "../../infra/kubernetes/find-module.ts";
import { createKubernetes, type Kubernetes } from "../../infra/kubernetes/kubernetes.ts";
import type { KubernetesAnswer, KubernetesRequest } from "../../infra/kubernetes/requests.ts";
import { createAnswerPatterns, toRequestPattern } from "../../infra/kubernetes/similar-requests.ts";
import { generateFaultyObject } from "../cluster/faulty-objects.ts";
import { needs } from "../parts.ts";
import { readValidObjects } from "../valid-objects.ts";

const { POSTERN_RUNS, POSTERN_SEED } = process.env;
const runs = Number(POSTERN_RUNS ?? 300);
const seed = Number(POSTERN_SEED ?? Math.floor(Math.random() * 1e9));
const { skip } = await needs("Kubernetes module");

const workloadKinds = ["Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"];
const networkKinds = ["Ingress", "NetworkPolicy", "Service"];
const configurationKinds = ["ConfigMap", "Namespace", "ServiceAccount"];
const otherKinds = [...networkKinds, ...configurationKinds, "CronJob", "PersistentVolumeClaim", "PodDisruptionBudget"];

/**
 * Builds a usual workload: it has texts in many fields, and some texts, such as "web", in several fields. A rich
 * workload also has a topology constraint, and a fault of which API servers warn.
 */
const buildObject = (kind: string, isRich: boolean): KubernetesObject => {
  const labels = { app: "web", "app.kubernetes.io/name": "web" };
  const spec = {
    serviceAccountName: "web-account",
    initContainers: [{ name: "first", image: "a.example.com/first:1", command: ["sh", "-c", "true"] }],
    containers: [
      {
        name: "main",
        image: "a.example.com/web:1.2",
        args: ["--name=web", "-v"],
        env: [
          { name: "A", value: "b" },
          { name: "C", value: "web" },
        ],
        volumeMounts: [{ name: "settings", mountPath: "/etc/a" }],
        resources: { requests: { cpu: "100m", memory: "512Mi" }, limits: { memory: "1Gi" } },
        ports: [{ name: "http", containerPort: 80 }],
      },
      // The fault is a second port with the same name.
      ...(isRich
        ? [{ name: "other", image: "a.example.com/other:1", ports: [{ name: "http", containerPort: 80 }] }]
        : []),
    ],
    volumes: [
      { name: "settings", configMap: { name: "web-settings" } },
      { name: "keys", secret: { secretName: "web-keys" } },
    ],
    ...(isRich && {
      topologySpreadConstraints: [
        {
          maxSkew: 1,
          topologyKey: "zone",
          whenUnsatisfiable: "DoNotSchedule",
          labelSelector: { matchLabels: { app: "web" } },
          matchLabelKeys: ["app.kubernetes.io/name"],
        },
      ],
    }),
  };
  const annotations = { "example.com/contact": "a@example.com", "prometheus.io/scrape": "true" };
  const metadata = { name: "web-1", labels, annotations };
  if (kind === "Pod")
    return { apiVersion: "v1", kind, metadata: { ...metadata, generateName: "web-" }, spec } as KubernetesObject;
  const template = { metadata: { labels, annotations }, spec };
  const requiredFields = kind === "StatefulSet" ? { serviceName: "web" } : {};
  return {
    apiVersion: "apps/v1",
    kind,
    metadata,
    spec: { ...requiredFields, selector: { matchLabels: labels }, template },
  } as KubernetesObject;
};

const objects = [
  ...[false, true].flatMap((isRich) => workloadKinds.map((kind) => buildObject(kind, isRich))),
  ...readValidObjects().filter(({ kind = "" }) => [...workloadKinds, ...otherKinds].includes(kind)),
].map((object) => ({
  ...object,
  metadata: {
    ...(object.kind !== "Namespace" && { namespace: "shop" }),
    uid: "11111111-2222-3333-4444-555555555555",
    creationTimestamp: "2026-01-02T03:04:05Z",
    ...object.metadata,
  },
}));

/** Texts that only some fields allow, that occur in the objects above, or that have a meaning in Kubernetes. */
const texts = [
  "a",
  "b",
  "web",
  "main",
  "default",
  "http",
  "settings",
  "a-b",
  "web-",
  "-a",
  "9a",
  "A",
  "a.b",
  "a_b",
  "x".repeat(52),
  "x".repeat(63),
  "x".repeat(64),
  "$(A)",
  "$(C) b",
  "é",
  "\ud800",
  "\0",
  " a",
  "a ",
  "a:1",
  "a:latest",
  "a",
  "a/b:2",
  "a/B:2",
  "a:1@sha256:b",
  "Always",
  "app",
  "zone",
  "shop.example.com",
  "example.com",
  "*.example.com",
  "a.example.com.",
  "10.0.0.1",
  "/web",
  "/a/b",
  "/a//b",
  "/",
  "kube-system",
  "20Mi",
  "512Mi",
  "1Gi",
  "1024Mi",
  "1G",
  "2",
  "150m",
  "1000m",
  "0.5",
  'a"\\b',
  "<&>",
  "true",
  "",
  "\\u00000",
];

/**
 * Generates copies of an object in which one to three texts are replaced everywhere. Most of the replaced texts are
 * those in which similar requests may differ: the answer to one request is then derived from the answer to another.
 */
const generateRenamed = (object: KubernetesObject): fc.Arbitrary<KubernetesObject> => {
  const edit = (value: unknown, replace: (text: string) => string): unknown => {
    if (typeof value === "string") return replace(value);
    if (Array.isArray(value)) return value.map((member) => edit(member, replace));
    if (!isMap(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, edit(member, replace)]));
  };
  const { apiVersion, kind, ...rest } = object;
  const foundTexts = new Set<string>();
  edit(rest, (text) => {
    foundTexts.add(text);
    return text;
  });
  foundTexts.delete("default");
  const replaceable = toRequestPattern(toRequest(object))?.texts ?? [];
  const oldText = fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom(...(replaceable.length > 0 ? replaceable : foundTexts)) },
    fc.constantFrom(...foundTexts),
  );
  const name = fc.stringMatching(/^[a-z][-a-z0-9]{0,8}[a-z0-9]$/);
  const amount = fc.stringMatching(/^[1-9]\d{0,2}(?:m|Mi|Gi)?$/);
  const newText = fc.oneof({ weight: 6, arbitrary: name }, { weight: 3, arbitrary: amount }, fc.constantFrom(...texts));
  return fc.array(fc.tuple(oldText, newText), { minLength: 1, maxLength: 3 }).map((pairs) => {
    const newTexts = new Map(pairs);
    return { apiVersion, kind, ...toMap(edit(rest, (text) => newTexts.get(text) ?? text)) } as KubernetesObject;
  });
};

const toRequest = (object: KubernetesObject): KubernetesRequest => ({
  verb: "create",
  apiVersion: object.apiVersion ?? "",
  kind: object.kind ?? "",
  namespace: object.metadata?.namespace ?? "default",
  ...(typeof object.metadata?.name === "string" && { name: object.metadata.name }),
  fieldValidation: "Ignore",
  object,
});

/** Returns an answer without the time, which differs between two answers to the same request. */
const normalize = ({ object, ...answer }: KubernetesAnswer) => {
  const { creationTimestamp, ...metadata } = toMap(object?.metadata);
  return { ...answer, object: object && { ...object, metadata }, timeType: typeof creationTimestamp };
};

describe("answers that are derived from the answer to a request with other texts", { skip }, () => {
  let module: Kubernetes;
  before(async () => {
    module = await createKubernetes({ packed: (await findModule()) ?? "" });
  });
  after(() => module?.stop());

  /** Compares derived answers with those of the module; returns how many requests had a derived answer. */
  const compareAll = async (objects: readonly KubernetesObject[]): Promise<number> => {
    const patterns = createAnswerPatterns();
    let count = 0;
    for (const object of objects) {
      const request = toRequest(object);
      const pattern = toRequestPattern(request);
      const derived = pattern && patterns.find(pattern);
      // For an object in bytes, the module always computes the answer itself.
      const json = exactJson.stringify(object);
      const answer = await module.handle({ ...request, object: Buffer.from(json) });
      if (derived) assert.deepEqual(normalize(derived), normalize(answer), `seed ${seed}: ${json}`);
      if (derived) count++;
      if (pattern) patterns.put(pattern, answer);
    }
    return count;
  };

  it("derived answers equal the module's answers, whichever texts are replaced", async (t) => {
    const changed = fc.sample(fc.constantFrom(...objects).chain(generateRenamed), { numRuns: runs, seed });
    const count = await compareAll([...objects, ...changed]);
    t.diagnostic(`seed ${seed}: ${count} of ${changed.length} answers were derived`);
    assert.ok(count > runs / 20, `${count} of ${runs} answers were derived`);
  });

  const pod = (name: string, members: object, metadata: object = {}) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", ...metadata },
    spec: { containers: [{ name: "main", image: "a:1", ...members }] },
  });
  const resources = (request: string, limit: string) => ({
    resources: { requests: { cpu: request }, limits: { cpu: limit } },
  });

  it("an answer is derived if amounts and the number of variables differ, also if it has warnings", async () => {
    const env = (...names: string[]) => ({
      env: [
        { name: "NODE", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } },
        ...names.map((name) => ({ name, value: "a b" })),
      ],
      ports: ["http", "web"].map((name) => ({ name, containerPort: 80 })),
    });
    const pairsOfObjects = [
      [pod("a", resources("2", "4")), pod("a", resources("100m", "3"))],
      [pod("web-1", env("A")), pod("web-2", env("B", "C", "D"))],
    ];
    for (const pair of pairsOfObjects) assert.equal(await compareAll(pair), 1, JSON.stringify(pair));
  });

  it("no answer is derived where an API server joins or compares the changed texts", async () => {
    const withVolumes = (name: string) => {
      const volumeClaimTemplate = {
        spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } },
      };
      const volumes = [
        { name: "own", ephemeral: { volumeClaimTemplate } },
        { name: "other", persistentVolumeClaim: { claimName: "web-own" } },
      ];
      return { ...pod(name, {}), spec: { containers: [{ name: "main", image: "a:1" }], volumes } };
    };
    const withSelector = (app: string) => {
      const selector = { matchExpressions: [{ key: "app", operator: "In", values: ["web"] }] };
      const template = { metadata: { labels: { app } }, spec: { containers: [{ name: "main", image: "a:1" }] } };
      return {
        apiVersion: "apps/v1",
        kind: "Deployment",
        metadata: { name: "a", namespace: "default" },
        spec: { selector, template },
      };
    };
    const appArmor = { annotations: { "container.apparmor.security.beta.kubernetes.io/main": "runtime/default" } };
    const env = (value: string) => ({
      env: [
        { name: "A", value: "a" },
        { name: "A", value },
      ],
    });
    const withPodResources = (cpu: string) => {
      const containers = [{ name: "main", image: "a:1", resources: { requests: { cpu } } }];
      return { ...pod("a", {}), spec: { resources: { requests: { cpu: "2" } }, containers } };
    };
    const pairsOfObjects = [
      [withVolumes("app"), withVolumes("web")],
      [withSelector("web"), withSelector("app")],
      [pod("a", {}, appArmor), pod("a", { name: "other" }, appArmor)],
      [pod("a", env("$(A) b")), pod("a", env("b"))],
      [pod("a", {}), pod("a", { image: "a:latest" })],
      [pod("a", {}), pod("a.b", {})],
      [pod("a", resources("2", "4")), pod("a", resources("5", "4"))],
      [pod("a", resources("2", "4")), pod("a", resources("4", "4"))],
      [pod("a", resources("2", "4")), pod("a", resources("2", "4000m"))],
      [withPodResources("20m"), withPodResources("3")],
    ];
    for (const pair of pairsOfObjects) assert.equal(await compareAll(pair), 0, JSON.stringify(pair));
  });

  it("derived answers equal the module's answers for objects with a fault", async (t) => {
    const faulty = fc.sample(generateFaultyObject(objects), { numRuns: runs, seed }).map(({ object }) => object);
    const count = await compareAll([...objects, ...faulty]);
    t.diagnostic(`seed ${seed}: ${count} of ${faulty.length} answers were derived`);
    assert.ok(count > 0);
  });
});
