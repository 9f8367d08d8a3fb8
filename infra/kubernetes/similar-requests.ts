import { exactJson } from "#lib/exact-json.ts";
import { toMap } from "#lib/json.ts";
import { compareQuantities } from "#lib/objects/quantity.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { formatCurrentTime } from "../apiserver/current-time.ts";
import { computeUid } from "../apiserver/object-uid.ts";
import type { KubernetesAnswer, KubernetesRequest } from "./requests.ts";

// Many manifests of one folder differ only in names, images, values and amounts, which an API server stores as they are.
// The module answers one of these requests, and the answers to the others are made from its answer.

/**
 * Reports whether a text is one of those that an API server stores as they are, and treats alike. Each may take the
 * place of another in a request, and then in the answer, too. `key` is the text's key in its map.
 */
type IsReplaceable = (text: string, key: string) => boolean;

/**
 * The places in an object where similar requests may have different texts, such as names, and so get the same answer
 * but for these texts. `*` stands for each member of a map or list.
 */
interface TextPlaces {
  [member: string]: TextPlaces | IsReplaceable;
}

/**
 * Accepts names that are valid for each kind, also as the value of a label. "default" isn't replaceable: in an answer,
 * it may be the ServiceAccount that the API server has set.
 */
const isName: IsReplaceable = (text) => /^[a-z](?:[-a-z0-9]{0,50}[a-z0-9])?$/.test(text) && text !== "default";
const isNamePrefix: IsReplaceable = (text) => /^[a-z][-a-z0-9]{0,50}-$/.test(text);
/** Excludes texts with $(…), which names an environment variable. */
const isText = (text: string) => text !== "" && !text.includes("$(") && text.isWellFormed();
/** Excludes the tag `latest`: an API server sets another imagePullPolicy for it. */
const isTaggedImage: IsReplaceable = (text) => /^[-a-z0-9./]+:(?!latest$)[\w][\w.-]{0,100}$/.test(text);
/** Excludes Kubernetes' own annotations, whose values an API server may interpret. */
const isForeignAnnotation: IsReplaceable = (text, key) => !/(?:kubernetes|k8s)\.io/.test(key) && isText(text);
/** A domain name of at least two parts, which isn't an address. */
const isHost: IsReplaceable = (text) =>
  /^[a-z][-a-z0-9]{0,40}(?:\.[a-z][-a-z0-9]{0,40}){1,4}$/.test(text) && !/-(?:\.|$)/.test(text);
const isUrlPath: IsReplaceable = (text) => /^(?:\/[-a-z0-9]{1,50}){1,5}$/.test(text);

/**
 * Accepts amounts of CPU as an API server writes them, so that equal amounts have equal texts. Excludes "1", which each
 * answer also has as its resourceVersion: an answer isn't reused if a replaceable text is in it at a fixed place, too.
 */
const isCpu: IsReplaceable = (text) => text !== "1" && /^[1-9]\d{0,2}m?$/.test(text);
const isBytes: IsReplaceable = (text) => /^[1-9]\d{0,2}[KMGT]i$/.test(text);

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
/**
 * Marks the place of a list of environment variables. `replaceTexts` takes all variables of the list with plain values
 * as one text, so that similar requests may have different numbers of variables.
 */
