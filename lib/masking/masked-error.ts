import { Failure, getErrorMessage } from "../failure.ts";
import { toMap, toText } from "../json.ts";
import type { AdmissionRequest } from "../review.ts";
import { coverTexts, listTexts, mask, replaceCovered } from "./masked-text.ts";

/**
 * What an error is about. The names of the rule, the cluster and the request's object are not masked, because a log
 * line contains them anyway. `message`, the sentence with which a rule refuses or warns, is masked like any other text.
 */
type ErrorSubject = {
  request?: AdmissionRequest | undefined;
  /** The Secrets that the rule read, as objects and as lists of objects. */
  secrets?: readonly unknown[] | undefined;
} & Partial<Record<"rule" | "cluster" | "message", string | undefined>>;

/** A part of an error's text, and how it is masked: one of the numbers below. */
type Piece = [text: string, masking: number];
/** For texts of this module, and places in code, such as `file.ts:1:2`. */
const neverMasked = 0;
/** For names in code, such as a function's. */
const onlyReviewTextsMasked = 1;
/** In Postern's messages, masks texts of the review and what `quotedByPostern` matches, but no rule or object names. */
const maskedAsPostern = 2;
/** In messages of Node or other programs, masks texts of the review and what `quotedByOthers` matches, even names. */
const maskedAsForeign = 3;

const maxErrors = 10;
const maxFrames = 20;
/** Longer pieces, such as messages, are cut. */
const maxPieceLength = 4000;

/**
 * Returns an error's message, in which quoted texts and values of the review are masked. With `hasStack`, returns also
 * its stack, and the messages and stacks of its causes. Causes may form a cycle.
 */
export const formatError = (thrown: unknown, subject: ErrorSubject, hasStack = false): string => {
  const errors = new Set<unknown>([thrown]);
  // The loop also visits what it adds.
  for (const each of errors)
    for (const inner of [toMap(each).cause].concat(toMap(each).errors))
      if (inner instanceof Error && errors.size < maxErrors) errors.add(inner);
  // A message may repeat the message of a cause. splitMessage needs all errors, to find and mask such a part.
  const errorList = [...errors] as Error[];
  const pieces = hasStack
    ? // A name that isn't like TypeError may repeat texts of the review.
      errorList.flatMap((error, index): Piece[] => [
        [index > 0 ? "\ncaused by " : "", neverMasked],
        [getText(error, "name"), /^[A-Za-z]*Error$/.test(getText(error, "name")) ? neverMasked : onlyReviewTextsMasked],
        [": ", neverMasked],
        ...splitMessage(error, errorList),
        ...splitFrames(error),
      ])
    : splitMessage(thrown, errorList);
  return maskPieces(pieces, subject);
};

/** Returns a member of an error if it is a text, else "". Reading `stack` may throw if Node fails to format it. */
const getText = (error: Error, member: "name" | "message" | "stack"): string => {
  try {
    return toText(error[member]);
  } catch {
    return "";
  }
};

/**
 * Splits a message into texts, each with how it is masked. Only the message of a Failure is in Postern's words. A part
 * of it that repeats the message of another error, which is no Failure, is foreign. Other errors are `errors` and their
 * causes. A cause may be a text, not an Error.
 */
const splitMessage = (error: unknown, errors: readonly Error[]): Piece[] => {
  const text = error instanceof Error ? getText(error, "message") : getErrorMessage(error);
  if (!(error instanceof Failure)) return [[text, maskedAsForeign]];
  const others = errors.flatMap((each) => [each, each.cause]).filter((each) => !(each instanceof Failure));
  let pieces: Piece[] = [[text, maskedAsPostern]];
  for (const otherMessage of new Set(others.map((each) => (each instanceof Error ? getText(each, "message") : each))))
    pieces = pieces.flatMap((piece) =>
      piece[1] === maskedAsForeign || typeof otherMessage !== "string" || otherMessage === ""
        ? [piece]
        : piece[0].split(otherMessage).flatMap((part, index): Piece[] => [
            [index > 0 ? otherMessage : "", maskedAsForeign],
            [part, maskedAsPostern],
          ]),
    );
  return pieces;
};

