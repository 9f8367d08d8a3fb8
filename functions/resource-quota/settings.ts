import { isTextList, toMap } from "postern/json";
import { findScopeFault, type Scope } from "./scopes.ts";

/** A resource that can be used only with a quota for it, in the form of upstream's configuration. */
export interface LimitedResource {
  apiGroup?: string;
  resource: string;
  matchContains?: string[];
  matchScopes?: Scope[];
}

export interface ResourceQuotaSettings {
  /** Whether the rule enforces quotas, and adds the amounts of admitted objects to their `status.used`. */
  charges: boolean;
  limitedResources: LimitedResource[];
}

/** The scopes that a ResourceQuota may have. */
export const scopeNames = [
  "Terminating",
  "NotTerminating",
  "BestEffort",
  "NotBestEffort",
  "PriorityClass",
  "CrossNamespacePodAffinity",
  "VolumeAttributesClass",
] as const;
export const scopeOperators = ["In", "NotIn", "Exists", "DoesNotExist"] as const;

/** Returns the end of an error message, such as `, not 3`; an empty text if there is no value. */
const describeFound = (value: unknown) => (value === undefined ? "" : `, not ${JSON.stringify(value)}`);

/** Returns what is wrong with the settings, in a sentence. */
export const findSettingsFault = ({ charges, limitedResources }: ResourceQuotaSettings): string | undefined => {
  if (!charges && limitedResources.length === 0)
    return "must have charges: true or at least one of limitedResources; otherwise the rule does nothing";
  for (const [index, limited] of limitedResources.entries()) {
    const at = `limitedResources[${index}]`;
    const { apiGroup = "", resource, matchContains = [], matchScopes = [], ...more } = toMap(limited);
    const [unknown] = Object.keys(more);
    if (unknown !== undefined)
      return `must have only apiGroup, resource, matchContains and matchScopes in ${at}, not ${unknown}`;
    if (typeof resource !== "string" || !/^[^/*]+$/.test(resource))
      return `must have a resource such as pods in ${at}, without a subresource${describeFound(resource)}`;
    if (typeof apiGroup !== "string") return `must have a text as apiGroup in ${at}${describeFound(apiGroup)}`;
    if (!isTextList(matchContains))
      return `must have a list of texts as matchContains in ${at}${describeFound(matchContains)}`;
    if (!Array.isArray(matchScopes)) return `must have a list as matchScopes in ${at}${describeFound(matchScopes)}`;
    for (const [place, scope] of matchScopes.entries()) {
      const fault = findMatchScopeFault(scope);
      if (fault) return `${fault} in ${at}.matchScopes[${place}]`;
    }
  }
  return undefined;
};

/**
 * Returns what is wrong with a scope. The caller adds ` in limitedResources[0].matchScopes[0]`, so a text that ends
 * with "not …" needs a comma. The checks are the API server's rules for scopes of quotas; upstream's plugin doesn't
 * check the scopes in its configuration.
 */
const findMatchScopeFault = (scope: unknown): string | undefined => {
  const { scopeName: writtenName, operator: writtenOperator, values = [], ...unknownMembers } = toMap(scope);
  const [unknown] = Object.keys(unknownMembers);
  if (unknown !== undefined) return `must have only scopeName, operator and values, not ${unknown},`;
  const scopeName = scopeNames.find((name) => name === writtenName);
  if (scopeName === undefined) return "must have a scopeName";
  const operator = scopeOperators.find((name) => name === writtenOperator);
  if (operator === undefined) return "must have an operator";
  if (!isTextList(values)) return `must have a list of texts as values${describeFound(values)},`;
  const hasClasses = ["PriorityClass", "VolumeAttributesClass"].includes(scopeName);
  if (!hasClasses && operator !== "Exists") return `must have the operator Exists for ${scopeName}, not ${operator},`;
  const needsValues = ["In", "NotIn"].includes(operator);
  if (needsValues ? values.length === 0 : values.length > 0)
    return `must have values for In and NotIn only, not ${values.length} for ${operator},`;
  return findScopeFault({ scopeName, operator, values })
    ? `must have values that a label can have${describeFound(values)},`
    : undefined;
};
