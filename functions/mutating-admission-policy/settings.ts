import { hasSchemas } from "postern/admission-policies/merge/schemas";
import { isCustomKind, isPolicy } from "postern/admission-policies/policies";
import { findSettingsFault } from "postern/admission-policies/settings";
import type { MutatingPolicy, MutatingPolicySettings } from "./policies.ts";

/** Returns a sentence about the first fault of the settings. A missing schema of a custom kind is a fault, too. */
export const findMutatingSettingsFault = (settings: MutatingPolicySettings): string | undefined => {
  const { policies } = settings;
  const known = policies.filter(isCustomKind).map(({ spec: { group, names } }) => `${names.plural}.${group}`);
  return (
    findSettingsFault(settings) ??
    policies
      .filter(isPolicy)
      .flatMap((policy) => listMergedCustomResources(policy).map((resource) => ({ policy, resource })))
      .filter(({ resource }) => !known.includes(resource))
      .map(({ policy: { metadata }, resource }) => {
        return `must have the CustomResourceDefinition ${resource} among its policies: MutatingAdmissionPolicy ${metadata.name} merges an ApplyConfiguration by its schema`;
      })[0]
  );
};

/** Returns the resources of custom kinds, without wildcards, into which a policy merges an ApplyConfiguration. */
const listMergedCustomResources = ({ spec: { mutations = [], matchConstraints } }: MutatingPolicy): string[] => {
  if (mutations.every(({ patchType }) => patchType !== "ApplyConfiguration")) return [];
  return (matchConstraints.resourceRules ?? []).flatMap(({ apiGroups = [], resources = [] }) => {
    const groups = apiGroups.filter((group) => group !== "*" && !hasSchemas(group));
    const names = resources.filter((resource) => !/[*/]/.test(resource));
    return groups.flatMap((group) => names.map((resource) => `${resource}.${group}`));
  });
};
