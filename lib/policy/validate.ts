import { isMap, toText } from "../json.ts";
import { listPolicyRules, toPolicyFailure } from "./policy-failures.ts";
import { findValidatePolicies } from "./policy-index.ts";
import { resolveReference } from "./references/references.ts";
import { evaluateValidateScript } from "./scripts.ts";
import { matchesTargetOperations } from "./selectors.ts";
import type {
  KinitirasPolicy,
  PolicyCapabilities,
  PolicyCondition,
  PolicyRequest,
  ValidatePolicy,
  ValidatePolicyRule,
} from "./types.ts";
import { isConditionMet } from "./values/conditions.ts";
import { needsComparison, parseConstant } from "./values/constants.ts";
import { quoteValue } from "./values/texts.ts";

export interface ValidationResult {
  /** The first policy that denied the request, the index of its rule, and the policy's reason, which may be empty. */
  denied?: { policy: ValidatePolicy; rule: number; reason: string };
  /** The policies that were evaluated. If one denied the request, it is the last of them. */
  matched: { policy: ValidatePolicy; rejected: boolean }[];
}

/** Evaluates the validate policies that apply to a request, in their order, until one denies it. */
export const evaluateValidatePolicies = async (
  policies: readonly KinitirasPolicy[],
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<ValidationResult> => {
  const matched: ValidationResult["matched"] = [];
  if (request.operation === "CONNECT") return { matched };
  for (const policy of findValidatePolicies(policies, request)) {
    const denied = await findDenial(policy, request, capabilities);
    matched.push({ policy, rejected: denied !== undefined });
    if (denied !== undefined) return { denied: { policy, ...denied }, matched };
  }
  return { matched };
};

/** Returns the index of the first rule that denies a request, and its reason; undefined if all rules admit it. */
const findDenial = async (policy: ValidatePolicy, request: PolicyRequest, capabilities: PolicyCapabilities) => {
  for (const [rule, validateRule] of listPolicyRules(policy, "validateRules").entries()) {
    try {
      const reason = await findRefusalReason(validateRule, request, capabilities);
      if (reason !== undefined) return { rule, reason };
    } catch (error) {
      throw toPolicyFailure(policy, "validateRules", rule, error);
    }
  }
  return undefined;
};

/** Returns the reason for which a rule refuses a request; undefined if it admits the request. */
const findRefusalReason = async (
  { targetOperations, template, cue }: ValidatePolicyRule,
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<string | undefined> => {
  if (!matchesTargetOperations(targetOperations, request.operation)) return undefined;
  if (template !== undefined && template !== null) {
    if (template.type !== "condition")
      throw new Error(`template.type must be condition, not ${quoteValue(template.type)}`);
    if (!isMap(template.condition)) throw new Error("template.condition must be an object");
    const { affectMode, message } = template.condition;
    if (!["reject", "allow", "", null, undefined].includes(affectMode))
      throw new Error(`affectMode must be reject or allow, not ${quoteValue(affectMode)}`);
    const isMet = await evaluateCondition(template.condition, request, capabilities);
    // By default, a condition refuses if it is met. With affectMode allow, it refuses if it isn't met.
    if (isMet !== (affectMode === "allow")) return toText(message);
  }
  if (cue === undefined || cue === null || cue === "") return undefined;
  if (typeof cue !== "string") throw new Error("cue must be a string");
  const { valid, reason } = await evaluateValidateScript(cue, request, capabilities);
  return valid ? undefined : reason;
};

/** Reports whether a condition of a validate policy holds. */
const evaluateCondition = async (
  condition: PolicyCondition,
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<boolean> => {
  const { dataRef, valueRef, value } = condition;
  if (!isMap(dataRef)) throw new Error("dataRef must name the value to test");
  const tested = resolveReference(dataRef, request, capabilities);
  const comparison = needsComparison(condition)
    ? resolveComparedValue({ valueRef, value }, request, capabilities)
    : undefined;
  // `tested` and `comparison` are resolved in parallel. If both fail, the error of `tested` is thrown. Without this
  // `catch`, the rejection of `comparison` would be unhandled.
  comparison?.catch(() => {});
  return isConditionMet(condition, await tested, await comparison);
};

/** Returns the value with which a condition compares; undefined if a reference finds none. */
const resolveComparedValue = async (
  { valueRef, value }: Pick<PolicyCondition, "valueRef" | "value">,
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<{ value: unknown } | undefined> => {
  if (isMap(valueRef)) return resolveReference(valueRef, request, capabilities);
  const constant = parseConstant(value);
  if (constant === undefined) throw new Error("value and valueRef are missing; a comparison needs one of them");
  return constant;
};
