import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Failure } from "postern/failure";
import type { Capabilities } from "postern/needs";
import type { KinitirasPolicy } from "postern/policy/types";
import type { AdmissionRequest } from "postern/review";
import { createRecordedCapabilities, type MetricCount, openRule } from "postern/test";

const { decide } = await openRule(import.meta.dirname);

const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "team" } };
const buildPolicy = (name: string, ...overriders: object[]): KinitirasPolicy =>
  ({
    apiVersion: "policy.kcloudlabs.io/v1alpha1",
    kind: "ClusterOverridePolicy",
    metadata: { name },
    spec: {
      resourceSelectors: [{ apiVersion: "v1", kind: "Pod" }],
      overrideRules: overriders.map((overrider) => ({ overriders: overrider })),
    },
  }) as unknown as KinitirasPolicy;
const addLabel = (path: string) => ({ template: { type: "labels", operation: "add", path, value: { string: "x" } } });
/** Returns a policy that refers to a Secret, unless `reference` has other fields. */
const buildReferencePolicy = (reference: object = {}) => {
  const k8s = { apiVersion: "v1", kind: "Secret", name: "s", namespace: "team", ...reference };
  const template = { type: "labels", operation: "add", path: "a", valueRef: { from: "k8s", path: "data.x", k8s } };
  return buildPolicy("cap", { template });
};
const discovery = { v1: [{ resource: "secrets", kind: "Secret", namespaced: true }] };

const change = async (settings: object, overrides: Partial<Capabilities> = {}, request = {}) => {
  const kind = { group: "", version: "v1", kind: "Pod" };
  const resource = { group: "", version: "v1", resource: "pods" };
  // These fields of a request are all that the rule reads.
  const admissionRequest = {
    operation: "CREATE",
    kind,
    resource,
    object: pod,
    oldObject: null,
    ...request,
  } as unknown as AdmissionRequest;
  const objects = [{ apiVersion: "v1", kind: "Secret", metadata: { name: "s", namespace: "team" }, data: { x: "y" } }];
  return decide("mutate", admissionRequest, {
    settings,
    capabilities: { ...createRecordedCapabilities({ objects, discovery }), ...overrides },
  });
};

/** Policies that can't be evaluated, and the error of each. */
const failing: [name: string, settings: object, sentence: RegExp][] = [
  [
    "for a patch that can't be applied, with the policy and the rule",
    { policies: [buildPolicy("cap", addLabel("a"), { plaintext: [{ op: "remove", path: "/metadata/labels/b" }] })] },
    /^ClusterOverridePolicy cap, overrideRules\[1\]: /,
  ],
  [
    "for a reference to a kind that isn't served",
    { policies: [buildReferencePolicy({ kind: "Goose" })] },
    /overrideRules\[0\]: the cluster serves no Goose of v1$/,
  ],
  [
    "for a reference to a kind that isn't served, even if a placeholder has no value",
    { policies: [buildReferencePolicy({ kind: "Goose", name: "{{metadata.labels.goose}}" })] },
    /overrideRules\[0\]: the cluster serves no Goose of v1$/,
  ],
  [
    "for a reference to a Secret that the setting `reads` doesn't list",
    { policies: [buildReferencePolicy()] },
    /Secrets are read only if the setting reads lists them$/,
  ],
  [
    "for a script if scripts are turned off",
    { policies: [buildPolicy("cap", { cue: "patches: []" })], scripts: false },
    /scripts are turned off by the setting scripts$/,
  ],
];

describe("an override policy", () => {
  for (const [name, settings, sentence] of failing)
    it(`fails ${name}`, () =>
      assert.rejects(
        async () => change(settings),
        (error) => {
          assert.ok(error instanceof Failure);
          assert.equal(error.code, 500);
          assert.match(error.message, sentence);
          return true;
        },
      ));

  it("an override policy reads a Secret if the setting `reads` lists Secrets", async () => {
    const reads = [{ group: "", resource: "secrets" }];
    const { operations } = await change({ policies: [buildReferencePolicy()], reads });
    assert.equal(operations, 1);
  });

  it("an override policy fails if policies can't be read, unless the cluster doesn't serve their kinds", async () => {
    const list = () => Promise.reject(new Failure(503, "no answer"));
    const policies = [buildPolicy("cap", addLabel("a"))];
    const discoverServedGroup = async (groupVersion: string) => (groupVersion === "v1" ? discovery.v1 : []);
    const discoverNoGroup = async () => undefined; // as after the answer 404
    await assert.rejects(async () => change({}, { list, discover: discoverServedGroup }), /no answer/);
    const { operations } = await change({ policies }, { list, discover: discoverNoGroup });
    assert.equal(operations, 1);
  });
});

describe("the metrics of override policies", () => {
  const countMetrics = async (settings: object) => {
    const counts: MetricCount[] = [];
    await change({ metrics: true, ...settings }, { count: (added) => void counts.push(...added) }).catch(() => {});
    return counts.map(({ metric, labels }) => [metric.replace("kcloudlabs_", ""), ...Object.values(labels)]);
  };
  // One policy rule changes labels by a `template` (from `addLabel`) and by `origin`, which upstream doesn't count.
  const policies = [
    buildPolicy("cap", { ...addLabel("a"), origin: [{ type: "labels", operation: "add", labels: { b: "c" } }] }),
  ];

  it("metrics count a policy rule's match and its change by `template`, but not its change by `origin`", async () =>
    assert.deepEqual(await countMetrics({ policies }), [
      ["override_policy_matched_count", "cap", "/v1/Pod"],
      ["override_policy_override_count", "cap", "/v1/Pod"],
    ]));
  it("the metrics of override policies count failures, such as a script while scripts are turned off", async () =>
    assert.deepEqual(await countMetrics({ policies: [buildPolicy("cap", { cue: "patches: []" })], scripts: false }), [
      ["policy_error_count", "cap", "/v1/Pod"],
    ]));
  it("the metrics of override policies are not counted if the setting metrics is false", async () =>
    assert.deepEqual(await countMetrics({ policies, metrics: false }), []));
});
