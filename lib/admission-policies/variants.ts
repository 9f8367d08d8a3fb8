// Makes one webhook entry for each policy. An entry matches only requests that the policy's constraints match.
import { compileExpression, createAdmissionEnvironment } from "../cel/kubernetes.ts";
import { bool } from "../cel/types.ts";
import type { NamedConditions, RequestMatch, RuleVariant } from "../rule.ts";
import { oldestKubernetes } from "../since.ts";
import { toRequestMatch, toSelector } from "./matching.ts";
import { getVariantName, isPolicy, listBindings } from "./policies.ts";
import type { PolicySettings } from "./settings.ts";
import type { AnyBinding, AnyPolicy, PolicyObject } from "./types.ts";

/** What differs between the webhook entries of validating admission policies and those of mutating ones. */
interface EntryTraits<T extends PolicyObject> {
  /** The operations for which `*` stands in a policy. */
  operations: RequestMatch["operations"];
  /** Reports whether errors refuse a request with this binding, if the policy fails closed. */
  refusesOnError?(binding: Extract<T, AnyBinding>): boolean;
  /** Reports whether a policy is evaluated a second time if a later policy changed the object. */
  isReinvoked?(policy: Extract<T, AnyPolicy>): boolean;
  /** Returns the first error of a policy's expressions in a minor version of Kubernetes. */
  findExpressionFault(policy: Extract<T, AnyPolicy>, kubernetes: string): string | undefined;
}

/** Returns an entry for each policy. The entry of a policy without bindings matches nothing. */
export const buildPolicyVariants = <T extends PolicyObject>(
  { policies }: PolicySettings<T>,
  { operations, refusesOnError = () => true, isReinvoked = () => true, findExpressionFault }: EntryTraits<T>,
): RuleVariant<PolicySettings<T>>[] =>
  policies.filter(isPolicy).map((policy) => {
    const { failurePolicy = "Fail", matchConstraints } = policy.spec;
    const bindings = listBindings(policies, policy);
    // The entry may have the matchConditions only if a false condition, or an error in one, has the same effect there
    // as in the policy. With Ignore, this always holds. With Fail, an error in the entry refuses all requests; in the
    // policy, those that a binding with refusesOnError selects. Without matchResources, it selects all. But a policy
    // with a paramKind may refuse a request without evaluating its conditions, because it finds no parameters.
    const mayHaveConditions =
      failurePolicy === "Ignore" ||
      (policy.spec.paramKind === undefined &&
        bindings.some((binding) => binding.spec.matchResources === undefined && refusesOnError(binding)));
    // The casts are safe: the policy is valid.
    return {
      name: getVariantName(policy.metadata.name),
      match: bindings.length === 0 ? [] : listMatches(policy, operations),
      matchConditions: mayHaveConditions ? selectConditions(policy) : {},
      matchPolicy: (matchConstraints.matchPolicy ?? "Equivalent") as "Equivalent" | "Exact",
      failurePolicy: failurePolicy as "Fail" | "Ignore",
      namespaceSelector: toSelector(matchConstraints.namespaceSelector),
      objectSelector: toSelector(matchConstraints.objectSelector),
      ...(!isReinvoked(policy) && { reinvocationPolicy: "Never" }),
      native: { policy, bindings, findExpressionFault: (kubernetes) => findExpressionFault(policy, kubernetes) },
    };
  });

/** Returns the requests to which any of the policies applies. */
export const listPolicyMatches = ({ policies }: PolicySettings, operations: RequestMatch["operations"]) =>
  policies.filter(isPolicy).flatMap((policy) => listMatches(policy, operations));

const listMatches = ({ spec }: AnyPolicy, operations: RequestMatch["operations"]): RequestMatch[] =>
  (spec.matchConstraints.resourceRules ?? []).map(toRequestMatch).map((match) => {
    return { ...match, operations: match.operations.includes("*") ? operations : match.operations };
  });

/** An entry may have 64 conditions. Three are reserved for exemptions of users, groups and vital resources. */
const maxPolicyConditions = 61;

/**
 * Returns the matchConditions of a policy that its webhook entry can have, so that the API server evaluates them
 * before it calls the rule. The caller makes sure that a false condition, or an error in one, has the same effect there
 * as in the policy.
 */
const selectConditions = ({ spec: { matchConditions = [] } }: AnyPolicy): NamedConditions => {
  // An entry's conditions have no `params`. Functions that the oldest known version lacks are not used either.
  const environment = createAdmissionEnvironment({ kubernetes: oldestKubernetes, hasAuthorizer: true });
  const usable = matchConditions.filter(
    ({ expression }) => "program" in compileExpression(expression, environment, [bool]),
  );
  return Object.fromEntries(usable.slice(0, maxPolicyConditions).map(({ name, expression }) => [name, expression]));
};