/** Matches a line of a stack, such as `    at call (file.ts:1:2)`. */
const frame = /^( {4}at )(.* )?(\(?(?:[^()\s]+:\d+:\d+|native|<anonymous>|index \d+)\)?)$/;

/**
 * Returns the lines of an error's stack as pieces. A stack begins with the error's name and message. They are left out,
 * because lines of a message may look like lines of a stack.
 */
const splitFrames = (error: Error): Piece[] => {
  const [title, message, stack] = [getText(error, "name"), getText(error, "message"), getText(error, "stack")];
  const header = message === "" ? title : `${title}: ${message}`;
  // `beforeHeader` is empty if the stack begins with the header, and the whole stack if it doesn't contain the header.
  const [beforeHeader, afterHeader = beforeHeader] = `\n${stack}`.split(`\n${header}`, 2);
  return (
    (afterHeader as string)
      .split("\n")
      .flatMap((line): Piece[] => {
        const [, at, functionName = "", place = ""] = frame.exec(line.slice(0, 1000)) ?? [];
        return at
          ? [
              [`\n${at}`, neverMasked],
              [functionName, onlyReviewTextsMasked],
              // A stack that doesn't begin with the header was made before the message changed: it has the old message.
              // What looks like a place may then be a line of the old message, with texts of the review.
              [place, beforeHeader === "" ? neverMasked : onlyReviewTextsMasked],
            ]
          : [];
      })
      // Each frame is three pieces.
      .slice(0, 3 * maxFrames)
  );
};

/** Masks the texts of a review in all pieces, and then the quoted texts in messages. Returns the joined pieces. */
const maskPieces = (pieces: readonly Piece[], subject: ErrorSubject): string => {
  const { message: _, ...unmasked } = subject;
  const { request, secrets } = unmasked;
  const names = [unmasked, request ?? {}, request?.kind ?? {}, request?.resource ?? {}].flatMap((holder) =>
    Object.values(holder).filter((value) => typeof value === "string"),
  );
  const parts = pieces.map(([text, masking]) => (masking === neverMasked ? "" : text.slice(0, maxPieceLength)));
  // All parts are joined, so that the texts of the review are looked for only once.
  const separator = "\0";
  const joined = parts.join(separator);
  const isSecret = secrets !== undefined || request?.resource?.resource === "secrets";
  const covered = coverTexts(
    joined,
    listTexts([request?.object, request?.oldObject, request?.userInfo, request?.options, secrets]),
    isSecret ? 1 : undefined, // the shortest text that is masked
  );
  // The names, and the beginning of Postern's own messages, are not masked. A name of up to three characters stays
  // masked: it could be a part of any masked text, which would then show that part.
  for (const name of [...names, "the rule failed: "])
    if (name.length > 3)
      for (let at = joined.indexOf(name); at >= 0; at = joined.indexOf(name, at + 1))
        covered.fill(0, at, at + name.length);
  let partStart = 0;
  return pieces
    .map(([text, masking], index) => {
      const part = parts[index] as string;
      const coveredPart = covered.subarray(partStart);
      partStart += part.length + separator.length;
      if (masking === neverMasked) return text;
      const isCut = part.length < text.length;
      // The cut may leave a beginning of a secret text that is too short to be found, so eight characters are removed.
      const line = replaceCovered(isCut ? part.slice(0, -8) : part, coveredPart) + (isCut ? "…" : "");
      if (masking === maskedAsForeign) return line.replace(quotedByOthers, ([quote]) => `${quote}${mask}${quote}`);
      return masking === maskedAsPostern
        ? line.replace(quotedByPostern, (quoted, inner) => (names.includes(inner) ? quoted : `"${mask}"`))
        : line;
    })
    .join("");
};

/** Matches a quoted text in Postern's words. Its closing quote may have been cut off. */
const quotedByPostern = /"((?:[^"\\]|\\.)*)"?/gs;
/**
 * Matches a quoted text in the words of another program, from the first quote to the last quote of its kind: the text
 * may contain quotes that aren't escaped. The apostrophe in words such as `isn't` is no quote. A slash after `regular
 * expression: ` is one, because V8 quotes invalid regular expressions in slashes.
 */
const quotedByOthers = /(["`]|'(?!(?<=\w')(?:t|s|re|ve|ll|m|d)\b)|(?<=regular expression: )\/)(?:.*\1|.*)/gs;
