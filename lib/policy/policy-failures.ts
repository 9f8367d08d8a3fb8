import { Failure, getErrorMessage } from "../failure.ts";
import { isMap, toMap } from "../json.ts";
import type { OverrideRule, Policy, ValidateRule } from "./types.ts";

interface Rules {
  overrideRules: OverrideRule;
  validateRules: ValidateRule;
}

/** Returns how sentences name a policy, which may be any JSON: its kind, namespace and name. */
export const titleOf = (policy: unknown): string => {
  const { kind, metadata } = toMap(policy);
  const { namespace, name } = toMap(metadata);
  const names = [namespace, name].filter((part) => typeof part === "string").join("/");
  return `${typeof kind === "string" ? kind.slice(0, 60) : "a document"} ${names.slice(0, 320) || "without a name"}`;
};

/** Returns an error of a rule as a Failure that names policy and rule. A Failure keeps its code, others get 500. */
export const blamed = (policy: Policy, list: keyof Rules, index: number, error: unknown): Failure => {
  const sentence = getErrorMessage(error);
  const code = error instanceof Failure ? error.code : 500;
  return noted(policy, new Failure(code, `${titleOf(policy)}, ${list}[${index}]: ${sentence}`, { cause: error }));
};

const policies = new WeakMap<object, Policy>();
const noted = (policy: Policy, failure: Failure): Failure => {
  policies.set(failure, policy);
  return failure;
};

export const blamedIn = (error: unknown): Policy | undefined =>
  error instanceof Failure ? policies.get(error) : undefined;

/** Returns a policy's rules. Throws if the spec can't be read: skipping the policy would skip what it enforces. */
export const rulesOf = <List extends keyof Rules>(policy: Policy, list: List): Rules[List][] => {
  const wrong = (field: string, expected: string) =>
    noted(policy, new Failure(500, `${titleOf(policy)}: ${field} must be ${expected}`));
  const spec: unknown = policy.spec ?? {};
  if (!isMap(spec)) throw wrong("spec", "an object");
  const { resourceSelectors, [list]: rules } = spec;
  if (!Array.isArray(resourceSelectors ?? [])) throw wrong("spec.resourceSelectors", "a list of selectors");
  const listed: unknown = rules ?? [];
  if (!Array.isArray(listed)) throw wrong(`spec.${list}`, "a list of rules");
  const odd = listed.findIndex((rule) => !isMap(rule));
  if (odd >= 0) throw wrong(`spec.${list}[${odd}]`, "an object");
  // The evaluation of a rule checks its fields.
  return listed as Rules[List][];
};
