import type { JsonMap } from "#lib/json.ts";
import { joinApiVersion, toApiPath } from "#lib/objects/api-version.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionRequest, KubernetesObject, UserInfo } from "#lib/review.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { buildReview, getCaseOperation, getCasePhase } from "../../../infra/catalogue/cases.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import type { TestClusterClient, TestClusterRequest } from "../../control-plane/client.ts";
import { waitUntil } from "../rule-server.ts";

/** A case as a request that can be sent to a real API server. */
export interface CaseRequest {
  user: UserInfo;
  namespace: string | undefined;
  method: TestClusterRequest["method"];
  path: string;
  /** Builds the request's body from an object, such as the case's; adds the fields that the API server requires. */
  body(object: KubernetesObject): JsonMap;
  /** The object that exists before the request. Its ephemeral containers are separate: no pod is created with them. */
  existing?: JsonMap;
  ephemeralContainers?: unknown;
  /**
   * The API path of the object that the request stores; undefined if nothing is stored or the API server generates
   * the name.
   */
  storedObjectPath: string | undefined;
  /** The API path to which objects of this kind are posted. */
  collectionPath: string;
  /** The object's name, or the prefix of its generated name. */
  name: string;
}

/** Builds a case's request in this namespace, unless the case states another one. */
export const buildCaseRequest = async (
  listed: CatalogueRule,
  entry: Case,
  defaultNamespace: string,
  admin: TestClusterClient,
): Promise<CaseRequest> => {
  const { request } = buildReview(listed, entry);
  const { subResource, operation } = request;
  const main = await findResource(admin, request.resource, request.kind.kind);
  const requested = subResource ? await findResource(admin, request.resource, request.kind.kind, subResource) : main;

  const given = entry[getCasePhase(entry)] ?? {};
  const { name: statedName, generateName } = { ...entry.oldObject?.metadata, ...given.metadata };
  // Objects of kinds that the API server doesn't store, such as SubjectAccessReviews, have no names.
  const isKindStored = main.verbs.includes("get");
  const isNameGenerated = statedName === undefined && generateName !== undefined;
  // For a generated name, this is its beginning, by which the name is found in answers.
  const name = statedName ?? generateName?.replace(/-$/, "") ?? "a";
  const nameMember = isNameGenerated || !isKindStored ? {} : { name };
  const namespace = main.namespaced ? (entry.namespace ?? given.metadata?.namespace ?? defaultNamespace) : undefined;
  // A Namespace is deleted in dry runs only, because no controller would empty it. The namespaces that each API server
  // has from its start are neither created nor deleted.
  const isNamespace = main.kind === "Namespace";
  const mayBeCreated = !isNamespace || !/^(default|kube-(system|public|node-lease))$/.test(name);
  const collectionPath = [
    getRoot(request.resource),
    ...(namespace ? ["namespaces", namespace] : []),
    request.resource.resource,
  ].join("/");
  // A DELETE without a name deletes the collection.
  const isNamed =
    (operation !== "CREATE" || subResource !== undefined) &&
    (operation !== "DELETE" || given.metadata?.name !== undefined);
  const path = [collectionPath, isNamed && name, subResource].filter(Boolean).join("/");
  const query = new URLSearchParams(operation === "CONNECT" ? listConnectOptions(given) : []);
  if (entry.dryRun || (isNamespace && operation === "DELETE")) query.set("dryRun", "All");
  if (operation === "DELETE") query.set("gracePeriodSeconds", "0");
  const completeBody = (object: KubernetesObject, { apiVersion, kind }: ResourceInfo): JsonMap =>
    replaceServerFields({ apiVersion, kind, ...addApiRequiredFields({ ...object, kind }, namespace) }, nameMember);
  const existing = mayBeCreated ? getExistingObject(entry, subResource) : undefined;
  return {
    user: request.userInfo,
    namespace,
    collectionPath,
    name,
    method: ({ CREATE: "POST", UPDATE: "PUT", DELETE: "DELETE", CONNECT: "POST" } as const)[operation],
    path: query.size > 0 ? `${path}?${query}` : path,
    body: (object) => completeBody(object, requested),
    // The members `existing` and, for a pod with ephemeral containers, `ephemeralContainers`:
    ...(existing && splitEphemeralContainers(completeBody(existing, main))),
    storedObjectPath: isNameGenerated || !isKindStored || !mayBeCreated ? undefined : `${collectionPath}/${name}`,
  };
};

