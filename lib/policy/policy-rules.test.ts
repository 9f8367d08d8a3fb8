import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ObjectReader, ResourceType } from "../needs.ts";
import type { AdmissionRequest, KubernetesObject } from "../review.ts";
import {
  createPolicyNeeds,
  isGovernedByPolicies,
  listPolicies,
  overridePolicyResources,
  policySettings,
} from "./policy-rules.ts";
import type { KinitirasPolicy } from "./types.ts";

const buildPolicy = (name: string, kind = "ClusterOverridePolicy", namespace?: string) =>
  ({
    kind,
    metadata: { name, ...(namespace && { namespace }) },
    spec: { overrideRules: [] },
  }) as unknown as KinitirasPolicy;
const [a, b, namesake] = [buildPolicy("a"), buildPolicy("b"), buildPolicy("a")];
const ofNamespace = buildPolicy("a", "OverridePolicy", "team");

/** Returns a cluster's reader. Like a cache, it returns the same array for a list until the test replaces the array. */
const buildReader = (
  lists: Record<string, readonly KinitirasPolicy[]>,
): Pick<ObjectReader, "list" | "discover" | "get"> => ({
  get: async () => undefined,
  list: async ({ resource }) => (lists[resource] ?? []) as unknown as KubernetesObject[],
  discover: async () => [],
});

describe("the policies of a rule", () => {
  const settings = { ...policySettings, policies: [a] };
  it("the policies of a rule are those of its settings, then those of the cluster that have other names", async () => {
    const reader = buildReader({ clusteroverridepolicies: [namesake, b], overridepolicies: [ofNamespace] });
    const found = await listPolicies(overridePolicyResources, { settings, reader });
    assert.deepEqual(found, [a, b, ofNamespace]);
    assert.equal(found[0], a);
  });

  it("listPolicies returns the same array until a list of the cluster changes, to index the array once", async () => {
    const lists = { clusteroverridepolicies: [b], overridepolicies: [] as KinitirasPolicy[] };
    const reader = buildReader(lists);
    const found = await listPolicies(overridePolicyResources, { settings, reader });
    assert.equal(await listPolicies(overridePolicyResources, { settings, reader }), found);
    lists.overridepolicies = [ofNamespace];
    assert.deepEqual(await listPolicies(overridePolicyResources, { settings, reader }), [a, b, ofNamespace]);
  });

  it("listPolicies doesn't mix clusters with the same settings, even if a cluster lacks a policy kind", async () => {
    const noSettings = { ...policySettings, policies: [] };
    const rejectAll = async () => Promise.reject(new Error("404"));
    // `discover` is called only after `list` failed. It returns undefined if the cluster doesn't serve the kind.
    const withoutKinds = { ...buildReader({}), list: rejectAll, discover: async () => undefined };
    const firstCluster = buildReader({ clusteroverridepolicies: [a], overridepolicies: [] });
    const secondCluster = buildReader({ clusteroverridepolicies: [b], overridepolicies: [ofNamespace] });
    const listFrom = (reader: Pick<ObjectReader, "list" | "discover" | "get">, places = overridePolicyResources) =>
      listPolicies(places, { settings: noSettings, reader });
    const [ofFirst, ofSecond] = [await listFrom(firstCluster), await listFrom(secondCluster)];
    assert.deepEqual([ofFirst, ofSecond], [[a], [b, ofNamespace]]);
    assert.deepEqual(await listFrom(withoutKinds), []);
    assert.equal(await listFrom(firstCluster), ofFirst);
    assert.equal(await listFrom(secondCluster), ofSecond);
    const withOneKind = {
      ...secondCluster,
      list: (place: ResourceType) => (place.resource === "overridepolicies" ? secondCluster.list(place) : rejectAll()),
    };
    // A copy of a reader is a new cluster, with nothing cached. The cache's key is the list of the first kind. Neither
    // cluster serves this kind, so both have the same key. But the second call must not get the first call's result.
    const clusterPolicyResources = overridePolicyResources.slice(0, 1);
    assert.deepEqual(await listFrom({ ...withoutKinds }, clusterPolicyResources), []);
    assert.deepEqual(await listFrom({ ...withOneKind, discover: async () => undefined }), [ofNamespace]);
  });

  it("listPolicies returns only the policies of the settings if inCluster is false", async () => {
    const reader = { ...buildReader({}), list: () => assert.fail("the cluster is asked for policies") };
    const found = await listPolicies(overridePolicyResources, { settings: { ...settings, inCluster: false }, reader });
    assert.equal(found, settings.policies);
  });
});

describe("isGovernedByPolicies", () => {
  const buildAdmissionRequest = (operation: string, group: string) =>
    ({ operation, kind: { group } }) as unknown as AdmissionRequest;
  it("isGovernedByPolicies is false for requests for policies and for CONNECT", () => {
    assert.ok(isGovernedByPolicies(buildAdmissionRequest("DELETE", "")));
    assert.ok(!isGovernedByPolicies(buildAdmissionRequest("UPDATE", "policy.kcloudlabs.io")));
    assert.ok(!isGovernedByPolicies(buildAdmissionRequest("CONNECT", "")));
  });
});

describe("the needs of a rule for policies", () => {
  const { reader, cue, http } = createPolicyNeeds(overridePolicyResources);
  const onlySettings = { ...policySettings, inCluster: false };
  it("the needs for policies have no kinds if all policies are in the settings and have no references", () => {
    assert.deepEqual(reader.kinds?.({ ...onlySettings, policies: [a] }), []);
    assert.deepEqual(reader.kinds?.(policySettings), overridePolicyResources);
  });
  it("the needs for policies include CUE if there may be a script", () => {
    const scripted = { ...a, spec: { overrideRules: [{ overriders: { cue: "patches: []" } }] } };
    assert.equal(cue.isUsed?.({ ...onlySettings, policies: [a] }), false);
    assert.equal(cue.isUsed?.({ ...onlySettings, policies: [scripted] }), true);
    assert.equal(cue.isUsed?.(policySettings), true);
    assert.equal(cue.isUsed?.({ ...policySettings, scripts: false }), false);
  });
  it("CUE is started before the first review only if a policy in the settings has a script", () => {
    const scripted = { ...a, spec: { overrideRules: [{ overriders: { cue: "patches: []" } }] } };
    const startsEarly = (...policies: object[]) => cue.isAwaited?.({ ...policySettings, policies });
    assert.equal(startsEarly(), false);
    assert.equal(startsEarly(a), false);
    assert.equal(startsEarly(a, scripted), true);
  });
  it("the needs for policies include the secrets where credentials are kept", () => {
    const credentials = [{ host: "auth.example.com", secret: "s", region: "eu-west-1" }];
    assert.deepEqual(http.secrets?.({ ...policySettings, http: { ...policySettings.http, credentials } }), [
      { secret: "s", region: "eu-west-1" },
    ]);
  });
});
