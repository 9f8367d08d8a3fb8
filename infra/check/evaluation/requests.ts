import { isDeepStrictEqual } from "node:util";
import type { AdmissionAttributes } from "#infra/apiserver/admission/types.ts";
import { getOwn, isMap, type JsonMap, toMap } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import {
  type AdmissionRequest,
  type KubernetesObject,
  type Operation,
  requireValidReview,
  type UserInfo,
} from "#lib/review.ts";
import { isCustomResourceGroup, type KindIndex, type ResourceKind } from "../../apiserver/kinds/kinds.ts";
import type { Manifest } from "../../manifests/manifests.ts";
import { setNamespace } from "../../manifests/object-store.ts";
import type { CheckRequestOptions } from "./object-evaluation.ts";

/**
 * The order in which `kubectl apply -k` sends objects: dependencies come first. Other kinds keep their order; webhook
 * configurations come last, because the webhooks might refuse other objects.
 */
// biome-ignore format: the order is easier to see in few lines
const sentFirst = [
  "Namespace", "ResourceQuota", "StorageClass", "CustomResourceDefinition", "ServiceAccount", "Role", "ClusterRole",
  "RoleBinding", "ClusterRoleBinding", "ConfigMap", "Secret", "Endpoints", "Service", "LimitRange", "PriorityClass",
  "PersistentVolume", "PersistentVolumeClaim", "Deployment", "StatefulSet", "CronJob", "PodDisruptionBudget",
];
const sentLast = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

export const sortForApply = <T>(all: readonly T[], getKind: (object: T) => string): T[] =>
  all.toSorted((left, right) => toRank(getKind(left)) - toRank(getKind(right)));

const ranks = new Map<string, number>([
  ...sentFirst.map((kind, index) => [kind, index] as const),
  ...sentLast.map((kind) => [kind, sentFirst.length + 1] as const),
]);
const toRank = (kind: string): number => ranks.get(kind) ?? sentFirst.length;

/** Returns the request of an AdmissionReview that was given as a manifest. Throws if it is malformed. */
export const readReviewManifest = ({ object }: Manifest): AdmissionAttributes => {
  const {
    uid: _,
    requestKind: __,
    requestResource: ___,
    requestSubResource: ____,
    ...attributes
  } = requireValidReview(object).request;
  return attributes;
};

export const isReview = ({ object: { apiVersion, kind } }: Manifest): boolean =>
  kind === "AdmissionReview" && splitApiVersion(String(apiVersion)).group === "admission.k8s.io";

/** Returns a manifest's object with the namespace that it gets, without the fields that only the API server sets. */
export const dropServerFieldsAndSetNamespace = (
  object: Record<string, unknown>,
  kind: ResourceKind,
  requestOptions: CheckRequestOptions,
): KubernetesObject => {
  // The metadata was checked when the manifest was read.
  const metadata = { ...toMap(object.metadata) };
  for (const key of Object.keys(metadata)) if (systemFields.has(key) || metadata[key] === null) delete metadata[key];
  return setNamespace({ ...object, metadata }, kind, requestOptions.namespace);
};

/** Reports whether metadata has fields that only the API server sets. */
export const hasServerFields = (metadata: unknown): boolean =>
  Object.keys(toMap(metadata)).some((key) => systemFields.has(key));

export const toObjectKey = (
  { resource: { group, resource } }: ResourceKind,
  { metadata = {} }: KubernetesObject,
): string => JSON.stringify([group, resource, metadata.namespace ?? "", metadata.name ?? ""]);

/** Returns the objects as they would be created, each with its key; manifests of unknown kinds are left out. */
export const normalizeManifestObjects = (
  manifests: readonly Manifest[],
  kinds: KindIndex,
  requestOptions: Omit<CheckRequestOptions, "operation">,
) =>
  manifests.flatMap((manifest) => {
    const kind = kinds.of(String(manifest.object.apiVersion), String(manifest.object.kind));
    if (kind === undefined) return [];
    const object = dropServerFieldsAndSetNamespace(manifest.object, kind, { ...requestOptions, operation: "CREATE" });
    return [{ manifest, object, key: toObjectKey(kind, object) }];
  });

