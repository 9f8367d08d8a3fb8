import { randomUUID } from "node:crypto";
import { exactJson } from "#lib/exact-json.ts";
import { toMap } from "#lib/json.ts";
import { compareQuantities } from "#lib/objects/quantity.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { KubernetesAnswer, KubernetesRequest } from "./requests.ts";

// Many manifests of one folder differ only in names, images, values and amounts, which an API server stores as they are.
// The module answers one of these requests, and the answers to the others are made from its answer.

/** Reports whether an API server stores a text as it is, and does the same for each other text of its class. */
type TextClass = (text: string, key: string) => boolean;

/** The places of such texts in an object; `*` stands for each member of a map or list. */
interface TextPlaces {
  [member: string]: TextPlaces | TextClass;
}

/** A name that each kind accepts, also as the value of a label. A Pod without a ServiceAccount gets the default one. */
const isName: TextClass = (text) => /^[a-z](?:[-a-z0-9]{0,50}[a-z0-9])?$/.test(text) && text !== "default";
const isNamePrefix: TextClass = (text) => /^[a-z][-a-z0-9]{0,50}-$/.test(text);
/** In values of env, $(…) names other variables. */
const isText: TextClass = (text) => text !== "" && !text.includes("$(") && text.isWellFormed();
/** The policy for pulling an image depends on whether its tag is latest. */
const isTaggedImage: TextClass = (text) => /^[-a-z0-9./]+:(?!latest$)[\w][\w.-]{0,100}$/.test(text);
const isForeignAnnotation: TextClass = (text, key) => !/(?:kubernetes|k8s)\.io/.test(key) && isText(text, key);
/** A domain name of at least two parts, which isn't an address. */
const isHost: TextClass = (text) =>
  /^[a-z][-a-z0-9]{0,40}(?:\.[a-z][-a-z0-9]{0,40}){1,4}$/.test(text) && !/-(?:\.|$)/.test(text);
const isUrlPath: TextClass = (text) => /^(?:\/[-a-z0-9]{1,50}){1,5}$/.test(text);

/**
 * Amounts as an API server writes them: two of them are equal only if their texts are equal. "1" is left out, because
 * the resourceVersion of each answer is "1".
 */
const isCpu: TextClass = (text) => text !== "1" && /^[1-9]\d{0,2}m?$/.test(text);
const isBytes: TextClass = (text) => /^[1-9]\d{0,2}[KMGT]i$/.test(text);

const labels = { "*": isName };
const annotations = { "*": isForeignAnnotation };
const metadata = {
  name: isName,
  namespace: isName,
  generateName: isNamePrefix,
  labels,
  annotations,
  ownerReferences: { "*": { name: isName } },
};
const amounts = { cpu: isCpu, memory: isBytes, storage: isBytes };
const resources = { requests: amounts, limits: amounts };
/** The place of a list of variables: those with values become one text together, so lists may have other lengths. */
const env = {};
/** The fields of containers whose texts may differ between similar requests, each with the test that both must pass. */
const containers = {
  "*": {
    name: isName,
    image: isTaggedImage,
    command: { "*": isText },
    args: { "*": isText },
    env,
    volumeMounts: { "*": { name: isName } },
    resources,
  },
};
const podSpec = {
  serviceAccountName: isName,
  serviceAccount: isName,
  initContainers: containers,
  containers,
  volumes: { "*": { name: isName, configMap: { name: isName }, secret: { secretName: isName } } },
};
const template = { metadata: { labels, annotations }, spec: podSpec };
const workload = { metadata, spec: { serviceName: isName, selector: { matchLabels: labels }, template } };
/** Places whose texts an API server compares with others, unless their object meets the condition. */
const conditions = new Map<unknown, (object: object) => boolean>([
  // The resources of containers are compared with those of their Pod.
  [podSpec, (spec) => !Object.hasOwn(spec, "resources")],
  [resources, (object) => areRequestsWithinLimits(toMap(object))],
]);
const areRequestsWithinLimits = ({ requests, limits }: Record<string, unknown>): boolean =>
  Object.entries(toMap(limits)).every(([name, limit]) => {
    const request = toMap(requests)[name] ?? limit;
    return compareQuantities(String(request), String(limit)) <= 0;
  });
const backend = { service: { name: isName } };