const envVariables = {};
/** The fields of containers whose texts may differ between similar requests, with the test that each text must pass. */
const containers = {
  "*": {
    name: isName,
    image: isTaggedImage,
    command: { "*": isText },
    args: { "*": isText },
    env: envVariables,
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
/** For some places, the condition under which texts in the object there are replaceable. */
const placeConditions = new Map<unknown, (object: object) => boolean>([
  // An API server compares a Pod's own resources with those of its containers.
  [podSpec, (spec) => !Object.hasOwn(spec, "resources")],
  // An API server refuses requests above the limits.
  [resources, (object) => areRequestsWithinLimits(toMap(object))],
]);
const areRequestsWithinLimits = ({ requests, limits }: Record<string, unknown>): boolean =>
  Object.entries(toMap(limits)).every(([name, limit]) => {
    const request = toMap(requests)[name] ?? limit;
    return compareQuantities(String(request), String(limit)) <= 0;
  });
const backend = { service: { name: isName } };

/**
 * Where objects of a kind have texts that may differ between similar requests. The functions in it, such as `isName`,
 * report which texts may differ. Other kinds are missing, because manifests seldom have many objects of them.
 */
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

/** A request in two parts: the texts that may differ between similar requests, and the rest. */
interface RequestPattern {
  /** The rest as JSON, with placeholders for `texts`. Requests with the same key are similar. */
  key: string;
  /** The texts that may differ, each once. */
  texts: readonly string[];
  /** Where the request's object may have such texts. */
  places: TextPlaces;
  /** The texts in `key`, which are the same in all similar requests. */
  constantTexts: ReadonlySet<string>;
  /** These members identify the new object. Its uid, which an API server adds in the answer, is computed from them. */
  identity: Pick<KubernetesRequest, "apiVersion" | "kind" | "namespace" | "name">;
}

/** The answer to one request, from which the answers to similar requests are made. */
interface AnswerPattern {
  /** The answered object, with placeholders for the texts of the request that may differ. */
  object: unknown;
  warnings: readonly string[];
  /**
   * The texts of that request, and of its answer, that have no placeholder. If a similar request has one of them where
   * a placeholder is, this pattern isn't used: an API server may treat texts in another way if they are equal.
   */
  constantTexts: ReadonlySet<string>;
}

/**
 * The most characters of a request for which answers to similar requests are reused. An API server's limits are far
 * higher, so its answers don't depend on the lengths of the texts in which such requests differ.
 */
const maxRequestCharacters = 1 << 14;
/** The most answers that are kept, each as a pattern for the answers to similar requests. */
const mostPatterns = 500;
const uid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const time = /^20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ$/;

/**
 * Splits a create request into the texts that may differ between similar requests, and the rest (its pattern). Returns
 * undefined for a request whose answer can't be made from the answer to a similar request.
 */
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

/** Returns a request's pattern. Its key is the same for requests that differ only in replaceable texts at `places`. */
const buildPattern = (
  object: object,
  header: Omit<KubernetesRequest, "object">,
  places: TextPlaces,
): RequestPattern | undefined => {
  const indexes = new Map<string, number>();
  const constantTexts = new Set<string>();
  const toIndex = (text: string) => {
    const index = indexes.get(text) ?? indexes.size;
    indexes.set(text, index);
    return index;
  };
  const pattern = toMap(replaceTexts(object, places, toIndex, constantTexts));
  const { uid: givenUid, creationTimestamp, ...others } = toMap(pattern.metadata);
  // An API server sets these two fields itself, so they don't belong to the key.
  const isSet = uid.test(String(givenUid)) && time.test(String(creationTimestamp));
  const toIndexIfReplaced = (text = "") => indexes.get(text) ?? text;
  const { name, namespace } = header;
  const address = { name: toIndexIfReplaced(name), namespace: toIndexIfReplaced(namespace) };
  const key = exactJson.stringify([{ ...header, ...address }, isSet ? { ...pattern, metadata: others } : pattern]);
  const texts = [...indexes.keys()];
  const size = texts.reduce((sum, { length }) => sum + length, key.length);
  // A placeholder stands for a whole text, not for a part of a name that is joined from two texts, such as POD-VOLUME.
  // In `pattern`, a placeholder is \0 and an index; a constant text, which `pattern` also has, could look the same.
  const isAmbiguous = [...constantTexts].some((text) => text.includes("\0"));
  const isExcluded = size > maxRequestCharacters || hasJoinedNames.test(key) || isAmbiguous;
  return isExcluded ? undefined : { key, texts, places, constantTexts, identity: header };
};

/**
 * Matches the JSON of a request with names that are joined from two texts: the key of an annotation ends with the name
 * of a container, or an API server names the claim of an ephemeral volume after the Pod and the volume. Such a request
 * gets no pattern, because the placeholders of a pattern stand for whole texts.
 */
const hasJoinedNames = /"container\.|"ephemeral"/;

/**
 * Copies a value, and replaces each replaceable text by a placeholder: `\0` followed by an index. Adds all other texts
 * to `constantTexts`. `places` has the form of the value: maps, with `*` for any member of a map or list, and in place
 * of each text a function that reports whether it is replaceable.
 */
const replaceTexts = (
  value: unknown,
  places: TextPlaces | IsReplaceable | undefined,
  toIndex: (text: string) => number,
  constantTexts: Set<string>,
  key = "",
): unknown => {
  if (typeof value === "string") {
    if (typeof places === "function" && places(value, key)) return `\0${toIndex(value)}`;
    constantTexts.add(value);
    return value;
  }
  if (typeof value !== "object" || value === null) return value;
  // Some places count only if the object there meets a condition.
  const hasPlaces = typeof places === "object" && (placeConditions.get(places)?.(value) ?? true);
  const inner = hasPlaces ? places : {};
  const replaceMember = (member: unknown) => replaceTexts(member, inner["*"], toIndex, constantTexts, "*");
  // Environment variables with plain values get one placeholder together: similar requests may have more or fewer.
  if (Array.isArray(value))
    return places === envVariables ? replaceEnvVariables(value, toIndex, replaceMember) : value.map(replaceMember);
  const copy: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    if (name === "__proto__") throw new Error("a copy can't have this member");
    const place = Object.hasOwn(inner, name) ? inner[name] : inner["*"];
    copy[name] = replaceTexts(member, place, toIndex, constantTexts, name);
  }
  return copy;
};

/**
 * Copies a container's environment variables. Neighbours with only a name and a plain value become one placeholder:
 * `\0*` and the index of their JSON among the request's texts. So requests in which only these differ are similar.
 */
const replaceEnvVariables = (
  list: readonly unknown[],
  toIndex: (text: string) => number,
  replaceMember: (member: unknown) => unknown,
): unknown[] => {
  // An API server warns of a name that occurs twice.
  const hasDistinctNames = new Set(list.map((member) => toMap(member).name)).size === list.length;
  const replaced: unknown[] = [];
  let variables: unknown[] = [];
  for (const member of [...list, undefined]) {
    if (hasDistinctNames && isPlainEnvVariable(member)) {
      variables.push(member);
      continue;
    }
    if (variables.length > 0) replaced.push(`\0*${toIndex(JSON.stringify(variables))}`);
    if (member !== undefined) replaced.push(replaceMember(member));
    variables = [];
  }
  return replaced;
};

const isPlainEnvVariable = (member: unknown): boolean => {
  const { name, value, ...others } = toMap(member);
  const hasName = typeof name === "string" && /^[A-Z_][A-Z0-9_]{0,99}$/i.test(name);
  return hasName && typeof value === "string" && isText(value) && Object.keys(others).length === 0;
};

/**
 * Copies a result of `replaceTexts` with texts in place of its placeholders: `\0N` stands for the text N. In a list,
 * `\0*N` stands for several environment variables, whose JSON is the text N.
 */
const fillTexts = (value: unknown, texts: readonly string[]): unknown => {
  if (typeof value === "string") return value.startsWith("\0") ? texts[Number(value.slice(1))] : value;
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value))
    return value.flatMap((member) => {
      const isEnvPlaceholder = typeof member === "string" && member.startsWith("\0*");
      return isEnvPlaceholder ? JSON.parse(texts[Number(member.slice(2))] ?? "") : [fillTexts(member, texts)];
    });
  const copy: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) copy[name] = fillTexts(member, texts);
  return copy;
};