/** Returns the request that creates an object; none for a kind that isn't known. */
export const buildCreation = (object: KubernetesObject, kinds: KindIndex, user: UserInfo): AdmissionRequest[] => {
  const kind = kinds.of(object.apiVersion ?? "", object.kind ?? "");
  const requestOptions = { operation: "CREATE", user, namespace: "" } as const;
  return kind ? [{ uid: "", ...buildAdmissionAttributes(object, null, kind, requestOptions) }] : [];
};

/** The members of metadata that the API server sets, so an apply doesn't change them. */
const systemFields = new Set([
  "uid",
  "creationTimestamp",
  "deletionTimestamp",
  "deletionGracePeriodSeconds",
  "selfLink",
  "resourceVersion",
  "managedFields",
  "generation",
]);

export const isNamespaceResource = ({ group, resource }: { group: string; resource: string }): boolean =>
  group === "" && resource === "namespaces";

const optionKinds: Partial<Record<Operation, string>> = {
  CREATE: "CreateOptions",
  UPDATE: "UpdateOptions",
  DELETE: "DeleteOptions",
};

/** Returns what a request has before admission: `oldObject` is the stored object, null if the request creates it. */
export const buildAdmissionAttributes = (
  object: KubernetesObject,
  oldObject: KubernetesObject | null,
  { kind, resource, namespaced }: ResourceKind,
  { operation, user }: CheckRequestOptions,
): AdmissionAttributes => {
  const { name, namespace } = object.metadata ?? {};
  // The namespace of the request for a Namespace is that Namespace.
  const ownNamespace = namespaced ? namespace : undefined;
  const requestNamespace = isNamespaceResource(resource) ? name : ownNamespace;
  return {
    kind,
    resource,
    ...(name && { name }),
    ...(requestNamespace && { namespace: requestNamespace }),
    operation,
    userInfo: user,
    object: operation === "DELETE" ? null : object,
    oldObject: operation === "DELETE" ? object : oldObject,
    dryRun: false,
    options: { kind: optionKinds[operation], apiVersion: "meta.k8s.io/v1" },
  };
};

/**
 * The keys by which an API server merges the elements of these lists: `patchMergeKey` in k8s.io/api. A list that isn't
 * named here is replaced as a whole. A container's ports are merged by the number alone, though elements with different
 * protocols may have the same one.
 */
const mergeKeys: Readonly<Record<string, string>> = {
  containers: "name",
  initContainers: "name",
  ephemeralContainers: "name",
  env: "name",
  ports: "containerPort",
  volumeMounts: "mountPath",
  volumeDevices: "devicePath",
  volumes: "name",
  resourceClaims: "name",
  imagePullSecrets: "name",
  schedulingGates: "name",
  hostAliases: "ip",
  topologySpreadConstraints: "topologyKey",
  secrets: "name",
  conditions: "type",
  ownerReferences: "uid",
  drivers: "name",
  webhooks: "name",
  matchConditions: "name",
  variables: "name",
};

/** Fields whose maps lose the members that a manifest leaves out: `retainKeys` in k8s.io/api. */
const fieldsWithRetainKeys = ["volumes", "resourceClaims", "strategy"];

/** Adds to an object the fields that only the stored object has, because `kubectl apply` keeps them. */
export const addOmitted = (object: KubernetesObject, stored: KubernetesObject): KubernetesObject => {
  const { apiVersion = "", kind } = object;
  const keysOfKind = kind === "Service" ? { ...mergeKeys, ports: "port" } : mergeKeys;
  // The lists of custom resources are replaced, because an apply knows no merge keys for them.
  const keys = isCustomResourceGroup(splitApiVersion(apiVersion).group) ? undefined : keysOfKind;
  return mergeMaps({ ...object }, { ...stored }, /* field */ "", keys);
};

/** The keys of the lists that are merged; undefined for a custom resource, whose lists are replaced. */
type MergeKeys = Readonly<Record<string, string>> | undefined;

/** Returns a field's value after an apply. `keys` says how to merge lists; without it, lists are replaced. */
const mergeValues = (value: unknown, old: unknown, field: string, keys: MergeKeys): unknown => {
  if (value === undefined) return old;
  // A null in a manifest removes the field.
  if (value === null) return undefined;
  if (isMap(value) && isMap(old)) return mergeMaps(value, old, field, keys);
  if (keys === undefined || !Array.isArray(value) || !Array.isArray(old)) return value;
  if (field === "finalizers") {
    // The elements are strings. They are merged as maps with one member, which is their key.
    const toMaps = (list: unknown[]) => list.map((text) => ({ text }));
    return mergeLists(toMaps(value), toMaps(old), field, "text", keys).map(({ text }) => text);
  }
  const key = getOwn(keys, field) as string | undefined;
  const isMerged = key !== undefined && [...value, ...old].every((element) => getOwn(element, key) !== undefined);
  return isMerged ? mergeLists(value, old, field, key, keys) : value;
};

