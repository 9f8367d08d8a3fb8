import type { RequestOptions } from "node:https";
import type { ConnectionOptions } from "node:tls";
import { evaluateCue } from "./cue/engine.ts";
import { Failure } from "./failure.ts";
import { parseJson } from "./json.ts";
import type {
  ConfigMap,
  LimitRange,
  Namespace,
  Node,
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  ResourceQuota,
  Secret,
  ServiceAccount,
} from "./kubernetes/core/v1.ts";
import type { IngressClass } from "./kubernetes/networking/v1.ts";
import type { RuntimeClass } from "./kubernetes/node/v1.ts";
import type { PriorityClass } from "./kubernetes/scheduling/v1.ts";
import type { StorageClass } from "./kubernetes/storage/v1.ts";
import type { Ledger } from "./ledger.ts";
import type { MetricCount } from "./metrics.ts";
import type { LabelSelector } from "./objects/selection.ts";
import type { KubernetesObject, Status, UserInfo } from "./review.ts";

/** The kinds that a rule can read by their plural alone, without group and version. */
interface ReadableKinds {
  configmaps: ConfigMap;
  ingressclasses: IngressClass;
  limitranges: LimitRange;
  namespaces: Namespace;
  nodes: Node;
  persistentvolumeclaims: PersistentVolumeClaim;
  persistentvolumes: PersistentVolume;
  pods: Pod;
  priorityclasses: PriorityClass;
  resourcequotas: ResourceQuota;
  runtimeclasses: RuntimeClass;
  secrets: Secret;
  serviceaccounts: ServiceAccount;
  storageclasses: StorageClass;
}

export interface ResourceType {
  group: string;
  resource: string;
  /** v1 by default. */
  version?: string;
}

const groups: Partial<Record<keyof ReadableKinds, string>> = {
  ingressclasses: "networking.k8s.io",
  priorityclasses: "scheduling.k8s.io",
  runtimeclasses: "node.k8s.io",
  storageclasses: "storage.k8s.io",
};

export interface AccessQuestion {
  user: UserInfo;
  verb: string;
  group?: string;
  version?: string;
  /** Empty if the question is about a path. */
  resource: string;
  subresource?: string;
  namespace?: string;
  name?: string;
  /** Selectors of lists, as texts that the cluster parses. */
  fieldSelector?: { readonly rawSelector: string };
  labelSelector?: { readonly rawSelector: string };
  /** A path such as /healthz, for a question that is not about a resource. */
  path?: string;
}

/** A Secrets Manager secret or an SSM parameter, each with its region. */
export type SecretPlace = { secret: string; region: string } | { parameter: string; region: string };

/** Where a token or a private key is stored: in AWS, or in a file of this machine, which no function on Lambda has. */
export type CredentialPlace = SecretPlace | { file: string };

export interface HttpsRequest {
  url: string;
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  /** The place of the token to send as `Authorization: Bearer`. */
  bearer?: CredentialPlace;
  /** The user name for `Authorization: Basic`. With it, `bearer` names a password instead of a token. */
  username?: string;
  /** The CA of the server's certificate, as PEM; only where Node's own roots don't suffice. */
  ca?: string;
  /** The name that the server's certificate must have, if it isn't the URL's host. */
  serverName?: string;
  /** The client certificate, as PEM or by its place, and the place of its private key. */
  client?: { certificate: string | CredentialPlace; key: CredentialPlace };
  /** The number of tries while a later answer may be better, of a request that is safe to repeat. Default: 1. */
  tries?: number;
  /**
   * Milliseconds before the second try; each further pause is half as long again. A random part of up to a fifth is
   * added, and a longer `Retry-After` of the answer counts instead.
   */
  pause?: number;
  /** Returns for how many seconds an answer may be reused for the same request. Without it, answers aren't kept. */
  keep?(answer: HttpsResponse): number;
  /** Uses a kept answer even for a refusal, which otherwise follows only from fresh answers. */
  isLasting?: boolean;
  /** The time limit of the request in milliseconds, if it is shorter than the time that the review has left. */
  milliseconds?: number;
  /** The maximum size of the answer in bytes. */
  maximumBytes?: number;
  /** Returns the headers and trailers of the answer, too. */
  withHeaders?: boolean;
  connect?: Pick<RequestOptions, "agent" | "lookup"> & Pick<ConnectionOptions, "secureContext">;
}

export interface HttpsResponse {
  status: number;
  body: string;
  /** The response headers by name; present only if the request had `withHeaders`. */
  headers?: NodeJS.Dict<string[]>;
  trailers?: NodeJS.Dict<string[]>;
  json?: unknown;
}

/**
 * Returns the parsed JSON body of an HTTPS response; undefined if it isn't JSON. Rules use `parseAnswer`, so that a
 * recording knows what they read.
 */
