import type { RequestOptions } from "node:https";
import type { ConnectionOptions } from "node:tls";
import type {
  LimitRange,
  Namespace,
  Node,
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  Secret,
  ServiceAccount,
} from "kubernetes-types/core/v1.d.ts";
import type { IngressClass } from "kubernetes-types/networking/v1.d.ts";
import type { RuntimeClass } from "kubernetes-types/node/v1.d.ts";
import type { PriorityClass } from "kubernetes-types/scheduling/v1.d.ts";
import type { StorageClass } from "kubernetes-types/storage/v1.d.ts";
import { evaluate } from "./cue/engine.ts";
import { Failure } from "./failure.ts";
import { own, parseJson } from "./json.ts";
import type { Ledger } from "./ledger.ts";
import type { Count } from "./metrics.ts";
import type { LabelSelector } from "./objects/selection.ts";
import type { KubernetesObject, Status, UserInfo } from "./review.ts";

/** The kinds that a rule can read by their plural alone. */
interface Kinds {
  ingressclasses: IngressClass;
  limitranges: LimitRange;
  namespaces: Namespace;
  nodes: Node;
  persistentvolumeclaims: PersistentVolumeClaim;
  persistentvolumes: PersistentVolume;
  pods: Pod;
  priorityclasses: PriorityClass;
  runtimeclasses: RuntimeClass;
  secrets: Secret;
  serviceaccounts: ServiceAccount;
  storageclasses: StorageClass;
}

/** A kind that is none of those, for instance a custom resource. */
export interface Resource {
  group: string;
  resource: string;
  /** v1, unless said otherwise. */
  version?: string;
}

const groups: Partial<Record<keyof Kinds, string>> = {
  ingressclasses: "networking.k8s.io",
  priorityclasses: "scheduling.k8s.io",
  runtimeclasses: "node.k8s.io",
  storageclasses: "storage.k8s.io",
};

/** What a user may do, as an access review asks it. */
export interface Access {
  user: UserInfo;
  verb: string;
  group?: string;
  version?: string;
  resource: string;
  subresource?: string;
  namespace?: string;
  name?: string;
}

/** A text in Secrets Manager, or in a parameter of SSM. */
export type SecretPlace = { secret: string; region: string } | { parameter: string; region: string };

export interface HttpsRequest {
  url: string;
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  /** Where the token is kept that is sent as `Authorization: Bearer`. */
  bearer?: SecretPlace;
  /** With it, what is kept there is a password, and sent with this name as `Authorization: Basic`. */
  username?: string;
  /** PEM; only where Node's own roots don't suffice. */
  ca?: string;
  /** How often to ask, where that does no harm, as long as an answer may be better a moment later; once, if not said. */
  tries?: number;
  /** How many milliseconds to wait before the second try; each further one waits half as long again. */
  pause?: number;
  /** For how many seconds an answer holds for the same question; for this one only, if not said. */
  keep?(answer: HttpsResponse): number;
  /** No verdict rests on what is kept: a token, which isn't asked for anew where facts are. */
  isLasting?: boolean;
  /** How long it may take, where that is less than what a review has. */
  milliseconds?: number;
  /** How long an answer may be, in bytes. */
  most?: number;
  /** Whether the answer's headers and trailers are wanted. */
  isWhole?: boolean;
  /** How the connection is made, where Node's usual way won't do. */
  connect?: Pick<RequestOptions, "agent" | "lookup"> & Pick<ConnectionOptions, "secureContext">;
}

export interface HttpsResponse {
  status: number;
  body: string;
  /** Where they were asked for, by name. */
  headers?: NodeJS.Dict<string[]>;
  trailers?: NodeJS.Dict<string[]>;
  /** The JSON in the body, where it is parsed already. */
  json?: unknown;
}

/** Returns the JSON in an answer's body, undefined where there is none. Rules use it, so that a recording knows what they read. */
export const jsonOf = ({ body, json }: HttpsResponse): unknown => (json === undefined ? parseJson(body) : json);

/** A call of one of AWS's query APIs. */
export interface AwsRequest {
  region: string;
  parameters: Record<string, string>;
}

/** An action as IAM names it. */
export type AwsAction = `ec2:${string}`;

/** What the authorizer says. */
export interface Permission {
  allowed: boolean;
  reason?: string;
  /** Why it could not be asked everything. */
  evaluationError?: string;
}

