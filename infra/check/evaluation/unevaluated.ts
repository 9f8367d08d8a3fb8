import { type DefaultedWebhookEntry, parseWebhookConfigurations } from "#infra/apiserver/admission/hooks.ts";
import { createConvertibleRequestObjects, matchHook } from "#infra/apiserver/admission/matching.ts";
import { assignGeneratedMetadata } from "#infra/apiserver/admission/server-objects.ts";
import type { AdmissionAttributes, ImitatedServerFunctions } from "#infra/apiserver/admission/types.ts";
import { getOwn, toMap } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import type { LabelSelector } from "#lib/objects/selection.ts";
import type { KubernetesObject } from "#lib/review.ts";

/** The admission policies of a cluster. It is known which requests they match, but not what they decide. */
export type UnevaluatedAdmissionPolicyMatcher = ReturnType<typeof createUnevaluatedPolicyMatcher>;

/** Which requests an admission policy of the cluster, or its binding, matches: in the form of webhook entries. */
interface Selection {
  included: DefaultedWebhookEntry;
  /** A webhook entry that matches what an admission policy or its binding excludes by `excludeResourceRules`. */
  excluded: DefaultedWebhookEntry;
}

/** An admission policy with its bindings, or the bindings of a policy that isn't among the manifests. */
interface Policy {
  isMutating: boolean;
  /** What a check says of a request that the policy matches. */
  sentence: string;
  selection: Selection;
  bindings: Selection[];
  /**
   * The policy and its bindings: if plugins evaluate all of them, the policy counts as evaluated. A policy that isn't
   * among the manifests never does: its place has a placeholder, with only its kind, which no plugin evaluates.
   */
  objects: KubernetesObject[];
}

/** The kinds of policies, and the names of the plugins that evaluate them. */
export const policyKinds = ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"];

/** Reports whether a manifest is an admission policy, a binding of one, or a quota. */
export const isPolicyOrQuota = ({ apiVersion, kind = "" }: { apiVersion?: unknown; kind?: unknown }): boolean => {
  if (kind === "ResourceQuota") return apiVersion === "v1";
  const { group } = splitApiVersion(String(apiVersion));
  return group === policyGroup && policyKinds.includes(String(kind).replace(/Binding$/, ""));
};

const policyGroup = "admissionregistration.k8s.io";

/** Returns the policies that these plugins evaluate: such a plugin has the name of its kind of policy. */
export const listPolicies = (objects: readonly KubernetesObject[], plugins: readonly string[]): KubernetesObject[] =>
  policyKinds
    .filter((kind) => plugins.includes(kind))
    .flatMap((kind) => objects.filter((object) => object.kind === kind));

/** Returns those policies that no binding among `objects` names. */
export const listUnboundPolicies = (
  policies: readonly KubernetesObject[],
  objects: readonly KubernetesObject[],
): KubernetesObject[] => {
  const toKey = (kind: unknown, name: unknown) => `${kind} ${name}`;
  const bound = new Set(objects.map((object) => toKey(object.kind, getOwn(getSpec(object), "policyName"))));
  return policies.filter(({ kind, metadata }) => !bound.has(toKey(`${kind}Binding`, metadata?.name)));
};

/**
 * Returns a matcher of the policies among some objects, without those that `isEvaluated` reports. Without
 * `hasAllObjects`, the missing policy of a binding may match all requests that the binding selects. Objects of
 * `unreadableKinds`, kinds of policies or ResourceQuota, can't be read from the cluster, so they may match any request.
 */