export const parseAnswer = ({ body, json }: HttpsResponse): unknown => (json === undefined ? parseJson(body) : json);

export interface AwsRequest {
  region: string;
  parameters: Record<string, string>;
}

/** An AWS API call that a rule may make, such as `ec2:DescribeVolumes`. */
export type AwsAction = `ec2:${string}`;

/** The cluster's answer to whether a user has a right. */
export interface AccessAnswer {
  allowed: boolean;
  reason?: string;
  /** An error while the cluster checked the right; `allowed` may be valid all the same. */
  evaluationError?: string;
}

export interface ServedResource {
  resource: string;
  kind: string;
  namespaced: boolean;
}

export type CreationResult = "created" | "exists" | { refused: Status };

/**
 * The result of an update: "changed" if the stored object has another resourceVersion, or is gone. The rule then reads
 * it again, and decides again.
 */
export type UpdateResult = "updated" | "changed" | { refused: Status };

/** How current an answer must be, and how much of a list is read. */
export interface ReadOptions {
  /** The maximum age of a cached answer, in seconds; 0 means that this review reads anew. */
  maxAge?: number;
  /** The seconds to look for an absent object that another client is about to create. */
  patience?: number;
  /** The number of objects of a list to read: only the first ones by name. */
  most?: number;
  labels?: LabelSelector;
}

/** A page of a list of all namespaces. An API server orders it by namespace and name. */
export interface ObjectPage {
  items: readonly unknown[];
  /** The version in which the kind is served; undefined if it isn't served. */
  version: string | undefined;
  /** The token of the next page; "" after the last one. A page may be empty and have one. */
  next: string;
}

/**
 * Which reviews share the values of a rule's ledger: those of one cluster, in all functions; those of all clusters; or
 * those of one cluster in this process. The default is "cluster".
 */
export type LedgerReach = "cluster" | "clusters" | "process";

/** The capabilities that answer the needs of rules. A rule has no other way out of its process. */
export interface Capabilities {
  get(
    kind: ResourceType,
    name: string,
    namespace?: string,
    freshness?: ReadOptions,
  ): Promise<KubernetesObject | undefined>;
  list(kind: ResourceType, namespace?: string, freshness?: ReadOptions): Promise<KubernetesObject[]>;
  /** Reads a page of at most `limit` objects, in any version if the kind has none. Only where clusters are read. */
  listPage?(kind: ResourceType, limit: number, next: string): Promise<ObjectPage>;
  create(kind: ResourceType, object: KubernetesObject): Promise<CreationResult>;
  /** Replaces an object's status, if the object still has its resourceVersion. */
  updateStatus(kind: ResourceType, object: KubernetesObject): Promise<UpdateResult>;
  may(access: AccessQuestion): Promise<AccessAnswer>;
  /** Lists the resources of a group and version such as `apps/v1`; undefined if it isn't served. */
  discover(groupVersion: string): Promise<ServedResource[] | undefined>;
  https(request: HttpsRequest): Promise<HttpsResponse>;
  /** Sends a request as `https` does; the URL may also begin with http://. */
  http(request: HttpsRequest): Promise<HttpsResponse>;
  aws(action: AwsAction, request: AwsRequest): Promise<HttpsResponse>;
  /** Evaluates CUE source to JSON by `evaluate`; rejects with CUE's message if it has no value. */
  cue(source: string, evaluate: typeof evaluateCue): Promise<string>;
  /** The name of the cluster in which the review began. */
  cluster: string;
  ledger(rule: string, reach?: LedgerReach): Ledger;
  count(counts: readonly MetricCount[]): void;
  /** Returns capabilities that read again what was cached; undefined if this review used no cached answer. */
  anew?(): Capabilities | undefined;
}

/** A function that returns the capabilities for one review of a cluster; they fail after this many milliseconds. */
export type OpenCapabilities = (cluster: string, milliseconds: number) => Capabilities;

export interface Need<Answer> {
  readonly verb: Exclude<keyof Capabilities, "anew" | "cluster" | "listPage">;
  readonly kind?: ResourceType;
  /** Returns further kinds that a rule's need reads under these settings: by name, as lists, and by discovery. */
  kinds?(settings: object): ResourceType[];
  readonly action?: AwsAction;
  secrets?(settings: object): CredentialPlace[];
  /** Reports whether the need is used under these settings; true by default. */
  isUsed?(settings: object): boolean;
  /** Reports whether every review uses the need under these settings; a slow need is then started early. */
  isAwaited?(settings: object): boolean;
  bind(capabilities: Capabilities, rule: string): Answer;
}

const verbsOutsideCluster: ReadonlySet<Need<unknown>["verb"]> = new Set([
  "https",
  "http",
  "aws",
  "count",
  "cue",
  "ledger",
]);

