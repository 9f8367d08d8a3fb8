import { isUtf8 } from "node:buffer";
import { isObject, parseJson } from "../json.ts";

/** The text that replaces a text that must not be shown. */
export const mask = "***";

/** A text of at least eight characters is found in pieces: any eight characters in a row. */
const maxPieceLength = 8;

/**
 * Finds the characters of a sentence that repeat one of the texts, such as values of a Secret, and marks them with 1 in
 * the result. Of a text of eight or more characters, it finds any eight characters in a row. It finds a shorter text
 * only as a whole, if it has at least `shortest` characters, and one of fewer than four characters only as a word. The
 * time is proportional to the lengths of the sentence and the texts, whatever they contain.
 */
export const coverTexts = (sentence: string, texts: Iterable<string>, shortest = 4): Uint8Array => {
  const covered = new Uint8Array(sentence.length);
  /** The places of each piece of the sentence: `shortest` to eight characters in a row. */
  const places = new Map<string, number[]>();
  /** 1 for each hash of the sentence's pieces of eight characters. A hash is made of the first and last character. */
  const seenHashes = new Uint8Array(65_536);
  const hashEnds = (text: string, at: number) =>
    (text.charCodeAt(at) * 257 + text.charCodeAt(at + maxPieceLength - 1)) & 65_535;
  for (let length = shortest; length <= maxPieceLength; length++)
    for (let at = 0; at + length <= sentence.length; at++) {
      if (length < 4 && /\w/.test(`${sentence[at - 1] ?? ""}${sentence[at + length] ?? ""}`)) continue;
      const piece = sentence.slice(at, at + length);
      if (length === maxPieceLength) seenHashes[hashEnds(sentence, at)] = 1;
      const found = places.get(piece);
      if (found) found.push(at);
      else places.set(piece, [at]);
    }
  // A text with fewer than eight characters is looked for as a whole, when `at` is 0. A piece that was found is deleted
  // from `places`: to cover it once is enough, and takes no more time if the texts repeat it.
  for (const text of texts)
    for (let at = 0; at === 0 || at + maxPieceLength <= text.length; at++) {
      // A piece with another hash is not in the sentence. This test is faster than a look-up in `places`.
      if (text.length >= maxPieceLength && !seenHashes[hashEnds(text, at)]) continue;
      const piece = text.slice(at, at + maxPieceLength);
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

/**
 * Yields the texts and numbers in a value, without the keys of maps. If a text is base64 or JSON, it also yields the
 * decoded texts.
 */
export const listTexts = function* (root: unknown): Generator<string> {
  const valuesToVisit = [root];
  while (valuesToVisit.length > 0) {
    const value = valuesToVisit.pop();
    if (isObject(value)) for (const inner of Object.values(value)) valuesToVisit.push(inner);
    else if (typeof value === "number" || typeof value === "bigint") yield `${value}`;
    else if (typeof value === "string") {
      yield value;
      if (/^\s*["[{]/.test(value)) valuesToVisit.push(parseJson(value));
      if (/^[\w+/\r\n-]{2,}={0,2}\s*$/.test(value)) {
        const bytes = Buffer.from(value, "base64");
        if (isUtf8(bytes)) valuesToVisit.push(`${bytes}`);
      }
    }
  }
};
