import { applyPatch, createDraft } from "../core/patch.ts";
import { readListIfSet, readOptionalMap } from "../json.ts";
import type { KubernetesObject, Patch } from "../review.ts";
import { applyOriginOverriders } from "./overriders/origins.ts";
import { applyPolicyPatch } from "./overriders/plaintext.ts";
import { applyTemplate, findTemplateReference } from "./overriders/templates.ts";
import { listPolicyRules, toPolicyFailure } from "./policy-failures.ts";
import { findOverridePolicies } from "./policy-index.ts";
import { resolveReference } from "./references/references.ts";
import { evaluateOverrideScript } from "./scripts.ts";
import { matchesTargetOperations } from "./selectors.ts";
import type { KinitirasPolicy, OverridePolicy, OverrideRule, PolicyCapabilities, PolicyRequest } from "./types.ts";

/** The parts of an override rule's overriders, in the order in which they are applied. */
type OverrideRulePart = "template" | "cue" | "plaintext" | "origin";

/** A rule of a policy that was applied to a request. `sources` are the parts of the rule that changed the object. */
export interface AppliedRule {
  policy: OverridePolicy;
  rule: number;
  sources: OverrideRulePart[];
}

/**
 * Applies override policies to the object of a request, in place. If it throws, the object may be partly changed and
 * must not be used. For DELETE and CONNECT, it changes nothing.
 */
export const applyOverridePoliciesInPlace = async (
  policies: readonly KinitirasPolicy[],
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<AppliedRule[]> => {
  if (request.operation === "DELETE" || request.operation === "CONNECT") return [];
  const matching = findOverridePolicies(policies, request);
  const applied = await applyAll(matching.filter(isClusterPolicy), request, capabilities);
  // An applied rule has `sources` if it changed the object. Then other OverridePolicies may select the object now.
  const isChanged = applied.some(({ sources }) => sources.length > 0);
  const namespaced = (isChanged ? findOverridePolicies(policies, request) : matching).filter(
    (policy) => !isClusterPolicy(policy),
  );
  return [...applied, ...(await applyAll(namespaced, request, capabilities))];
};

/** A request, the policies to apply to it, and the capabilities that they use. */
export interface PolicyApplication extends PolicyRequest {
  policies: readonly KinitirasPolicy[];
  capabilities: PolicyCapabilities;
}

/** Applies policies to a copy of an object. Returns the changed copy, the patch and the rules that were applied. */
export const applyPolicies = async ({
  policies,
  capabilities,
  ...request
}: PolicyApplication): Promise<{ object: KubernetesObject; patch: Patch; applied: AppliedRule[] }> => {
  const { value, changes } = createDraft(request.object);
  const applied = await applyOverridePoliciesInPlace(policies, { ...request, object: value }, capabilities);
  const patch = changes();
  // The cast is safe: applyOverridePoliciesInPlace throws if a policy makes kind or metadata invalid.
  return { object: applyPatch(request.object, patch) as KubernetesObject, patch, applied };
};

const isClusterPolicy = ({ kind }: OverridePolicy) => kind === "ClusterOverridePolicy";

/** Applies override policies in order. Returns the applied rules: `sources` are their parts that changed the object. */
const applyAll = async (
  policies: OverridePolicy[],
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<AppliedRule[]> => {
  const applied: AppliedRule[] = [];
  for (const policy of policies)
    for (const [index, rule] of listPolicyRules(policy, "overrideRules").entries())
      if (matchesTargetOperations(rule.targetOperations, request.operation))
        try {
          applied.push({ policy, rule: index, sources: await applyRule(rule, request, capabilities) });
        } catch (error) {
          throw toPolicyFailure(policy, "overrideRules", index, error);
        }
  return applied;
};

/** Applies a rule's overriders to the object, and returns those that changed it. */
const applyRule = async (
  { overriders }: OverrideRule,
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<OverrideRulePart[]> => {
  // The policy may come from a cluster: readOptionalMap and readListIfSet throw if a field of it has a wrong type.
  readOptionalMap(overriders, "overriders");
  const { object, dryRun = false } = request;
  const { template, cue, plaintext, origin } = overriders ?? {};
  const sources: OverrideRulePart[] = [];
  if (readOptionalMap(template, "template") && template) {
    const reference = findTemplateReference(template);
    const referenced = reference && (await resolveReference(reference, request, capabilities));
    if (applyTemplate(object, template, referenced)) sources.push("template");
  }
  if (cue) {
    if (typeof cue !== "string") throw new Error("cue must be a text");
    if (applyPolicyPatch(object, await evaluateOverrideScript(cue, object, capabilities, { dryRun })))
      sources.push("cue");
  }
  if (readListIfSet(plaintext, "plaintext") && applyPolicyPatch(object, plaintext ?? [])) sources.push("plaintext");
  if (readListIfSet(origin, "origin") && applyOriginOverriders(object, origin ?? [])) sources.push("origin");
  return sources;
};