/** The kinds of which a check has many. */
const placesByKind: ReadonlyMap<string, TextPlaces> = new Map<string, TextPlaces>([
  ["v1 Pod", { metadata, spec: podSpec }],
  ...["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"].map((kind) => [`apps/v1 ${kind}`, workload] as const),
  ["batch/v1 CronJob", { metadata, spec: { jobTemplate: { metadata: { labels, annotations }, spec: { template } } } }],
  ["v1 ConfigMap", { metadata, data: { "*": isText } }],
  ["v1 Namespace", { metadata }],
  ["v1 PersistentVolumeClaim", { metadata, spec: { storageClassName: isName, resources } }],
  ["v1 Service", { metadata, spec: { selector: labels } }],
  ["v1 ServiceAccount", { metadata }],
  ["networking.k8s.io/v1 NetworkPolicy", { metadata, spec: { podSelector: { matchLabels: labels } } }],
  ["policy/v1 PodDisruptionBudget", { metadata, spec: { selector: { matchLabels: labels } } }],
  [
    "networking.k8s.io/v1 Ingress",
    {
      metadata,
      spec: {
        defaultBackend: backend,
        tls: { "*": { hosts: { "*": isHost }, secretName: isName } },
        rules: { "*": { host: isHost, http: { paths: { "*": { path: isUrlPath, backend } } } } },
      },
    },
  ],
]);

/** A request without its texts: requests with the same key differ in these texts only. */
interface RequestPattern {
  key: string;
  texts: readonly string[];
  places: TextPlaces;
  /** The other texts of the request. */
  fixed: ReadonlySet<string>;
}

/** An answer without the texts of its request. */
interface AnswerPattern {
  object: unknown;
  warnings: readonly string[];
  fixed: ReadonlySet<string>;
}

/** Far below the limits of an API server, so that the lengths of texts never decide; and few objects are larger. */
const largestText = 1 << 14;
const mostPatterns = 500;
const uid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const time = /^20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ$/;

/** Returns the pattern of a creation; undefined if its answer can't be that of another one. */
export const toRequestPattern = ({ object, ...header }: KubernetesRequest): RequestPattern | undefined => {
  const { oldObject, verb, apiVersion, kind, subresource } = header;
  const places = placesByKind.get(`${apiVersion} ${kind}`);
  if (places === undefined || verb !== "create" || subresource || oldObject !== undefined) return undefined;
  if (typeof object !== "object" || object instanceof Uint8Array) return undefined;
  try {
    return buildPattern(object, header, places);
  } catch {
    // The object is too deep, or an amount can't be read.
    return undefined;
  }
};

const buildPattern = (
  object: object,
  header: Omit<KubernetesRequest, "object">,
  places: TextPlaces,
): RequestPattern | undefined => {
  const indexes = new Map<string, number>();
  const fixed = new Set<string>();
  const toIndex = (text: string) => {
    const index = indexes.get(text) ?? indexes.size;
    indexes.set(text, index);
    return index;
  };
  const pattern = toMap(replaceTexts(object, places, toIndex, fixed));
  const { uid: givenUid, creationTimestamp, ...others } = toMap(pattern.metadata);
  // An API server sets these itself.
  const isSet = uid.test(String(givenUid)) && time.test(String(creationTimestamp));
  const toPlaceholder = (text = "") => indexes.get(text) ?? text;
  const { name, namespace } = header;
  const address = { name: toPlaceholder(name), namespace: toPlaceholder(namespace) };
  const key = exactJson.stringify([{ ...header, ...address }, isSet ? { ...pattern, metadata: others } : pattern]);
  const texts = [...indexes.keys()];
  const size = texts.reduce((sum, { length }) => sum + length, key.length);
  const hasPlaceholders = [...fixed].some((text) => text.includes("\0"));
  return size > largestText || joinsTexts.test(key) || hasPlaceholders ? undefined : { key, texts, places, fixed };
};

/**
 * Matches objects in which an API server joins texts: annotations whose keys end with a container's name, and volumes
 * whose claims have the names of a Pod and a volume.
 */
const joinsTexts = /"container\.|"ephemeral"/;