/** One of the resources of a group and version, as discovery lists them. */
export interface Served {
  resource: string;
  kind: string;
  namespaced: boolean;
}

/** What came of an object that was to be created; `refused` is what the API server says against it. */
export type Creation = "created" | "exists" | { refused: Status };

/** How an answer is come by. */
export interface Freshness {
  /** How old it may be, in seconds; 0 has it read for this review. */
  maxAge?: number;
  /** For how many seconds something is looked for that isn't there, because somebody is just about to make it. */
  patience?: number;
  /** How much of a list is read: its first so many objects, by name. */
  most?: number;
  /** Which of a list are read; all of them, if not said. */
  labels?: LabelSelector;
}

/** The answers of the world to what rules declare. Nothing else lets a rule out. */
export interface World {
  get(kind: Resource, name: string, namespace?: string, freshness?: Freshness): Promise<KubernetesObject | undefined>;
  list(kind: Resource, namespace?: string, freshness?: Freshness): Promise<KubernetesObject[]>;
  create(kind: Resource, object: KubernetesObject): Promise<Creation>;
  may(access: Access): Promise<Permission>;
  /** The resources of a group and version such as `apps/v1`; undefined where it isn't served. */
  discover(groupVersion: string): Promise<Served[] | undefined>;
  https(request: HttpsRequest): Promise<HttpsResponse>;
  /** The same for an address that may begin with http://. */
  http(request: HttpsRequest): Promise<HttpsResponse>;
  aws(action: AwsAction, request: AwsRequest): Promise<HttpsResponse>;
  /** The value of a CUE text, as JSON; rejects with CUE's message where it has none. */
  cue(source: string): Promise<string>;
  /** A rule's own. */
  ledger(rule: string): Ledger;
  /** Lets it be known how often something happened. */
  count(counts: readonly Count[]): void;
  /** A world in which everything is read again; undefined where all that was read is of now. */
  anew?(): World | undefined;
}

/** A declared capability: what it is, and how it is bound to a world. */
export interface Need<Answer> {
  readonly verb: Exclude<keyof World, "anew">;
  readonly kind?: Resource;
  /** What is read besides, under these settings: by name, as lists, and by discovery. */
  kinds?(settings: object): Resource[];
  readonly action?: AwsAction;
  /** What it reads for that, under these settings. */
  secrets?(settings: object): SecretPlace[];
  /** Whether it is of any use under these settings; it is, if not said. */
  isUsed?(settings: object): boolean;
  /** Whether it will be used as soon as there is a review, so that what takes time to start should start before one. */
  isAwaited?(settings: object): boolean;
  bind(world: World, rule: string): Answer;
}

/** Of these no cluster hears. */
const apart: ReadonlySet<Need<unknown>["verb"]> = new Set(["https", "http", "aws", "count", "cue", "ledger"]);

/** Whether a rule asks the cluster, not only somebody outside; under some settings, one may do without. */
export const asksCluster = ({ needs = {} }: { needs?: Needs }, settings?: object): boolean =>
  Object.values(needs).some(
    ({ verb, kinds }) => !apart.has(verb) && (!kinds || !settings || kinds(settings).length > 0),
  );

export type Needs = { readonly [name: string]: Need<unknown> };
export type Answers<N extends Needs> = {
  readonly [Name in keyof N]: N[Name] extends Need<infer Answer> ? Answer : never;
};

type Named<K> = K extends keyof Kinds ? Kinds[K] : KubernetesObject;
const resource = (kind: keyof Kinds | Resource): Resource =>
  typeof kind === "string" ? { group: groups[kind] ?? "", resource: kind } : kind;

/** Reads one object by name; undefined where there is none. */
export const get = <K extends keyof Kinds | Resource, Object = Named<K>>(
  kind: K,
  freshness?: Freshness,
): Need<(name: string, namespace?: string) => Promise<Object | undefined>> => ({
  verb: "get",
  kind: resource(kind),
  bind: (world) => (name, namespace) =>
    world.get(resource(kind), name, namespace, freshness) as Promise<Object | undefined>,
});

/** Reads the objects of a namespace, or of the cluster. */
export const list = <K extends keyof Kinds | Resource>(
  kind: K,
  freshness?: Freshness,
): Need<(namespace?: string) => Promise<Named<K>[]>> => ({
  verb: "list",
  kind: resource(kind),
  bind: (world) => (namespace) => world.list(resource(kind), namespace, freshness) as Promise<Named<K>[]>,
});

