// The webhook entries: one for each policy, as narrow as its constraints.
import { compileExpression, createAdmissionEnvironment } from "../cel/kubernetes.ts";
import { bool } from "../cel/types.ts";
import type { NamedConditions, RequestMatch, RuleVariant } from "../rule.ts";
import { toRequestMatch, toSelector } from "./matching.ts";
import { getVariantName, isPolicy, listBindings } from "./policies.ts";
import type { PolicySettings } from "./settings.ts";
import type { AnyBinding, AnyPolicy, PolicyObject } from "./types.ts";

/**
 * Returns an entry for each policy. A policy without bindings has none. `refuses` reports whether an error refuses the
 * request under a binding, if the policy fails closed.
 */
export const buildPolicyVariants = <T extends PolicyObject>(
  { policies }: PolicySettings<T>,
  refuses: (binding: Extract<T, AnyBinding>) => boolean,
): RuleVariant<PolicySettings<T>>[] =>
  policies.filter(isPolicy).map((policy) => {
    const { failurePolicy = "Fail", matchConstraints } = policy.spec;
    const bindings = listBindings(policies, policy);
    // With parameters, errors could refuse the request before its conditions are evaluated.
    const refusesAlways =
      policy.spec.paramKind === undefined &&
      bindings.some((binding) => binding.spec.matchResources === undefined && refuses(binding));
    // The casts are safe: the policy is valid.
    return {
      name: getVariantName(policy.metadata.name),
      match: bindings.length === 0 ? [] : listMatches(policy),
      matchConditions: failurePolicy === "Ignore" || refusesAlways ? selectConditions(policy) : {},
      matchPolicy: (matchConstraints.matchPolicy ?? "Equivalent") as "Equivalent" | "Exact",
      failurePolicy: failurePolicy as "Fail" | "Ignore",
      namespaceSelector: toSelector(matchConstraints.namespaceSelector),
      objectSelector: toSelector(matchConstraints.objectSelector),
    };
  });

/** Returns the requests that any policy is for. */
export const listPolicyMatches = ({ policies }: PolicySettings): RequestMatch[] =>
  policies.filter(isPolicy).flatMap(listMatches);

const listMatches = ({ spec }: AnyPolicy): RequestMatch[] =>
  (spec.matchConstraints.resourceRules ?? []).map(toRequestMatch);

/** The most conditions of an entry, less those that exempt users and groups. */
const mostConditions = 62;

/**
 * Returns the conditions that the API server can evaluate before it calls the rule. A condition that results in an
 * error then refuses the request, so a policy that fails closed has them only if it would refuse the request, too.
 */
const selectConditions = ({ spec: { matchConditions = [] } }: AnyPolicy): NamedConditions => {
  // Without `params`, and without functions that older clusters lack.
  const environment = createAdmissionEnvironment({ kubernetes: "1.33", hasAuthorizer: true });
  const known = matchConditions.filter(
    ({ expression }) => "program" in compileExpression(expression, environment, [bool]),
  );
  return Object.fromEntries(known.slice(0, mostConditions).map(({ name, expression }) => [name, expression]));
};
