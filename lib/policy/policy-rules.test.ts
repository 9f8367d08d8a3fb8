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

const policy = (name: string, kind = "ClusterOverridePolicy", namespace?: string) =>
  ({
    kind,
    metadata: { name, ...(namespace && { namespace }) },
    spec: { overrideRules: [] },
  }) as unknown as KinitirasPolicy;
const [a, b, namesake] = [policy("a"), policy("b"), policy("a")];
const ofNamespace = policy("a", "OverridePolicy", "team");

/** A cluster that answers the same lists as long as they are the same. */
const clusterOf = (
  lists: Record<string, readonly KinitirasPolicy[]>,
): Pick<ObjectReader, "list" | "discover" | "get"> => ({
  get: async () => undefined,
  list: async ({ resource }) => (lists[resource] ?? []) as unknown as KubernetesObject[],
  discover: async () => [],
});

describe("the policies that hold", () => {
  const settings = { ...policySettings, policies: [a] };
  it("are the settings' and then the cluster's, without the namesakes of the former", async () => {
    const reader = clusterOf({ clusteroverridepolicies: [namesake, b], overridepolicies: [ofNamespace] });
    const found = await listPolicies(overridePolicyResources, { settings, reader });
    assert.deepEqual(found, [a, b, ofNamespace]);
    assert.equal(found[0], a);
  });

  it("are one list as long as neither changes, for a book is made of it", async () => {
    const lists = { clusteroverridepolicies: [b], overridepolicies: [] as KinitirasPolicy[] };
    const reader = clusterOf(lists);
    const found = await listPolicies(overridePolicyResources, { settings, reader });
    assert.equal(await listPolicies(overridePolicyResources, { settings, reader }), found);
    lists.overridepolicies = [ofNamespace];
    assert.deepEqual(await listPolicies(overridePolicyResources, { settings, reader }), [a, b, ofNamespace]);
  });

  it("are each cluster's own, also where several have the same settings and none of some kind", async () => {
    const everywhere = { ...policySettings, policies: [] };
    const unserved = async () => Promise.reject(new Error("404"));
    const none = { ...clusterOf({}), list: unserved, discover: async () => undefined };
    const one = clusterOf({ clusteroverridepolicies: [a], overridepolicies: [] });
    const other = clusterOf({ clusteroverridepolicies: [b], overridepolicies: [ofNamespace] });
    const foundIn = (reader: Pick<ObjectReader, "list" | "discover" | "get">, places = overridePolicyResources) =>
      listPolicies(places, { settings: everywhere, reader });
    const [found, another] = [await foundIn(one), await foundIn(other)];
    assert.deepEqual([found, another], [[a], [b, ofNamespace]]);
    assert.deepEqual(await foundIn(none), []);
    assert.equal(await foundIn(one), found);
    assert.equal(await foundIn(other), another);
    const half = {
      ...other,
      list: (place: ResourceType) => (place.resource === "overridepolicies" ? other.list(place) : unserved()),
    };
    assert.deepEqual(await foundIn({ ...none }, overridePolicyResources.slice(0, 1)), []);
    assert.deepEqual(await foundIn({ ...half, discover: async () => undefined }), [ofNamespace]);
  });

  it("are the settings' alone where nobody shall look into the cluster", async () => {
    const reader = { ...clusterOf({}), list: () => assert.fail("it is asked") };
    const found = await listPolicies(overridePolicyResources, { settings: { ...settings, inCluster: false }, reader });
    assert.equal(found, settings.policies);
  });
});

describe("a request that policies judge", () => {
  const of = (operation: string, group: string) => ({ operation, kind: { group } }) as unknown as AdmissionRequest;
  it("is none of a policy, and none to connect", () => {
    assert.ok(isGovernedByPolicies(of("DELETE", "")));
    assert.ok(!isGovernedByPolicies(of("UPDATE", "policy.kcloudlabs.io")));
    assert.ok(!isGovernedByPolicies(of("CONNECT", "")));
  });
});

describe("what applying policies needs", () => {
  const { reader, cue, http } = createPolicyNeeds(overridePolicyResources);
  const alone = { ...policySettings, inCluster: false };
  it("is nothing of a cluster where the settings hold all, and refer to nothing", () => {
    assert.deepEqual(reader.kinds?.({ ...alone, policies: [a] }), []);
    assert.deepEqual(reader.kinds?.(policySettings), overridePolicyResources);
  });
  it("is CUE where there may be a script", () => {
    const scripted = { ...a, spec: { overrideRules: [{ overriders: { cue: "patches: []" } }] } };
    assert.equal(cue.isUsed?.({ ...alone, policies: [a] }), false);
    assert.equal(cue.isUsed?.({ ...alone, policies: [scripted] }), true);
    assert.equal(cue.isUsed?.(policySettings), true);
    assert.equal(cue.isUsed?.({ ...policySettings, scripts: false }), false);
    const awaits = (...policies: object[]) => cue.isAwaited?.({ ...policySettings, policies });
    assert.deepEqual([awaits(), awaits(a), awaits(a, scripted)], [false, false, true], "right away where one is known");
  });
  it("is the places where credentials are kept", () => {
    const credentials = [{ host: "auth.example.com", secret: "s", region: "eu-west-1" }];
    assert.deepEqual(http.secrets?.({ ...policySettings, http: { ...policySettings.http, credentials } }), [
      { secret: "s", region: "eu-west-1" },
    ]);
  });
});