/** Creates an object of this kind; one that is there already is no error. */
export const create = <K extends keyof Kinds | Resource>(kind: K): Need<(object: Named<K>) => Promise<Creation>> => ({
  verb: "create",
  kind: resource(kind),
  bind: (world) => (object) => world.create(resource(kind), object as KubernetesObject),
});

/** Asks the cluster's authorizer what a user may do. */
export const accessReview = (): Need<(access: Access) => Promise<Permission>> => ({
  verb: "may",
  bind: (world) => (access) => world.may(access),
});

/** Finds out which resources there are of a kind, as the API server would. */
export const discovery = (): Need<(groupVersion: string) => Promise<Served[] | undefined>> => ({
  verb: "discover",
  bind: (world) => (groupVersion) => world.discover(groupVersion),
});

/** Reads objects of kinds that only settings, or what is read by them, can tell. */
export interface Reader {
  get(kind: Resource, name: string, namespace?: string, freshness?: Freshness): Promise<KubernetesObject | undefined>;
  list(kind: Resource, namespace?: string, freshness?: Freshness): Promise<KubernetesObject[]>;
  discover(groupVersion: string): Promise<Served[] | undefined>;
}

/** Reads what no rule can name beforehand; its rights are for the kinds that follow from the settings. */
export const reader = <Settings>(kinds: (settings: Settings) => Resource[]): Need<Reader> => ({
  verb: "list",
  // That a rule's settings are its own, follows from its definition.
  kinds: (settings) => kinds(settings as Settings),
  bind: ({ get, list, discover }) => ({ get, list, discover }),
});

/** Calls an HTTPS service outside the cluster; under some settings with a token that is kept where `bearer` says. */
export const https = <Settings>(
  bearer?: (settings: Settings) => SecretPlace | undefined,
): Need<(request: HttpsRequest) => Promise<HttpsResponse>> => ({
  verb: "https",
  // That a rule's settings are its own, follows from its definition.
  ...(bearer && { secrets: (settings) => [bearer(settings as Settings) ?? []].flat() }),
  bind: (world) => (request) => world.https(request),
});

/** Calls a service outside the cluster, or in it, that may have no certificate; with what is kept in these places. */
export const http = <Settings>(
  places?: (settings: Settings) => SecretPlace[],
): Need<(request: HttpsRequest) => Promise<HttpsResponse>> => ({
  verb: "http",
  // That a rule's settings are its own, follows from its definition.
  ...(places && { secrets: (settings) => places(settings as Settings) }),
  bind: (world) => (request) => world.http(request),
});

/** Calls AWS as the function's own role, which is then allowed this action. */
export const aws = (action: AwsAction): Need<(request: AwsRequest) => Promise<HttpsResponse>> => ({
  verb: "aws",
  action,
  bind: (world) => (request) => world.aws(action, request),
});

/**
 * Evaluates CUE; CUE goes along with the rule where it is used under some cluster's settings, and starts with it where it
 * is awaited under some.
 */
export const cue = <Settings>(
  isUsed?: (settings: Settings) => boolean,
  isAwaited?: (settings: Settings) => boolean,
): Need<World["cue"]> => ({
  verb: "cue",
  // As for https.
  ...(isUsed && { isUsed: (settings) => isUsed(settings as Settings) }),
  ...(isAwaited && { isAwaited: (settings) => isAwaited(settings as Settings) }),
  bind: (world) => (source) => world.cue(source),
});

/** Keeps what must survive between reviews, for this rule and the review's cluster. */
export const ledger = (): Need<Ledger> => ({ verb: "ledger", bind: (world, rule) => world.ledger(rule) });

/** Counts what happens in reviews, by metrics and labels of the rule's own. */
export const counter = (): Need<(counts: readonly Count[]) => void> => ({
  verb: "count",
  bind: ({ count }) => count,
});

/** Binds what a rule declared to a world, for one review: the same question is asked once. */
export const bind = (needs: Needs, world: World, rule: string): Record<string, unknown> => {
  const asked = new Map<string, Promise<unknown>>();
  const remembering = intercept(world, (verb, args, ask) => {
    if (!onceAsked.has(verb)) return handled(ask());
    const question = JSON.stringify([verb, ...args]);
    const answer = asked.get(question) ?? handled(ask());
    asked.set(question, answer);
    return answer;
  });
  return Object.fromEntries(Object.entries(needs).map(([name, need]) => [name, need.bind(remembering, rule)]));
};

