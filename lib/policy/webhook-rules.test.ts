import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import type { ServedResource } from "../needs.ts";
import type { KubernetesObject } from "../review.ts";
import type { RequestMatch } from "../rule.ts";
import type { PolicySettings } from "./policy-rules.ts";
import { defaultHttpSettings } from "./references/http.ts";
import { guessReferencedResources, listReferencedKinds } from "./references/referenced-kinds.ts";
import type { KinitirasPolicy } from "./types.ts";
import {
  createPolicyMatch,
  createWebhookRulesInspection,
  describeUnsentRequests,
  findSettingsFault,
} from "./webhook-rules.ts";

const defaultSettings: PolicySettings = {
  policies: [],
  inCluster: true,
  intercept: [],
  objectSelector: {},
  reads: [],
  scripts: true,
  metrics: false,
  http: defaultHttpSettings,
};
const pod = { apiVersion: "v1", kind: "Pod" };
const deployment = { apiVersion: "apps/v1", kind: "Deployment" };
const buildPolicy = (
  resourceSelectors: object[] | undefined,
  ...operations: (string[] | undefined)[]
): KinitirasPolicy =>
  ({
    apiVersion: "policy.kcloudlabs.io/v1alpha1",
    kind: "ClusterOverridePolicy",
    metadata: { name: "cap-replicas" },
    spec: {
      ...(resourceSelectors && { resourceSelectors }),
      overrideRules: operations.map((targetOperations) => ({ targetOperations, overriders: {} })),
    },
  }) as unknown as KinitirasPolicy;
const buildWebhookRule = (
  group: string,
  version: string,
  resources: string[],
  operations: string[],
  fields = {},
): RequestMatch => ({ apiGroups: [group], apiVersions: [version], resources, operations, ...fields }) as RequestMatch;
const [create, update] = ["CREATE", "UPDATE"];
const createAndUpdate = [create, update];
const everything = buildWebhookRule("*", "*", ["*"], createAndUpdate);

const buildWebhookRules = createPolicyMatch("CREATE", "UPDATE");
/** `rules` has the targetOperations of each rule of a policy; `intercept` has requests that match in any case. */
interface Case {
  name: string;
  policies?: { kind?: string; selectors?: object[]; rules?: (string[] | undefined)[]; spec?: unknown }[];
  intercept?: PolicySettings["intercept"];
  webhookRules: [group: string, version: string, resources: string[], operations: string[], scope?: string][];
}
const cases: Case[] = parse(readFileSync(new URL("webhook-rules.yaml", import.meta.url), "utf8"));

describe("webhook rules for policies", () => {
  for (const { name, policies = [], intercept = [], webhookRules } of cases)
    it(name, () => {
      const policyList = policies.map(({ selectors, rules = [], ...rest }) => ({
        ...buildPolicy(selectors, ...rules),
        ...rest,
      }));
      assert.deepEqual(
        buildWebhookRules({ ...defaultSettings, policies: policyList as KinitirasPolicy[], intercept }),
        webhookRules.map(([group, version, resources, operations, scope]) =>
          buildWebhookRule(group, version, resources, operations, scope && { scope }),
        ),
      );
    });
});

const served: Record<string, ServedResource[]> = {
  v1: [
    { resource: "pods", kind: "Pod", namespaced: true },
    { resource: "pods/status", kind: "Pod", namespaced: true },
  ],
  "example.io/v1": [{ resource: "geese", kind: "Goose", namespaced: true }],
  "policy.kcloudlabs.io/v1alpha1": [
    { resource: "clusteroverridepolicies", kind: "ClusterOverridePolicy", namespaced: false },
  ],
};
const buildCluster = (policies: KinitirasPolicy[], discovery = served) => ({
  list: async () => policies as unknown as KubernetesObject[],
  discover: async (groupVersion: string) => discovery[groupVersion],
});
/** The resources that hold policies in a cluster. */
const policyResources = [{ group: "policy.kcloudlabs.io", version: "v1alpha1", resource: "clusteroverridepolicies" }];
// The rules that evaluate these policies are called for the operations CREATE and UPDATE.
const inspect = createWebhookRulesInspection(policyResources, "CREATE", "UPDATE");
const goose = { apiVersion: "example.io/v1", kind: "Goose" };

