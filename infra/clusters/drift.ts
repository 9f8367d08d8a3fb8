import { isDeepStrictEqual } from "node:util";
import { isMap } from "#lib/json.ts";
import { called, discreet, type Kind, type Manifest, refOf } from "./api.ts";

export interface Difference {
  kind: Kind;
  name: string;
  entry?: string;
  /** Without keys. */
  sentence: string;
}

/** Compares a live object with the wanted one. Either both have the API server's defaults, or neither has. */
export const compareObjects = (live: Manifest, wanted: Manifest): Difference[] => {
  const { webhooks: liveEntries, ...own } = fieldsOf(live);
  const { webhooks: wantedEntries, ...wantedOwn } = fieldsOf(wanted);
  const { labels, annotations } = wanted.metadata;
  const found = [
    ...marks("label", live.metadata.labels, labels),
    ...marks("annotation", live.metadata.annotations, annotations),
    ...unlike(own, wantedOwn),
  ];
  return [
    ...found.map((words) => ofObject(wanted, `: ${words}`)),
    ...betweenEntries(wanted, entriesIn(liveEntries), entriesIn(wantedEntries)),
  ];
};

export const compareManifests = (before: readonly Manifest[], wanted: readonly Manifest[]): Difference[] => {
  const find = (all: readonly Manifest[], { kind, metadata: { name } }: Manifest) =>
    all.find((one) => one.kind === kind && one.metadata.name === name);
  return [
    ...wanted.flatMap((object) => {
      const old = find(before, object);
      return old ? compareObjects(old, object) : missing(object);
    }),
    ...before.filter((object) => find(wanted, object) === undefined).flatMap(unwanted),
  ];
};

export const missing = (wanted: Manifest): Difference[] => describeEach(wanted, "is missing");

export const unwanted = (live: Manifest): Difference[] => describeEach(live, isThere);

const isThere = "is there, though nothing wants it";

/** Describes each entry of a webhook configuration, or another object as a whole. */
const describeEach = (object: Manifest, words: string): Difference[] => {
  const entries = entriesIn(object.webhooks);
  return entries.length === 0
    ? [ofObject(object, ` ${words}`)]
    : entries.map(({ name }) => ofEntry(object, name, ` ${words}`));
};

const ofObject = (object: Manifest, words: string): Difference => {
  const { kind, metadata } = object;
  return { kind, name: metadata.name, sentence: discreet(`${called(refOf(object))}${words}`) };
};

/** The mutating and the validating entry of a rule have the same name. */
const ofEntry = ({ kind, metadata }: Manifest, entry: string, words: string): Difference => {
  const phase = kind.replace("WebhookConfiguration", "").toLowerCase();
  return { kind, name: metadata.name, entry, sentence: discreet(`${phase} entry ${entry}${words}`) };
};

/** Returns the fields to compare; controllers fill in the others of a Secret and a ServiceAccount. */
const fieldsOf = ({ apiVersion: _, kind, metadata: __, ...fields }: Manifest): Fields =>
  kind === "Secret" || kind === "ServiceAccount" ? { ...("type" in fields && { type: fields.type }) } : fields;

type Fields = Record<string, unknown>;

interface Named extends Fields {
  name: string;
}

const isNamed = (value: unknown): value is Named => typeof Object(value).name === "string";

export const entriesIn = (webhooks: unknown): Named[] => (Array.isArray(webhooks) ? webhooks.filter(isNamed) : []);

const betweenEntries = (object: Manifest, live: Named[], wanted: Named[]): Difference[] => {
  const names = live.map(({ name }) => name).filter((name) => wanted.some((one) => one.name === name));
  const order = wanted.map(({ name }) => name).filter((name) => names.includes(name));
  return [
    ...wanted.flatMap((entry) => {
      const found = live.find(({ name }) => name === entry.name);
      const words = found ? unlike(found, entry).map((one) => `: ${one}`) : [" is missing"];
      return words.map((one) => ofEntry(object, entry.name, one));
    }),
    ...live
      .filter(({ name }) => !wanted.some((entry) => entry.name === name))
      .map(({ name }) => ofEntry(object, name, ` ${isThere}`)),
    ...(isDeepStrictEqual(names, order)
      ? []
      : [ofObject(object, `: its entries stand in the order ${names.join(", ")}, not ${order.join(", ")}`)]),
  ];
};

/** Compares labels or annotations; those that aren't wanted belong to other clients. */
const marks = (what: string, live: Record<string, string> = {}, wanted: Record<string, string> = {}): string[] =>
  Object.entries(wanted)
    .filter(([key, value]) => live[key] !== value)
    .map(([key, value]) =>
      live[key] === undefined ? `${what} ${key} is missing` : `${what} ${key} is ${live[key]}, not ${value}`,
    );

const unlike = (live: Fields, wanted: Fields, path = ""): string[] =>
  [...new Set([...Object.keys(wanted), ...Object.keys(live)])].flatMap((key) => {
    const [is, should] = [live[key], wanted[key]];
    const place = `${path}${key}`;
    if (isDeepStrictEqual(is, should)) return [];
    if (key === "caBundle" && is !== undefined && should !== undefined) return [`${place} is another certificate`];
    if (key === "url" && discreet(String(is)) === discreet(String(should)))
      return [`${place} has another key than ${should}`];
    if (isMap(is) && isMap(should)) return unlike(is, should, `${place}.`);
    if (isListOfNamed(is) && isListOfNamed(should)) {
      const found = unlike(byName(is), byName(should), `${place}.`);
      return found.length > 0 ? found : [`${place} stand in another order`];
    }
    if (is === undefined) return [`${place} is missing; it should be ${said(should)}`];
    return [
      should === undefined
        ? `${place} is ${said(is)}, though nothing wants it`
        : `${place} is ${said(is)}, not ${said(should)}`,
    ];
  });

const isListOfNamed = (value: unknown): value is Named[] =>
  Array.isArray(value) && value.every(isNamed) && new Set(value.map(({ name }) => name)).size === value.length;

const byName = (list: Named[]): Fields => Object.fromEntries(list.map((one) => [one.name, one]));

const longest = 160;

const said = (value: unknown): string => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const short = discreet(text);
  return short.length <= longest ? short : `${short.slice(0, longest - 1)}…`;
};