/** Returns a map as it is after an apply. Some fields of built-in kinds lose the members that a manifest omits. */
const mergeMaps = (value: JsonMap, old: JsonMap, field: string, keys: MergeKeys): JsonMap => {
  const isCustomResource = keys === undefined;
  const dropsOmitted = !isCustomResource && fieldsWithRetainKeys.includes(field);
  const names = new Set([...(dropsOmitted ? [] : Object.keys(old)), ...Object.keys(value)]);
  const merged = [...names].map((name) => [name, mergeValues(getOwn(value, name), getOwn(old, name), name, keys)]);
  return Object.fromEntries(merged.filter(([, member]) => member !== undefined));
};

/**
 * Merges lists in which several elements may have the same key, such as two ports 53. kubectl compares the first one in
 * the manifest with the first one that is stored, the second with the second, and sends the differences. The API server
 * finds an element only by its key, so it makes all these changes in the first port 53.
 */
const mergeLists = (value: JsonMap[], old: JsonMap[], field: string, key: string, keys: MergeKeys): JsonMap[] => {
  const merged = [...old];
  const firstPlaces = indexByKey(old, key);
  const storedByKey = Map.groupBy(old, (element) => element[key]);
  const counts = new Map<unknown, number>();
  let isUnchanged = value.length === old.length && value.every((element, index) => element[key] === old[index]?.[key]);
  for (const element of value) {
    const name = element[key];
    const count = counts.get(name) ?? 0;
    counts.set(name, count + 1);
    const counterpart = storedByKey.get(name)?.[count];
    const mergedElement = counterpart ? mergeMaps(element, counterpart, field, keys) : element;
    if (isDeepStrictEqual(mergedElement, counterpart)) continue;
    isUnchanged = false;
    const place = firstPlaces.get(name) ?? merged.length;
    firstPlaces.set(name, place);
    const firstElement = merged[place];
    // Usually, the key is unique: the element is added, or takes the place of its counterpart.
    if (firstElement === undefined || firstElement === counterpart) {
      merged[place] = mergedElement;
      continue;
    }
    // Another element has the key: what kubectl sends for this one changes the first one.
    const sentDifferences = Object.entries(element).filter(
      ([member]) => !isDeepStrictEqual(getOwn(mergedElement, member), getOwn(counterpart, member)),
    );
    merged[place] = mergeMaps(Object.fromEntries(sentDifferences), firstElement, field, keys);
  }
  // kubectl sends the order of a list only with a change of the list.
  return isUnchanged ? merged : sortMerged(merged, value, old, key);
};

/**
 * Sorts merged elements in the order of the manifest's list (`value`). Elements that only the stored list (`old`) has
 * stay before an element that they precede there. For instance, value [b, a] and old [x, a, y, b] give [x, y, b, a].
 */
const sortMerged = (merged: readonly JsonMap[], value: JsonMap[], old: JsonMap[], key: string): JsonMap[] => {
  const [inManifest, inStored] = [indexByKey(value, key), indexByKey(old, key)];
  // An element without a place in a list gets NaN, so that each comparison with `<` is false.
  const getPlace = (places: Map<unknown, number>, element: JsonMap) => places.get(element[key]) ?? Number.NaN;
  const isStoredBefore = (left: JsonMap, right: JsonMap) => getPlace(inStored, left) < getPlace(inStored, right);
  const own = merged.filter((element) => inManifest.has(element[key]));
  const storedOnly = merged.filter((element) => !inManifest.has(element[key]));
  const sorted: JsonMap[] = [];
  for (const element of own.toSorted((left, right) => getPlace(inManifest, left) - getPlace(inManifest, right))) {
    while (storedOnly[0] && isStoredBefore(storedOnly[0], element)) sorted.push(...storedOnly.splice(0, 1));
    sorted.push(element);
  }
  return [...sorted, ...storedOnly];
};

/** Returns the first index of each key. */
const indexByKey = (list: readonly JsonMap[], key: string): Map<unknown, number> =>
  new Map(list.map((element, index): [unknown, number] => [element[key], index]).toReversed());
