// The webhook entries: one for each policy, as narrow as its constraints.
import { toRequestMatch, toSelector } from "postern/admission-policies/matching";
import { compileExpression, createAdmissionEnvironment } from "postern/cel/kubernetes";
import { bool } from "postern/cel/types";
import type { NamedConditions, RequestMatch, RuleVariant } from "postern/rule";
import { getVariantName, isPolicy, listBindings, type ValidatingBinding, type ValidatingPolicy } from "./policies.ts";
import type { ValidatingPolicySettings } from "./settings.ts";

/** Returns an entry for each policy. A policy without bindings has none. */
export const buildPolicyVariants = ({ policies }: ValidatingPolicySettings): RuleVariant<ValidatingPolicySettings>[] =>
  policies.filter(isPolicy).map((policy) => {
    const { failurePolicy = "Fail", matchConstraints } = policy.spec;
    const bindings = listBindings(policies, policy);
    // The casts are safe: the policy is valid.
    return {
      name: getVariantName(policy.metadata.name),
      match: bindings.length === 0 ? [] : listMatches(policy),
      matchConditions: selectConditions(policy, bindings),
      matchPolicy: (matchConstraints.matchPolicy ?? "Equivalent") as "Equivalent" | "Exact",
      failurePolicy: failurePolicy as "Fail" | "Ignore",
      namespaceSelector: toSelector(matchConstraints.namespaceSelector),
      objectSelector: toSelector(matchConstraints.objectSelector),
    };
  });

/** Returns the requests that any policy is for. */
export const listPolicyMatches = ({ policies }: ValidatingPolicySettings): RequestMatch[] =>
  policies.filter(isPolicy).flatMap(listMatches);

const listMatches = ({ spec }: ValidatingPolicy): RequestMatch[] =>
  (spec.matchConstraints.resourceRules ?? []).map(toRequestMatch);

/** The most conditions of an entry, less those that exempt users and groups. */
const mostConditions = 62;

/**
 * Returns the conditions that the API server can evaluate before it calls the rule. A condition that results in an
 * error then refuses the request, so a policy that fails closed has them only if it would refuse the request, too. With
 * parameters, it could refuse the request before its conditions are evaluated.
 */
const selectConditions = (
  { spec: { failurePolicy, paramKind, matchConditions = [] } }: ValidatingPolicy,
  bindings: readonly ValidatingBinding[],
): NamedConditions => {
  const refusesAlways =
    paramKind === undefined &&
    bindings.some(
      ({ spec: { matchResources, validationActions } }) =>
        matchResources === undefined && validationActions.includes("Deny"),
    );
  if (failurePolicy !== "Ignore" && !refusesAlways) return {};
  // Without `params`, and without functions that older clusters lack.
  const environment = createAdmissionEnvironment({ kubernetes: "1.33", hasAuthorizer: true });
  const known = matchConditions.filter(
    ({ expression }) => "program" in compileExpression(expression, environment, [bool]),
  );
  return Object.fromEntries(known.slice(0, mostConditions).map(({ name, expression }) => [name, expression]));
};
