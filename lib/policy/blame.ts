import { Failure, messageOf } from "../failure.ts";
import { isMap, toMap } from "../json.ts";
import type { OverrideRule, Policy, ValidateRule } from "./kinds.ts";

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

/** What went wrong in one of a policy's rules, as a failure that names it; one that has a code keeps it. */
export const blamed = (policy: Policy, list: keyof Rules, index: number, error: unknown): Failure => {
  const sentence = messageOf(error);
  const code = error instanceof Failure ? error.code : 500;
  return noted(policy, new Failure(code, `${titleOf(policy)}, ${list}[${index}]: ${sentence}`, { cause: error }));
};

const policies = new WeakMap<object, Policy>();
const noted = (policy: Policy, failure: Failure): Failure => {
  policies.set(failure, policy);
  return failure;
};

/** The policy that is to blame for what was thrown, if one is. */
export const blamedIn = (error: unknown): Policy | undefined =>
  error instanceof Failure ? policies.get(error) : undefined;

/** A policy's rules, none where it has none. One whose rules can't be read is no policy that can be left out. */
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
  // What is in a rule, whoever evaluates it checks.
  return listed as Rules[List][];
};
