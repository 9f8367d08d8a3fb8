import { randomUUID } from "node:crypto";
import { exactJson } from "#lib/exact-json.ts";
import { toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { KubernetesAnswer, KubernetesRequest } from "./requests.ts";

// Many manifests of one folder differ in names, images and values only, which an API server stores as they are. One request
// of them is answered by the module, and the answers to the others are made from its answer.

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

const labels = { "*": isName };
const annotations = { "*": isForeignAnnotation };
const metadata = {
  name: isName,
  generateName: isNamePrefix,
  labels,
  annotations,
  ownerReferences: { "*": { name: isName } },
};
const containers = {
  "*": {
    name: isName,
    image: isTaggedImage,
    command: { "*": isText },
    args: { "*": isText },
    env: { "*": { value: isText } },
    volumeMounts: { "*": { name: isName } },
  },
};
const podSpec = {
  serviceAccountName: isName,
  serviceAccount: isName,
  initContainers: containers,
  containers,
  volumes: { "*": { name: isName, configMap: { name: isName }, secret: { secretName: isName } } },
};
const workload = {
  metadata,
  spec: {
    serviceName: isName,
    selector: { matchLabels: labels },
    template: { metadata: { labels, annotations }, spec: podSpec },
  },
};

/** The kinds of which a check has many, and whose requests take long. */
const placesByKind: ReadonlyMap<string, TextPlaces> = new Map<string, TextPlaces>([
  ["v1 Pod", { metadata, spec: podSpec }],
  ...["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"].map((kind) => [`apps/v1 ${kind}`, workload] as const),
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
  object: string;
  fixed: ReadonlySet<string>;
}

/** Far below the limits of an API server, so that the lengths of texts never decide; and few objects are larger. */
const largestText = 1 << 14;
const mostPatterns = 500;
const placeholder = /"\\u0000(\d+)"/g;
const uid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const time = /^20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ$/;

/** Returns the pattern of a creation; undefined if its answer can't be that of another one. */
export const toRequestPattern = (request: KubernetesRequest): RequestPattern | undefined => {
  const { object: text, oldObject, verb, apiVersion, kind, subresource } = request;
  const places = placesByKind.get(`${apiVersion} ${kind}`);
  if (places === undefined || verb !== "create" || subresource || oldObject !== undefined) return undefined;
  if (typeof text !== "string" || text.length > largestText || joinsTexts.test(text)) return undefined;
  try {
    return buildPattern(request, text, places);
  } catch {
    // The text is no JSON, or its lists are too deep.
    return undefined;
  }
};

/**
 * Matches objects in which an API server joins texts: annotations whose keys end with a container's name, and volumes whose
 * claims have the names of a Pod and a volume. A placeholder begins with `\0`.
 */
const joinsTexts = /"container\.|"ephemeral"|\\u0000/;

const buildPattern = (request: KubernetesRequest, text: string, places: TextPlaces): RequestPattern | undefined => {
  const object = exactJson.parse(text);
  // A repeated key would be lost.
  if (exactJson.stringify(object) !== text) return undefined;
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
  const { object: _object, ...header } = request;
  const name = indexes.get(request.name ?? "") ?? request.name;
  const key = exactJson.stringify([{ ...header, name }, isSet ? { ...pattern, metadata: others } : pattern]);
  return { key, texts: [...indexes.keys()], places, fixed };
};

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
  const inner = typeof places === "object" ? places : {};
  const replace = (member: unknown, name: string) => {
    const place = Object.hasOwn(inner, name) ? inner[name] : inner["*"];
    return replaceTexts(member, place, toIndex, fixed, name);
  };
  return Array.isArray(value)
    ? value.map((member) => replace(member, "*"))
    : Object.fromEntries(Object.entries(value).map(([name, member]) => [name, replace(member, name)]));
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
      const text = known.object.replace(placeholder, (_, index) => JSON.stringify(texts[Number(index)]));
      const object = exactJson.parse(text) as KubernetesObject;
      const creationTimestamp = new Date().toISOString().replace(/\.\d+/, "");
      Object.assign(toMap(object.metadata), { uid: randomUUID(), creationTimestamp });
      return { object, warnings: [] };
    },
    /** Remembers an answer, unless it has warnings or texts that are also elsewhere. */
    put({ key, texts, places, fixed: given }: RequestPattern, { object, warnings }: KubernetesAnswer): void {
      if (object === undefined || warnings.length > 0 || patterns.has(key)) return;
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
      patterns.set(key, { object: exactJson.stringify(pattern), fixed });
    },
  };
};
