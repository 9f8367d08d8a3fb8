import type { AdmissionAttributes } from "#infra/apiserver/admission/types.ts";
import { getOwn, isMap, toList, toMap } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import {
  type AdmissionRequest,
  type KubernetesObject,
  type Operation,
  requireValidReview,
  type UserInfo,
} from "#lib/review.ts";
import type { KindIndex, ResourceKind } from "../../apiserver/kinds/kinds.ts";
import type { Manifest } from "../../manifests/manifests.ts";
import { setNamespace } from "../../manifests/object-store.ts";
import type { CheckRequestOptions } from "./object-evaluation.ts";

/**
 * The order in which `kubectl apply -k` sends objects: dependencies come first. Other kinds keep their order; webhook
 * configurations come last, because the webhooks might refuse other objects.
 */
// biome-ignore format: the order is easier to see in few lines
const first = [
  "Namespace", "ResourceQuota", "StorageClass", "CustomResourceDefinition", "ServiceAccount", "Role", "ClusterRole",
  "RoleBinding", "ClusterRoleBinding", "ConfigMap", "Secret", "Endpoints", "Service", "LimitRange", "PriorityClass",
  "PersistentVolume", "PersistentVolumeClaim", "Deployment", "StatefulSet", "CronJob", "PodDisruptionBudget",
];
const last = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

export const sortForApply = <T>(all: readonly T[], getKind: (object: T) => string): T[] =>
  all.toSorted((left, right) => toRank(getKind(left)) - toRank(getKind(right)));

const toRank = (kind: string): number => {
  if (last.includes(kind)) return first.length + 1;
  return first.includes(kind) ? first.indexOf(kind) : first.length;
};

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
  asking: CheckRequestOptions,
): KubernetesObject => {
  const ownMetadata = isMap(object.metadata) ? object.metadata : {};
  const own = Object.entries(ownMetadata).filter(([key, value]) => !systemFields.has(key) && value !== null);
  // The metadata was checked when the manifest was read.
  return setNamespace({ ...object, metadata: Object.fromEntries(own) }, kind, asking.namespace);
};

export const toObjectKey = (
  { resource: { group, resource } }: ResourceKind,
  { metadata = {} }: KubernetesObject,
): string => JSON.stringify([group, resource, metadata.namespace ?? "", metadata.name ?? ""]);

/** Returns the objects as they would be created, each with its key; manifests of unknown kinds are left out. */
export const normalizeManifestObjects = (
  manifests: readonly Manifest[],
  kinds: KindIndex,
  asking: Omit<CheckRequestOptions, "operation">,
) =>
  manifests.flatMap((manifest) => {
    const kind = kinds.of(String(manifest.object.apiVersion), String(manifest.object.kind));
    if (kind === undefined) return [];
    const object = dropServerFieldsAndSetNamespace(manifest.object, kind, { ...asking, operation: "CREATE" });
    return [{ manifest, object, key: toObjectKey(kind, object) }];
  });

/** Returns the request that creates an object; none for a kind that isn't known. */
export const buildCreation = (object: KubernetesObject, kinds: KindIndex, user: UserInfo): AdmissionRequest[] => {
  const kind = kinds.of(object.apiVersion ?? "", object.kind ?? "");
  const asking = { operation: "CREATE", user, namespace: "" } as const;
  return kind ? [{ uid: "", ...buildAdmissionAttributes(object, null, kind, asking) }] : [];
};

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

export const buildAdmissionAttributes = (
  object: KubernetesObject,
  oldObject: KubernetesObject | null,
  { kind, resource, namespaced }: ResourceKind,
  { operation, user }: CheckRequestOptions,
): AdmissionAttributes => {
  const { name, namespace } = object.metadata ?? {};
  const place = isNamespaceResource(resource) ? name : namespaced ? namespace : undefined;
  return {
    kind,
    resource,
    ...(name && { name }),
    ...(place && { namespace: place }),
    operation,
    userInfo: user,
    object: operation === "DELETE" ? null : object,
    oldObject: operation === "DELETE" ? object : oldObject,
    dryRun: false,
    options: { kind: optionKinds[operation], apiVersion: "meta.k8s.io/v1" },
  };
};

/** The keys that name the elements of a list. */
const elementKeys = ["mountPath", "name", "containerPort"];

/** Returns a value with what it leaves out of an old one, as `kubectl apply` leaves it. */
export const addOmitted = (value: unknown, old: unknown): unknown => {
  if (value === undefined || value === null) return old;
  if (isMap(value) && isMap(old)) {
    const keys = new Set([...Object.keys(old), ...Object.keys(value)]);
    const merged = Object.fromEntries([...keys].map((key) => [key, addOmitted(getOwn(value, key), getOwn(old, key))]));
    const finalizers = new Set([...toList(value.finalizers), ...toList(old.finalizers)]);
    return finalizers.size > 0 ? { ...merged, finalizers: [...finalizers] } : merged;
  }
  if (!Array.isArray(value) || !Array.isArray(old)) return value;
  const key = elementKeys.find((one) => [...value, ...old].every((item) => toMap(item)[one] !== undefined));
  if (key === undefined) return value;
  const byKey = new Map(old.map((item) => [item[key], item]));
  const own = new Set(value.map((item) => item[key]));
  const others = old.filter((item) => !own.has(item[key]));
  return [...value.map((item) => addOmitted(item, byKey.get(item[key]))), ...others];
};
