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

/** The API groups of the readable kinds that are not in the core group. */
const groups: Partial<Record<keyof ReadableKinds, string>> = {
  ingressclasses: "networking.k8s.io",
  priorityclasses: "scheduling.k8s.io",
  runtimeclasses: "node.k8s.io",
  storageclasses: "storage.k8s.io",
};

/** The question whether a user has a right, with the fields of a SubjectAccessReview. */
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

/** Where a token or a private key is stored: in AWS, or in a local file. Functions on Lambda have no local files. */
export type CredentialPlace = SecretPlace | { file: string };

/** A rule's request to a service. */
export interface HttpsRequest {
  url: string;
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  /** The place of the token to send as `Authorization: Bearer`. */
  bearer?: CredentialPlace;
  /** The user name for `Authorization: Basic`. With it, `bearer` names a password instead of a token. */
  username?: string;
  /** The CA of the server's certificate, as PEM. Needed only if Node doesn't trust that CA by default. */
  ca?: string;
  /** The name that the server's certificate must have, if it isn't the URL's host. */
  serverName?: string;
  /** The client certificate, as PEM or by its place, and the place of its private key. */
  client?: { certificate: string | CredentialPlace; key: CredentialPlace };
  /** How often a request is sent at most, if it fails in a way that may pass. More than 1 is for safe requests only. */
  tries?: number;
  /**
   * Milliseconds before the second try. Each further pause is 1.5 times as long as the pause before it. Up to a fifth
   * is added at random. If the answer has a longer `Retry-After`, that is the pause.
   */
  pause?: number;
  /** Returns for how many seconds an answer is cached for the same request. Without `keep`, answers aren't cached. */
  keep?(answer: HttpsResponse): number;
  /**
   * True if a cached answer is enough for a refusal. Otherwise, a rule that refuses because of a cached answer is
   * evaluated again with a new one.
   */
  isLasting?: boolean;
  /** The time limit of the request in milliseconds, if it is shorter than the time that the review has left. */
  milliseconds?: number;
  /** The maximum size of the answer in bytes. */
  maximumBytes?: number;
  /** True if the rule needs the answer's headers and trailers. Otherwise, it gets only the status and the body. */
  withHeaders?: boolean;
  connect?: Pick<RequestOptions, "agent" | "lookup"> & Pick<ConnectionOptions, "secureContext">;
}

/** A service's answer. */
export interface HttpsResponse {
  status: number;
  body: string;
  /** The response headers by name; present only if the request had `withHeaders`. */
  headers?: NodeJS.Dict<string[]>;
  trailers?: NodeJS.Dict<string[]>;
  /** The parsed body; only if Postern evaluates a rule again to note what members it reads. Rules use `parseAnswer`. */
  json?: unknown;
}

/**
 * Returns the parsed JSON body of an HTTPS response; undefined if it isn't JSON. Rules must use it instead of
 * JSON.parse: with it, a recording knows which members of the answer a rule read.
 */
export const parseAnswer = ({ body, json }: HttpsResponse): unknown => (json === undefined ? parseJson(body) : json);

export interface AwsRequest {
  region: string;
  parameters: Record<string, string>;
}

/** An AWS API call that a rule may make, such as `ec2:DescribeVolumes`. */
export type AwsAction = `ec2:${string}`;

/** The cluster's answer to an AccessQuestion. */
export interface AccessAnswer {
  allowed: boolean;
  reason?: string;
  /** An error that occurred while the cluster checked the right. `allowed` may be valid in spite of it. */
  evaluationError?: string;
}

/** A resource that an API server serves, as its discovery document describes it. */
export interface ServedResource {
  resource: string;
  kind: string;
  namespaced: boolean;
}

export type CreationResult = "created" | "exists" | { refused: Status };

/**
 * The result of an update. "changed" means that another client has changed or deleted the stored object meanwhile. The
 * rule must then read the object again, and decide again.
 */
export type UpdateResult = "updated" | "changed" | { refused: Status };

/** Options of a read: how old its answer may be, and which part of a list is read. */
export interface ReadOptions {
  /** The maximum age of a cached answer, in seconds. With 0, each review reads from the cluster. */
  maxAge?: number;
  /** For how many seconds the read of an absent object is repeated, as another client may be about to create it. */
  patience?: number;
  /** The greatest number of objects to read from a list: the first ones in the order of names. */
  most?: number;
  labels?: LabelSelector;
}

/** A page of a list of objects from all namespaces. An API server orders them by namespace and name. */
export interface ObjectPage {
  items: readonly unknown[];
  /** The version of the API in which the cluster serves the kind; undefined if the cluster doesn't serve it. */
  version: string | undefined;
  /** The token of the next page; "" on the last page. An empty page may be followed by others. */
  next: string;
}

/**
 * Which reviews share the values that a rule's ledger stores between reviews: the reviews of one cluster ("cluster",
 * the default), of all clusters ("clusters"), or of one cluster in one process ("process").
 */
export type LedgerReach = "cluster" | "clusters" | "process";