/**
 * Returns a case's object with the fields that it lacks and that the API server requires: fields of the parts that it
 * has, such as its containers, and whole parts that it lacks.
 */
export const addApiRequiredFields = (object: KubernetesObject, namespace: string | undefined): JsonMap =>
  mergeWithDefaults(
    minimalObjects[object.kind ?? ""]?.(namespace) ?? {},
    completeParts(object.kind ?? "", object),
  ) as JsonMap;

/** Removes the uid and resourceVersion, which the API server sets, and adds the name if the object has none. */
const replaceServerFields = (object: JsonMap, nameMember: object): JsonMap => {
  const { uid: _, resourceVersion: __, ...metadata } = Object(object.metadata);
  return { ...object, metadata: { ...nameMember, ...metadata } };
};

/** A resource in the API server's discovery. */
interface ResourceInfo {
  apiVersion: string;
  kind: string;
  namespaced: boolean;
  verbs: string[];
}

type Resource = AdmissionRequest["resource"];

const getRoot = (resource: Resource) => toApiPath(joinApiVersion(resource));

/**
 * Finds a resource or a subresource in the discovery of the test API server. If the resource isn't served, first
 * creates a CustomResourceDefinition for it.
 */
const findResource = async (
  admin: TestClusterClient,
  resource: Resource,
  kind: string,
  subResource?: string,
): Promise<ResourceInfo> => {
  const apiVersion = joinApiVersion(resource);
  const path = [resource.resource, subResource].filter(Boolean).join("/");
  const listings = discovered.get(admin) ?? new Map<string, Listing>();
  discovered.set(admin, listings);
  const find = async () => {
    const prefix = getRoot(resource);
    const found = listings.get(prefix)?.find(({ name }) => name === path);
    if (found) return found;
    const { body } = await admin({ method: "GET", path: prefix });
    const listing: Listing = Array.isArray(body.resources) ? body.resources : [];
    listings.set(prefix, listing);
    return listing.find(({ name }) => name === path);
  };
  const found = await find();
  if (!found) await createDefinition(admin, resource, kind, find);
  // A resource that wasn't found is a new custom resource and has these members. Discovery states `group` and `version`
  // only for a kind of another API version than the resource, such as Scale.
  const { group, version, ...rest } = { kind, namespaced: true, verbs: ["get"], ...found };
  return { ...rest, apiVersion: version === undefined ? apiVersion : [group, version].filter(Boolean).join("/") };
};

type Listing = { name: string; group?: string; version?: string }[];
/** The discovered resources of each API server. They stay valid, because no kind is deleted during a run. */
const discovered = new WeakMap<TestClusterClient, Map<string, Listing>>();

/** Creates a CustomResourceDefinition, and waits until `find` finds its resource in the discovery. */
const createDefinition = async (
  admin: TestClusterClient,
  { group, version, resource }: Resource,
  kind: string,
  find: () => Promise<unknown>,
) => {
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  const { code } = await admin({
    method: "POST",
    path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    body: {
      apiVersion: "apiextensions.k8s.io/v1",
      kind: "CustomResourceDefinition",
      metadata: { name: `${resource}.${group}` },
      spec: {
        group,
        scope: "Namespaced",
        names: { plural: resource, kind, listKind: `${kind}List` },
        versions: [{ name: version, served: true, storage: true, schema }],
      },
    },
  });
  // If the API server refuses the definition, it refuses the case's request, too: no webhook gets the case.
  if (code === 201) await waitUntil(`${resource}.${group} is not served`, async () => (await find()) !== undefined);
};

/**
 * Returns the object that must exist before a case's request, as an object of the main resource; `{}` if it may have
 * any fields.
 */
const getExistingObject = (entry: Case, subResource: string | undefined): KubernetesObject | undefined => {
  const operation = getCaseOperation(entry);
  if (operation === "CREATE") return subResource === undefined ? undefined : {};
  if (operation === "CONNECT") return {};
  // A case has its object in the member of its phase (`mutate` or `validate`). In a DELETE, this is the deleted object.
  const old = operation === "DELETE" ? entry[getCasePhase(entry)] : entry.oldObject;
  if (subResource !== "scale") return old;
  // A Scale omits replicas if they are 0; for a workload, omitted replicas mean 1.
  const { replicas = 0 } = Object(Object(old).spec);
  const scale = { metadata: { ...old?.metadata }, spec: { replicas } };
  return scale;
};

