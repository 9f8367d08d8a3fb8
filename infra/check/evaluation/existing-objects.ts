import { toAccessAnswer } from "#lib/capabilities.ts";
import { Failure } from "#lib/failure.ts";
import { freezeDeep } from "#lib/json.ts";
import { createMemoryLedger, openRuleLedger } from "#lib/ledger.ts";
import type { AccessAnswer, AccessQuestion, Capabilities, ResourceType } from "#lib/needs.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { isSelected } from "#lib/objects/selection.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { listInitialNamespaceObjects } from "../../apiserver/initial-objects.ts";
import { isCustomResourceGroup, type KindIndex } from "../../apiserver/kinds/kinds.ts";
import { isSecret } from "../../diff/secret-values.ts";

/** The objects that exist during a check: the given ones and those admitted since. */
export interface ExistingObjects {
  find(kind: ResourceType, name: string, namespace?: string): KubernetesObject | undefined;
  put(kind: ResourceType, object: KubernetesObject): void;
  remove(kind: ResourceType, name: string, namespace?: string): void;
  /** Returns all objects of a namespace. */
  listAll(namespace: string): KubernetesObject[];
  /** Returns what rules may ask; calls `tell` with a sentence for each question without an answer here. */
  capabilities(tell: (sentence: string) => void): Capabilities;
}

/** The change of an object that is undecided, so that the object may be another one, or not exist. */
const undecidedChanges = new WeakMap<object, string>();

/** Marks an object: whether it is in the cluster as it is here depends on an undecided request. */
export const markUndecidedChange = (object: KubernetesObject, operation: Operation): void => {
  const change = { CREATE: "creation", DELETE: "deletion" }[String(operation)] ?? "update";
  undecidedChanges.set(object, `its ${change} is undecided`);
};

/** Returns why it isn't known whether an object is in the cluster as it is here. */
export const describeUndecidedChange = (object: KubernetesObject): string | undefined => undecidedChanges.get(object);

type RecordedAccess = Omit<AccessQuestion, "user"> & { user?: string; groups?: string[] } & AccessAnswer;

type ObjectsByNamespace = Map<string, Map<string, KubernetesObject>>;

interface Store extends Pick<ExistingObjects, "find" | "put" | "remove" | "listAll"> {
  list: Capabilities["list"];
  reviews: readonly RecordedAccess[];
}

/** Opens a cluster of this name with these kinds and without objects. Calls `note` when an object with unknown content is read. */
export const createEmptyObjectStore = (
  cluster: string,
  kinds: KindIndex,
  note: (sentence: string) => void,
): ExistingObjects => {
  const store = openStore(kinds, note);
  const ledger = createMemoryLedger();
  return { ...store, capabilities: (tell) => toCapabilities(store, cluster, kinds, ledger, tell) };
};

const openStore = (kinds: KindIndex, note: (sentence: string) => void): Store => {
  const objectsByKind = new Map<string, ObjectsByNamespace>();
  const reviews: RecordedAccess[] = [];
  const getObjects = ({ group, resource }: ResourceType): ObjectsByNamespace => {
    const name = `${group}/${resource}`;
    const shelf = objectsByKind.get(name) ?? new Map();
    objectsByKind.set(name, shelf);
    return shelf;
  };
  /** Objects that controllers create and whose content is unknown; reading one calls `note`. */
  const assumed = new WeakSet<object>();
  const noteAssumed = <T extends KubernetesObject | undefined>(object: T): T => {
    if (object !== undefined && assumed.has(object))
      note(
        `what the ${object.kind} ${object.metadata?.name} of a namespace contains, which controllers create, isn't known here; it is treated as empty`,
      );
    return object;
  };
  const put = (kind: ResourceType, object: KubernetesObject) => {
    const { namespace = "", name = "" } = object.metadata ?? {};
    const review = readReview(object);
    if (review) reviews.push(review);
    const shelf = getObjects(kind);
    const box = shelf.get(namespace) ?? new Map<string, KubernetesObject>();
    shelf.set(namespace, box.set(name, freezeDeep(object)));
    if (kind.group !== "" || kind.resource !== "namespaces") return;
    for (const namedObject of listInitialNamespaceObjects(name)) {
      const its = kinds.of("v1", namedObject.kind ?? "")?.resource;
      if (its === undefined || getObjects(its).get(name)?.has(namedObject.metadata.name)) continue;
      put(its, namedObject);
      assumed.add(namedObject);
    }
  };
  return {
    reviews,
    find: (kind, name, namespace = "") => noteAssumed(getObjects(kind).get(namespace)?.get(name)),
    put,
    remove: (kind, name, namespace = "") => void getObjects(kind).get(namespace)?.delete(name),
    listAll: (namespace) => [...objectsByKind.values()].flatMap((shelf) => [...(shelf.get(namespace)?.values() ?? [])]),
    list: async (kind, namespace, { most, labels } = {}) => {
      const shelf = getObjects(kind);
      const boxes = namespace === undefined ? listValuesInOrder(shelf) : [shelf.get(namespace) ?? new Map()];
      // The API server sorts lists by namespace and name.
      const objects = boxes.flatMap((box) => listValuesInOrder(box));
      const selected = objects.filter(({ metadata }) => !labels || isSelected(labels, metadata?.labels));
      return selected.slice(0, most).map(noteAssumed);
    },
  };
};

