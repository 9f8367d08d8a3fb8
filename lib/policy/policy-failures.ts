import { Failure, getErrorMessage } from "../failure.ts";
import { isMap, toMap } from "../json.ts";
import type { KinitirasPolicy, OverrideRule, ValidatePolicyRule } from "./types.ts";

/** The types of a policy's rules, by the field of `spec` that contains them. */
interface RulesByField {
  overrideRules: OverrideRule;
  validateRules: ValidatePolicyRule;
}

/** Returns a policy's kind, namespace and name for a sentence. The policy may be any JSON. */
export const formatPolicyName = (policy: unknown): string => {
  const { kind, metadata } = toMap(policy);
  const { namespace, name } = toMap(metadata);
  const names = [namespace, name].filter((part) => typeof part === "string").join("/");
  return `${typeof kind === "string" ? kind.slice(0, 60) : "a document"} ${names.slice(0, 320) || "without a name"}`;
};

/** Converts an error to a Failure that names the policy and its rule. A Failure keeps its code; others get 500. */
export const toPolicyFailure = (
  policy: KinitirasPolicy,
  list: keyof RulesByField,
  index: number,
  error: unknown,
): Failure => {
  const sentence = getErrorMessage(error);
  const code = error instanceof Failure ? error.code : 500;
  return attributeToPolicy(
    policy,
    new Failure(code, `${formatPolicyName(policy)}, ${list}[${index}]: ${sentence}`, { cause: error }),
  );
};

/** The policies that caused failures; findFailedPolicy reads them. */
const policiesByFailure = new WeakMap<object, KinitirasPolicy>();
const attributeToPolicy = (policy: KinitirasPolicy, failure: Failure): Failure => {
  policiesByFailure.set(failure, policy);
  return failure;
};

export const findFailedPolicy = (error: unknown): KinitirasPolicy | undefined =>
  error instanceof Failure ? policiesByFailure.get(error) : undefined;

/** Returns a policy's rules. Throws if the spec is malformed, because a policy that is skipped isn't enforced. */
export const listPolicyRules = <List extends keyof RulesByField>(
  policy: KinitirasPolicy,
  list: List,
): RulesByField[List][] => {
  // attributeToPolicy notes which policy caused the failure, so that findFailedPolicy finds this policy later.
  const createShapeFailure = (field: string, expected: string) =>
    attributeToPolicy(policy, new Failure(500, `${formatPolicyName(policy)}: ${field} must be ${expected}`));
  const spec: unknown = policy.spec ?? {};
  if (!isMap(spec)) throw createShapeFailure("spec", "an object");
  const { resourceSelectors, [list]: rules } = spec;
  if (!Array.isArray(resourceSelectors ?? []))
    throw createShapeFailure("spec.resourceSelectors", "a list of selectors");
  const listed: unknown = rules ?? [];
  if (!Array.isArray(listed)) throw createShapeFailure(`spec.${list}`, "a list of rules");
  const wrong = listed.findIndex((rule) => !isMap(rule));
  if (wrong >= 0) throw createShapeFailure(`spec.${list}[${wrong}]`, "an object");
  // The cast is safe: the fields of each rule are checked when the rule is evaluated.
  return listed as RulesByField[List][];
};
