import type { KubernetesObject, UserInfo } from "#lib/review.ts";
import { merge } from "#lib/settings.ts";
import { type Case, operationOf, phaseOf, reviewOf } from "../../infra/cases.ts";
import type { Listed } from "../../infra/registry.ts";
import type { Call, Client } from "./client.ts";
import { until } from "./postern.ts";

export type Fields = Record<string, unknown>;

/** A case as a request that a real API server takes. */
export interface CaseRequest {
  user: UserInfo;
  namespace: string | undefined;
  method: Call["method"];
  path: string;
  /** The case's object, or what it becomes, with no more around it than the API server insists on. */
  body(object: KubernetesObject): Fields;
  /** What is there before, without the ephemeral containers, which nobody can create a pod with. */
  present?: Fields;
  ephemeralContainers?: unknown;
  /** Where the object will be; nowhere where nothing is kept, or the API server makes the name. */
  place: string | undefined;
  collection: string;
  /** Its name, or how the API server begins it. */
  name: string;
}

/** A case's request, in this namespace unless the case says another. */
export const requestOf = async (listed: Listed, entry: Case, spare: string, admin: Client): Promise<CaseRequest> => {
  const { request } = reviewOf(listed, entry);
  const { subResource, operation } = request;
  const main = await served(admin, request.resource, request.kind.kind);
  const own = subResource ? await served(admin, request.resource, request.kind.kind, subResource) : main;

  const given = entry[phaseOf(entry)] ?? {};
  const { name: said, generateName } = { ...entry.oldObject?.metadata, ...given.metadata };
  const isKept = main.verbs.includes("get");
  const isMade = said === undefined && generateName !== undefined;
  const name = said ?? generateName?.replace(/-$/, "") ?? "a";
  const called = isMade || !isKept ? {} : { name };
  const namespace = main.namespaced ? (entry.namespace ?? given.metadata?.namespace ?? spare) : undefined;
  const collection = [
    prefixOf(request.resource),
    ...(namespace ? ["namespaces", namespace] : []),
    request.resource.resource,
  ].join("/");
  // What is deleted without a name goes with all others.
  const isNamed = operation !== "CREATE" && (operation !== "DELETE" || given.metadata?.name !== undefined);
  const path = [collection, isNamed && name, subResource].filter(Boolean).join("/");
  const query = new URLSearchParams(operation === "CONNECT" ? optionsIn(given) : []);
  if (entry.dryRun) query.set("dryRun", "All");
  if (operation === "DELETE") query.set("gracePeriodSeconds", "0");
  const whole = (object: KubernetesObject, { apiVersion, kind }: Served): Fields =>
    merge({ apiVersion, kind, metadata: called, ...needed[kind]?.(namespace) }, inFull(kind, object)) as Fields;
  const before = presentIn(entry, subResource);
  return {
    ...{ user: request.userInfo, namespace, collection, name },
    method: ({ CREATE: "POST", UPDATE: "PUT", DELETE: "DELETE", CONNECT: "POST" } as const)[operation],
    path: query.size > 0 ? `${path}?${query}` : path,
    body: (object) => whole(object, own),
    ...(before && withoutEphemeral(whole(before, main))),
    place: isMade || !isKept ? undefined : `${collection}/${name}`,
  };
};

/** What an API server says of a resource. */
interface Served {
  apiVersion: string;
  kind: string;
  namespaced: boolean;
  verbs: string[];
}

interface Resource {
  group: string;
  version: string;
  resource: string;
}

const prefixOf = ({ group, version }: Resource) => (group === "" ? `/api/${version}` : `/apis/${group}/${version}`);

/** A resource, or one of its subresources; what Kubernetes does not know, this API server is taught. */
const served = async (admin: Client, resource: Resource, kind: string, subResource?: string): Promise<Served> => {
  const apiVersion = [resource.group, resource.version].filter(Boolean).join("/");
  const path = [resource.resource, subResource].filter(Boolean).join("/");
  const find = async () => {
    const { body } = await admin({ method: "GET", path: prefixOf(resource) });
    const list: { name: string; group?: string; version?: string }[] = Array.isArray(body.resources)
      ? body.resources
      : [];
    return list.find(({ name }) => name === path);
  };
  const found = (await find()) ?? (await teach(admin, resource, kind, find));
  const { group, version, ...rest } = { ...{ kind, namespaced: true, verbs: ["get"] }, ...found };
  return { ...rest, apiVersion: version === undefined ? apiVersion : [group, version].filter(Boolean).join("/") };
};

