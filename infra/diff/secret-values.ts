import { getOwn, isMap, isObject, isSame, parseJson, toMap } from "#lib/json.ts";
import { coverTexts, listTexts, mask, replaceCovered } from "#lib/masking/masked-text.ts";

/** The annotation in which `kubectl apply` saves a copy of the object. The copy contains all values of a Secret. */
export const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration";
const valueFields = ["data", "stringData"];

/** Reports whether a value is a Secret, of any API version. */
export const isSecret = (value: unknown): boolean => /^secrets?$/i.test(String(getOwn(value, "kind")));

/** Returns the copy of an object that `kubectl apply` has saved in the object. */
const getCopy = (object: unknown): unknown =>
  getOwn(getOwn(getOwn(object, "metadata"), "annotations"), lastAppliedAnnotation) ?? undefined;

/**
 * Replaces each value of a Secret with `***`. In objects of all kinds, also replaces the annotation in which kubectl
 * saves a copy of the object. A value that differs from the value in `before` becomes `*** (other)`.
 */
export const hideSecretValues = (object: unknown, before: unknown = object): unknown => {
  if (!isMap(object)) return object;
  const hidden = { ...object };
  if (isSecret(object) || isSecret(before))
    for (const field of valueFields)
      if (object[field] != null) hidden[field] = hideMembers(object[field], getOwn(before, field));
  const copy = getCopy(object);
  if (isMap(object.metadata) && copy !== undefined) {
    const copied = { [lastAppliedAnnotation]: hideAndMarkChange(copy, getCopy(before)) };
    hidden.metadata = { ...object.metadata, annotations: { ...toMap(object.metadata.annotations), ...copied } };
  }
  return hidden;
};

/** Hides the values of a map, not its keys. If `members` isn't a map, hides all of it. */
const hideMembers = (members: unknown, oldMembers: unknown): unknown =>
  isMap(members)
    ? Object.fromEntries(
        Object.entries(members).map(([key, value]) => [key, hideAndMarkChange(value, getOwn(oldMembers, key))]),
      )
    : hideAndMarkChange(members, oldMembers);

const hideAndMarkChange = (value: unknown, old: unknown): string => (isSame(value, old) ? mask : `${mask} (other)`);

/**
 * Replaces in sentences about objects with `***`: values of the Secrets among the objects and of other Secrets (of long
 * values, any 8 characters in a row), and the texts of the copies that kubectl saves in the objects. But a text of a
 * copy stays if an object also has it outside the copy, and not as the value of a Secret.
 */
export const hideInSentences = (
  sentences: readonly string[],
  objects: readonly unknown[],
  otherSecrets: Iterable<unknown> = [],
): string[] => {
  const copies = objects.map(getCopy).filter((copy) => copy !== undefined);
  const copiedObjects = copies.map((copy) => (typeof copy === "string" ? parseJson(copy) : copy));
  const values = [...objects, ...copiedObjects].filter(isSecret).flatMap(listValues);
  const otherValues = [...otherSecrets].flatMap(listValues);
  if (values.length + copies.length + otherValues.length === 0) return [...sentences];
  // All sentences are searched together. They are separated by \0.
  const joined = sentences.join("\0");
  const lower = toLowerAscii(joined);
  // This call also covers values of 1 to 3 characters, where they are whole words. The other calls need at least 4.
  const covered = coverTexts(lower, listForms(values), 1);
  const isOther = coverTexts(lower, listForms(otherValues));
  const isCopied = coverTexts(joined, listKeysAndTexts(copies));
  const isShown = coverTexts(joined, listKeysAndTexts(objects.map((object) => hideSecretValues(object))));
  for (const at of covered.keys()) if (isOther[at] || (isCopied[at] && !isShown[at])) covered[at] = 1;
  const names = new Set(objects.flatMap((object) => valueFields.flatMap((field) => listKeys(getOwn(object, field)))));
  // A name such as data.password stays, even if it contains a text that is covered elsewhere.
  for (const [from, to] of findNames(joined, names)) covered.fill(0, from, to);
  let from = 0;
  return sentences.map((sentence) => {
    const coveredHere = covered.subarray(from, from + sentence.length);
    from += sentence.length + 1;
    return replaceCovered(sentence, coveredHere);
  });
};

