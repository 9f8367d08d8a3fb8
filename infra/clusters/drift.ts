import { isDeepStrictEqual } from "node:util";
import { isMap, toMap } from "#lib/json.ts";
import { type DeployedKind, type DeployedObject, describeObject, hideUrlKeys, toReference } from "./api.ts";

/** A difference between an object in the cluster and the wanted object. */
export interface DeployedObjectDifference {
  kind: DeployedKind;
  name: string;
  /** The name of the webhook entry that differs. */
  entry?: string;
  what: "missing" | "left over" | "different";
  /** Describes the difference. Keys in URLs are hidden. */
  sentence: string;
}

/** Compares an object in the cluster with the wanted one. Both must have the API server's defaults, or none of them. */
export const compareObjects = (live: DeployedObject, wanted: DeployedObject): DeployedObjectDifference[] => {
  const { webhooks: liveEntries, ...liveFields } = selectFields(live);
  const { webhooks: wantedEntries, ...wantedFields } = selectFields(wanted);
  const { labels, annotations } = wanted.metadata;
  const found = [
    ...compareTexts("label", live.metadata.labels, labels),
    ...compareTexts("annotation", live.metadata.annotations, annotations),
    ...compareFields(liveFields, wantedFields),
  ];
  return [
    ...found.map((words) => toObjectDifference(wanted, `: ${words}`)),
    ...compareEntries(wanted, toNamedWebhookEntries(liveEntries), toNamedWebhookEntries(wantedEntries)),
  ];
};

/** Compares the objects in a release with the wanted ones. */
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
  describeEachEntry(wanted, missingWords);

export const buildUnwantedDifferences = (live: DeployedObject): DeployedObjectDifference[] =>
  describeEachEntry(live, unwantedWords);

const missingWords = "is missing";
const unwantedWords = "should not be there";

/** Returns a difference with these words for each entry of a webhook configuration; if it has none, for the object. */
const describeEachEntry = (object: DeployedObject, words: string): DeployedObjectDifference[] => {
  const entries = toNamedWebhookEntries(object.webhooks);
  return entries.length === 0
    ? [toObjectDifference(object, ` ${words}`)]
    : entries.map(({ name }) => toEntryDifference(object, name, ` ${words}`));
};

/** Describes how an object differs. `wordsAfterName` are ` is missing`, for instance, or a colon and a field. */
const toObjectDifference = (object: DeployedObject, wordsAfterName: string): DeployedObjectDifference => {
  const { kind, metadata } = object;
  const sentence = hideUrlKeys(`${describeObject(toReference(object))}${wordsAfterName}`);
  return { kind, name: metadata.name, what: classifyDifference(wordsAfterName), sentence };
};

const classifyDifference = (wordsAfterName: string): DeployedObjectDifference["what"] => {
  if (wordsAfterName === ` ${missingWords}`) return "missing";
  return wordsAfterName === ` ${unwantedWords}` ? "left over" : "different";
};

/** Describes how a webhook entry differs. It names the phase: a mutating and a validating entry may share a name. */
const toEntryDifference = (
  { kind, metadata }: DeployedObject,
  entry: string,
  wordsAfterName: string,
): DeployedObjectDifference => {
  const phase = kind.replace("WebhookConfiguration", "").toLowerCase();
  const sentence = hideUrlKeys(`${phase} entry ${entry}${wordsAfterName}`);
  return { kind, name: metadata.name, entry, what: classifyDifference(wordsAfterName), sentence };
};

/** Returns the fields of an object that are compared. Of a Secret, it is only the type: controllers set the data. */
const selectFields = ({ apiVersion: _, kind, metadata: __, ...fields }: DeployedObject): Fields =>
  kind === "Secret" || kind === "ServiceAccount" ? { ...("type" in fields && { type: fields.type }) } : fields;

type Fields = Record<string, unknown>;

/** A map with a name, such as a webhook entry. */
interface Named extends Fields {
  name: string;
}

const isNamed = (value: unknown): value is Named => typeof toMap(value).name === "string";

export const toNamedWebhookEntries = (webhooks: unknown): Named[] =>
  Array.isArray(webhooks) ? webhooks.filter(isNamed) : [];

/** Compares the entries of two webhook configurations, and their order. */
const compareEntries = (object: DeployedObject, live: Named[], wanted: Named[]): DeployedObjectDifference[] => {
  // The names of the entries that both have, in the order of each.
  const liveOrder = live.map(({ name }) => name).filter((name) => wanted.some((entry) => entry.name === name));
  const wantedOrder = wanted.map(({ name }) => name).filter((name) => liveOrder.includes(name));
  return [
    ...wanted.flatMap((entry) => {
      const found = live.find(({ name }) => name === entry.name);
      const words = found ? compareFields(found, entry).map((field) => `: ${field}`) : [` ${missingWords}`];
      return words.map((word) => toEntryDifference(object, entry.name, word));
    }),
    ...live
      .filter(({ name }) => !wanted.some((entry) => entry.name === name))
      .map(({ name }) => toEntryDifference(object, name, ` ${unwantedWords}`)),
    ...(isDeepStrictEqual(liveOrder, wantedOrder)
      ? []
      : [
          toObjectDifference(
            object,
            `: its entries have the order ${liveOrder.join(", ")}, not ${wantedOrder.join(", ")}`,
          ),
        ]),
  ];
};

/** Describes wanted labels or annotations that are missing or differ in the cluster. Ignores those of other clients. */
const compareTexts = (what: string, live: Record<string, string> = {}, wanted: Record<string, string> = {}): string[] =>
  Object.entries(wanted)
    .filter(([key, value]) => live[key] !== value)
    .map(([key, value]) =>
      live[key] === undefined ? `${what} ${key} is missing` : `${what} ${key} is ${live[key]}, not ${value}`,
    );

/** Describes each field that differs. Maps, and lists of maps with names, are compared field by field. */
const compareFields = (live: Fields, wanted: Fields, path = ""): string[] =>
  [...new Set([...Object.keys(wanted), ...Object.keys(live)])].flatMap((key) => {
    const [actual, expected] = [live[key], wanted[key]];
    const place = `${path}${key}`;
    if (isDeepStrictEqual(actual, expected)) return [];
    if (key === "caBundle" && actual !== undefined && expected !== undefined)
      return [`${place} is another certificate`];
    if (key === "url" && hideUrlKeys(String(actual)) === hideUrlKeys(String(expected)))
      return [`${place} has another key than ${expected}`];
    if (isMap(actual) && isMap(expected)) return compareFields(actual, expected, `${place}.`);
    if (isListOfNamed(actual) && isListOfNamed(expected)) {
      const found = compareFields(indexByName(actual), indexByName(expected), `${place}.`);
      return found.length > 0 ? found : [`${place} are in another order`];
    }
    if (actual === undefined) return [`${place} is missing; it should be ${formatValue(expected)}`];
    return [
      expected === undefined
        ? `${place} is ${formatValue(actual)}, but should not be set`
        : `${place} is ${formatValue(actual)}, not ${formatValue(expected)}`,
    ];
  });

const isListOfNamed = (value: unknown): value is Named[] =>
  Array.isArray(value) && value.every(isNamed) && new Set(value.map(({ name }) => name)).size === value.length;

const indexByName = (list: Named[]): Fields => Object.fromEntries(list.map((entry) => [entry.name, entry]));

const maxLength = 160;

const formatValue = (value: unknown): string => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const withoutKeys = hideUrlKeys(text);
  return withoutKeys.length <= maxLength ? withoutKeys : `${withoutKeys.slice(0, maxLength - 1)}…`;
};
