import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { RuleDecision } from "#lib/core/evaluation.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { freezeDeep } from "#lib/json.ts";
import type { Capabilities, HttpsRequest, ServedResource } from "#lib/needs.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import type { KinitirasPolicy } from "#lib/policy/types.ts";
import { createRecordedCapabilities, toPlural } from "#lib/recording/recorded-answers.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { applyOutcomePatch } from "../infra/catalogue/case-differences.ts";
import { readRule } from "../infra/catalogue/registry.ts";
import { getFunctionsFolder } from "../infra/catalogue/sources.ts";
import { benchPolicyCases, normalizeObjectForComparison, type PolicyCase } from "./bench/inputs/example-policies.ts";

const [overrideRule, validateRule, admissionRule] = await Promise.all(
  ["policy-override", "policy-validate", "policy-admission"].map((name) =>
    readRule(join(getFunctionsFolder(), name), name),
  ),
);

/** Creates capabilities with the objects of a case and the answers of its host `mock`. */
const createCapabilities = ({ cluster = [], http = [] }: PolicyCase): Capabilities => {
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

/** Evaluates a rule, with these policies in its settings, or with its default settings. */
const evaluate = async (
  listed: typeof overrideRule,
  phase: Phase,
  request: Partial<AdmissionRequest>,
  capabilities: Capabilities,
  policies?: readonly KinitirasPolicy[],
): Promise<RuleDecision> => {
  assert.ok(listed);
  const { name, rule } = listed;
  const ownSettings = policies ? { inCluster: false, http: { hosts: ["mock"] }, policies } : {};
  const settings = freezeDeep(mergeWithDefaults(rule.settings ?? {}, ownSettings));
  const context = { name, mode: "enforce" as const, settings, now: new Date(0), capabilities };
  return evaluateRule(rule, phase, freezeDeep(request) as AdmissionRequest, context);
};

const getKind = ({ apiVersion = "", kind = "" }: KubernetesObject) => {
  const { group, version } = splitApiVersion(apiVersion);
  return { group, version, kind };
};

const buildRequest = ({ operation, object, oldObject, requestNamespace }: PolicyCase): Partial<AdmissionRequest> => {
  const target = (operation === "DELETE" ? oldObject : object) ?? {};
  const namespace = requestNamespace ?? target.metadata?.namespace;
  return {
    operation,
    object: operation === "DELETE" ? null : object,
    oldObject: oldObject ?? null,
    kind: getKind(target),
    userInfo: {},
    ...(namespace !== undefined && { namespace }),
  };
};

/** Returns a policy as the rule `policy-admission` completes it, and the reason if that rule refuses the policy. */
const admitPolicy = async (
  policy: KinitirasPolicy,
  capabilities: Capabilities,
): Promise<{ policy: KinitirasPolicy; refusal: string | undefined }> => {
  const request = { operation: "CREATE", kind: getKind(policy), userInfo: {}, object: policy } as const;
  const { outcome } = await evaluate(admissionRule, "mutate", request, capabilities);
  const completed = applyOutcomePatch(policy, outcome) as KinitirasPolicy;
  const validated = await evaluate(admissionRule, "validate", { ...request, object: completed }, capabilities);
  return { policy: completed, refusal: validated.outcome.status?.message };
};

describe("a policy gives the measured or the documented result", () => {
  for (const policyCase of benchPolicyCases)
    it(policyCase.id, async () => {
      const capabilities = createCapabilities(policyCase);
      const { expect, operation } = policyCase;
      const admitted = await Promise.all(policyCase.policies.map((policy) => admitPolicy(policy, capabilities)));
      const refusals = admitted.flatMap(({ refusal }) => refusal ?? []);
      if (expect.policy !== undefined)
        assert.equal(refusals.length > 0 ? "rejected" : "accepted", expect.policy, refusals.join("; "));
      if (expect.policy === "rejected") return;

      const request = buildRequest(policyCase);
      const evaluateCase = async () => {
        const policies = admitted.map(({ policy }) => policy);
        const changed = await evaluate(overrideRule, "mutate", request, capabilities, policies);
        if (operation === "DELETE") assert.equal(changed.operations, 0);
        const object = operation === "DELETE" ? null : applyOutcomePatch(request.object, changed.outcome);
        const validated = await evaluate(validateRule, "validate", { ...request, object }, capabilities, policies);
        return { object, verdict: validated.outcome };
      };
      if (expect.error) {
        await assert.rejects(evaluateCase, /^(Error: )?\w+Policy .*(override|validate)Rules\[\d+\]: /);
        return;
      }
      const { object, verdict } = await evaluateCase();
      if (expect.object)
        assert.deepEqual(normalizeObjectForComparison(object), normalizeObjectForComparison(expect.object));
      if (expect.allowed !== undefined) assert.equal(verdict.allowed, expect.allowed);
      if (expect.reason !== undefined) assert.equal(verdict.status?.message, expect.reason);
    });
});
