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
import { Failure } from "./failure.ts";
import type { KubernetesObject, UserInfo } from "./review.ts";

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
  resource: string;
  subresource?: string;
  namespace?: string;
  name?: string;
}

export interface HttpsRequest {
  url: string;
  method?: "GET" | "POST";
  headers?: Record<string, string>;
  body?: string;
}

export interface HttpsResponse {
  status: number;
  body: string;
}

/** The answers of the world to what rules declare. Nothing else lets a rule out. */
export interface World {
  get(kind: Resource, name: string, namespace?: string): Promise<KubernetesObject | undefined>;
  list(kind: Resource, namespace?: string): Promise<KubernetesObject[]>;
  create(kind: Resource, object: KubernetesObject): Promise<"created" | "exists">;
  may(access: Access): Promise<boolean>;
  https(request: HttpsRequest): Promise<HttpsResponse>;
}

/** A declared capability: what it is, and how it is bound to a world. */
export interface Need<Answer> {
  readonly verb: keyof World;
  readonly kind?: Resource;
  bind(world: World): Answer;
}

export type Needs = { readonly [name: string]: Need<unknown> };
export type Answers<N extends Needs> = {
  readonly [Name in keyof N]: N[Name] extends Need<infer Answer> ? Answer : never;
};

type Named<K> = K extends keyof Kinds ? Kinds[K] : KubernetesObject;
const resource = (kind: keyof Kinds | Resource): Resource =>
  typeof kind === "string" ? { group: groups[kind] ?? "", resource: kind } : kind;

/** Reads one object by name; undefined where there is none. */
export const get = <K extends keyof Kinds | Resource>(
  kind: K,
): Need<(name: string, namespace?: string) => Promise<Named<K> | undefined>> => ({
  verb: "get",
  kind: resource(kind),
  bind: (world) => (name, namespace) => world.get(resource(kind), name, namespace) as Promise<Named<K> | undefined>,
});

/** Reads the objects of a namespace, or of the cluster. */
export const list = <K extends keyof Kinds | Resource>(kind: K): Need<(namespace?: string) => Promise<Named<K>[]>> => ({
  verb: "list",
  kind: resource(kind),
  bind: (world) => (namespace) => world.list(resource(kind), namespace) as Promise<Named<K>[]>,
});

/** Creates an object of this kind; one that is there already is no error. */
export const create = <K extends keyof Kinds | Resource>(
  kind: K,
): Need<(object: Named<K>) => Promise<"created" | "exists">> => ({
  verb: "create",
  kind: resource(kind),
  bind: (world) => (object) => world.create(resource(kind), object as KubernetesObject),
});

/** Asks the cluster's authorizer what a user may do. */
export const accessReview = (): Need<(access: Access) => Promise<boolean>> => ({
  verb: "may",
  bind: (world) => (access) => world.may(access),
});

/** Calls an HTTPS service outside the cluster. */
export const https = (): Need<(request: HttpsRequest) => Promise<HttpsResponse>> => ({
  verb: "https",
  bind: (world) => (request) => world.https(request),
});

/** Binds what a rule declared to a world, for one review: the same question is asked once. */
export const bind = (needs: Needs, world: World): Record<string, unknown> => {
  const asked = new Map<string, Promise<unknown>>();
  const once =
    <A extends unknown[], R>(name: string, ask: (...args: A) => Promise<R>) =>
    (...args: A): Promise<R> => {
      const question = JSON.stringify([name, ...args]);
      const answer = asked.get(question) ?? ask(...args);
      asked.set(question, answer);
      return answer as Promise<R>;
    };
  const remembering: World = {
    get: once("get", world.get),
    list: once("list", world.list),
    create: world.create,
    may: once("may", world.may),
    https: world.https,
  };
  return Object.fromEntries(Object.entries(needs).map(([name, need]) => [name, need.bind(remembering)]));
};

/** An answer that had to wait for the world, or a failure when the time is up: the API server waits no longer. */
export const inTime = async <T>(answer: Promise<T>, milliseconds: number): Promise<T> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const failure = () => reject(new Failure(504, "the rule did not answer in time"));
    timer = setTimeout(failure, Math.max(0, milliseconds));
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
};

/** What a case says of the world: manifests, and the answers of everything else. */
export interface Recorded {
  objects?: (KubernetesObject & { metadata: { name: string } })[];
  may?: (Access & { allowed: boolean })[];
  https?: (HttpsRequest & { answer: HttpsResponse })[];
}

/** A world that is written down; what isn't there can't be read by guess. */
export const recorded = ({ objects = [], may = [], https = [] }: Recorded): World => {
  const present = new Map<string, KubernetesObject>();
  const place = ({ group, resource }: Resource, namespace = "", name = "") =>
    [group, resource, namespace, name].join("/");
  for (const object of objects) {
    const [group = "", kind = ""] = [
      object.apiVersion?.includes("/") ? object.apiVersion.split("/")[0] : "",
      object.kind,
    ];
    present.set(place({ group, resource: plural(kind) }, object.metadata.namespace, object.metadata.name), object);
  }
  const unanswered = (question: unknown) =>
    new Failure(500, `no answer is recorded to ${JSON.stringify(question)}; the case's needs must hold one`);
  return {
    get: async (kind, name, namespace) => present.get(place(kind, namespace, name)),
    list: async (kind, namespace) => {
      const prefix = namespace === undefined ? `${kind.group}/${kind.resource}/` : place(kind, namespace);
      return [...present].filter(([key]) => key.startsWith(prefix)).map(([, object]) => object);
    },
    create: async (kind, object) => {
      const key = place(kind, object.metadata?.namespace, object.metadata?.name);
      if (present.has(key)) return "exists";
      present.set(key, object);
      return "created";
    },
    may: async (access) => {
      const { allowed } = may.find((answer) => covers(access, answer)) ?? { allowed: undefined };
      if (allowed === undefined) throw unanswered(access);
      return allowed;
    },
    https: async (request) => {
      const found = https.find(({ answer: _, ...asked }) => covers(request, asked));
      if (found === undefined) throw unanswered(request);
      return found.answer;
    },
  };
};

/** A world that nobody connected. */
export const unconnected = (cluster: string): World => {
  const fail = async () => {
    throw new Failure(503, `nothing can be read from cluster "${cluster}": it has no connection here`);
  };
  return { get: fail, list: fail, create: fail, may: fail, https: fail };
};

/** Every member that the record names is the same in the question. */
const covers = (question: object, record: object): boolean =>
  Object.entries(record).every(
    ([key, value]) => key === "allowed" || JSON.stringify(Reflect.get(question, key)) === JSON.stringify(value),
  );

/** As Kubernetes forms it for every kind it serves. */
export const plural = (kind: string) => {
  const lower = kind.toLowerCase();
  if (lower.endsWith("s") || lower.endsWith("x") || lower.endsWith("ch"))
    return lower === "endpoints" ? lower : `${lower}es`;
  return lower.endsWith("y") && !/[aeiou]y$/.test(lower) ? `${lower.slice(0, -1)}ies` : `${lower}s`;
};
