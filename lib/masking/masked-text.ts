import { isUtf8 } from "node:buffer";
import { isObject, parseJson } from "../json.ts";

/** What stands in the place of a text that is not shown. */
export const mask = "***";

/** A longer text is also found in parts: any eight characters in a row. */
const partLength = 8;

/**
 * Marks the characters of a sentence that belong to one of the texts: a whole text of at least `shortest` characters, or
 * a part of at least eight. A text of fewer than four is found only as a word. The time is in proportion to the lengths,
 * whatever the sentence and the texts are.
 */
export const coverTexts = (sentence: string, texts: Iterable<string>, shortest = 4): Uint8Array => {
  const covered = new Uint8Array(sentence.length);
  const places = new Map<string, number[]>();
  // Most parts of a long text begin and end unlike all parts of the sentence, which is seen sooner than a part is looked up.
  const ends = new Uint8Array(65_536);
  const hashEnds = (text: string, at: number) =>
    (text.charCodeAt(at) * 257 + text.charCodeAt(at + partLength - 1)) & 65_535;
  for (let length = shortest; length <= partLength; length++)
    for (let at = 0; at + length <= sentence.length; at++) {
      if (length < 4 && /\w/.test(`${sentence[at - 1] ?? ""}${sentence[at + length] ?? ""}`)) continue;
      const piece = sentence.slice(at, at + length);
      if (length === partLength) ends[hashEnds(sentence, at)] = 1;
      const found = places.get(piece);
      if (found) found.push(at);
      else places.set(piece, [at]);
    }
  // Each part is looked for once.
  for (const text of texts)
    for (let at = 0; at === 0 || at + partLength <= text.length; at++) {
      if (text.length >= partLength && !ends[hashEnds(text, at)]) continue;
      const piece = text.slice(at, at + partLength);
      for (const place of places.get(piece) ?? []) covered.fill(1, place, place + piece.length);
      places.delete(piece);
    }
  return covered;
};

/** Returns a sentence with `***` in the place of its covered characters. */
export const replaceCovered = (sentence: string, covered: Uint8Array): string =>
  sentence
    .split("")
    .map((character, at) => (covered[at] ? (at > 0 && covered[at - 1] ? "" : mask) : character))
    .join("");

/** Yields the texts and numbers of a value, also of texts that are base64 or JSON. Keys are names, and are left out. */
export const listTexts = function* (root: unknown): Generator<string> {
  const open = [root];
  while (open.length > 0) {
    const value = open.pop();
    if (isObject(value)) for (const inner of Object.values(value)) open.push(inner);
    else if (typeof value === "number" || typeof value === "bigint") yield `${value}`;
    else if (typeof value === "string") {
      yield value;
      if (/^\s*["[{]/.test(value)) open.push(parseJson(value));
      if (/^[\w+/\r\n-]{2,}={0,2}\s*$/.test(value)) {
        const bytes = Buffer.from(value, "base64");
        if (isUtf8(bytes)) open.push(`${bytes}`);
      }
    }
  }
};