describe("the inspection of a cluster", () => {
  it("the inspection of a cluster finds the cluster's policies and the resources that it serves", async () => {
    const { settings, notes } = await inspect(
      { ...defaultSettings, policies: [buildPolicy([pod], [create])] },
      buildCluster([buildPolicy([goose], [])]),
    );
    assert.deepEqual(buildWebhookRules(settings), [
      buildWebhookRule("", "v1", ["pods"], [create]),
      buildWebhookRule("example.io", "v1", ["geese"], createAndUpdate),
    ]);
    assert.deepEqual(notes, []);
  });

  it("the inspection of a cluster omits kinds that aren't served, and notes them", async () => {
    const { settings, notes } = await inspect(defaultSettings, buildCluster([buildPolicy([deployment, pod], [])]));
    assert.deepEqual(buildWebhookRules(settings), [buildWebhookRule("", "v1", ["pods"], createAndUpdate)]);
    assert.deepEqual(notes, [
      "ClusterOverridePolicy cap-replicas selects Deployment of apps/v1, which the cluster doesn't serve",
    ]);
  });

  it("the inspection of a cluster finds the kinds that references read, except Secrets", async () => {
    const valueRef = { from: "k8s", path: "x", k8s: { ...goose, name: "g" } };
    const secret = { from: "k8s", path: "x", k8s: { apiVersion: "v1", kind: "Secret", name: "s" } };
    const policy = buildPolicy([pod], []);
    Object.assign(policy.spec, {
      overrideRules: [{ overriders: { template: { valueRef } } }, { overriders: { template: { valueRef: secret } } }],
    });
    const { settings } = await inspect(defaultSettings, buildCluster([policy]));
    assert.deepEqual(settings.reads, [{ group: "example.io", version: "v1", resource: "geese" }]);
    Object.assign(policy.spec, { overrideRules: [{ overriders: { template: { valueRef: { from: "owner" } } } }] });
    const ownerKinds = listReferencedKinds(policy).map(({ kind }) => kind);
    assert.deepEqual(ownerKinds, ["ReplicaSet", "StatefulSet", "DaemonSet", "Job"]);
  });

  it("the inspection of a cluster ignores selectors and references with impossible kinds, and notes them", async () => {
    const invalidKinds = ["*", "*/v1", "v1/*", "", "/v1", "a/b/c", "../../x", "v1?x", "v1 ", "V1", "__proto__"].flatMap(
      (apiVersion) => ["Pod", "Secret"].map((kind) => ({ apiVersion, kind })),
    );
    for (const kind of ["*", "", "Pod/exec", "../x", "__proto__", "Pod\n", "\u001b[2J"])
      invalidKinds.push({ ...pod, kind });
    const policy = buildPolicy([...invalidKinds, 5, null] as object[], []);
    const templates = invalidKinds.map((k8s) => ({
      overriders: { template: { valueRef: { from: "k8s", path: "x", k8s } } },
    }));
    Object.assign(policy.spec, { overrideRules: templates });
    const { list } = buildCluster([policy]);
    for (const [what, cluster] of Object.entries({ cluster: buildCluster([policy]), manifests: { list } })) {
      const { settings, notes } = await inspect(defaultSettings, cluster);
      assert.deepEqual([buildWebhookRules(settings), settings.reads], [[], []], what);
      assert.deepEqual(notes, ["ClusterOverridePolicy cap-replicas has a selector whose kind can't exist"]);
    }
    assert.deepEqual(guessReferencedResources([policy]), []);
  });

  it("the inspection of a cluster adds no right to read Secrets, in any notation of the kind", async () => {
    const policy = buildPolicy([pod], []);
    const templates = ["Secret", "secret", "SECRET"].flatMap((kind) =>
      ["v1", "v2"].map((apiVersion) => ({
        overriders: { template: { valueRef: { from: "k8s", path: "x", k8s: { apiVersion, kind } } } },
      })),
    );
    Object.assign(policy.spec, { overrideRules: templates });
    const { list } = buildCluster([policy]);
    assert.deepEqual((await inspect(defaultSettings, { list })).settings.reads, []);
    assert.deepEqual(guessReferencedResources([policy]), []);
  });

  it("the inspection of a cluster guesses the resources of a group that doesn't answer, and notes why", async () => {
    const cluster = buildCluster([buildPolicy([deployment, pod], [])]);
    const discover = async (groupVersion: string) => {
      if (groupVersion === "apps/v1") throw new Error("the API server answers 503");
      return cluster.discover(groupVersion);
    };
    const { settings, notes } = await inspect(defaultSettings, { ...cluster, discover });
    assert.deepEqual(buildWebhookRules(settings), [
      buildWebhookRule("", "v1", ["pods"], createAndUpdate),
      buildWebhookRule("apps", "v1", ["deployments"], createAndUpdate),
    ]);
    assert.deepEqual(notes, ["the resources of apps/v1 can't be discovered: the API server answers 503"]);
  });

  it("the inspection of a cluster notes a cluster without kinds for policies", async () => {
    const { "policy.kcloudlabs.io/v1alpha1": _, ...others } = served;
    const { settings, notes } = await inspect(defaultSettings, buildCluster([buildPolicy([pod], [])], others));
    assert.deepEqual(buildWebhookRules(settings), []);
    assert.match(notes.join(), /CRDs are in functions\/policy-admission\/crds/);
  });

  it("the inspection of a cluster guesses resources without discovery", async () => {
    const { list } = buildCluster([buildPolicy([deployment], [])]);
    assert.deepEqual(buildWebhookRules((await inspect(defaultSettings, { list })).settings), [
      buildWebhookRule("apps", "v1", ["deployments"], createAndUpdate),
    ]);
  });
});

