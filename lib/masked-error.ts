import { Failure, getErrorMessage } from "./failure.ts";
import { coverTexts, listTexts, mask, replaceCovered } from "./masked-text.ts";
import type { AdmissionRequest } from "./review.ts";

/** The review that an error is about, and the names that its log line has anyway: they stay readable. */
interface ErrorSubject {
  request?: AdmissionRequest | undefined;
  names?: readonly unknown[];
}

/** A part of a line: our own words, those of another program, the name of a function or class, or a place in code. */
interface Piece {
  text: string;
  origin: "own" | "foreign" | "name" | "code";
}

const mostErrors = 10;
const mostFrames = 20;
const longest = 4000;

/** Returns an error's message for people who may not see the review, in which quoted texts and its values are masked. */
export const formatErrorMessage = (thrown: unknown, subject: ErrorSubject): string => {
  const error = thrown instanceof Error ? thrown : new Error(getErrorMessage(thrown));
  return maskPieces(splitMessage(error, listErrors(error)), subject);
};

/**
 * Returns the messages, masked in the same way, and the stacks of an error and its causes, which may form a cycle. Only
 * for faults of Postern: a caller's mistake takes one sentence, or every request without a key would log a stack trace.
 */
export const formatErrorStacks = (error: Error, subject: ErrorSubject): string => {
  const errors = listErrors(error);
  const pieces = errors.flatMap((each, index): Piece[] => [
    { text: index > 0 ? "\ncaused by " : "", origin: "code" },
    { text: String(each.name), origin: /^[A-Za-z]*Error$/.test(each.name) ? "code" : "name" },
    { text: ": ", origin: "code" },
    ...splitMessage(each, errors),
    ...splitFrames(each),
  ]);
  return maskPieces(pieces, subject);
};

const listErrors = (first: Error): Error[] => {
  const found = new Set<unknown>([first]);
  // The loop also visits what it adds.
  for (const each of found) {
    const { cause, errors } = each as { cause?: unknown; errors?: unknown };
    for (const inner of [cause, ...(Array.isArray(errors) ? errors : [])])
      if (inner instanceof Error && found.size < mostErrors) found.add(inner);
  }
  return [...found] as Error[];
};

/** Splits the message of a Failure into our own words, and the messages of the other errors that it repeats. */
const splitMessage = (error: Error, errors: readonly Error[]): Piece[] => {
  const text = String(error.message);
  if (!(error instanceof Failure)) return [{ text, origin: "foreign" }];
  const causes = errors.flatMap((each) => [each, each.cause]).filter((each) => !(each instanceof Failure));
  let pieces: Piece[] = [{ text, origin: "own" }];
  for (const inner of new Set(causes.map(getErrorMessage)))
    if (inner !== "")
      pieces = pieces.flatMap((piece) =>
        piece.origin === "foreign"
          ? [piece]
          : piece.text
              .split(inner)
              .flatMap((text, index): Piece[] => [
                ...(index > 0 ? [{ text: inner, origin: "foreign" } as const] : []),
                { text, origin: "own" },
              ]),
      );
  return pieces;
};

const frame = /^( {4}at (?:async )?)(?:(.*) )?(\(?(?:[^()\s]+:\d+:\d+|native|<anonymous>|index \d+)\)?)$/;

/** Returns the lines of a stack. The lines of a message, which it begins with, may look like them. */
const splitFrames = ({ name, message, stack }: Error): Piece[] => {
  const [text, header] = [String(stack), message === "" ? String(name) : `${name}: ${message}`];
  const isKnown = text.startsWith(header);
  return text
    .slice(isKnown ? header.length : 0)
    .split("\n")
    .flatMap((line): Piece[] => {
      const [, at = "", functionName = "", place = ""] = frame.exec(line.slice(0, 1000)) ?? [];
      if (at === "") return [];
      return [
        { text: `\n${at}`, origin: "code" },
        { text: functionName === "" ? "" : `${functionName} `, origin: "name" },
        { text: place, origin: isKnown ? "code" : "name" },
      ];
    })
    .slice(0, 3 * mostFrames);
};

/** Masks the texts of a review, which are looked for once, and then what is quoted. */
const maskPieces = (pieces: readonly Piece[], { request, names = [] }: ErrorSubject): string => {
  const shown = names.filter((name) => typeof name === "string");
  const parts = pieces.map(({ text, origin }) => (origin === "code" ? "" : text.slice(0, longest)));
  const all = parts.join("\0");
  const { object, oldObject, userInfo, options } = request ?? {};
  const covered = coverTexts(all, listTexts([object, oldObject, userInfo, options]));
  for (const name of [...shown, ruleFailed])
    if (name.length > 3)
      for (let at = all.indexOf(name); at >= 0; at = all.indexOf(name, at + name.length))
        covered.fill(0, at, at + name.length);
  let from = 0;
  return pieces
    .map(({ text, origin }, index) => {
      const part = parts[index] ?? "";
      // What is left of a text that was cut at the end may be too short to be found.
      const end = part.length < text.length ? part.length - 8 : part.length;
      const masked = replaceCovered(part.slice(0, end), covered.subarray(from, from + end));
      from += part.length + 1;
      if (origin === "code") return text;
      const line = end < part.length ? `${masked}…` : masked;
      if (origin === "own")
        return line.replace(ownQuotes, (quote, inner) => (shown.includes(inner) ? quote : `"${mask}"`));
      return origin === "foreign" ? line.replace(foreignQuotes, (quote) => `${quote[0]}${mask}${quote[0]}`) : line;
    })
    .join("");
};

const ruleFailed = "the rule failed: ";
const ownQuotes = /"((?:[^"\\]|\\.)*)"?/gs;
/**
 * Matches from the first quote to the last one of its kind: a text that isn't escaped may have quotes itself. An apostrophe
 * within a word is none. Of expressions, V8 quotes those that are invalid.
 */
const foreignQuotes =
  /(["`])(?:.*\1|.*)|'(?!(?<=\w')(?:t|s|re|ve|ll|m|d)\b)(?:.*'|.*)|(?<=regular expression: )\/(?:.*\/|.*)/gs;
