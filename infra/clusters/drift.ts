import { isDeepStrictEqual } from "node:util";
import { isMap, toMap } from "#lib/json.ts";
import { type DeployedKind, type DeployedObject, describeObject, hideUrlKeys, toReference } from "./api.ts";

/** A difference between an object in the cluster, or one of its webhook entries, and the wanted object. */
export interface DeployedObjectDifference {
  kind: DeployedKind;
  name: string;
  entry?: string;
  what: "missing" | "left over" | "different";
  /** Without keys. */
  sentence: string;
}

/** Compares a live object with the wanted one. Either both have the API server's defaults, or neither has. */
export const compareObjects = (live: DeployedObject, wanted: DeployedObject): DeployedObjectDifference[] => {
  const { webhooks: liveEntries, ...own } = selectFields(live);
  const { webhooks: wantedEntries, ...wantedOwn } = selectFields(wanted);
  const { labels, annotations } = wanted.metadata;
  const found = [
    ...compareMarks("label", live.metadata.labels, labels),
    ...compareMarks("annotation", live.metadata.annotations, annotations),
    ...compareFields(own, wantedOwn),
  ];
  return [
    ...found.map((words) => toObjectDifference(wanted, `: ${words}`)),
    ...compareEntries(wanted, toNamedWebhookEntries(liveEntries), toNamedWebhookEntries(wantedEntries)),
  ];
};

export const compareManifests = (
  before: readonly DeployedObject[],
  wanted: readonly DeployedObject[],
): DeployedObjectDifference[] => {
  const find = (all: readonly DeployedObject[], { kind, metadata: { name } }: DeployedObject) =>
    all.find((object) => object.kind === kind && object.metadata.name === name);
  return [
    ...wanted.flatMap((object) => {
      const old = find(before, object);
      return old ? compareObjects(old, object) : buildMissingDifferences(object);
    }),
    ...before.filter((object) => find(wanted, object) === undefined).flatMap(buildUnwantedDifferences),
  ];
};

export const buildMissingDifferences = (wanted: DeployedObject): DeployedObjectDifference[] =>
  describeEach(wanted, missingWords);

export const buildUnwantedDifferences = (live: DeployedObject): DeployedObjectDifference[] =>
  describeEach(live, unwantedWords);

const missingWords = "is missing";
const unwantedWords = "should not be there";

/**
 * Returns a difference with these words for each entry of a webhook configuration, or one for any other object as a
 * whole.
 */
const describeEach = (object: DeployedObject, words: string): DeployedObjectDifference[] => {
  const entries = toNamedWebhookEntries(object.webhooks);
  return entries.length === 0
    ? [toObjectDifference(object, ` ${words}`)]
    : entries.map(({ name }) => toEntryDifference(object, name, ` ${words}`));
};

const toObjectDifference = (object: DeployedObject, words: string): DeployedObjectDifference => {
  const { kind, metadata } = object;
  const sentence = hideUrlKeys(`${describeObject(toReference(object))}${words}`);
  return { kind, name: metadata.name, what: classifyDifference(words), sentence };
};

const classifyDifference = (words: string): DeployedObjectDifference["what"] => {
  if (words === ` ${missingWords}`) return "missing";
  return words === ` ${unwantedWords}` ? "left over" : "different";
};

/**
 * Describes how a webhook entry differs. Names the phase, because a rule's entries of both phases have the same name.
 */
const toEntryDifference = (
  { kind, metadata }: DeployedObject,
  entry: string,
  words: string,
): DeployedObjectDifference => {
  const phase = kind.replace("WebhookConfiguration", "").toLowerCase();
  const sentence = hideUrlKeys(`${phase} entry ${entry}${words}`);
  return { kind, name: metadata.name, entry, what: classifyDifference(words), sentence };
};

/**
 * Returns an object's fields to compare with the deployed ones; of a Secret only its type: controllers set its data.
 */
const selectFields = ({ apiVersion: _, kind, metadata: __, ...fields }: DeployedObject): Fields =>
  kind === "Secret" || kind === "ServiceAccount" ? { ...("type" in fields && { type: fields.type }) } : fields;

type Fields = Record<string, unknown>;

interface Named extends Fields {
  name: string;
}

const isNamed = (value: unknown): value is Named => typeof toMap(value).name === "string";

export const toNamedWebhookEntries = (webhooks: unknown): Named[] =>
  Array.isArray(webhooks) ? webhooks.filter(isNamed) : [];

const compareEntries = (object: DeployedObject, live: Named[], wanted: Named[]): DeployedObjectDifference[] => {
  const names = live.map(({ name }) => name).filter((name) => wanted.some((entry) => entry.name === name));
  const order = wanted.map(({ name }) => name).filter((name) => names.includes(name));
  return [
    ...wanted.flatMap((entry) => {
      const found = live.find(({ name }) => name === entry.name);
      const words = found ? compareFields(found, entry).map((field) => `: ${field}`) : [` ${missingWords}`];
      return words.map((word) => toEntryDifference(object, entry.name, word));
    }),
    ...live
      .filter(({ name }) => !wanted.some((entry) => entry.name === name))
      .map(({ name }) => toEntryDifference(object, name, ` ${unwantedWords}`)),
    ...(isDeepStrictEqual(names, order)
      ? []
      : [toObjectDifference(object, `: its entries have the order ${names.join(", ")}, not ${order.join(", ")}`)]),
  ];
};

/**
 * Describes each wanted label or annotation that is missing or differs in the cluster; all others belong to other
 * clients.
 */
const compareMarks = (what: string, live: Record<string, string> = {}, wanted: Record<string, string> = {}): string[] =>
  Object.entries(wanted)
    .filter(([key, value]) => live[key] !== value)
    .map(([key, value]) =>
      live[key] === undefined ? `${what} ${key} is missing` : `${what} ${key} is ${live[key]}, not ${value}`,
    );

const compareFields = (live: Fields, wanted: Fields, path = ""): string[] =>
  [...new Set([...Object.keys(wanted), ...Object.keys(live)])].flatMap((key) => {
    const [is, should] = [live[key], wanted[key]];
    const place = `${path}${key}`;
    if (isDeepStrictEqual(is, should)) return [];
    if (key === "caBundle" && is !== undefined && should !== undefined) return [`${place} is another certificate`];
    if (key === "url" && hideUrlKeys(String(is)) === hideUrlKeys(String(should)))
      return [`${place} has another key than ${should}`];
    if (isMap(is) && isMap(should)) return compareFields(is, should, `${place}.`);
    if (isListOfNamed(is) && isListOfNamed(should)) {
      const found = compareFields(indexByName(is), indexByName(should), `${place}.`);
      return found.length > 0 ? found : [`${place} are in another order`];
    }
    if (is === undefined) return [`${place} is missing; it should be ${formatValue(should)}`];
    return [
      should === undefined
        ? `${place} is ${formatValue(is)}, but should not be set`
        : `${place} is ${formatValue(is)}, not ${formatValue(should)}`,
    ];
  });

const isListOfNamed = (value: unknown): value is Named[] =>
  Array.isArray(value) && value.every(isNamed) && new Set(value.map(({ name }) => name)).size === value.length;

const indexByName = (list: Named[]): Fields => Object.fromEntries(list.map((entry) => [entry.name, entry]));

const maxLength = 160;

const formatValue = (value: unknown): string => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const short = hideUrlKeys(text);
  return short.length <= maxLength ? short : `${short.slice(0, maxLength - 1)}…`;
};
