import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { Decision } from "#lib/decide.ts";
import { evaluateRule } from "#lib/evaluation.ts";
import { freezeDeep } from "#lib/json.ts";
import type { Capabilities, HttpsRequest, ServedResource } from "#lib/needs.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import type { KinitirasPolicy } from "#lib/policy/types.ts";
import { createRecordedCapabilities, toPlural } from "#lib/recorded-answers.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { normalizePolicyObject, type PolicyCase, policyCases } from "../infra/bench/example-policies.ts";
import { applyOutcomePatch } from "../infra/catalogue/case-differences.ts";
import { catalogueFolder, readRule } from "../infra/catalogue/registry.ts";

const [override, validate, admission] = await Promise.all(
  ["policy-override", "policy-validate", "policy-admission"].map((name) => readRule(join(catalogueFolder, name), name)),
);

/** What a case has written down: objects, and what the host `mock` answers. */
const worldOf = ({ cluster = [], http = [] }: PolicyCase): Capabilities => {
  const served = new Map<string, ServedResource[]>([
    ["v1", [{ resource: "configmaps", kind: "ConfigMap", namespaced: true }]],
  ]);
  for (const { apiVersion = "", kind = "" } of cluster)
    served.set(apiVersion, [...(served.get(apiVersion) ?? []), { resource: toPlural(kind), kind, namespaced: true }]);
  const objects = cluster.map((object) => ({ ...object, metadata: { name: "", ...object.metadata } }));
  return {
    ...createRecordedCapabilities({ objects, discovery: Object.fromEntries(served) }),
    http: async ({ url }: HttpsRequest) => {
      const found = http.find(({ path }) => path === new URL(url).pathname);
      const { status = 200, body, raw = JSON.stringify(body) } = found ?? { status: 404, raw: "" };
      return { status, body: raw, headers: { "Content-Type": ["text/plain; charset=utf-8"] }, trailers: {} };
    },
  };
};

const settings = { inCluster: false, http: { hosts: ["mock"] } };

const ask = async (
  listed: typeof override,
  phase: Phase,
  request: Partial<AdmissionRequest>,
  world: Capabilities,
  policies?: readonly KinitirasPolicy[],
): Promise<Decision> => {
  assert.ok(listed);
  const { name, rule } = listed;
  const given = policies ? { ...settings, policies } : {};
  const around = {
    name,
    mode: "enforce" as const,
    settings: freezeDeep(mergeWithDefaults(rule.settings ?? {}, given)),
  };
  return evaluateRule(rule, phase, freezeDeep(request) as AdmissionRequest, {
    ...around,
    now: new Date(0),
    capabilities: world,
  });
};

const kindOf = ({ apiVersion = "", kind = "" }: KubernetesObject) => {
  const { group, version } = splitApiVersion(apiVersion);
  return { group, version, kind };
};

const requestOf = ({ operation, object, oldObject, requestNamespace }: PolicyCase): Partial<AdmissionRequest> => {
  const judged = (operation === "DELETE" ? oldObject : object) ?? {};
  const namespace = requestNamespace ?? judged.metadata?.namespace;
  return {
    ...{ operation, object: operation === "DELETE" ? null : object, oldObject: oldObject ?? null },
    ...{ kind: kindOf(judged), userInfo: {}, ...(namespace !== undefined && { namespace }) },
  };
};

/** A policy as it is after its own admission, and why it was not let in. */
const admitted = async (
  policy: KinitirasPolicy,
  world: Capabilities,
): Promise<{ policy: KinitirasPolicy; refusal: string | undefined }> => {
  const request = { operation: "CREATE", kind: kindOf(policy), userInfo: {}, object: policy } as const;
  const { outcome } = await ask(admission, "mutate", request, world);
  const completed = applyOutcomePatch(policy, outcome) as KinitirasPolicy;
  const said = await ask(admission, "validate", { ...request, object: completed }, world);
  return { policy: completed, refusal: said.outcome.status?.message };
};

describe("policies, measured upstream or decided otherwise", () => {
  for (const one of policyCases)
    it(one.id, async () => {
      const world = worldOf(one);
      const { expect, operation } = one;
      const all = await Promise.all(one.policies.map((policy) => admitted(policy, world)));
      const refusals = all.flatMap(({ refusal }) => refusal ?? []);
      if (expect.policy !== undefined)
        assert.equal(refusals.length > 0 ? "rejected" : "accepted", expect.policy, refusals.join("; "));
      if (expect.policy === "rejected") return;

      const request = requestOf(one);
      const judge = async () => {
        const policies = all.map(({ policy }) => policy);
        const changed = await ask(override, "mutate", request, world, policies);
        if (operation === "DELETE") assert.equal(changed.operations, 0);
        const object = operation === "DELETE" ? null : applyOutcomePatch(request.object, changed.outcome);
        return { object, verdict: (await ask(validate, "validate", { ...request, object }, world, policies)).outcome };
      };
      if (expect.error) {
        await assert.rejects(judge, /^(Error: )?\w+Policy .*(override|validate)Rules\[\d+\]: /);
        return;
      }
      const { object, verdict } = await judge();
      if (expect.object) assert.deepEqual(normalizePolicyObject(object), normalizePolicyObject(expect.object));
      if (expect.allowed !== undefined) assert.equal(verdict.allowed, expect.allowed);
      if (expect.reason !== undefined) assert.equal(verdict.status?.message, expect.reason);
    });
});
