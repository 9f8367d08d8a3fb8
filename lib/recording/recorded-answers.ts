import { toAccessAnswer } from "../core/capabilities.ts";
import { Failure } from "../failure.ts";
import { freezeDeep } from "../json.ts";
import { createMemoryLedger } from "../ledger.ts";
import type {
  AccessAnswer,
  AccessQuestion,
  AwsAction,
  AwsRequest,
  Capabilities,
  HttpsRequest,
  HttpsResponse,
  ReadOptions,
  ResourceType,
  ServedResource,
} from "../needs.ts";
import { splitApiVersion } from "../objects/api-version.ts";
import { isSelected } from "../objects/selection.ts";
import type { KubernetesObject, Status } from "../review.ts";

export type NamedKubernetesObject = KubernetesObject & { metadata: { name: string } };

/** The answers of a cluster and of services to the questions of a rule, as a case or a recording states them. */
export interface RecordedCapabilityAnswers {
  objects?: NamedKubernetesObject[];
  refused?: { resource: string; name: string; status: Status }[];
  may?: (AccessQuestion & AccessAnswer)[];
  discovery?: Record<string, ServedResource[]>;
  https?: (HttpsRequest & { answer: HttpsResponse })[];
  http?: (HttpsRequest & { answer: HttpsResponse })[];
  aws?: (AwsRequest & { action: AwsAction; answer: HttpsResponse })[];
  ledger?: Record<string, unknown>; // The entries of the rule's ledger (the state that it stores), by key.
  cluster?: string;
  /** The recorded reads of the cluster. Any other read fails. Without `reads`, the cluster has exactly `objects`. */
  reads?: RecordedRead[];
  /** Irregular plurals by `group/kind`, such as `k8s.cni.cncf.io/NetworkAttachmentDefinition`. */
  plurals?: Record<string, string>;
}

/** A recorded read of an object, or of the first `most` objects that `labels` selects. No `namespace` means any. */
export interface RecordedRead extends Pick<ReadOptions, "most" | "labels"> {
  group: string;
  resource: string;
  namespace?: string;
  name?: string;
}

/** Returns capabilities that give recorded answers. Questions without a recorded answer fail. */
export const createRecordedCapabilities = (recorded: RecordedCapabilityAnswers): Capabilities => {
  const { https = [], http = [], aws = [] } = recorded;
  const ledger = createMemoryLedger();
  const recordedEntries = recorded.ledger ?? {};
  ledger.change(Object.keys(recordedEntries), () => Object.values(recordedEntries));
  return {
    ...createObjectCapabilities(recorded),
    ...createAccessCapabilities(recorded),
    https: async (request) => findAnswer(request, https),
    http: async (request) => findAnswer(request, http),
    aws: async (action, request) => findAnswer({ action, ...request }, aws),
    cue: (source, evaluate) => evaluate(source),
    ledger: () => ledger,
    cluster: recorded.cluster ?? "",
    count: () => {},
  };
};

