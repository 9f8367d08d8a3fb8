import type { Resource, Served, World } from "#lib/needs.ts";
import { plural, type Recorded, recorded } from "#lib/recorded.ts";
import type { KubernetesObject } from "#lib/review.ts";

/** What Kubernetes 1.36 serves by itself, by group and version: the kinds that are in namespaces, and the others. */
const born: Record<string, [inNamespaces: string, others: string]> = {
  v1: [
    "Binding ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount",
    "ComponentStatus Namespace Node PersistentVolume",
  ],
  "admissionregistration.k8s.io/v1": [
    "",
    "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
  ],
  "apiextensions.k8s.io/v1": ["", "CustomResourceDefinition"],
  "apiregistration.k8s.io/v1": ["", "APIService"],
  "apps/v1": ["ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet", ""],
  "authentication.k8s.io/v1": ["", "SelfSubjectReview TokenReview"],
  "authorization.k8s.io/v1": [
    "LocalSubjectAccessReview",
    "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
  ],
  "autoscaling/v1": ["HorizontalPodAutoscaler", ""],
  "autoscaling/v2": ["HorizontalPodAutoscaler", ""],
  "batch/v1": ["CronJob Job", ""],
  "certificates.k8s.io/v1": ["", "CertificateSigningRequest"],
  "coordination.k8s.io/v1": ["Lease", ""],
  "discovery.k8s.io/v1": ["EndpointSlice", ""],
  "events.k8s.io/v1": ["Event", ""],
  "flowcontrol.apiserver.k8s.io/v1": ["", "FlowSchema PriorityLevelConfiguration"],
  "networking.k8s.io/v1": ["Ingress NetworkPolicy", "IPAddress IngressClass ServiceCIDR"],
  "node.k8s.io/v1": ["", "RuntimeClass"],
  "policy/v1": ["PodDisruptionBudget", ""],
  "rbac.authorization.k8s.io/v1": ["Role RoleBinding", "ClusterRole ClusterRoleBinding"],
  "resource.k8s.io/v1": ["ResourceClaim ResourceClaimTemplate", "DeviceClass ResourceSlice"],
  "scheduling.k8s.io/v1": ["", "PriorityClass"],
  "storage.k8s.io/v1": ["CSIStorageCapacity", "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass"],
};

/**
 * Which kinds there are, as far as objects tell: Kubernetes' own, those that a CustomResourceDefinition among them defines,
 * and those that they have themselves, which are in namespaces where one of them is.
 */
export const servedAmong = (objects: readonly KubernetesObject[]): Record<string, Served[]> => {
  const known = new Map<string, Map<string, Served>>();
  const add = (version: string, served: Served) => {
    const kinds = known.get(version) ?? new Map<string, Served>();
    known.set(version, kinds);
    if (!kinds.has(served.kind)) kinds.set(served.kind, served);
  };
  for (const [version, [inside, others]] of Object.entries(born))
    for (const [kinds, namespaced] of [[inside, true] as const, [others, false] as const])
      for (const kind of kinds.split(" ").filter(Boolean)) add(version, { resource: plural(kind), kind, namespaced });
  for (const object of objects) for (const [version, served] of definedBy(object)) add(version, served);
  // One that has a namespace tells more than one that has none.
  const telling = objects.toSorted((one, other) => Number(isInside(other)) - Number(isInside(one)));
  for (const { apiVersion = "", kind = "", ...object } of telling)
    add(apiVersion, { resource: plural(kind), kind, namespaced: isInside(object) });
  return Object.fromEntries([...known].map(([version, kinds]) => [version, [...kinds.values()]]));
};

const isInside = ({ metadata }: KubernetesObject) => metadata?.namespace !== undefined;

const definedBy = (object: KubernetesObject & { spec?: unknown }): [string, Served][] => {
  if (object.kind !== "CustomResourceDefinition" || !object.apiVersion?.startsWith("apiextensions.k8s.io/")) return [];
  const { group, scope, names, versions } = Object(object.spec);
  const { kind, plural: resource } = Object(names);
  if (![group, kind, resource].every((text) => typeof text === "string") || !Array.isArray(versions)) return [];
  return versions
    .filter((one) => typeof Object(one).name === "string" && one.served !== false)
    .map(({ name }) => [`${group}/${name}`, { resource, kind, namespaced: scope === "Namespaced" }]);
};

/** What a group and version's kind is served as, among these. */
export const servedAs = (served: Record<string, Served[]>, { apiVersion = "", kind }: KubernetesObject) =>
  Object.hasOwn(served, apiVersion) ? served[apiVersion]?.find((one) => one.kind === kind) : undefined;

/** A world that is written down, with the kinds that follow from its objects beside those it names itself. */
export const describedWorld = (given: Recorded): World => {
  const discovery = { ...servedAmong(given.objects ?? []), ...given.discovery };
  const { get, list, create, ...world } = recorded({ ...given, discovery });
  // Objects are kept by the plurals that Kubernetes forms; a definition may have another.
  const usual = new Map(
    Object.entries(discovery).flatMap(([apiVersion, kinds]) =>
      kinds.map(({ resource, kind }) => [`${groupOf(apiVersion)}/${resource}`, plural(kind)] as const),
    ),
  );
  const kept = ({ group, resource, ...rest }: Resource): Resource => {
    return { ...rest, group, resource: usual.get(`${group}/${resource}`) ?? resource };
  };
  return {
    ...world,
    get: (kind, ...rest) => get(kept(kind), ...rest),
    list: (kind, ...rest) => list(kept(kind), ...rest),
    create: (kind, ...rest) => create(kept(kind), ...rest),
  };
};

const groupOf = (apiVersion: string) => (apiVersion.includes("/") ? apiVersion.split("/", 1)[0] : "");