/** Reports whether a rule asks the cluster; with settings, whether it does so under these settings. */
export const asksCluster = ({ needs = {} }: { needs?: Needs }, settings?: object): boolean =>
  Object.values(needs).some(
    (need) => !verbsOutsideCluster.has(need.verb) && (!settings || isUsedUnder(settings, need)),
  );

/** Reports whether a rule with these settings uses a need. */
export const isUsedUnder = (settings: object, { kinds, isUsed }: Need<unknown>): boolean =>
  (!kinds || kinds(settings).length > 0) && isUsed?.(settings) !== false;

/** The questions that a rule may ask its cluster or a service, by the names that the rule gives them. */
export type Needs = { readonly [name: string]: Need<unknown> };
export type Answers<N extends Needs> = {
  readonly [Name in keyof N]: N[Name] extends Need<infer Answer> ? Answer : never;
};

type NamedObject<K> = K extends keyof ReadableKinds ? ReadableKinds[K] : KubernetesObject;
const toResourceType = (kind: keyof ReadableKinds | ResourceType): ResourceType =>
  typeof kind === "string" ? { group: groups[kind] ?? "", resource: kind } : kind;

/** Which object to read; without a namespace, one of the whole cluster. */
export interface ObjectPlace {
  name: string;
  namespace?: string | undefined;
}

type GetObject<Object> = (place: ObjectPlace) => Promise<Object | undefined>;

/**
 * Declares the need to read one object; the read returns undefined if the object doesn't exist. The type of the objects of
 * a kind that has no name here is stated: `get<Widget>({ group: "example.com", resource: "widgets" })`.
 */
export function get<K extends keyof ReadableKinds>(kind: K, freshness?: ReadOptions): Need<GetObject<ReadableKinds[K]>>;
export function get<Object = KubernetesObject>(kind: ResourceType, freshness?: ReadOptions): Need<GetObject<Object>>;
export function get(kind: keyof ReadableKinds | ResourceType, freshness?: ReadOptions): Need<GetObject<object>> {
  return {
    verb: "get",
    kind: toResourceType(kind),
    bind: (capabilities) => (place) => {
      if (typeof place === "string") throw new Failure(500, `get takes { name, namespace }, not "${place}"`);
      return capabilities.get(toResourceType(kind), place.name, place.namespace, freshness);
    },
  };
}

type ListObjects<Object> = (namespace?: string) => Promise<Object[]>;

/** Lists the objects of a namespace; without a namespace, of the whole cluster. Their type is stated as for `get`. */
export function list<K extends keyof ReadableKinds>(
  kind: K,
  freshness?: ReadOptions,
): Need<ListObjects<ReadableKinds[K]>>;
export function list<Object = KubernetesObject>(kind: ResourceType, freshness?: ReadOptions): Need<ListObjects<Object>>;
export function list(kind: keyof ReadableKinds | ResourceType, freshness?: ReadOptions): Need<ListObjects<object>> {
  return {
    verb: "list",
    kind: toResourceType(kind),
    bind: (capabilities) => (namespace) => capabilities.list(toResourceType(kind), namespace, freshness),
  };
}

/** Creates an object of this kind; resolves to `exists` if it exists already. */
export const create = <K extends keyof ReadableKinds | ResourceType>(
  kind: K,
): Need<(object: NamedObject<K>) => Promise<CreationResult>> => ({
  verb: "create",
  kind: toResourceType(kind),
  bind: (capabilities) => (object) => capabilities.create(toResourceType(kind), object as KubernetesObject),
});

/**
 * Replaces the status of objects of this kind. A stored object that was changed meanwhile stays as it is; before
 * that is answered, a random pause passes, so that concurrent reviews don't collide again. When the review has no time
 * left for another try, the API server's refusal is answered instead.
 */
export const updateStatus = <K extends keyof ReadableKinds | ResourceType>(
  kind: K,
): Need<(object: NamedObject<K>) => Promise<UpdateResult>> => ({
  verb: "updateStatus",
  kind: toResourceType(kind),
  bind: (capabilities) => (object) => capabilities.updateStatus(toResourceType(kind), object as KubernetesObject),
});

/** Declares a need that the rule has only under some settings; without them, it doesn't get the need's rights. */
export const onlyIf = <Settings, Answer>(
  isUsed: (settings: Settings) => boolean,
  need: Need<Answer>,
): Need<Answer> => ({ ...need, isUsed: (settings) => isUsed(settings as Settings) });

/** Asks the cluster's authorizer what a user may do. */
export const accessReview = (): Need<(access: AccessQuestion) => Promise<AccessAnswer>> => ({
  verb: "may",
  bind: (capabilities) => (access) => capabilities.may(access),
});

