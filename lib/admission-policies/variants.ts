// The webhook entries: one for each policy, as narrow as its constraints.
import { compileExpression, createAdmissionEnvironment } from "../cel/kubernetes.ts";
import { bool } from "../cel/types.ts";
import type { NamedConditions, RequestMatch, RuleVariant } from "../rule.ts";
import { oldestKubernetes } from "../since.ts";
import { toRequestMatch, toSelector } from "./matching.ts";
import { getVariantName, isPolicy, listBindings } from "./policies.ts";
import type { PolicySettings } from "./settings.ts";
import type { AnyBinding, AnyPolicy, PolicyObject } from "./types.ts";

/** What the entries of one kind of policies have of their own. */
interface EntryTraits<T extends PolicyObject> {
  /** The operations that `*` in a rule stands for. */
  operations: RequestMatch["operations"];
  /** Reports whether an error refuses the request under a binding, if the policy fails closed. */
  refuses?(binding: Extract<T, AnyBinding>): boolean;
  /** Reports whether a policy is evaluated once more if another one changed the object. */
  isReinvoked?(policy: Extract<T, AnyPolicy>): boolean;
  /** Returns the first error of a policy's expressions in a minor version of Kubernetes. */
  findExpressionFault(policy: Extract<T, AnyPolicy>, kubernetes: string): string | undefined;
}

/** Returns an entry for each policy. A policy without bindings has none. */
export const buildPolicyVariants = <T extends PolicyObject>(
  { policies }: PolicySettings<T>,
  { operations, refuses = () => true, isReinvoked = () => true, findExpressionFault }: EntryTraits<T>,
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
      match: bindings.length === 0 ? [] : listMatches(policy, operations),
      matchConditions: failurePolicy === "Ignore" || refusesAlways ? selectConditions(policy) : {},
      matchPolicy: (matchConstraints.matchPolicy ?? "Equivalent") as "Equivalent" | "Exact",
      failurePolicy: failurePolicy as "Fail" | "Ignore",
      namespaceSelector: toSelector(matchConstraints.namespaceSelector),
      objectSelector: toSelector(matchConstraints.objectSelector),
      ...(!isReinvoked(policy) && { reinvocationPolicy: "Never" }),
      native: { policy, bindings, findExpressionFault: (kubernetes) => findExpressionFault(policy, kubernetes) },
    };
  });

/** Returns the requests that any policy is for. */
export const listPolicyMatches = ({ policies }: PolicySettings, operations: RequestMatch["operations"]) =>
  policies.filter(isPolicy).flatMap((policy) => listMatches(policy, operations));

const listMatches = ({ spec }: AnyPolicy, operations: RequestMatch["operations"]): RequestMatch[] =>
  (spec.matchConstraints.resourceRules ?? []).map(toRequestMatch).map((match) => {
    return { ...match, operations: match.operations.includes("*") ? operations : match.operations };
  });

/** The most conditions of an entry, less those that exempt users, groups and vital resources. */
const mostConditions = 61;

/**
 * Returns the conditions that the API server can evaluate before it calls the rule. A condition that results in an
 * error then refuses the request, so a policy that fails closed has them only if it would refuse the request, too.
 */
const selectConditions = ({ spec: { matchConditions = [] } }: AnyPolicy): NamedConditions => {
  // Without `params`, and without functions that older clusters lack.
  const environment = createAdmissionEnvironment({ kubernetes: oldestKubernetes, hasAuthorizer: true });
  const known = matchConditions.filter(
    ({ expression }) => "program" in compileExpression(expression, environment, [bool]),
  );
  return Object.fromEntries(known.slice(0, mostConditions).map(({ name, expression }) => [name, expression]));
};