export const createUnevaluatedPolicyMatcher = (
  objects: readonly KubernetesObject[],
  hasAllObjects: boolean,
  unreadableKinds: readonly string[] = [],
  isEvaluated: (object: KubernetesObject) => boolean = () => false,
) => {
  const unknown = unreadableKinds.length === 0 ? [] : [`whether a ${unreadableKinds.join(" or a ")} matches it`];
  const all = policyKinds.flatMap((kind) => readPolicies(objects, kind, hasAllObjects));
  const policies = all.filter((policy) => !policy.objects.every(isEvaluated));
  return {
    /**
     * A webhook entry for each policy, also for evaluated ones, which matches each request that the policy matches. The
     * check compares these with an object of an unknown kind, to see whether a policy may be about it.
     */
    hooks: all.map(({ selection }) => selection.included),
    /**
     * Returns a sentence for each policy that matches a request and isn't evaluated. `finalObject` is the request's
     * object after the webhooks; `isNamespaceAssumed` says that only the name of the request's namespace is known.
     */
    findMatching: (
      attributes: AdmissionAttributes,
      finalObject: unknown,
      context: ImitatedServerFunctions,
      isNamespaceAssumed: boolean,
    ): string[] => {
      if (policies.length + unknown.length === 0) return [];
      const final = { ...attributes, object: finalObject };
      // MutatingAdmissionPolicies run before the webhooks, and again after a change.
      const seenByMutating = [attributes, final];
      const seenByValidating = [assignGeneratedMetadata(final)];
      const matching = policies.filter(({ isMutating, selection, bindings }) => {
        if (isExempt(attributes) || (isMutating && attributes.operation === "DELETE")) return false;
        return (isMutating ? seenByMutating : seenByValidating).some((seen) => {
          const isSelected = (entry: Selection) => isSelectedBy(entry, seen, context, isNamespaceAssumed);
          return isSelected(selection) && bindings.some(isSelected);
        });
      });
      return [...matching.map(({ sentence }) => sentence), ...unknown];
    },
  };
};

/** Returns the admission policies of a kind with their bindings, for the sentence that they aren't evaluated. */
const readPolicies = (objects: readonly KubernetesObject[], kind: string, isComplete: boolean): Policy[] => {
  const isMutating = kind === "MutatingAdmissionPolicy";
  const found = objects.filter((object) => object.kind === kind);
  const bindings = Map.groupBy(
    objects.filter((object) => object.kind === `${kind}Binding`),
    (binding) => String(getOwn(getSpec(binding), "policyName")),
  );
  const build = (
    sentence: string,
    selection: Selection,
    policy: KubernetesObject,
    policyBindings: KubernetesObject[],
  ): Policy => ({
    isMutating,
    sentence: `${kind} ${sentence}`,
    selection,
    bindings: policyBindings.map(readBinding),
    objects: [policy, ...policyBindings],
  });
  const bound = found.flatMap((policy) => {
    const { name = "" } = policy.metadata ?? {};
    const policyBindings = bindings.get(name);
    if (policyBindings === undefined) return [];
    const { matchConstraints, matchConditions, failurePolicy } = toMap(getSpec(policy));
    const selection = readSelection(matchConstraints, { matchConditions, failurePolicy });
    return [build(`${name} matches it, and it can't be evaluated here`, selection, policy, policyBindings)];
  });
  if (isComplete) return bound;
  const names = new Set(found.map(({ metadata }) => metadata?.name));
  const alone = [...bindings].filter(([name]) => !names.has(name));
  return [
    ...bound,
    ...alone.map(([name, policyBindings]) => {
      const sentence = `${name} may match it: a binding names the policy, which is not among the manifests`;
      return build(sentence, readSelection(everything), /* placeholder of the policy */ { kind }, policyBindings);
    }),
  ];
};

const getSpec = (object: KubernetesObject): unknown => getOwn(object, "spec");

const everyRule = { apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] };
const everything = { resourceRules: [everyRule] };

/** A binding without resourceRules only narrows by its selectors. */
const readBinding = (binding: KubernetesObject): Selection => {
  const resources = getOwn(getSpec(binding), "matchResources") ?? {};
  const rules = getOwn(resources, "resourceRules");
  const isOpen = rules === undefined || rules === null || (Array.isArray(rules) && rules.length === 0);
  return readSelection(isOpen ? { ...toMap(resources), ...everything } : resources);
};

/**
 * Returns what a policy's MatchResources selects. So that no request is missed, everything is included without valid
 * resourceRules, and nothing is excluded without valid excludeResourceRules. `conditions` are those of the policy.
 */
