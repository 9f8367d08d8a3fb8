import { isMap, type JsonMap, toList, toMap, toText } from "../json.ts";
import type { KubernetesObject } from "../review.ts";
import { matchesAnySelector } from "./selectors.ts";
import type { KinitirasPolicy, OverridePolicy, PolicyRequest, ValidatePolicy } from "./types.ts";
import { policyGroup, resolveNamespace } from "./types.ts";
import { compareBytes } from "./values/texts.ts";

/** Policies in the order of evaluation. They are indexed by their selectors, so that a request must test only few. */
interface PolicyIndex {
  readonly overriding: IndexedPolicies<OverridePolicy>;
  readonly validating: IndexedPolicies<ValidatePolicy>;
}

interface IndexedPolicies<P extends KinitirasPolicy> {
  /** By the keys of buildSelectorKey. */
  readonly byKey: ReadonlyMap<string, readonly PositionedPolicy<P>[]>;
  /** The policies without selectors, which select all objects. */
  readonly ofAll: readonly PositionedPolicy<P>[];
}

interface PositionedPolicy<P extends KinitirasPolicy> {
  readonly policy: P;
  /** The position in the order of evaluation. */
  readonly place: number;
}

/** Returns the index of a list of policies. Indexes are cached by the list itself, so the list must not change. */
export const buildPolicyIndex = (policies: readonly KinitirasPolicy[]): PolicyIndex => {
  const cached = indexes.get(policies);
  if (cached !== undefined) return cached;
  const readable = policies.filter(isMap) as KinitirasPolicy[];
  const index = {
    overriding: indexPolicies(readable.filter(isOverridePolicy)),
    validating: indexPolicies(readable.filter(isValidatePolicy)),
  };
  indexes.set(policies, index);
  return index;
};

const indexes = new WeakMap<readonly KinitirasPolicy[], PolicyIndex>();

const isInNamespace = ({ kind }: KinitirasPolicy) => kind === "OverridePolicy";
const isOverridePolicy = (policy: KinitirasPolicy): policy is OverridePolicy =>
  isInNamespace(policy) || policy.kind === "ClusterOverridePolicy";
const isValidatePolicy = (policy: KinitirasPolicy): policy is ValidatePolicy => policy.kind === "ClusterValidatePolicy";

/** Sorts and indexes policies. Cluster-wide policies come before namespaced ones; then, they are sorted by name. */
const indexPolicies = <P extends KinitirasPolicy>(policies: P[]): IndexedPolicies<P> => {
  const getMetadata = ({ metadata }: P, key: "name" | "namespace") => toText(toMap(metadata)[key]);
  const sorted = policies.toSorted(
    (left, right) =>
      Number(isInNamespace(left)) - Number(isInNamespace(right)) ||
      compareBytes(getMetadata(left, "name"), getMetadata(right, "name")) ||
      compareBytes(getMetadata(left, "namespace"), getMetadata(right, "namespace")),
  );
  const byKey = new Map<string, PositionedPolicy<P>[]>();
  const ofAll: PositionedPolicy<P>[] = [];
  for (const [place, policy] of sorted.entries()) {
    const positioned = { policy, place };
    const selectors = toList(getSelectors(policy));
    if (selectors.length === 0) ofAll.push(positioned);
    else
      for (const key of new Set(selectors.filter(isMap).map(buildSelectorKey))) {
        const found = byKey.get(key);
        if (found === undefined) byKey.set(key, [positioned]);
        else found.push(positioned);
      }
  }
  return { byKey, ofAll };
};

const getSelectors = ({ spec }: KinitirasPolicy): unknown => toMap(spec).resourceSelectors;

/**
 * Returns a selector's key in the index: its kind and name; without a name, its kind and the first of `matchLabels`,
 * such as `v1 Pod app=web`. Selectors may have the same key, so findPolicies evaluates the selectors that it finds.
 */
const buildSelectorKey = (selector: JsonMap): string => {
  const kind = formatKind(selector);
  const { name, labelSelector } = selector;
  if (typeof name === "string" && name !== "") return `${kind} ${name}`;
  const labels = toMap(toMap(labelSelector).matchLabels);
  // A selector with a name that isn't a text selects nothing: it needs no label in its key.
  const [key] = (name ?? "") === "" ? Object.keys(labels) : [];
  return key === undefined ? kind : `${kind} ${key}=${toText(labels[key])}`;
};

/** Lists the index keys of all selectors that may select an object. */
const listObjectKeys = (object: KubernetesObject): string[] => {
  const kind = formatKind(object);
  const { name, labels } = toMap(object.metadata);
  const pairs = Object.entries(toMap(labels));
  return [kind, `${kind} ${toText(name)}`, ...pairs.map(([key, value]) => `${kind} ${key}=${toText(value)}`)];
};

const formatKind = ({ apiVersion, kind }: { apiVersion?: unknown; kind?: unknown }) =>
  `${toText(apiVersion)} ${toText(kind)}`;

/** Finds the override policies that apply to a request, in evaluation order. */
export const findOverridePolicies = (policies: readonly KinitirasPolicy[], request: PolicyRequest): OverridePolicy[] =>
  findPolicies(buildPolicyIndex(policies).overriding, request);

/** Finds the validate policies that apply to a request, in evaluation order. */
export const findValidatePolicies = (policies: readonly KinitirasPolicy[], request: PolicyRequest): ValidatePolicy[] =>
  findPolicies(buildPolicyIndex(policies).validating, request);

/** Finds the policies that apply to a request, in evaluation order. */
const findPolicies = <P extends KinitirasPolicy>({ byKey, ofAll }: IndexedPolicies<P>, request: PolicyRequest): P[] => {
  const { object } = request;
  // Policies don't apply to policies. Otherwise, a policy could refuse its own correction.
  if (isPolicy(object)) return [];
  const namespace = resolveNamespace(request);
  const found = new Set([...ofAll, ...listObjectKeys(object).flatMap((key) => byKey.get(key) ?? [])]);
  return [...found]
    .sort((left, right) => left.place - right.place)
    .map(({ policy }) => policy)
    .filter((policy) => {
      const selectors = getSelectors(policy);
      // A policy with malformed selectors is included, because its evaluation throws an error.
      const isList = Array.isArray(selectors ?? []);
      return isInScope(policy, request) && (!isList || matchesAnySelector(selectors, object, namespace));
    });
};

const isPolicy = ({ apiVersion, kind }: { apiVersion?: unknown; kind?: unknown }) =>
  toText(apiVersion).startsWith(`${policyGroup}/`) &&
  /^(OverridePolicy|Cluster(Override|Validate)Policy)$/.test(toText(kind));

/**
 * Reports whether a policy may apply in the request's namespace. An OverridePolicy applies in its own namespace. It
 * also applies to an object without metadata.namespace if a selector matches the object and names the request's
 * namespace.
 */
const isInScope = (policy: KinitirasPolicy, request: PolicyRequest): boolean => {
  if (!isInNamespace(policy)) return true;
  const namespace = resolveNamespace(request);
  if (namespace === undefined) return false;
  if (namespace === policy.metadata?.namespace) return true;
  if (request.object.metadata?.namespace) return false;
  const selectors = getSelectors(policy);
  if (!Array.isArray(selectors)) return false;
  const withNamespace = selectors.filter((selector) => isMap(selector) && selector.namespace === namespace);
  return withNamespace.length > 0 && matchesAnySelector(withNamespace, request.object, namespace);
};