/** Replaces values of Secrets in texts and keys of a value with `***`. Keeps `apiVersion` and `kind` of an object. */
export const hideInValue = (value: unknown, secrets: Iterable<unknown>): unknown => {
  // All texts are collected and searched together. Then each is replaced, in the same order.
  const texts: string[] = [];
  mapTexts(value, (text) => {
    texts.push(text);
    return text;
  });
  const noObjects: unknown[] = []; // `secrets` are given, so no objects are searched for Secrets.
  const hidden = hideInSentences(texts, noObjects, secrets).values();
  const shown = mapTexts(value, () => hidden.next().value ?? mask);
  if (!isMap(value) || !isMap(shown)) return shown;
  const kept = Object.entries(value).filter(([key]) => key === "apiVersion" || key === "kind");
  return { ...shown, ...Object.fromEntries(kept) };
};

/** Replaces each text and each key of a value with the result of `map`. */
const mapTexts = (value: unknown, map: (text: string) => string): unknown => {
  if (typeof value === "string") return map(value);
  if (Array.isArray(value)) return value.map((member) => mapTexts(member, map));
  if (!isMap(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [map(key), mapTexts(member, map)]));
};

/** Returns the values of a Secret. If `data` isn't a map, returns all of it as a value. */
const listValues = (secret: unknown): unknown[] =>
  valueFields.flatMap((field) => {
    const members = getOwn(secret, field);
    return isMap(members) ? Object.values(members) : [members];
  });

const listKeys = (value: unknown): string[] => (isMap(value) ? Object.keys(value) : []);

/**
 * Yields the texts of values in all forms in which a program may show them, in lower case: unchanged, escaped as in
 * JSON, each line, and in base64. The keys of maps, and "true" and "false" for booleans, are texts, too.
 */
const listForms = function* (values: readonly unknown[]): Generator<string> {
  for (const text of listTexts([values, listKeysAndBooleans(values)])) {
    const escaped = JSON.stringify(text).slice(1, -1);
    const lines = text.split("\n").map((line) => line.trim());
    for (const form of [text, escaped, ...lines, Buffer.from(text).toString("base64")]) yield toLowerAscii(form);
  }
};

/** Changes only ASCII letters. `toLowerCase` can change the length of a text, for instance for "İ". */
const toLowerAscii = (text: string): string => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());

/**
 * Returns the texts of values that `listTexts` doesn't list, although sentences may contain them: the keys of maps at
 * any depth, and the words "true" and "false" if such values exist.
 */
const listKeysAndBooleans = (values: readonly unknown[]): string[] => {
  const toVisit: unknown[] = [...values];
  const words = new Set<string>();
  // The loop also visits the values that it adds.
  for (const value of toVisit)
    if (typeof value === "boolean") words.add(String(value));
    else if (isObject(value)) {
      for (const key of listKeys(value)) words.add(key);
      for (const inner of Object.values(value)) toVisit.push(inner);
    }
  return [...words];
};

/** Yields all texts and numbers in objects, at any depth, the keys of maps, and "true" and "false" for booleans. */
const listKeysAndTexts = function* (objects: readonly unknown[]): Generator<string> {
  yield* listTexts(objects);
  yield* listKeysAndBooleans(objects);
};

/** Returns where a text names a value of a Secret, as in `data.password` and `stringData["tls.key"]`. */
const findNames = (text: string, names: ReadonlySet<string>): [from: number, to: number][] =>
  [...text.matchAll(/\b(?:data|stringData)(?:\.|\/|\[["']?)([-.\w]+)/g)].flatMap(
    ({ index, 0: whole, 1: tail = "" }) => {
      let name = tail;
      // A name may contain dots, and a dot that ends a sentence may follow it. The longest known name counts.
      while (name !== "" && !names.has(name)) name = name.slice(0, Math.max(0, name.lastIndexOf(".")));
      return name === "" ? [] : [[index, index + whole.length - tail.length + name.length]];
    },
  );