/** Remembers the answers to create requests, and makes from them the answers to similar requests. */
export const createAnswerPatterns = () => {
  const patterns = new Map<string, AnswerPattern>();
  return {
    /** Returns the answer that the API server would give, made from a remembered one; undefined if none is suitable. */
    find({ key, texts, identity }: RequestPattern): KubernetesAnswer | undefined {
      const known = patterns.get(key);
      // If a text equals one of the constant texts, the API server may compare the two, and answer in another way.
      if (known === undefined || texts.some((text) => known.constantTexts.has(text))) return undefined;
      const object = fillTexts(known.object, texts) as KubernetesObject;
      const creationTimestamp = formatCurrentTime();
      Object.assign(toMap(object.metadata), { uid: computeUid(identity), creationTimestamp });
      return { object, warnings: known.warnings };
    },
    /** Remembers an answer, unless one of `texts`, which may differ, is also at a fixed place or in a warning. */
    put(request: RequestPattern, { object, warnings }: KubernetesAnswer): void {
      const { key, texts, places } = request;
      if (object === undefined || patterns.has(key)) return;
      // A warning about an environment variable contains its index, which may differ in similar requests.
      if (warnings.some((warning) => /\.env\[/.test(warning) || texts.some((text) => warning.includes(text)))) return;
      const constantTexts = new Set(request.constantTexts); // `replaceTexts` adds those of the answer.
      let hasOnlyGivenTexts = true;
      const toIndex = (text: string) => {
        const index = texts.indexOf(text);
        if (index < 0) hasOnlyGivenTexts = false;
        return index;
      };
      const pattern = replaceTexts(object, places, toIndex, constantTexts);
      if (!hasOnlyGivenTexts || texts.some((text) => constantTexts.has(text))) return;
      const [oldest] = patterns.size < mostPatterns ? [] : patterns.keys();
      if (oldest !== undefined) patterns.delete(oldest);
      patterns.set(key, { object: pattern, warnings, constantTexts });
    },
  };
};
