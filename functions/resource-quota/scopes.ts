import type { ResourceQuota, ScopedResourceSelectorRequirement } from "postern/kubernetes/core/v1";
import { findValueFaults, type LengthUnit } from "postern/objects/label";

export type Scope = ScopedResourceSelectorRequirement;

/** Returns the scopes that an object must be in for a quota to count it. */
export const listScopes = ({ spec }: ResourceQuota): Scope[] => [
  ...(spec?.scopes ?? []).map((scopeName) => ({ scopeName, operator: "Exists" })),
  ...(spec?.scopeSelector?.matchExpressions ?? []),
];

/** Returns scopes as Go prints them. */
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

/** Returns what is wrong with a scope whose values are class names, in upstream's words: it makes labels of them. */
export const findScopeFault = (scope: Scope, unit?: LengthUnit): string | undefined => {
  const { scopeName, operator, values = [] } = scope;
  if (operator === "Exists") return undefined;
  const faults = values.flatMap((value, index) => {
    const found = findValueFaults(value, unit).join("; ");
    return found ? [`values[${index}][${scopeName}]: Invalid value: ${JSON.stringify(value)}: ${found}`] : [];
  });
  if (faults.length === 0) return undefined;
  const all = faults.length === 1 ? faults[0] : `[${faults.join(", ")}]`;
  return `error on matching scope ${formatScope(scope)}: failed to parse and convert selector: ${all}`;
};
