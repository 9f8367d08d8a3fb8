import { selectsEverything, toSelector } from "postern/admission-policies/matching";
import { guessParamResource } from "postern/admission-policies/parameters";
import type { ResourceType } from "postern/needs";
import { isPolicy, type ValidatingBinding, type ValidatingPolicy } from "./policies.ts";

export interface ValidatingPolicySettings {
  /** Policies and bindings. In postern.yaml also the names of files and folders that hold them. */
  policies: readonly (ValidatingPolicy | ValidatingBinding)[];
  /** Resources of parameters whose plural isn't formed as usual. */
  reads: readonly ResourceType[];
}

export const defaultPolicySettings: ValidatingPolicySettings = { policies: [], reads: [] };

/** Returns the first fault of the settings in a sentence; each object was checked before. */
export const findSettingsFault = ({ policies, reads }: ValidatingPolicySettings): string | undefined => {
  const names = policies.map(({ kind, metadata }) => `${kind} ${metadata?.name}`);
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice !== undefined) return `must have one ${twice} among its policies, not two`;
  const isUnfit = ({ group, resource, version = "v1", ...others }: ResourceType) =>
    [group, resource, version].some((text) => typeof text !== "string") ||
    resource === "" ||
    Object.keys(others).length > 0;
  const unfit = reads.findIndex(isUnfit);
  return unfit < 0
    ? undefined
    : `must name a group, a resource and perhaps a version in reads[${unfit}], for instance example.com, limits, v1`;
};

/** Returns the resources of the policies' parameters. */
export const listParameterResources = ({ policies, reads }: ValidatingPolicySettings): ResourceType[] => {
  const kinds = policies.flatMap((object) => (isPolicy(object) && object.spec.paramKind) || []);
  return [...kinds.map(guessParamResource), ...reads];
};

const mentions = (object: object, word: string): boolean => JSON.stringify(object).includes(word);

/** Reports whether namespaces are read for the policies. The API server compares the policies' own selectors. */
export const readsNamespaces = ({ policies }: ValidatingPolicySettings): boolean =>
  policies.some((object) => {
    if (isPolicy(object)) return mentions(object.spec, "namespaceObject");
    return !selectsEverything(toSelector(object.spec.matchResources?.namespaceSelector));
  });

/** Reports whether the resources are asked for that the cluster serves: for parameters, and for rules in other versions. */
export const discoversResources = ({ policies }: ValidatingPolicySettings): boolean =>
  policies.some((object) =>
    isPolicy(object)
      ? object.spec.paramKind !== undefined || object.spec.matchConstraints?.excludeResourceRules !== undefined
      : object.spec.matchResources !== undefined,
  );

/** Reports whether an expression of a policy asks the authorizer. */
export const asksAuthorizer = ({ policies }: ValidatingPolicySettings): boolean =>
  policies.some((object) => isPolicy(object) && mentions(object.spec, "authorizer"));
