import { getOwn, isMap, isObject, isSame, parseJson, toMap } from "#lib/json.ts";
import { coverTexts, listTexts, mask, replaceCovered } from "#lib/masking/masked-text.ts";

/** The annotation in which `kubectl apply` keeps a copy of the object, with all values of a Secret. */
export const copyAnnotation = "kubectl.kubernetes.io/last-applied-configuration";
const valueFields = ["data", "stringData"];

/** Reports whether a value is a Secret, of any API version. */
export const isSecret = (value: unknown): boolean => /^secrets?$/i.test(String(getOwn(value, "kind")));

const getCopy = (object: unknown): unknown =>
  getOwn(getOwn(getOwn(object, "metadata"), "annotations"), copyAnnotation) ?? undefined;

/**
 * Returns an object with `***` in the place of each value of a Secret, and of the copy that kubectl keeps in an annotation
 * of any object. A value that differs from the one in `before` becomes `*** (other)`.
 */
export const hideSecretValues = (object: unknown, before: unknown = object): unknown => {
  if (!isMap(object)) return object;
  const hidden = { ...object };
  if (isSecret(object) || isSecret(before))
    for (const field of valueFields)
      if (object[field] != null) hidden[field] = hideMembers(object[field], getOwn(before, field));
  const copy = getCopy(object);
  if (isMap(object.metadata) && copy !== undefined) {
    const copied = { [copyAnnotation]: hideValue(copy, getCopy(before)) };
    hidden.metadata = { ...object.metadata, annotations: { ...toMap(object.metadata.annotations), ...copied } };
  }
  return hidden;
};

/** Hides the values of a map, whose keys are names; anything else in the place of the map is a value itself. */
const hideMembers = (held: unknown, before: unknown): unknown =>
  isMap(held)
    ? Object.fromEntries(Object.entries(held).map(([key, value]) => [key, hideValue(value, getOwn(before, key))]))
    : hideValue(held, before);

const hideValue = (value: unknown, before: unknown): string => (isSame(value, before) ? mask : `${mask} (other)`);

/**
 * Returns sentences about objects with `***` in the place of the values of Secrets among them, whole or in part, of the
 * copies that kubectl keeps, and of the values of other Secrets. What else the objects have is shown, also if a copy has it.
 */
export const hideInSentences = (
  sentences: readonly string[],
  objects: readonly unknown[],
  others: Iterable<unknown> = [],
): string[] => {
  const copies = objects.map(getCopy).filter((copy) => copy !== undefined);
  const copiedObjects = copies.map((copy) => (typeof copy === "string" ? parseJson(copy) : copy));
  const values = [...objects, ...copiedObjects].filter(isSecret).flatMap(listValues);
  const otherValues = [...others].flatMap(listValues);
  if (values.length + copies.length + otherValues.length === 0) return [...sentences];
  const all = sentences.join("\0");
  const lower = toLowerAscii(all);
  const covered = coverTexts(lower, listForms(values), 1);
  const isOther = coverTexts(lower, listForms(otherValues));
  const isCopied = coverTexts(all, listNamesAndTexts(copies));
  const isShown = coverTexts(all, listNamesAndTexts(objects.map((object) => hideSecretValues(object))));
  for (const at of covered.keys()) if (isOther[at] || (isCopied[at] && !isShown[at])) covered[at] = 1;
  const names = new Set(objects.flatMap((object) => valueFields.flatMap((field) => listKeys(getOwn(object, field)))));
  for (const [from, to] of findNames(all, names)) covered.fill(0, from, to);
  let from = 0;
  return sentences.map((sentence) => {
    const coveredHere = covered.subarray(from, from + sentence.length);
    from += sentence.length + 1;
    return replaceCovered(sentence, coveredHere);
  });
};

/** Returns a value with `***` in the place of the values of Secrets, in texts and in keys; an object's own kind stays. */
export const hideInValue = (value: unknown, secrets: Iterable<unknown>): unknown => {
  const texts: string[] = [];
  mapTexts(value, (text) => {
    texts.push(text);
    return text;
  });
  const hidden = hideInSentences(texts, [], secrets).values();
  const shown = mapTexts(value, () => hidden.next().value ?? mask);
  if (!isMap(value) || !isMap(shown)) return shown;
  const kept = Object.entries(value).filter(([key]) => key === "apiVersion" || key === "kind");
  return { ...shown, ...Object.fromEntries(kept) };
};

/** Returns a value with the results of a function in the place of its texts and keys. */
const mapTexts = (value: unknown, map: (text: string) => string): unknown => {
  if (typeof value === "string") return map(value);
  if (Array.isArray(value)) return value.map((member) => mapTexts(member, map));
  if (!isMap(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [map(key), mapTexts(member, map)]));
};

/** Returns the values of a Secret, also what stands in the place of the map that should have them. */
const listValues = (secret: unknown): unknown[] =>
  valueFields.flatMap((field) => {
    const held = getOwn(secret, field);
    return isMap(held) ? Object.values(held) : [held];
  });

const listKeys = (value: unknown): string[] => (isMap(value) ? Object.keys(value) : []);

/**
 * Yields the texts of values in the forms in which a program may show them, in lower case; within a value, keys are part of
 * it.
 */
const listForms = function* (values: readonly unknown[]): Generator<string> {
  for (const text of listTexts([values, listInnerKeys(values)])) {
    const escaped = JSON.stringify(text).slice(1, -1);
    const lines = text.split("\n").map((line) => line.trim());
    for (const form of [text, escaped, ...lines, Buffer.from(text).toString("base64")]) yield toLowerAscii(form);
  }
};

/** Unlike `toLowerCase`, keeps the length of every text. */
const toLowerAscii = (text: string): string => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());

/** Returns the keys at any depth, and the words for true and false. */
const listInnerKeys = (values: readonly unknown[]): string[] => {
  const found: unknown[] = [...values];
  const words = new Set<string>();
  // The loop also visits what it adds.
  for (const value of found)
    if (typeof value === "boolean") words.add(String(value));
    else if (isObject(value)) {
      for (const key of listKeys(value)) words.add(key);
      for (const inner of Object.values(value)) found.push(inner);
    }
  return [...words];
};

const listNamesAndTexts = function* (objects: readonly unknown[]): Generator<string> {
  yield* listTexts(objects);
  yield* listInnerKeys(objects);
};

/** Returns the places of names of values, as in `data.password` and `stringData["tls.key"]`. */
const findNames = (text: string, names: ReadonlySet<string>): [from: number, to: number][] =>
  [...text.matchAll(/\b(?:data|stringData)(?:\.|\/|\[["']?)([-.\w]+)/g)].flatMap(
    ({ index, 0: whole, 1: tail = "" }) => {
      let name = tail;
      // A name may have dots, and may be followed by one.
      while (name !== "" && !names.has(name)) name = name.slice(0, Math.max(0, name.lastIndexOf(".")));
      return name === "" ? [] : [[index, index + whole.length - tail.length + name.length]];
    },
  );
