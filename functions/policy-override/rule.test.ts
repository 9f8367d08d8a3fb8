import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Failure } from "postern/failure";
import type { Capabilities } from "postern/needs";
import type { KinitirasPolicy } from "postern/policy/types";
import type { AdmissionRequest } from "postern/review";
import { type Count, openRule, recorded } from "postern/test";

const { decide } = await openRule(import.meta.dirname);

const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "team" } };
const buildPolicy = (name: string, ...overriders: object[]): KinitirasPolicy =>
  ({
    ...{ apiVersion: "policy.kcloudlabs.io/v1alpha1", kind: "ClusterOverridePolicy", metadata: { name } },
    spec: {
      resourceSelectors: [{ apiVersion: "v1", kind: "Pod" }],
      overrideRules: overriders.map((one) => ({ overriders: one })),
    },
  }) as unknown as KinitirasPolicy;
const addLabel = (path: string) => ({ template: { type: "labels", operation: "add", path, value: { string: "x" } } });
/** A policy that refers to a Secret, or to what is given instead. */
const buildReferencePolicy = (given: object = {}) => {
  const k8s = { apiVersion: "v1", kind: "Secret", name: "s", namespace: "team", ...given };
  const template = { type: "labels", operation: "add", path: "a", valueRef: { from: "k8s", path: "data.x", k8s } };
  return buildPolicy("cap", { template });
};
const discovery = { v1: [{ resource: "secrets", kind: "Secret", namespaced: true }] };

const change = async (settings: object, more: Partial<Capabilities> = {}, request = {}) => {
  const kind = { group: "", version: "v1", kind: "Pod" };
  const resource = { group: "", version: "v1", resource: "pods" };
  // Of a request, what the rule looks at.
  const asked = {
    operation: "CREATE",
    kind,
    resource,
    object: pod,
    oldObject: null,
    ...request,
  } as unknown as AdmissionRequest;
  const objects = [{ apiVersion: "v1", kind: "Secret", metadata: { name: "s", namespace: "team" }, data: { x: "y" } }];
  return decide("mutate", asked, { settings, world: { ...recorded({ objects, discovery }), ...more } });
};

const failing: [name: string, settings: object, sentence: RegExp][] = [
  [
    "by a patch that does not fit, naming policy and rule",
    { policies: [buildPolicy("cap", addLabel("a"), { plaintext: [{ op: "remove", path: "/metadata/labels/b" }] })] },
    /^ClusterOverridePolicy cap, overrideRules\[1\]: /,
  ],
  [
    "by a reference to a kind that isn't served",
    { policies: [buildReferencePolicy({ kind: "Goose" })] },
    /overrideRules\[0\]: the cluster serves no Goose of v1$/,
  ],
  [
    "by a reference to a kind that isn't served, also where its placeholders come to nothing",
    { policies: [buildReferencePolicy({ kind: "Goose", name: "{{metadata.labels.goose}}" })] },
    /overrideRules\[0\]: the cluster serves no Goose of v1$/,
  ],
  [
    "by a reference to a Secret that no setting names",
    { policies: [buildReferencePolicy()] },
    /Secrets are read only where the setting reads names them$/,
  ],
  [
    "by a script where scripts are turned off",
    { policies: [buildPolicy("cap", { cue: "patches: []" })], scripts: false },
    /scripts are turned off by the setting scripts$/,
  ],
];

describe("an override that fails", () => {
  for (const [name, settings, sentence] of failing)
    it(`does so ${name}`, () =>
      assert.rejects(
        async () => change(settings),
        (error) => {
          assert.ok(error instanceof Failure);
          assert.equal(error.code, 500);
          assert.match(error.message, sentence);
          return true;
        },
      ));

  it("is not for want of a Secret that a setting names", async () => {
    const reads = [{ group: "", resource: "secrets" }];
    const { operations } = await change({ policies: [buildReferencePolicy()], reads });
    assert.equal(operations, 1);
  });

  it("is for want of policies that can't be read, and not where the cluster has no kinds for them", async () => {
    const list = () => Promise.reject(new Failure(503, "nobody there"));
    const kinds = async (groupVersion: string) => (groupVersion === "v1" ? discovery.v1 : []);
    await assert.rejects(async () => change({}, { list, discover: kinds }), /nobody there/);
    const { operations } = await change(
      { policies: [buildPolicy("cap", addLabel("a"))] },
      { list, discover: async () => undefined },
    );
    assert.equal(operations, 1);
  });
});

describe("what an override counts", () => {
  const countMetrics = async (settings: object) => {
    const counts: Count[] = [];
    await change({ metrics: true, ...settings }, { count: (some) => void counts.push(...some) }).catch(() => {});
    return counts.map(({ metric, labels }) => [metric.replace("kcloudlabs_", ""), ...Object.values(labels)]);
  };
  const policies = [
    buildPolicy("cap", { ...addLabel("a"), origin: [{ type: "labels", operation: "add", labels: { b: "c" } }] }),
  ];

  it("is what matches, and what changes something but for origin", async () =>
    assert.deepEqual(await countMetrics({ policies }), [
      ["override_policy_matched_count", "cap", "/v1/Pod"],
      ["override_policy_override_count", "cap", "/v1/Pod"],
    ]));
  it("is what fails, too", async () =>
    assert.deepEqual(await countMetrics({ policies: [buildPolicy("cap", { cue: "patches: 1" })], scripts: false }), [
      ["policy_error_count", "cap", "/v1/Pod"],
    ]));
  it("is nothing where nobody wants it", async () =>
    assert.deepEqual(await countMetrics({ policies, metrics: false }), []));
});
