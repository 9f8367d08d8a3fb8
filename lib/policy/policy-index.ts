import { isMap, type JsonMap } from "../json.ts";
import type { KubernetesObject } from "../review.ts";
import { selects } from "./selectors.ts";
import type { OverridePolicy, Policy, Subject, ValidatePolicy } from "./types.ts";
import { namespaceOf, policyGroup } from "./types.ts";
import { compareBytes } from "./values/texts.ts";

/** Policies in evaluation order, indexed by what their selectors name, so that a request looks at few of them. */
export interface Book {
  readonly overriding: Shelf<OverridePolicy>;
  readonly validating: Shelf<ValidatePolicy>;
}

interface Shelf<P extends Policy> {
  readonly byKey: ReadonlyMap<string, readonly Placed<P>[]>;
  readonly ofAll: readonly Placed<P>[];
}

interface Placed<P extends Policy> {
  readonly policy: P;
  readonly place: number;
}

/** Returns the index of a list of policies. It is cached by the list's identity, so the list must not change. */
export const bookOf = (policies: readonly Policy[]): Book => {
  const known = books.get(policies);
  if (known !== undefined) return known;
  const readable = policies.filter(isMap) as Policy[];
  const book = {
    overriding: shelved(readable.filter(isOverride)),
    validating: shelved(readable.filter(isValidate)),
  };
  books.set(policies, book);
  return book;
};

const books = new WeakMap<readonly Policy[], Book>();

const isInNamespace = ({ kind }: Policy) => kind === "OverridePolicy";
const isOverride = (policy: Policy): policy is OverridePolicy =>
  isInNamespace(policy) || policy.kind === "ClusterOverridePolicy";
const isValidate = (policy: Policy): policy is ValidatePolicy => policy.kind === "ClusterValidatePolicy";

/** Sorts by name, then namespace; policies of the cluster come before those of namespaces. */
const shelved = <P extends Policy>(policies: P[]): Shelf<P> => {
  const part = ({ metadata }: P, key: "name" | "namespace") => textOf(isMap(metadata) ? metadata[key] : "");
  const sorted = policies.toSorted(
    (one, other) =>
      Number(isInNamespace(one)) - Number(isInNamespace(other)) ||
      compareBytes(part(one, "name"), part(other, "name")) ||
      compareBytes(part(one, "namespace"), part(other, "namespace")),
  );
  const byKey = new Map<string, Placed<P>[]>();
  const ofAll: Placed<P>[] = [];
  for (const [place, policy] of sorted.entries()) {
    const placed = { policy, place };
    const selectors = selectorsOf(policy);
    if (!Array.isArray(selectors) || selectors.length === 0) ofAll.push(placed);
    else
      for (const key of new Set(selectors.filter(isMap).map(keyOf))) {
        const found = byKey.get(key);
        if (found === undefined) byKey.set(key, [placed]);
        else found.push(placed);
      }
  }
  return { byKey, ofAll };
};

const selectorsOf = ({ spec }: Policy): unknown => (isMap(spec) ? spec.resourceSelectors : undefined);

/**
 * Returns a selector's index key: the kind with the name or, without a name, the first of `matchLabels`. Different
 * selectors may share a key, so `concerned` evaluates each of them again.
 */
const keyOf = (selector: JsonMap): string => {
  const kind = kindOf(selector);
  const { name, labelSelector } = selector;
  if (typeof name === "string" && name !== "") return `${kind} ${name}`;
  const labels = isMap(labelSelector) ? labelSelector.matchLabels : undefined;
  const [key] = (name ?? "") === "" && isMap(labels) ? Object.keys(labels) : [];
  return key === undefined || !isMap(labels) ? kind : `${kind} ${key}=${textOf(labels[key])}`;
};

const keysOf = (object: KubernetesObject): string[] => {
  const kind = kindOf(object);
  const { name, labels } = isMap(object.metadata) ? object.metadata : {};
  const pairs = isMap(labels) ? Object.entries(labels) : [];
  return [kind, `${kind} ${textOf(name)}`, ...pairs.map(([key, value]) => `${kind} ${key}=${textOf(value)}`)];
};

const kindOf = ({ apiVersion, kind }: { apiVersion?: unknown; kind?: unknown }) =>
  `${textOf(apiVersion)} ${textOf(kind)}`;

const textOf = (value: unknown) => (typeof value === "string" ? value : "");

export const overriding = ({ overriding }: Book, subject: Subject): OverridePolicy[] => concerned(overriding, subject);

export const validating = ({ validating }: Book, subject: Subject): ValidatePolicy[] => concerned(validating, subject);

const concerned = <P extends Policy>({ byKey, ofAll }: Shelf<P>, subject: Subject): P[] => {
  const { object } = subject;
  // Otherwise a policy could refuse its own correction.
  if (isPolicy(object)) return [];
  const namespace = namespaceOf(subject);
  const found = new Set([...ofAll, ...keysOf(object).flatMap((key) => byKey.get(key) ?? [])]);
  return [...found]
    .sort((one, other) => one.place - other.place)
    .map(({ policy }) => policy)
    .filter((policy) => {
      const selectors = selectorsOf(policy);
      // A policy whose selectors are no list is included, so that its evaluation throws.
      const isList = Array.isArray(selectors ?? []);
      return isInScope(policy, subject) && (!isList || selects(selectors, object, namespace));
    });
};

const isPolicy = ({ apiVersion, kind }: { apiVersion?: unknown; kind?: unknown }) =>
  textOf(apiVersion).startsWith(`${policyGroup}/`) &&
  /^(OverridePolicy|Cluster(Override|Validate)Policy)$/.test(textOf(kind));

/**
 * Reports whether a policy may apply in the request's namespace. An OverridePolicy applies in its own namespace, and to
 * an object without metadata.namespace if a selector that names the request's namespace matches it.
 */
const isInScope = (policy: Policy, subject: Subject): boolean => {
  if (!isInNamespace(policy)) return true;
  const namespace = namespaceOf(subject);
  if (namespace === undefined) return false;
  if (namespace === policy.metadata?.namespace) return true;
  if (subject.object.metadata?.namespace) return false;
  const selectors = selectorsOf(policy);
  if (!Array.isArray(selectors)) return false;
  const naming = selectors.filter((selector) => isMap(selector) && selector.namespace === namespace);
  return naming.length > 0 && selects(naming, subject.object, namespace);
};