const toCapabilities = (
  { find, put, list, reviews }: Store,
  cluster: string,
  kinds: KindIndex,
  ledger: ReturnType<typeof createMemoryLedger>,
  tell: (sentence: string) => void,
): Capabilities => {
  const giveUp = (sentence: string): never => {
    tell(sentence);
    throw new Failure(503, sentence);
  };
  const requireDecided = <T extends KubernetesObject | undefined>({ resource }: ResourceType, object: T): T => {
    const reason = object && describeUndecidedChange(object);
    if (reason) tell(`whether ${resource} "${object.metadata?.name}" exists as it is here, because ${reason}`);
    return object;
  };
  const refuseHttp = async ({ url }: { url: string }) => giveUp(`it asks ${getHost(url)}, and nothing is asked here`);
  return {
    get: async (kind, name, namespace) => requireDecided(kind, find(kind, name, namespace)),
    list: async (kind, ...more) => (await list(kind, ...more)).map((object) => requireDecided(kind, object)),
    create: async (kind, object) => {
      const { namespace, name = "" } = object.metadata ?? {};
      if (requireDecided(kind, find(kind, name, namespace)) !== undefined) return "exists";
      put(kind, structuredClone(object));
      return "created";
    },
    updateStatus: async (kind, object) => {
      const changed = structuredClone(object);
      const before = find(kind, object.metadata?.name ?? "", object.metadata?.namespace);
      const reason = before && describeUndecidedChange(before);
      if (reason) undecidedChanges.set(changed, reason);
      put(kind, changed);
      return "updated";
    },
    may: async (access) => {
      const { user, verb, resource, subresource, namespace } = access;
      // Every API server asks no other authorizer about this group.
      if (user.groups?.includes("system:masters")) return { allowed: true };
      const what = [resource, subresource].filter(Boolean).join("/");
      const where = namespace ? ` in ${namespace}` : "";
      const found =
        reviews.find((review) => matchesAccess(review, access)) ??
        giveUp(
          `whether ${user.username} may ${verb} ${what}${where}, only the cluster says, or a SubjectAccessReview with its status in --state`,
        );
      return toAccessAnswer(found);
    },
    discover: async (groupVersion) => {
      const found = kinds.discover(groupVersion);
      if (found !== undefined || !isCustomResourceGroup(splitApiVersion(groupVersion).group)) return found;
      return giveUp(
        `which kinds there are in ${groupVersion}, only the cluster says, or its CustomResourceDefinitions`,
      );
    },
    https: refuseHttp,
    http: refuseHttp,
    aws: async (action) => giveUp(`it asks AWS by ${action}, and nothing is asked here`),
    cue: (source, evaluate) => evaluate(source),
    cluster,
    ledger: (rule) => openRuleLedger(ledger, rule),
    count: () => {},
  };
};

const listValuesInOrder = <T>(map: ReadonlyMap<string, T>): T[] =>
  [...map].sort(([left], [right]) => (left < right ? -1 : 1)).map(([, value]) => value);

const getHost = (url: string) => (URL.canParse(url) ? new URL(url).host : "an address");

/** Reads a SubjectAccessReview with its status, as `kubectl create -f review.yaml -o yaml` prints it. */
const readReview = ({ apiVersion = "", kind, ...object }: KubernetesObject): RecordedAccess | undefined => {
  if (kind !== "SubjectAccessReview" || splitApiVersion(apiVersion).group !== "authorization.k8s.io") return undefined;
  const { spec, status } = object as { spec?: unknown; status?: unknown };
  const { user, groups, resourceAttributes } = Object(spec);
  const { allowed, reason, evaluationError } = Object(status);
  if (typeof allowed !== "boolean") return undefined;
  return { ...Object(resourceAttributes), user, groups, allowed, reason, evaluationError };
};

/**
 * Reports whether a recorded access review answers an access question. A field that is absent from the recorded
 * review, or "*" in it, matches every value.
 */
const matchesAccess = (review: RecordedAccess, access: AccessQuestion): boolean => {
  const { user, groups = [], allowed: _, reason: __, evaluationError: ___, ...question } = review;
  const isThem = user === undefined || user === access.user.username;
  const isThose = groups.every((group) => access.user.groups?.includes(group));
  const fields = Object.entries(question) as [keyof AccessQuestion, unknown][];
  return isThem && isThose && fields.every(([key, value]) => value === "*" || (access[key] ?? "") === (value ?? ""));
};

/** Returns capabilities that add each Secret that they read to `found`. */
export const noteSecretsRead = (capabilities: Capabilities, found: Set<object>): Capabilities => {
  const note = <T>(object: T): T => {
    if (isSecret(object)) found.add(Object(object));
    return object;
  };
  return {
    ...capabilities,
    get: async (...question) => note(await capabilities.get(...question)),
    list: async (...question) => (await capabilities.list(...question)).map(note),
    ...(capabilities.anew && {
      anew: () => {
        const fresh = capabilities.anew?.();
        return fresh && noteSecretsRead(fresh, found);
      },
    }),
  };
};
