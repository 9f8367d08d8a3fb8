import { evaluate } from "./cue/engine.ts";
import { Failure } from "./failure.ts";
import { frozen, isObject } from "./json.ts";
import { memoryLedger } from "./ledger.ts";
import type {
  Access,
  AwsAction,
  AwsRequest,
  Freshness,
  HttpsRequest,
  HttpsResponse,
  Permission,
  Resource,
  Served,
  World,
} from "./needs.ts";
import { splitApiVersion } from "./objects/api-version.ts";
import { isSelected } from "./objects/selection.ts";
import type { KubernetesObject, Status } from "./review.ts";
import type { Rule } from "./rule.ts";

/** An object that the world has. */
export type Present = KubernetesObject & { metadata: { name: string } };

/** What a case says of the world: manifests, and the answers of everything else. */
export interface Recorded {
  objects?: Present[];
  /** What can't be created, and what the API server says against it. */
  refused?: { resource: string; name: string; status: Status }[];
  may?: (Access & Permission)[];
  /** What is served, by group and version such as `apps/v1`. */
  discovery?: Record<string, Served[]>;
  https?: (HttpsRequest & { answer: HttpsResponse })[];
  http?: (HttpsRequest & { answer: HttpsResponse })[];
  aws?: (AwsRequest & { action: AwsAction; answer: HttpsResponse })[];
  /** What earlier reviews left. */
  ledger?: Record<string, unknown>;
  /** What was read: of objects that aren't among it, nobody knows. Where it isn't said, `objects` are all there are. */
  reads?: Read[];
  /** Of kinds such as `k8s.cni.cncf.io/NetworkAttachmentDefinition`, whose plural is none of the usual forms. */
  plurals?: Record<string, string>;
}

/** One object that was read, or a list; what doesn't say its namespace is of all of them. */
export interface Read extends Pick<Freshness, "most" | "labels"> {
  group: string;
  resource: string;
  namespace?: string;
  name?: string;
}

/** A world that is written down; what isn't there can't be read by guess. */
export const recorded = (given: Recorded): World => {
  const { https = [], http = [], aws = [] } = given;
  const ledger = memoryLedger();
  for (const [key, value] of Object.entries(given.ledger ?? {})) ledger.change(key, () => value);
  return {
    ...recordedObjects(given),
    ...recordedAccess(given),
    https: async (request) => answerTo(request, https),
    http: async (request) => answerTo(request, http),
    aws: async (action, request) => answerTo({ action, ...request }, aws),
    cue: evaluate,
    ledger: () => ledger,
    count: () => {},
  };
};

const recordedObjects = ({
  objects = [],
  refused = [],
  plurals = {},
  reads,
}: Recorded): Pick<World, "get" | "list" | "create"> => {
  const place = ({ group, resource }: Resource, namespace = "", name = "") =>
    [group, resource, namespace, name].join("/");
  const placeOf = ({ apiVersion = "", kind = "", metadata }: Present) => {
    const { group } = splitApiVersion(apiVersion);
    const resource = plurals[`${group}/${kind}`] ?? plural(kind);
    return place({ group, resource }, metadata.namespace, metadata.name);
  };
  const present = new Map<string, KubernetesObject>(objects.map((object) => [placeOf(object), frozen(object)]));
  const expect = (question: object) => {
    if (reads && !reads.some((read) => covers(question, read))) throw unanswered(question);
  };
  return {
    get: async ({ group, resource }, name, namespace) => {
      const found = present.get(place({ group, resource }, namespace, name));
      if (!found) expect({ group, resource, namespace, name });
      return found;
    },
    list: async (kind, namespace, { most, labels } = {}) => {
      expect({ group: kind.group, resource: kind.resource, namespace, most, labels });
      const prefix = namespace === undefined ? `${kind.group}/${kind.resource}/` : place(kind, namespace);
      const found = [...present].filter(([key]) => key.startsWith(prefix));
      // As the API server lists them.
      const objects = found.sort(([one], [other]) => (one < other ? -1 : 1)).map(([, object]) => object);
      return objects.filter(({ metadata }) => !labels || isSelected(labels, metadata?.labels)).slice(0, most);
    },
    create: async (kind, object) => {
      const key = place(kind, object.metadata?.namespace, object.metadata?.name);
      if (present.has(key)) return "exists";
      const refusal = refused.find(
        ({ resource, name }) => resource === kind.resource && name === object.metadata?.name,
      );
      if (refusal) return { refused: refusal.status };
      present.set(key, object);
      return "created";
    },
  };
};

const recordedAccess = ({ may = [], discovery }: Recorded): Pick<World, "may" | "discover"> => ({
  may: async (access) => {
    const found = may.find(({ allowed: _, reason: __, evaluationError: ___, ...asked }) => covers(access, asked));
    if (found === undefined) throw unanswered(access);
    const { allowed, reason, evaluationError } = found;
    return { allowed, ...(reason && { reason }), ...(evaluationError && { evaluationError }) };
  },
  discover: async (groupVersion) => {
    if (discovery === undefined) throw unanswered({ discovery: groupVersion });
    return Object.hasOwn(discovery, groupVersion) ? discovery[groupVersion] : undefined;
  },
});

const answerTo = (question: object, known: { answer: HttpsResponse }[]): HttpsResponse => {
  const found = known.find(({ answer: _, ...asked }) => covers(question, asked));
  if (found === undefined) throw unanswered(question);
  return found.answer;
};

const unanswered = (question: unknown) =>
  new Failure(500, `no answer is recorded to ${JSON.stringify(question, spoken)}; the case's needs must hold one`);

/** The world that a direct invocation brings along. */
export function recordedFor({ needs }: Rule, given: unknown): World | undefined {
  return needs && isObject(given) ? recorded(given) : undefined;
}

/** Without what is secret, or no question. */
const spoken = (name: string, value: unknown) => (/^(authorization|connect)$/i.test(name) ? undefined : value);

/** Every member that the record names is the same in the question. */
const covers = (question: object, record: object): boolean =>
  Object.entries(record).every(([key, value]) => JSON.stringify(Reflect.get(question, key)) === JSON.stringify(value));

/** As Kubernetes forms it for every kind it serves. */
export const plural = (kind: string) => {
  const lower = kind.toLowerCase();
  if (lower.endsWith("s") || lower.endsWith("x") || lower.endsWith("ch"))
    return lower === "endpoints" ? lower : `${lower}es`;
  return lower.endsWith("y") && !/[aeiou]y$/.test(lower) ? `${lower.slice(0, -1)}ies` : `${lower}s`;
};