describe("requests for which no entry is called", () => {
  const findUnsent = (policy: KinitirasPolicy, webhookRule: RequestMatch) =>
    describeUnsentRequests(policy, ["CREATE", "UPDATE"], buildCluster([]), [webhookRule]);
  const writesOfPods = buildWebhookRule("", "v1", ["pods"], createAndUpdate);
  const createsOfPods = buildWebhookRule("", "v1", ["pods"], [create]);
  it("describeUnsentRequests finds nothing if webhook rules match all requests of the policy", async () => {
    assert.deepEqual(await findUnsent(buildPolicy([pod], []), everything), []);
    assert.deepEqual(await findUnsent(buildPolicy([pod], [create]), writesOfPods), []);
  });
  it("describeUnsentRequests describes requests for which no entry is called by operation and resource", async () => {
    assert.deepEqual(await findUnsent(buildPolicy([goose], []), writesOfPods), ["CREATE, UPDATE of geese.example.io"]);
    assert.deepEqual(await findUnsent(buildPolicy([pod], []), createsOfPods), ["UPDATE of pods"]);
    assert.deepEqual(await findUnsent(buildPolicy([], [create]), writesOfPods), ["CREATE of objects of every kind"]);
  });
});

const faults: [name: string, settings: object, sentence: RegExp][] = [
  [
    "two policies of one name",
    { policies: [buildPolicy([]), buildPolicy([])] },
    /must have one ClusterOverridePolicy cap-replicas/,
  ],
  ["an interception without resources", { intercept: [{ apiGroups: [""], apiVersions: ["v1"] }] }, /in intercept\[0\]/],
  ["an unknown operation", { intercept: [{ ...everything, operations: ["PATCH"] }] }, /in intercept\[0\]/],
  ["an invalid selector", { objectSelector: { matchLabels: 1 } }, /as objectSelector/],
  ["a resource without a group", { reads: [{ resource: "pods" }] }, /in reads\[0\]/],
  ["an invalid host", { http: { ...defaultHttpSettings, hosts: ["*"] } }, /http\.hosts/],
];

describe("settings for policies", () => {
  it("settings for policies are valid by default", () => assert.equal(findSettingsFault(defaultSettings), undefined));
  for (const [name, settings, sentence] of faults)
    it(`are invalid with ${name}`, () =>
      assert.match(findSettingsFault({ ...defaultSettings, ...settings }) ?? "", sentence));
});
