import type { ResourceQuota, ScopedResourceSelectorRequirement } from "postern/kubernetes/core/v1";
import { findValueFaults, type LengthUnit } from "postern/objects/label";

export type Scope = ScopedResourceSelectorRequirement;

/** Returns the scopes of a quota. The quota counts only objects that are in all of them. */
export const listScopes = ({ spec }: ResourceQuota): Scope[] => [
  ...(spec?.scopes ?? []).map((scopeName) => ({ scopeName, operator: "Exists" })),
  ...(spec?.scopeSelector?.matchExpressions ?? []),
];

/** Returns scopes in the form in which Go prints them: `[{PriorityClass In [high]}]`. */
export const formatScopes = (scopes: readonly Scope[]): string => `[${scopes.map(formatScope).join(" ")}]`;

const formatScope = ({ scopeName, operator, values = [] }: Scope) => `{${scopeName} ${operator} [${values.join(" ")}]}`;

/** Reports whether a scope selects an object with one of these class names, or an object without a class. */
export const selectsClass = ({ operator, values = [] }: Scope, names: readonly string[]): boolean => {
  if (names.length === 0) return operator === "DoesNotExist" || operator === "NotIn";
  return names.some((name) => {
    if (operator === "Exists") return true;
    return operator === "NotIn" ? !values.includes(name) : operator === "In" && values.includes(name);
  });
};

/** Says what is wrong with a scope whose values are names of classes. Upstream parses these names as label values. */
export const findScopeFault = (scope: Scope, unit?: LengthUnit): string | undefined => {
  const { scopeName, operator, values = [] } = scope;
  if (operator === "Exists") return undefined;
  const faults = values.flatMap((value, index) => {
    const found = findValueFaults(value, unit).join("; ");
    return found ? [`values[${index}][${scopeName}]: Invalid value: ${JSON.stringify(value)}: ${found}`] : [];
  });
  if (faults.length === 0) return undefined;
  const printed = faults.length === 1 ? faults[0] : `[${faults.join(", ")}]`;
  return `error on matching scope ${formatScope(scope)}: failed to parse and convert selector: ${printed}`;
};