/** The functions that answer the needs of rules. A rule can reach nothing outside of its process in another way. */
export interface Capabilities {
  get(
    kind: ResourceType,
    name: string,
    namespace?: string,
    freshness?: ReadOptions,
  ): Promise<KubernetesObject | undefined>;
  list(kind: ResourceType, namespace?: string, freshness?: ReadOptions): Promise<KubernetesObject[]>;
  /**
   * Reads a page of at most `limit` objects. If `kind` has no version, the cluster chooses one. Absent if there is no
   * connection to a cluster.
   */
  listPage?(kind: ResourceType, limit: number, next: string): Promise<ObjectPage>;
  create(kind: ResourceType, object: KubernetesObject): Promise<CreationResult>;
  /** Replaces an object's status, if the object still has its resourceVersion. */
  updateStatus(kind: ResourceType, object: KubernetesObject): Promise<UpdateResult>;
  may(access: AccessQuestion): Promise<AccessAnswer>;
  /** Lists the resources of a group and version such as `apps/v1`; undefined if the cluster doesn't serve it. */
  discover(groupVersion: string): Promise<ServedResource[] | undefined>;
  https(request: HttpsRequest): Promise<HttpsResponse>;
  /** Sends a request as `https` does; the URL may also begin with http://. */
  http(request: HttpsRequest): Promise<HttpsResponse>;
  aws(action: AwsAction, request: AwsRequest): Promise<HttpsResponse>;
  /**
   * Evaluates CUE source to JSON. Rejects with CUE's message if the source has no value. The caller passes the CUE
   * engine as `evaluate`, so that only the bundles of rules with CUE contain the engine.
   */
  cue(source: string, evaluate: typeof evaluateCue): Promise<string>;
  /** The name of the cluster that sent the review. */
  cluster: string;
  ledger(rule: string, reach?: LedgerReach): Ledger;
  count(counts: readonly MetricCount[]): void;
  /** Returns capabilities that use no cached answers; undefined if this review has used no cached answer. */
  anew?(): Capabilities | undefined;
}

/** A function that returns the capabilities for one review of a cluster. After `milliseconds`, their calls fail. */
export type OpenCapabilities = (cluster: string, milliseconds: number) => Capabilities;

/** A question that a rule declares. The rule's rights follow from its needs; `bind` makes the function that asks. */
export interface Need<Answer> {
  /** The capability that the need uses. Pages of a list count as "list"; "anew" and "cluster" ask nothing. */
  readonly verb: Exclude<keyof Capabilities, "anew" | "cluster" | "listPage">;
  readonly kind?: ResourceType;
  /** Returns the kinds, besides `kind`, that the need may get, list and discover under these settings. */
  kinds?(settings: object): ResourceType[];
  readonly action?: AwsAction;
  /** Returns the places of tokens and keys that the need reads under these settings. */
  secrets?(settings: object): CredentialPlace[];
  /** Reports whether the need is used under these settings; true by default. */
  isUsed?(settings: object): boolean;
  /** Reports whether every review uses the need under these settings; a slow need is then started early. */
  isAwaited?(settings: object): boolean;
  bind(capabilities: Capabilities, rule: string): Answer;
}

/** The needs that don't read or write the cluster. */
const verbsOutsideCluster: ReadonlySet<Need<unknown>["verb"]> = new Set([
  "https",
  "http",
  "aws",
  "count",
  "cue",
  "ledger",
]);

/** Reports whether a rule has a need that a cluster answers. With `settings`, only needs used under them count. */
export const asksCluster = ({ needs = {} }: { needs?: Needs }, settings?: object): boolean =>
  Object.values(needs).some(
    (need) => !verbsOutsideCluster.has(need.verb) && (!settings || isUsedUnder(settings, need)),
  );

/** Reports whether a rule with these settings uses a need. */
export const isUsedUnder = (settings: object, { kinds, isUsed }: Need<unknown>): boolean =>
  (!kinds || kinds(settings).length > 0) && isUsed?.(settings) !== false;

/** The questions that a rule may ask its cluster or a service, by names that the rule chooses. */
export type Needs = { readonly [name: string]: Need<unknown> };
export type Answers<N extends Needs> = {
  readonly [Name in keyof N]: N[Name] extends Need<infer Answer> ? Answer : never;
};

type NamedObject<K> = K extends keyof ReadableKinds ? ReadableKinds[K] : KubernetesObject;
const toResourceType = (kind: keyof ReadableKinds | ResourceType): ResourceType =>
  typeof kind === "string" ? { group: groups[kind] ?? "", resource: kind } : kind;

/** Which object to read. Without a namespace, it is a cluster-scoped object. */
export interface ObjectPlace {
  name: string;
  namespace?: string | undefined;
}

type GetObject<Object> = (place: ObjectPlace) => Promise<Object | undefined>;

/**
 * Declares the need to read one object. The read returns undefined if the object doesn't exist. A rule states the type
 * of a kind that is not in ReadableKinds: `get<Widget>({ group: "example.com", resource: "widgets" })`.
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

/** Declares the need to list a namespace's objects, or without a namespace the cluster's. For types, see `get`. */
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

