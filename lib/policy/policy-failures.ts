import { Failure, getErrorMessage } from "../failure.ts";
import { isMap, toMap } from "../json.ts";
import type { KinitirasPolicy, OverrideRule, ValidatePolicyRule } from "./types.ts";

interface RulesByField {
  overrideRules: OverrideRule;
  validateRules: ValidatePolicyRule;
}

/** Returns how sentences name a policy, which may be any JSON: its kind, namespace and name. */
export const formatPolicyName = (policy: unknown): string => {
  const { kind, metadata } = toMap(policy);
  const { namespace, name } = toMap(metadata);
  const names = [namespace, name].filter((part) => typeof part === "string").join("/");
  return `${typeof kind === "string" ? kind.slice(0, 60) : "a document"} ${names.slice(0, 320) || "without a name"}`;
};

/** Returns an error of a rule as a Failure that names policy and rule. A Failure keeps its code, others get 500. */
export const toPolicyFailure = (
  policy: KinitirasPolicy,
  list: keyof RulesByField,
  index: number,
  error: unknown,
): Failure => {
  const sentence = getErrorMessage(error);
  const code = error instanceof Failure ? error.code : 500;
  return recordPolicy(
    policy,
    new Failure(code, `${formatPolicyName(policy)}, ${list}[${index}]: ${sentence}`, { cause: error }),
  );
};

const policiesByFailure = new WeakMap<object, KinitirasPolicy>();
const recordPolicy = (policy: KinitirasPolicy, failure: Failure): Failure => {
  policiesByFailure.set(failure, policy);
  return failure;
};

export const findFailedPolicy = (error: unknown): KinitirasPolicy | undefined =>
  error instanceof Failure ? policiesByFailure.get(error) : undefined;

/** Returns a policy's rules. Throws if the spec can't be read: if it were skipped, it would not be enforced. */
export const listPolicyRules = <List extends keyof RulesByField>(
  policy: KinitirasPolicy,
  list: List,
): RulesByField[List][] => {
  const createShapeFailure = (field: string, expected: string) =>
    recordPolicy(policy, new Failure(500, `${formatPolicyName(policy)}: ${field} must be ${expected}`));
  const spec: unknown = policy.spec ?? {};
  if (!isMap(spec)) throw createShapeFailure("spec", "an object");
  const { resourceSelectors, [list]: rules } = spec;
  if (!Array.isArray(resourceSelectors ?? []))
    throw createShapeFailure("spec.resourceSelectors", "a list of selectors");
  const listed: unknown = rules ?? [];
  if (!Array.isArray(listed)) throw createShapeFailure(`spec.${list}`, "a list of rules");
  const odd = listed.findIndex((rule) => !isMap(rule));
  if (odd >= 0) throw createShapeFailure(`spec.${list}[${odd}]`, "an object");
  // The cast is safe: the fields of each rule are checked when the rule is evaluated.
  return listed as RulesByField[List][];
};