/** Of these, the same question is asked once a review. */
const onceAsked: ReadonlySet<Verb> = new Set<Verb>(["get", "list", "may", "discover", "aws"]);

/** What a world answers with a promise. */
const verbs = ["get", "list", "create", "may", "discover", "https", "http", "aws", "cue"] as const;
type Verb = (typeof verbs)[number];

/** A world whose answers go through `answer`, which is given the question and a way to ask it. */
export const intercept = (
  world: World,
  answer: (verb: Verb, args: readonly unknown[], ask: () => Promise<unknown>) => Promise<unknown>,
): World => {
  const wrapped = verbs.map((verb) => {
    const ask = world[verb] as (...args: unknown[]) => Promise<unknown>;
    return [verb, (...args: unknown[]) => answer(verb, args, () => ask(...args))];
  });
  // Whatever an answer goes through leaves it the form that it has.
  return { ...world, ...Object.fromEntries(wrapped) };
};

/** Where one of several questions fails, the rule may not come to hear of the others' failures. */
const handled = <T>(answer: Promise<T>): Promise<T> => {
  answer.catch(() => {});
  return answer;
};

// What follows is called for every rule, and left out of bundles of those that need nothing: these are functions that
// look into what they are given, so that nothing of a call is left but its place.

/** What a rule may ask, bound for one review. */
export function answersFor({ needs }: { needs?: Needs }, { name, world }: { name: string; world?: World | undefined }) {
  return needs && world && bind(needs, world, name);
}

/**
 * A cached answer may be a few seconds old: enough to admit, as the rule states, but not to refuse. A rule that refuses
 * decides once more, on what it reads anew.
 */
export function reconsidered<T>(
  verdict: unknown,
  { world }: { world?: World | undefined },
  decide: (world: World) => T,
): T | undefined {
  const refuses = typeof verdict === "string" || own(verdict, "refuse") !== undefined;
  const fresh = refuses ? world?.anew?.() : undefined;
  return fresh && decide(fresh);
}

/** The world that a review is of: the one it brings, or the cluster's, for so many milliseconds. */
export function worldFor(
  { needs }: { needs?: Needs },
  { world, cluster = "" }: { world?: World | undefined; cluster?: string | undefined },
  host: { world(cluster: string, milliseconds: number): World },
  milliseconds: number,
): World | undefined {
  return needs && (world ?? host.world(cluster, milliseconds));
}

/** Kept back of the time there is, for the way of the answer. */
const margin = 300;
const longest = 30_000;

/** Milliseconds until somebody stops waiting: the API server, which began before we did, or Lambda. */
export function timeLeft(
  call: { timeout: number | undefined; since: number | undefined } | undefined,
  context: { getRemainingTimeInMillis?(): number },
): number {
  const { timeout = longest, since = Date.now() } = call ?? {};
  const gone = Date.now() - since;
  // Clocks may differ; and who stopped waiting long ago would not have sent this.
  const waits = timeout - (gone > 0 && gone < timeout ? gone : 0);
  return Math.min(waits, context.getRemainingTimeInMillis?.() ?? longest) - margin;
}

const lateRule = () => new Failure(504, "the rule did not answer in time");

/** An answer that had to wait for the world, or a failure when the time is up: the API server waits no longer. */
export async function inTime<T>(answer: Promise<T>, milliseconds: number, failure: () => Error = lateRule): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(failure()), Math.max(0, milliseconds));
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A world that nobody connected. */
export const unconnected = (cluster: string): World => {
  const fail = async () => {
    throw new Failure(503, `nothing can be read from cluster "${cluster}": it has no connection here`);
  };
  const asked = { get: fail, list: fail, create: fail, may: fail, discover: fail, https: fail, http: fail, aws: fail };
  return { ...asked, ledger: () => nowhere, count: () => {}, cue: evaluate };
};

/** Where nothing survives from one review to the next. */
export const nowhere: Ledger = {
  change: async () => {
    throw new Failure(503, "nothing can be kept from one review to the next: there is no ledger here");
  },
};