const teach = async (
  admin: Client,
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
        ...{ group, scope: "Namespaced", names: { plural: resource, kind, listKind: `${kind}List` } },
        versions: [{ name: version, served: true, storage: true, schema }],
      },
    },
  });
  if (code === 201) await until(`${resource}.${group} is not served`, async () => (await find()) !== undefined);
  return undefined;
};

/** What a case finds, as an object of the main resource. */
const presentIn = (entry: Case, subResource: string | undefined): KubernetesObject | undefined => {
  const operation = operationOf(entry);
  if (operation === "CREATE") return undefined;
  if (operation === "CONNECT") return {};
  const old = operation === "DELETE" ? entry[phaseOf(entry)] : entry.oldObject;
  if (subResource !== "scale") return old;
  // A Scale leaves a 0 out, where what is scaled takes nothing for 1.
  const { replicas = 0 } = Object(Object(old).spec);
  return { metadata: { ...old?.metadata }, ...{ spec: { replicas } } };
};

const withoutEphemeral = (object: Fields) => {
  const { ephemeralContainers, ...spec } = Object(object.spec);
  return ephemeralContainers === undefined
    ? { present: object }
    : { present: { ...object, spec }, ephemeralContainers };
};

/** The query of a CONNECT is its object. */
const optionsIn = ({ apiVersion: _, kind: __, metadata: ___, ...options }: KubernetesObject): [string, string][] =>
  Object.entries(options).flatMap(([key, value]) => [value].flat().map((one): [string, string] => [key, String(one)]));

const image = "registry.example.com/app:1";
const labels = { app: "a" };
const selecting = {
  selector: { matchLabels: labels },
  template: { metadata: { labels }, spec: { containers: [{ name: "a", image }] } },
};

/** Without these, the API server takes no object of a kind. */
const needed: Record<string, (namespace: string | undefined) => Fields> = {
  Deployment: () => ({ spec: selecting }),
  Event: (namespace) => ({ involvedObject: { namespace } }),
  PersistentVolume: () => ({
    spec: { capacity: { storage: "1Gi" }, accessModes: ["ReadWriteOnce"], hostPath: { path: "/a" } },
  }),
  PersistentVolumeClaim: () => ({
    spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } },
  }),
  Pod: () => ({ spec: { containers: [{ name: "a", image }] } }),
  SelfSubjectAccessReview: () => ({ spec: { nonResourceAttributes: { path: "/", verb: "get" } } }),
  Service: () => ({ spec: { ports: [{ port: 80 }] } }),
  StatefulSet: () => ({ spec: { ...selecting, serviceName: "a" } }),
  TokenReview: () => ({ spec: { token: "a" } }),
  VolumeAttributesClass: () => ({ driverName: "example.com", parameters: { a: "b" } }),
};

/** A pod's containers with a name and an image each, and with limits that an extended resource's requests must equal. */
const inFull = (kind: string, object: KubernetesObject): object => {
  if (kind !== "Pod") return object;
  const { spec } = Object(object);
  const lists = ["initContainers", "containers", "ephemeralContainers"].filter((list) => Array.isArray(spec?.[list]));
  const full = lists.map((list) => [
    list,
    spec[list].map((one: Fields, at: number) => containerInFull(one, `${list[0]}${at}`)),
  ]);
  return { ...object, ...(spec && { spec: { ...spec, ...Object.fromEntries(full) } }) };
};

const containerInFull = (container: Fields, name: string): Fields => {
  const { requests = {}, limits = {} } = Object(container.resources);
  const extended = Object.entries(requests).filter(([key]) => key.includes("/") && !Object.hasOwn(limits, key));
  const resources = extended.length > 0 && {
    resources: { ...Object(container.resources), limits: { ...limits, ...Object.fromEntries(extended) } },
  };
  return { name, image, ...container, ...resources };
};
