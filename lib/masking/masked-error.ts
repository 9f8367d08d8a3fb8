import { Failure, getErrorMessage } from "../failure.ts";
import { toMap, toText } from "../json.ts";
import type { AdmissionRequest } from "../review.ts";
import { coverTexts, listTexts, mask, replaceCovered } from "./masked-text.ts";

/**
 * What an error is about. The names in it and in its request stay readable: a log line has them anyway. `message` is no
 * name: it is what the rule says of the review.
 */
type ErrorSubject = {
  request?: AdmissionRequest | undefined;
  /** The Secrets that the rule read, as objects and lists of them. */
  secrets?: readonly unknown[] | undefined;
} & Partial<Record<"rule" | "cluster" | "message", string | undefined>>;

/** A part of a line: a place in code, a name in code, our own words, or the words of another program. */
type Piece = [text: string, origin: number];
const code = 0;
const name = 1;
const ourWords = 2;
const foreign = 3;

const mostErrors = 10;
const mostFrames = 20;
const longest = 4000;

/**
 * Returns an error's message, in which quoted texts and the values of its review are masked; with `hasStack`, also its
 * stack and those of its causes, which may form a cycle.
 */
export const formatError = (thrown: unknown, subject: ErrorSubject, hasStack = false): string => {
  const errors = new Set<unknown>([thrown]);
  // The loop also visits what it adds.
  for (const each of errors)
    for (const inner of [toMap(each).cause].concat(toMap(each).errors))
      if (inner instanceof Error && errors.size < mostErrors) errors.add(inner);
  const all = [...errors] as Error[];
  const pieces = hasStack
    ? all.flatMap((error, index): Piece[] => [
        [index > 0 ? "\ncaused by " : "", code],
        [getText(error, "name"), /^[A-Za-z]*Error$/.test(getText(error, "name")) ? code : name],
        [": ", code],
        ...splitMessage(error, all),
        ...splitFrames(error),
      ])
    : splitMessage(thrown, all);
  return maskPieces(pieces, subject);
};

/** Returns a member of an error that is a text; otherwise an empty one, also if Node fails to format the stack. */
const getText = (error: Error, member: "name" | "message" | "stack"): string => {
  try {
    return toText(error[member]);
  } catch {
    return "";
  }
};

/** Splits the message of a Failure into our own words, and the messages of other errors that it repeats. */
const splitMessage = (error: unknown, errors: readonly Error[]): Piece[] => {
  const text = error instanceof Error ? getText(error, "message") : getErrorMessage(error);
  if (!(error instanceof Failure)) return [[text, foreign]];
  const causes = errors.flatMap((each) => [each, each.cause]).filter((each) => !(each instanceof Failure));
  let pieces: Piece[] = [[text, ourWords]];
  for (const inner of new Set(causes.map((each) => (each instanceof Error ? getText(each, "message") : each))))
    pieces = pieces.flatMap((piece) =>
      piece[1] === foreign || typeof inner !== "string" || inner === ""
        ? [piece]
        : piece[0].split(inner).flatMap((part, index): Piece[] => [
            [index > 0 ? inner : "", foreign],
            [part, ourWords],
          ]),
    );
  return pieces;
};

const frame = /^( {4}at )(.* )?(\(?(?:[^()\s]+:\d+:\d+|native|<anonymous>|index \d+)\)?)$/;

/** Returns the lines of a stack. The lines of a message, which it begins with, may look like them. */
const splitFrames = (error: Error): Piece[] => {
  const [title, message, stack] = [getText(error, "name"), getText(error, "message"), getText(error, "stack")];
  const header = message === "" ? title : `${title}: ${message}`;
  const [before, rest = before] = `\n${stack}`.split(`\n${header}`, 2);
  return (rest as string)
    .split("\n")
    .flatMap((line): Piece[] => {
      const [, at, functionName = "", place = ""] = frame.exec(line.slice(0, 1000)) ?? [];
      return at
        ? [
            [`\n${at}`, code],
            [functionName, name],
            [place, before === "" ? code : name],
          ]
        : [];
    })
    .slice(0, 3 * mostFrames);
};

/** Masks the texts of a review, which are looked for once, and then what is quoted. */
const maskPieces = (pieces: readonly Piece[], subject: ErrorSubject): string => {
  const { message: _, ...named } = subject;
  const { request, secrets } = named;
  const names = [named, request ?? {}, request?.kind ?? {}, request?.resource ?? {}].flatMap((named) =>
    Object.values(named).filter((value) => typeof value === "string"),
  );
  const parts = pieces.map(([text, origin]) => (origin ? text.slice(0, longest) : ""));
  const all = parts.join("\0");
  const isSecret = secrets !== undefined || request?.resource?.resource === "secrets";
  const covered = coverTexts(
    all,
    listTexts([request?.object, request?.oldObject, request?.userInfo, request?.options, secrets]),
    isSecret ? 1 : undefined,
  );
  for (const shown of [...names, "the rule failed: "])
    if (shown.length > 3)
      for (let at = all.indexOf(shown); at >= 0; at = all.indexOf(shown, at + 1))
        covered.fill(0, at, at + shown.length);
  let from = 0;
  return pieces
    .map(([text, origin], index) => {
      if (origin === code) from++;
      if (origin === code) return text;
      const part = parts[index] as string;
      const isCut = part.length < text.length;
      // What is left of a text that was cut at the end may be too short to be found.
      const line = replaceCovered(isCut ? part.slice(0, -8) : part, covered.subarray(from)) + (isCut ? "…" : "");
      from += part.length + 1;
      if (origin === foreign) return line.replace(foreignQuotes, ([quote]) => `${quote}${mask}${quote}`);
      return origin === ourWords
        ? line.replace(ownQuotes, (quoted, inner) => (names.includes(inner) ? quoted : `"${mask}"`))
        : line;
    })
    .join("");
};

const ownQuotes = /"((?:[^"\\]|\\.)*)"?/gs;
/**
 * Matches from the first quote to the last one of its kind: a text that isn't escaped may have quotes itself. An apostrophe
 * within a word is none. Of expressions, V8 quotes those that are invalid.
 */
const foreignQuotes = /(["`]|'(?!(?<=\w')(?:t|s|re|ve|ll|m|d)\b)|(?<=regular expression: )\/)(?:.*\1|.*)/gs;