const readSelection = (resources: unknown, conditions: object = {}): Selection => {
  const { resourceRules, excludeResourceRules, namespaceSelector, objectSelector, matchPolicy } = toMap(resources);
  const included =
    Array.isArray(resourceRules) && resourceRules.length > 0
      ? buildHook({ rules: resourceRules, namespaceSelector, objectSelector, matchPolicy, ...conditions })
      : undefined;
  return {
    included: included ?? (buildHook({ rules: everything.resourceRules }) as DefaultedWebhookEntry),
    excluded:
      buildHook({ rules: excludeResourceRules, matchPolicy }) ?? (buildHook({ rules: [] }) as DefaultedWebhookEntry),
  };
};

/**
 * Returns an artificial webhook entry with these members, by which requests are matched as by a real entry. Returns
 * undefined if it is invalid.
 */
const buildHook = (members: object): DefaultedWebhookEntry | undefined => {
  const entry = {
    name: "policies.postern.invalid",
    clientConfig: { url: "https://policies.postern.invalid" },
    sideEffects: "None",
    admissionReviewVersions: ["v1"],
    ...members,
  };
  const metadata = { name: "policies" };
  const apiVersion = `${policyGroup}/v1`;
  return parseWebhookConfigurations([
    { apiVersion, kind: "ValidatingWebhookConfiguration", metadata, webhooks: [entry] },
  ]).validating[0];
};

/**
 * Reports whether a selection includes a request, or may include it. `isNamespaceAssumed` says that only the name of
 * the request's namespace is known.
 */
const isSelectedBy = (
  { included, excluded }: Selection,
  attributes: AdmissionAttributes,
  context: ImitatedServerFunctions,
  isNamespaceAssumed: boolean,
): boolean => {
  const view = () => createConvertibleRequestObjects(attributes, context.convert);
  const isMatched = (candidate: DefaultedWebhookEntry) =>
    !("skipped" in matchHook(candidate, attributes, view(), context));
  // Of a name that the API server will generate, only a prefix is known. If a rule lists a name with this prefix, the
  // object may be included by the rule, but isn't surely excluded.
  const surelyExcluding = excluded.rules.filter((rule) => includesName(rule, attributes));
  if (isMatched({ ...excluded, rules: surelyExcluding })) return false;
  const namespaceSelector = isNamespaceAssumed ? keepOnlyName(included.namespaceSelector) : included.namespaceSelector;
  const rules = included.rules.filter((rule) => includesName(rule, attributes, { acceptsPrefix: true }));
  return isMatched({ ...included, namespaceSelector, rules });
};

/**
 * Reports whether the resourceNames of a rule, if any, list the name of the request's object. If the API server will
 * generate the name, only its prefix is known (`generateName`): then no listed name is sure to be the object's. With
 * `acceptsPrefix`, a listed name with this prefix is enough.
 */
const includesName = (rule: object, { name, object }: AdmissionAttributes, { acceptsPrefix = false } = {}): boolean => {
  const listed = getOwn(rule, "resourceNames");
  if (!Array.isArray(listed) || listed.length === 0) return true;
  const prefix = getOwn(getOwn(object, "metadata"), "generateName");
  if (typeof prefix !== "string" || getOwn(getOwn(object, "metadata"), "name")) return listed.includes(name ?? "");
  return acceptsPrefix && listed.some((listedName) => String(listedName).startsWith(prefix));
};

const nameLabel = "kubernetes.io/metadata.name";

/** Returns a namespace selector without what it requires of labels other than the namespace's name. */
const keepOnlyName = ({ matchLabels = {}, matchExpressions = [] }: LabelSelector): LabelSelector => ({
  matchLabels: Object.fromEntries(Object.entries(matchLabels).filter(([key]) => key === nameLabel)),
  matchExpressions: matchExpressions.filter(({ key }) => key === nameLabel),
});

/**
 * Reports whether no ValidatingAdmissionPolicy or MutatingAdmissionPolicy is evaluated for a request, because it is
 * about such a policy, its binding or a review object such as SubjectAccessReview.
 */
const isExempt = ({ resource: { group, resource } }: AdmissionAttributes): boolean =>
  group === policyGroup
    ? /^(validating|mutating)admissionpolic(ies|ybindings)$/.test(resource)
    : /^auth(entication|orization)\.k8s\.io$/.test(group) && resource.endsWith("reviews");
