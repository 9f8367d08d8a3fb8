import { isDeepStrictEqual } from "node:util";
import { isMap } from "#lib/json.ts";
import { called, type Kind, type Manifest, refOf } from "./api.ts";
import { discreet } from "./hidden-keys.ts";

/** Something in a cluster that is not as it is wanted. */
export interface Difference {
  kind: Kind;
  /** Of the object. */
  name: string;
  /** Of the webhook entry, where it is one's. */
  entry?: string;
  /** Without any key. */
  sentence: string;
}

/** Where what is there differs from what is wanted, both as the API server would have them. */
export const compareObjects = (live: Manifest, wanted: Manifest): Difference[] => {
  const whole = ofObject(wanted);
  const { webhooks: liveEntries, ...own } = fieldsOf(live);
  const { webhooks: wantedEntries, ...wantedOwn } = fieldsOf(wanted);
  const { labels, annotations } = wanted.metadata;
  return [
    ...marks("label", live.metadata.labels, labels).map(whole),
    ...marks("annotation", live.metadata.annotations, annotations).map(whole),
    ...unlike(own, wantedOwn).map(whole),
    ...betweenEntries(wanted, entriesIn(liveEntries), entriesIn(wantedEntries)),
  ];
};

/** Where the objects that were wanted once differ from those that are wanted now. */
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

/** Of an object that isn't there. */
export const missing = (wanted: Manifest): Difference[] => {
  const entries = entriesIn(wanted.webhooks);
  return entries.length === 0
    ? [ofObject(wanted, " ")("is missing")]
    : entries.map(({ name }) => ofEntry(wanted, name, " ")("is missing"));
};

/** Of an object that nothing wants. */
export const unwanted = (live: Manifest): Difference[] => {
  const entries = entriesIn(live.webhooks);
  return entries.length === 0
    ? [ofObject(live, " ")(isThere)]
    : entries.map(({ name }) => ofEntry(live, name, " ")(isThere));
};

const isThere = "is there, though nothing wants it";

const ofObject = (object: Manifest, joint = ": ") => {
  const { kind, metadata } = object;
  return (words: string): Difference => {
    return { kind, name: metadata.name, sentence: discreet(`${called(refOf(object))}${joint}${words}`) };
  };
};

/** Mutating and validating entries of a rule have one name. */
const ofEntry = ({ kind, metadata }: Manifest, entry: string, joint = ": ") => {
  const phase = kind.replace("WebhookConfiguration", "").toLowerCase();
  return (words: string): Difference => {
    return { kind, name: metadata.name, entry, sentence: discreet(`${phase} entry ${entry}${joint}${words}`) };
  };
};

/** What differs in an object but for its metadata, and for what others fill in. */
const fieldsOf = ({ apiVersion: _, kind, metadata: __, ...fields }: Manifest): Fields =>
  kind === "Secret" || kind === "ServiceAccount" ? { ...("type" in fields && { type: fields.type }) } : fields;

type Fields = Record<string, unknown>;

interface Named extends Fields {
  name: string;
}

const isNamed = (value: unknown): value is Named => typeof Object(value).name === "string";

/** The webhook entries of a configuration, if it is one. */
export const entriesIn = (webhooks: unknown): Named[] => (Array.isArray(webhooks) ? webhooks.filter(isNamed) : []);

const betweenEntries = (object: Manifest, live: Named[], wanted: Named[]): Difference[] => {
  const names = live.map(({ name }) => name).filter((name) => wanted.some((one) => one.name === name));
  const order = wanted.map(({ name }) => name).filter((name) => names.includes(name));
  return [
    ...wanted.flatMap((entry) => {
      const says = ofEntry(object, entry.name);
      const found = live.find(({ name }) => name === entry.name);
      return found ? unlike(found, entry).map(says) : [ofEntry(object, entry.name, " ")("is missing")];
    }),
    ...live
      .filter(({ name }) => !wanted.some((entry) => entry.name === name))
      .map(({ name }) => ofEntry(object, name, " ")(isThere)),
    ...(isDeepStrictEqual(names, order)
      ? []
      : [ofObject(object)(`its entries stand in the order ${names.join(", ")}, not ${order.join(", ")}`)]),
  ];
};

/** Labels or annotations; those that we don't have are others' affair. */
const marks = (what: string, live: Record<string, string> = {}, wanted: Record<string, string> = {}): string[] =>
  Object.entries(wanted)
    .filter(([key, value]) => live[key] !== value)
    .map(([key, value]) =>
      live[key] === undefined ? `${what} ${key} is missing` : `${what} ${key} is ${live[key]}, not ${value}`,
    );

/** Field by field, as deep as both have maps, or lists of what has names. */
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