/** Answers reads and writes from `objects`. With `reads`, other reads fail; without, the cluster has just `objects`. */
const createObjectCapabilities = ({
  objects = [],
  refused = [],
  plurals = {},
  reads,
}: RecordedCapabilityAnswers): Pick<Capabilities, "get" | "list" | "create" | "updateStatus"> => {
  const buildKey = ({ group, resource }: ResourceType, namespace = "", name = "") =>
    [group, resource, namespace, name].join("/");
  const getObjectKey = ({ apiVersion = "", kind = "", metadata }: NamedKubernetesObject) => {
    const { group } = splitApiVersion(apiVersion);
    const resource = plurals[`${group}/${kind}`] ?? toPlural(kind);
    return buildKey({ group, resource }, metadata.namespace, metadata.name);
  };
  const present = new Map<string, KubernetesObject>(
    objects.map((object) => [getObjectKey(object), freezeDeep(object)]),
  );
  const requireRecorded = (question: object) => {
    if (reads && !reads.some((read) => hasMembersOf(question, read))) throw createUnansweredFailure(question);
  };
  const findRefusal = (kind: ResourceType, { metadata }: KubernetesObject) =>
    refused.find(({ resource, name }) => resource === kind.resource && name === metadata?.name);
  return {
    get: async ({ group, resource }, name, namespace) => {
      const found = present.get(buildKey({ group, resource }, namespace, name));
      if (!found) requireRecorded({ group, resource, namespace, name });
      return found;
    },
    list: async (kind, namespace, { most, labels } = {}) => {
      requireRecorded({ group: kind.group, resource: kind.resource, namespace, most, labels });
      const prefix = namespace === undefined ? `${kind.group}/${kind.resource}/` : buildKey(kind, namespace);
      const found = [...present].filter(([key]) => key.startsWith(prefix));
      // Objects are sorted by key, as the API server lists them.
      const objects = found.sort(([left], [right]) => (left < right ? -1 : 1)).map(([, object]) => object);
      return objects.filter(({ metadata }) => !labels || isSelected(labels, metadata?.labels)).slice(0, most);
    },
    create: async (kind, object) => {
      const key = buildKey(kind, object.metadata?.namespace, object.metadata?.name);
      if (present.has(key)) return "exists";
      const refusal = findRefusal(kind, object);
      if (refusal) return { refused: refusal.status };
      present.set(key, object);
      return "created";
    },
    updateStatus: async (kind, object) => {
      const refusal = findRefusal(kind, object);
      if (refusal) return { refused: refusal.status };
      const key = buildKey(kind, object.metadata?.namespace, object.metadata?.name);
      const found = present.get(key);
      if (!found || found.metadata?.resourceVersion !== object.metadata?.resourceVersion) return "changed";
      const resourceVersion = `${found.metadata?.resourceVersion ?? ""}1`;
      present.set(key, freezeDeep({ ...object, metadata: { ...found.metadata, resourceVersion } }));
      return "updated";
    },
  };
};

/** Answers a rule's questions about rights and kinds from a recording. */
const createAccessCapabilities = ({
  may = [],
  discovery,
}: RecordedCapabilityAnswers): Pick<Capabilities, "may" | "discover"> => ({
  may: async (access) => {
    const found = may.find(({ allowed: _, reason: __, evaluationError: ___, ...asked }) => hasMembersOf(access, asked));
    if (found === undefined) throw createUnansweredFailure(access);
    return toAccessAnswer(found);
  },
  discover: async (groupVersion) => {
    if (discovery === undefined) throw createUnansweredFailure({ discovery: groupVersion });
    return Object.hasOwn(discovery, groupVersion) ? discovery[groupVersion] : undefined;
  },
});

const findAnswer = (question: object, recordedAnswers: { answer: HttpsResponse }[]): HttpsResponse => {
  const found = recordedAnswers.find(({ answer: _, ...recorded }) => hasMembersOf(question, recorded));
  if (found === undefined) throw createUnansweredFailure(question);
  return found.answer;
};

/** The error if a case or a recording has no answer to a question of its rule. */
export class UnansweredFailure extends Failure {}

const createUnansweredFailure = (question: unknown) =>
  new UnansweredFailure(
    500,
    `no answer is recorded to ${JSON.stringify(question, omitSecrets)}; add one to the case's needs`,
  );

/** A replacer for JSON.stringify that leaves out Authorization headers and `connect` options. */
const omitSecrets = (name: string, value: unknown) => (/^(authorization|connect)$/i.test(name) ? undefined : value);

/** Reports whether a question is the recorded one. It may have more members, such as options that aren't recorded. */
const hasMembersOf = (question: object, recordedQuestion: object): boolean =>
  Object.entries(recordedQuestion).every(
    ([key, value]) => JSON.stringify(Reflect.get(question, key)) === JSON.stringify(value),
  );

/** Returns the plural of a kind in lower case, such as `ingresses`. It is formed as for Kubernetes' own kinds. */
export const toPlural = (kind: string) => {
  const lower = kind.toLowerCase();
  if (lower.endsWith("s") || lower.endsWith("x") || lower.endsWith("ch"))
    return lower === "endpoints" ? lower : `${lower}es`;
  return lower.endsWith("y") && !/[aeiou]y$/.test(lower) ? `${lower.slice(0, -1)}ies` : `${lower}s`;
};