/** Copies a value with `\0` and an index in place of each text at a place. The other texts are added to `fixed`. */
const replaceTexts = (
  value: unknown,
  places: TextPlaces | TextClass | undefined,
  toIndex: (text: string) => number,
  fixed: Set<string>,
  key = "",
): unknown => {
  if (typeof value === "string") {
    if (typeof places === "function" && places(value, key)) return `\0${toIndex(value)}`;
    fixed.add(value);
    return value;
  }
  if (typeof value !== "object" || value === null) return value;
  const hasPlaces = typeof places === "object" && (conditions.get(places)?.(value) ?? true);
  const inner = hasPlaces ? places : {};
  const replaceMember = (member: unknown) => replaceTexts(member, inner["*"], toIndex, fixed, "*");
  if (Array.isArray(value))
    return places === env ? replaceVariables(value, toIndex, replaceMember) : value.map(replaceMember);
  const copy: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    if (name === "__proto__") throw new Error("a copy can't have this member");
    const place = Object.hasOwn(inner, name) ? inner[name] : inner["*"];
    copy[name] = replaceTexts(member, place, toIndex, fixed, name);
  }
  return copy;
};

/** Puts `\0*` and the index of a text in place of variables that follow each other and only have values. */
const replaceVariables = (
  list: readonly unknown[],
  toIndex: (text: string) => number,
  replaceMember: (member: unknown) => unknown,
): unknown[] => {
  // An API server warns of a name that occurs twice.
  const hasDistinctNames = new Set(list.map((member) => toMap(member).name)).size === list.length;
  const replaced: unknown[] = [];
  let variables: unknown[] = [];
  for (const member of [...list, undefined]) {
    if (hasDistinctNames && isVariableWithValue(member)) {
      variables.push(member);
      continue;
    }
    if (variables.length > 0) replaced.push(`\0*${toIndex(JSON.stringify(variables))}`);
    if (member !== undefined) replaced.push(replaceMember(member));
    variables = [];
  }
  return replaced;
};

const isVariableWithValue = (member: unknown): boolean => {
  const { name, value, ...others } = toMap(member);
  const hasName = typeof name === "string" && /^[A-Z_][A-Z0-9_]{0,99}$/i.test(name);
  return hasName && typeof value === "string" && isText(value, "") && Object.keys(others).length === 0;
};

/** Copies a value of `replaceTexts`, with other texts. */
const fillTexts = (value: unknown, texts: readonly string[]): unknown => {
  if (typeof value === "string") return value.startsWith("\0") ? texts[Number(value.slice(1))] : value;
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value))
    return value.flatMap((member) => {
      const isVariables = typeof member === "string" && member.startsWith("\0*");
      return isVariables ? JSON.parse(texts[Number(member.slice(2))] ?? "") : [fillTexts(member, texts)];
    });
  const copy: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) copy[name] = fillTexts(member, texts);
  return copy;
};

/** Remembers the answers to creations, for others that differ in texts only. */
export const createAnswerPatterns = () => {
  const patterns = new Map<string, AnswerPattern>();
  return {
    /** Returns the answer that the module would give; undefined if that isn't known. */
    find({ key, texts }: RequestPattern): KubernetesAnswer | undefined {
      const known = patterns.get(key);
      // A text that is also elsewhere may be compared with that.
      if (known === undefined || texts.some((text) => known.fixed.has(text))) return undefined;
      const object = fillTexts(known.object, texts) as KubernetesObject;
      const creationTimestamp = new Date().toISOString().replace(/\.\d+/, "");
      Object.assign(toMap(object.metadata), { uid: randomUUID(), creationTimestamp });
      return { object, warnings: known.warnings };
    },
    /** Remembers an answer, unless it has texts that are also elsewhere, or in a warning. */
    put({ key, texts, places, fixed: given }: RequestPattern, { object, warnings }: KubernetesAnswer): void {
      if (object === undefined || patterns.has(key)) return;
      // A warning of a variable has the variable's index.
      if (warnings.some((warning) => /\.env\[/.test(warning) || texts.some((text) => warning.includes(text)))) return;
      const fixed = new Set(given);
      let isOwn = true;
      const toIndex = (text: string) => {
        const index = texts.indexOf(text);
        if (index < 0) isOwn = false;
        return index;
      };
      const pattern = replaceTexts(object, places, toIndex, fixed);
      if (!isOwn || texts.some((text) => fixed.has(text))) return;
      const [oldest] = patterns.size < mostPatterns ? [] : patterns.keys();
      if (oldest !== undefined) patterns.delete(oldest);
      patterns.set(key, { object: pattern, warnings, fixed });
    },
  };
};
