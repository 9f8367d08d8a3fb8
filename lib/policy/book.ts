import { compareBytes } from "./bytes.ts";
import type { OverridePolicy, Policy, Subject, ValidatePolicy } from "./kinds.ts";
import { policyGroup } from "./kinds.ts";
import { selects } from "./selectors.ts";
import { isMap } from "./tree.ts";

/** Policies in their order, found by what their selectors name. */
export interface Book {
  readonly overriding: Shelf<OverridePolicy>;
  readonly validating: Shelf<ValidatePolicy>;
}

interface Shelf<P extends Policy> {
  readonly ofKind: ReadonlyMap<string, readonly Placed<P>[]>;
  readonly ofAll: readonly Placed<P>[];
}

interface Placed<P extends Policy> {
  readonly policy: P;
  readonly place: number;
}

/** The book of these policies, made once for a list that stays as it is. */
export const bookOf = (policies: readonly Policy[]): Book => {
  const known = books.get(policies);
  if (known !== undefined) return known;
  const readable = policies.filter(isMap) as Policy[];
  const book = {
    overriding: shelved(readable.filter(isOverride), isInNamespace),
    validating: shelved(readable.filter(isValidate), () => false),
  };
  books.set(policies, book);
  return book;
};

const books = new WeakMap<readonly Policy[], Book>();

const isInNamespace = ({ kind }: Policy) => kind === "OverridePolicy";
const isOverride = (policy: Policy): policy is OverridePolicy =>
  isInNamespace(policy) || policy.kind === "ClusterOverridePolicy";
const isValidate = (policy: Policy): policy is ValidatePolicy => policy.kind === "ClusterValidatePolicy";

/** By name and then by namespace, those of the cluster before those of namespaces. */
const shelved = <P extends Policy>(policies: P[], isLast: (policy: P) => boolean): Shelf<P> => {
  const part = ({ metadata }: P, key: "name" | "namespace") => textOf(isMap(metadata) ? metadata[key] : "");
  const sorted = policies.toSorted(
    (one, other) =>
      Number(isLast(one)) - Number(isLast(other)) ||
      compareBytes(part(one, "name"), part(other, "name")) ||
      compareBytes(part(one, "namespace"), part(other, "namespace")),
  );
  const ofKind = new Map<string, Placed<P>[]>();
  const ofAll: Placed<P>[] = [];
  for (const [place, policy] of sorted.entries()) {
    const selectors = selectorsOf(policy);
    if (!Array.isArray(selectors) || selectors.length === 0) ofAll.push({ policy, place });
    else
      for (const key of new Set(selectors.filter(isMap).map(keyOf))) {
        const placed = ofKind.get(key) ?? [];
        placed.push({ policy, place });
        ofKind.set(key, placed);
      }
  }
  return { ofKind, ofAll };
};

const selectorsOf = ({ spec }: Policy): unknown => (isMap(spec) ? spec.resourceSelectors : undefined);

/** Selectors may share a key by chance: each is looked at again. */
const keyOf = ({ apiVersion, kind }: { apiVersion?: unknown; kind?: unknown }) =>
  `${textOf(apiVersion)} ${textOf(kind)}`;

const textOf = (value: unknown) => (typeof value === "string" ? value : "");

/** The override policies that concern a request, in their order. */
export const overriding = ({ overriding }: Book, subject: Subject): OverridePolicy[] =>
  concerned(overriding, subject, isInScope);

/** The validate policies that concern a request, in their order. */
export const validating = ({ validating }: Book, subject: Subject): ValidatePolicy[] =>
  concerned(validating, subject, () => true);

const concerned = <P extends Policy>(
  { ofKind, ofAll }: Shelf<P>,
  subject: Subject,
  isInScope: (policy: P, subject: Subject) => boolean,
): P[] => {
  const { object } = subject;
  // Otherwise a policy could refuse what mends it.
  if (isPolicy(object)) return [];
  const namespace = namespaceOf(subject);
  return [...ofAll, ...(ofKind.get(keyOf(object)) ?? [])]
    .sort((one, other) => one.place - other.place)
    .map(({ policy }) => policy)
    .filter((policy) => {
      const selectors = selectorsOf(policy);
      // Whom a policy concerns that has no list of them, nobody knows: its evaluation says so.
      const isList = Array.isArray(selectors ?? []);
      return isInScope(policy, subject) && (!isList || selects(selectors, object, namespace));
    });
};

const isPolicy = ({ apiVersion, kind }: { apiVersion?: unknown; kind?: unknown }) =>
  textOf(apiVersion).startsWith(`${policyGroup}/`) &&
  /^(OverridePolicy|Cluster(Override|Validate)Policy)$/.test(textOf(kind));

/** Where an object is or will be: one that is being created may not say it yet. A Namespace is in none. */
export const namespaceOf = ({ object, namespace }: Subject): string | undefined => {
  if (object.apiVersion === "v1" && object.kind === "Namespace") return undefined;
  return object.metadata?.namespace || namespace || undefined;
};

/**
 * A policy of a namespace has no say outside of it, but over an object that doesn't say yet where it will be, if a
 * selector names the namespace.
 */
const isInScope = (policy: OverridePolicy, subject: Subject): boolean => {
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
