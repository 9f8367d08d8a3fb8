import { toAccessAnswer } from "#lib/core/capabilities.ts";
import { freezeDeep, toMap } from "#lib/json.ts";
import type { AccessAnswer, AccessQuestion, Capabilities, ResourceType } from "#lib/needs.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { isSelected } from "#lib/objects/selection.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults, prepareForStorage } from "../apiserver/defaults/defaults.ts";
import { listInitialNamespaceObjects } from "../apiserver/initial-objects.ts";
import type { KindIndex, ResourceKind } from "../apiserver/kinds/kinds.ts";

/** Stores the objects of an imitated API server. */
export interface ObjectStore {
  find(kind: ResourceType, name: string, namespace?: string): KubernetesObject | undefined;
  /** Stores an object. With a Namespace, it also stores the objects that controllers create in each namespace. */
  put(kind: ResourceType, object: KubernetesObject): void;
  remove(kind: ResourceType, name: string, namespace?: string): void;
  /** Returns all objects of a namespace. */
  listAll(namespace: string): KubernetesObject[];
  list: Capabilities["list"];
  /** Returns the answer to an access review, if a stored SubjectAccessReview with a status has it. */
  findAccess(access: AccessQuestion): AccessAnswer | undefined;
}

type ResourceAttributes = Partial<Omit<AccessQuestion, "user">>;
type RecordedAccess = ResourceAttributes & { user?: string; groups?: string[] } & AccessAnswer;

type ObjectsByNamespace = Map<string, Map<string, KubernetesObject>>;

/** Sets the namespace of an object to `otherwise` if it has none. Removes the namespace if the kind has none. */
export const setNamespace = <T extends object>(
  object: T & { metadata?: unknown },
  { namespaced }: Pick<ResourceKind, "namespaced">,
  otherwise: string,
): T => {
  const { namespace, ...metadata } = toMap(object.metadata);
  return { ...object, metadata: { ...metadata, ...(namespaced && { namespace: namespace || otherwise }) } };
};

/** Returns an object as an API server stores it, with the defaults of its kind. */
export const toStoredObject = (object: KubernetesObject, kubernetes: string | undefined): KubernetesObject =>
  prepareForStorage(fillDefaults(object, kubernetes).object, kubernetes);

/** Creates an empty store. It calls `note` if an object is read whose content is not known. */
export const openObjectStore = (kinds: KindIndex, note: (sentence: string) => void): ObjectStore => {
  const objectsByKind = new Map<string, ObjectsByNamespace>();
  const reviews: RecordedAccess[] = [];
  const getObjects = ({ group, resource }: ResourceType): ObjectsByNamespace => {
    // Most objects are of the core group. A text that isn't built anew is found faster.
    const name = group === "" ? resource : `${group}/${resource}`;
    const objects = objectsByKind.get(name) ?? new Map();
    objectsByKind.set(name, objects);
    return objects;
  };
  /** Objects that controllers create, and whose content is not known here. */
  const assumed = new WeakSet<object>();
  /** Returns an object for a rule: frozen, because all rules get the same object. Notes what is assumed of it. */
  const handOut = <T extends KubernetesObject | undefined>(object: T): T => {
    if (object !== undefined && assumed.has(object))
      note(
        `controllers create the ${object.kind} ${object.metadata?.name} in each namespace; what it contains isn't known here, so it is treated as empty`,
      );
    return Object.isFrozen(object) ? object : freezeDeep(object);
  };
  const put = (kind: ResourceType, object: KubernetesObject) => {
    const { namespace = "", name = "" } = object.metadata ?? {};
    const review = readReview(object);
    if (review) reviews.push(review);
    const byNamespace = getObjects(kind);
    const byName = byNamespace.get(namespace) ?? new Map<string, KubernetesObject>();
    byNamespace.set(namespace, byName.set(name, object));
    if (kind.group !== "" || kind.resource !== "namespaces") return;
    for (const namedObject of listInitialNamespaceObjects(name)) {
      const resource = kinds.of("v1", namedObject.kind ?? "")?.resource;
      if (resource === undefined || getObjects(resource).get(name)?.has(namedObject.metadata.name)) continue;
      put(resource, namedObject);
      assumed.add(namedObject);
    }
  };
  return {
    find: (kind, name, namespace = "") => handOut(getObjects(kind).get(namespace)?.get(name)),
    findAccess: (access) => {
      // Every API server allows everything to this group, before it asks other authorizers.
      if (access.user.groups?.includes("system:masters")) return { allowed: true };
      const found = reviews.find((review) => matchesAccess(review, access));
      return found && toAccessAnswer(found);
    },
    put,
    remove: (kind, name, namespace = "") => void getObjects(kind).get(namespace)?.delete(name),
    listAll: (namespace) =>
      [...objectsByKind.values()].flatMap((byNamespace) => [...(byNamespace.get(namespace)?.values() ?? [])]),
    list: async (kind, namespace, { most, labels } = {}) => {
      const byNamespace = getObjects(kind);
      const read = namespace === undefined ? listValuesInOrder(byNamespace) : [byNamespace.get(namespace) ?? new Map()];
      // The API server sorts lists by namespace and name.
      const objects = read.flatMap((byName) => listValuesInOrder(byName));
      const selected = objects.filter(({ metadata }) => !labels || isSelected(labels, metadata?.labels));
      return selected.slice(0, most).map(handOut);
    },
  };
};

const listValuesInOrder = <T>(map: ReadonlyMap<string, T>): T[] =>
  [...map].sort(([left], [right]) => (left < right ? -1 : 1)).map(([, value]) => value);

interface ReviewSpec {
  user?: string;
  groups?: string[];
  resourceAttributes?: ResourceAttributes;
}

/** Reads a SubjectAccessReview with its status, as `kubectl create -f review.yaml -o yaml` prints it. */
const readReview = ({ apiVersion = "", kind, ...object }: KubernetesObject): RecordedAccess | undefined => {
  if (kind !== "SubjectAccessReview" || splitApiVersion(apiVersion).group !== "authorization.k8s.io") return undefined;
  const { spec, status } = object as { spec?: ReviewSpec | null; status?: Partial<AccessAnswer> | null };
  const { user, groups, resourceAttributes } = spec ?? {};
  const { allowed, reason, evaluationError } = status ?? {};
  if (typeof allowed !== "boolean") return undefined;
  return { ...resourceAttributes, user, groups, allowed, reason, evaluationError };
};

/**
 * Reports whether a recorded access review answers an access question. A field that is absent from the recorded
 * review, or "*" in it, matches every value.
 */
const matchesAccess = (review: RecordedAccess, access: AccessQuestion): boolean => {
  const { user, groups = [], allowed: _, reason: __, evaluationError: ___, ...question } = review;
  const hasUser = user === undefined || user === access.user.username;
  const hasGroups = groups.every((group) => access.user.groups?.includes(group));
  const fields = Object.entries(question) as [keyof AccessQuestion, unknown][];
  return hasUser && hasGroups && fields.every(([key, value]) => value === "*" || (access[key] ?? "") === (value ?? ""));
};