const splitEphemeralContainers = (object: JsonMap) => {
  const { ephemeralContainers, ...spec } = Object(object.spec);
  return ephemeralContainers === undefined
    ? { existing: object }
    : { existing: { ...object, spec }, ephemeralContainers };
};

/** Returns the object of a CONNECT as query parameters. */
const listConnectOptions = ({
  apiVersion: _,
  kind: __,
  metadata: ___,
  ...options
}: KubernetesObject): [string, string][] =>
  Object.entries(options).flatMap(([key, value]) => [value].flat().map((one): [string, string] => [key, String(one)]));

const image = "registry.example.com/app:1";
const labels = { app: "a" };
const selectorAndTemplate = {
  selector: { matchLabels: labels },
  template: { metadata: { labels }, spec: { containers: [{ name: "a", image }] } },
};

/** For each kind, an object that has only the fields without which the API server accepts no object. */
const minimalObjects: Record<string, (namespace: string | undefined) => JsonMap> = {
  Binding: () => ({ target: { kind: "Node", name: "n1" } }),
  Deployment: () => ({ spec: selectorAndTemplate }),
  Event: (namespace) => ({ involvedObject: { namespace } }),
  Ingress: () => ({ spec: { defaultBackend: { service: { name: "a", port: { number: 80 } } } } }),
  Job: () => ({ spec: { template: { spec: { restartPolicy: "Never", containers: [{ name: "a", image }] } } } }),
  PersistentVolume: () => ({ spec: { capacity: { storage: "1Gi" }, accessModes: ["ReadWriteOnce"] } }),
  PersistentVolumeClaim: () => ({
    spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } },
  }),
  PriorityClass: () => ({ value: 1 }),
  Pod: () => ({ spec: { containers: [{ name: "a", image }] } }),
  SelfSubjectAccessReview: () => ({ spec: { nonResourceAttributes: { path: "/", verb: "get" } } }),
  Service: () => ({ spec: { ports: [{ port: 80 }] } }),
  StorageClass: () => ({ provisioner: "example.com" }),
  StatefulSet: () => ({ spec: { ...selectorAndTemplate, serviceName: "a" } }),
  TokenReview: () => ({ spec: { token: "a" } }),
  VolumeAttributesClass: () => ({ driverName: "example.com", parameters: { a: "b" } }),
};

/**
 * Adds required fields to parts of an object: names, images and limits of extended resources to a pod's containers,
 * scheduling policies to pod groups and their templates, a source to a volume.
 */
const completeParts = (kind: string, object: KubernetesObject): object => {
  const { spec } = Object(object);
  if (kind === "Workload" && Array.isArray(spec?.podGroupTemplates)) {
    const podGroupTemplates = spec.podGroupTemplates.map((one: JsonMap) => ({
      schedulingPolicy: { basic: {} },
      ...one,
    }));
    return { ...object, spec: { ...spec, podGroupTemplates } };
  }
  if (kind === "PersistentVolume" && !spec?.csi && !spec?.azureDisk)
    return { ...object, spec: { hostPath: { path: "/a" }, ...spec } };
  if (kind === "PodGroup") return { ...object, spec: { schedulingPolicy: { basic: {} }, ...spec } };
  if (kind !== "Pod") return object;
  const filledSpec = { ...spec };
  for (const list of ["initContainers", "containers", "ephemeralContainers"])
    if (Array.isArray(spec?.[list]))
      // A container without a name gets the first letter of its list and its index, such as `c0`.
      filledSpec[list] = spec[list].map((one: JsonMap, index: number) => fillContainer(one, `${list[0]}${index}`));
  return spec ? { ...object, spec: filledSpec } : object;
};

/** Adds a name, an image, and limits of extended resources, which must equal the requests, to a container. */
const fillContainer = (container: JsonMap, name: string): JsonMap => {
  const { requests = {}, limits = {} } = Object(container.resources);
  const extended = Object.entries(requests).filter(([key]) => key.includes("/") && !Object.hasOwn(limits, key));
  const resources = extended.length > 0 && {
    resources: { ...Object(container.resources), limits: { ...limits, ...Object.fromEntries(extended) } },
  };
  return { name, image, ...container, ...resources };
};
