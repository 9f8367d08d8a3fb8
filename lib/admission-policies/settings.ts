import { accessReview, discovery, get, onlyIf, type ReadOptions, type ResourceType, reader } from "../needs.ts";
import { selectsEverything, toSelector } from "./matching.ts";
import { guessParamResource } from "./parameters.ts";
import { isBinding, isPolicy } from "./policies.ts";
import type { PolicyObject } from "./types.ts";

/** The settings of a rule that evaluates policies. */
export interface PolicySettings<T extends PolicyObject = PolicyObject> {
  /** Policies and bindings. In postern.yaml also the names of files and folders that hold them. */
  policies: readonly T[];
  /** Resources of parameters whose plural isn't formed as usual. */
  reads: readonly ResourceType[];
}

/** Returns the first fault of the settings in a sentence; each object was checked before. */
export const findSettingsFault = ({ policies, reads }: PolicySettings): string | undefined => {
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
const listParameterResources = ({ policies, reads }: PolicySettings): ResourceType[] => {
  const kinds = policies.flatMap((object) => (isPolicy(object) && object.spec.paramKind) || []);
  return [...kinds.map(guessParamResource), ...reads];
};

const mentions = (object: object, word: string): boolean => JSON.stringify(object).includes(word);

/** Reports whether namespaces are read for the policies. The API server compares the policies' own selectors. */
const readsNamespaces = ({ policies }: PolicySettings): boolean =>
  policies.some((object) => {
    if (isPolicy(object)) return mentions(object.spec, "namespaceObject");
    return isBinding(object) && !selectsEverything(toSelector(object.spec.matchResources?.namespaceSelector));
  });

/** Reports whether the resources are asked for that the cluster serves: for parameters, and for rules in other versions. */
const discoversResources = ({ policies }: PolicySettings): boolean =>
  policies.some((object) =>
    isPolicy(object)
      ? object.spec.paramKind !== undefined || object.spec.matchConstraints?.excludeResourceRules !== undefined
      : isBinding(object) && object.spec.matchResources !== undefined,
  );

/** Reports whether an expression of a policy asks the authorizer. */
const asksAuthorizer = ({ policies }: PolicySettings): boolean =>
  policies.some((object) => isPolicy(object) && mentions(object.spec, "authorizer"));

/**
 * Returns what a rule that evaluates policies asks the cluster. A rule that changes objects must not fill in values from
 * kept answers: it sets `maxAge` to 0 seconds.
 */
export const buildPolicyNeeds = (freshness?: ReadOptions) => {
  return {
    reader: reader(listParameterResources, freshness),
    discover: onlyIf(discoversResources, discovery()),
    namespaces: onlyIf(readsNamespaces, get("namespaces", freshness)),
    may: onlyIf(asksAuthorizer, accessReview()),
  };
};
