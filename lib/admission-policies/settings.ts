import { accessReview, discovery, get, onlyIf, type ReadOptions, type ResourceType, reader } from "../needs.ts";
import { selectsEverything, toSelector } from "./matching.ts";
import { guessParamResource } from "./parameters.ts";
import { isBinding, isPolicy } from "./policies.ts";
import type { PolicyObject } from "./types.ts";

/** The settings of a rule that evaluates policies. */
export interface PolicySettings<T extends PolicyObject = PolicyObject> {
  /** Policies and bindings. postern.yaml may also name files and folders that contain policies and bindings. */
  policies: readonly T[];
  /** The resources of parameters whose plural is irregular, so that guessParamResource doesn't find them. */
  reads: readonly ResourceType[];
}

/** Returns the first fault of the settings in a sentence. Each policy and binding was checked before. */
export const findSettingsFault = ({ policies, reads }: PolicySettings): string | undefined => {
  const names = policies.map(({ kind, metadata }) => `${kind} ${metadata?.name}`);
  const repeatedName = names.find((name, index) => names.indexOf(name) < index);
  if (repeatedName !== undefined) return `must have one ${repeatedName} among its policies, not two`;
  const isWrong = ({ group, resource, version = "v1", ...unknownMembers }: ResourceType) =>
    [group, resource, version].some((text) => typeof text !== "string") ||
    resource === "" ||
    Object.keys(unknownMembers).length > 0;
  const wrongRead = reads.findIndex(isWrong);
  return wrongRead < 0
    ? undefined
    : `must name a group, a resource and perhaps a version in reads[${wrongRead}], for instance example.com, limits, v1`;
};

/** Returns the resources of policies' parameters: guessed from each paramKind, and, for irregular plurals, `reads`. */
const listParameterResources = ({ policies, reads }: PolicySettings): ResourceType[] => {
  const kinds = policies.flatMap((object) => (isPolicy(object) && object.spec.paramKind) || []);
  return [...kinds.map(guessParamResource), ...reads];
};

const mentions = (object: object, word: string): boolean => JSON.stringify(object).includes(word);

/**
 * Reports whether policies need to read namespaces: for `namespaceObject`, or for the namespaceSelector of a binding.
 * The API server evaluates the namespaceSelector of a policy.
 */
const readsNamespaces = ({ policies }: PolicySettings): boolean =>
  policies.some((object) => {
    if (isPolicy(object)) return mentions(object.spec, "namespaceObject");
    return isBinding(object) && !selectsEverything(toSelector(object.spec.matchResources?.namespaceSelector));
  });

/**
 * Reports whether policies need discovery, to find kinds of parameters, or equivalent resources in other versions. The
 * resourceRules of a policy need none: they are the rules of its webhook entry, so the API server has matched them.
 */
const discoversResources = ({ policies }: PolicySettings): boolean =>
  policies.some((object) =>
    isPolicy(object)
      ? object.spec.paramKind !== undefined || object.spec.matchConstraints?.excludeResourceRules !== undefined
      : isBinding(object) && object.spec.matchResources !== undefined,
  );

/** Reports whether an expression of a policy uses the authorizer. */
const asksAuthorizer = ({ policies }: PolicySettings): boolean =>
  policies.some((object) => isPolicy(object) && mentions(object.spec, "authorizer"));

/**
 * Returns the needs of a rule that evaluates policies. A rule that changes objects must not use cached answers, so it
 * sets `maxAge` to 0 seconds.
 */
export const buildPolicyNeeds = (freshness?: ReadOptions) => ({
  reader: reader(listParameterResources, freshness),
  discover: onlyIf(discoversResources, discovery()),
  namespaces: onlyIf(readsNamespaces, get("namespaces", freshness)),
  may: onlyIf(asksAuthorizer, accessReview()),
});