/** Declares the need to create objects of this kind. The call resolves to "exists" if the object exists already. */
export const create = <K extends keyof ReadableKinds | ResourceType>(
  kind: K,
): Need<(object: NamedObject<K>) => Promise<CreationResult>> => ({
  verb: "create",
  kind: toResourceType(kind),
  bind: (capabilities) => (object) => capabilities.create(toResourceType(kind), object as KubernetesObject),
});

/**
 * Declares the need to replace the status of objects of this kind. If another client changed the object meanwhile, it
 * is not updated, and the call resolves to "changed" after a random pause, so that concurrent reviews don't collide
 * again. If the review has no time left for another try, the call resolves to the API server's refusal.
 */
export const updateStatus = <K extends keyof ReadableKinds | ResourceType>(
  kind: K,
): Need<(object: NamedObject<K>) => Promise<UpdateResult>> => ({
  verb: "updateStatus",
  kind: toResourceType(kind),
  bind: (capabilities) => (object) => capabilities.updateStatus(toResourceType(kind), object as KubernetesObject),
});

/** Declares a need that the rule has only under some settings. Under other settings, the rule has no rights for it. */
export const onlyIf = <Settings, Answer>(
  isUsed: (settings: Settings) => boolean,
  need: Need<Answer>,
): Need<Answer> => ({ ...need, isUsed: (settings) => isUsed(settings as Settings) });

/** Declares the need to ask the cluster's authorizer what a user may do. */
export const accessReview = (): Need<(access: AccessQuestion) => Promise<AccessAnswer>> => ({
  verb: "may",
  bind: (capabilities) => (access) => capabilities.may(access),
});

/** Declares the need to list the resources that the API server serves in a group and version. */
export const discovery = (): Need<(groupVersion: string) => Promise<ServedResource[] | undefined>> => ({
  verb: "discover",
  bind: (capabilities) => (groupVersion) => capabilities.discover(groupVersion),
});

/** The functions that read objects whose kinds are known only from settings, or from other objects. */
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

/** The function that reads lists of any length page by page. */
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

/** Declares calls of an HTTPS service outside the cluster. `getPlaces` returns where token and client key are. */
export const https = <Settings>(
  getPlaces?: (settings: Settings) => CredentialPlace | CredentialPlace[] | undefined,
): Need<(request: HttpsRequest) => Promise<HttpsResponse>> => ({
  verb: "https",
  ...(getPlaces && { secrets: (settings) => [getPlaces(settings as Settings) ?? []].flat() }),
  bind: (capabilities) => (request) => capabilities.https(request),
});

/** Declares calls of a service, with or without TLS. `getSecretPlaces` returns where its secrets are stored. */
export const http = <Settings>(
  getSecretPlaces?: (settings: Settings) => SecretPlace[],
): Need<(request: HttpsRequest) => Promise<HttpsResponse>> => ({
  verb: "http",
  ...(getSecretPlaces && { secrets: (settings) => getSecretPlaces(settings as Settings) }),
  bind: (capabilities) => (request) => capabilities.http(request),
});

/** Declares an AWS API call. The function's IAM role makes it, and gets the right to this action. */
export const aws = (action: AwsAction): Need<(request: AwsRequest) => Promise<HttpsResponse>> => ({
  verb: "aws",
  action,
  bind: (capabilities) => (request) => capabilities.aws(action, request),
});

/**
 * Declares the need to evaluate CUE. If `isUsed` returns true, the bundle contains CUE. If `isAwaited` returns true,
 * CUE is started early.
 */
export const cue = <Settings>(
  isUsed?: (settings: Settings) => boolean,
  isAwaited?: (settings: Settings) => boolean,
): Need<(source: string) => Promise<string>> => ({
  verb: "cue",
  ...(isUsed && { isUsed: (settings) => isUsed(settings as Settings) }),
  ...(isAwaited && { isAwaited: (settings) => isAwaited(settings as Settings) }),
  bind: (capabilities) => (source) => capabilities.cue(source, evaluateCue),
});

/** Declares state that is kept between reviews, for this rule and the review's cluster. */
export const ledger = (): Need<Ledger> => ({ verb: "ledger", bind: (capabilities, rule) => capabilities.ledger(rule) });

/**
 * Declares state as `ledger` does, but in the memory of this process: it is fast, other processes don't have it, and it
 * may be lost at any time. Its keys must differ from those of the rule's `ledger`.
 */
export const processLedger = (): Need<Ledger> => ({
  verb: "ledger",
  bind: (capabilities, rule) => capabilities.ledger(rule, "process"),
});

/** Declares state that the reviews of all clusters share. Also gives the rule the name of the review's cluster. */
export const sharedLedger = (): Need<Ledger & { cluster: string }> => ({
  verb: "ledger",
  bind: ({ cluster, ledger }, rule) => ({ ...ledger(rule, "clusters"), cluster }),
});

/** Declares that a rule counts events in its own metrics, with its own labels. */
export const counter = (): Need<(counts: readonly MetricCount[]) => void> => ({
  verb: "count",
  bind: ({ count }) => count,
});