/** Declares the need to list the resources that the API server serves in a group and version. */
export const discovery = (): Need<(groupVersion: string) => Promise<ServedResource[] | undefined>> => ({
  verb: "discover",
  bind: (capabilities) => (groupVersion) => capabilities.discover(groupVersion),
});

/** Reads objects whose kinds are known only from settings, or from other objects. */
export type ObjectReader = Pick<Capabilities, "get" | "list" | "discover">;

/** Declares an ObjectReader; the rule's rights cover the kinds that `listKinds` returns for its settings. */
export const reader = <Settings>(
  listKinds: (settings: Settings) => ResourceType[],
  freshness?: ReadOptions,
): Need<ObjectReader> => ({
  verb: "list",
  // The cast is safe: a rule only gets its own settings.
  kinds: (settings) => listKinds(settings as Settings),
  bind: ({ get, list, discover }) => ({
    get: (kind, name, namespace, options) => get(kind, name, namespace, { ...freshness, ...options }),
    list: (kind, namespace, options) => list(kind, namespace, { ...freshness, ...options }),
    discover,
  }),
});

/** Reads lists of any length, a page at a time. */
export type PageReader = NonNullable<Capabilities["listPage"]>;

/** Declares a PageReader; the rule's rights cover the kinds that `listKinds` returns for its settings. */
export const pageReader = <Settings>(listKinds: (settings: Settings) => ResourceType[]): Need<PageReader> => ({
  verb: "list",
  // The cast is safe: a rule only gets its own settings.
  kinds: (settings) => listKinds(settings as Settings),
  bind:
    ({ cluster, listPage }) =>
    async (...page) => {
      if (!listPage) throw new Failure(503, `nothing can be listed in cluster "${cluster}": it has no connection here`);
      return listPage(...page);
    },
});

/** Calls an HTTPS service outside the cluster; `getPlaces` returns where its token and its client key are stored. */
export const https = <Settings>(
  getPlaces?: (settings: Settings) => CredentialPlace | CredentialPlace[] | undefined,
): Need<(request: HttpsRequest) => Promise<HttpsResponse>> => ({
  verb: "https",
  ...(getPlaces && { secrets: (settings) => [getPlaces(settings as Settings) ?? []].flat() }),
  bind: (capabilities) => (request) => capabilities.https(request),
});

/** Calls a service in or outside the cluster, with or without TLS; `places` returns where the secrets are. */
export const http = <Settings>(
  getSecretPlaces?: (settings: Settings) => SecretPlace[],
): Need<(request: HttpsRequest) => Promise<HttpsResponse>> => ({
  verb: "http",
  ...(getSecretPlaces && { secrets: (settings) => getSecretPlaces(settings as Settings) }),
  bind: (capabilities) => (request) => capabilities.http(request),
});

/** Calls AWS as the function's own role, which gets the right to this action. */
export const aws = (action: AwsAction): Need<(request: AwsRequest) => Promise<HttpsResponse>> => ({
  verb: "aws",
  action,
  bind: (capabilities) => (request) => capabilities.aws(action, request),
});

/** The need to evaluate CUE. CUE is in the bundle if `isUsed` is true, and is started early if `isAwaited` is. */
export const cue = <Settings>(
  isUsed?: (settings: Settings) => boolean,
  isAwaited?: (settings: Settings) => boolean,
): Need<(source: string) => Promise<string>> => ({
  verb: "cue",
  ...(isUsed && { isUsed: (settings) => isUsed(settings as Settings) }),
  ...(isAwaited && { isAwaited: (settings) => isAwaited(settings as Settings) }),
  bind: (capabilities) => (source) => capabilities.cue(source, evaluateCue),
});

/** Keeps state between reviews, for this rule and the review's cluster. */
export const ledger = (): Need<Ledger> => ({ verb: "ledger", bind: (capabilities, rule) => capabilities.ledger(rule) });

/**
 * Keeps state as `ledger` does, but in this process alone, which needs no waiting: for what other functions needn't know
 * and may be lost at any time. Its keys must differ from those of the rule's `ledger`.
 */
export const processLedger = (): Need<Ledger> => ({
  verb: "ledger",
  bind: (capabilities, rule) => capabilities.ledger(rule, "process"),
});

/** Keeps state as `ledger` does, but the reviews of all clusters share it. Also tells the name of the review's cluster. */
export const sharedLedger = (): Need<Ledger & { cluster: string }> => ({
  verb: "ledger",
  bind: ({ cluster, ledger }, rule) => ({ ...ledger(rule, "clusters"), cluster }),
});

/** Lets a rule count events in metrics of its own, with labels of its own. */
export const counter = (): Need<(counts: readonly MetricCount[]) => void> => ({
  verb: "count",
  bind: ({ count }) => count,
});
