import { formatType } from "../types.ts";
import {
  Duration,
  EvaluationError,
  getDouble,
  isDouble,
  isList,
  isMap,
  listEntries,
  Optional,
  Timestamp,
  TypeValue,
  toArray,
  Uint,
  type Value,
} from "../values.ts";
import { formatTimestamp } from "./time.ts";

/**
 * The most UTF-16 units of a text that a function returns. An expression could not read a longer text, because that
 * would exceed its cost limit.
 */
const maxTextUnits = 10_000_000;

/**
 * Throws if a function's result would be too long: reading it would exceed the cost limit of an expression. Functions
 * can multiply a text at little cost.
 */
export const requireTextLength = (units: number): void => {
  if (units > maxTextUnits) throw new EvaluationError(`text has more than ${maxTextUnits} characters`);
};

/** Joins texts. Throws if the result would be too long. */
export const joinTexts = (texts: readonly string[], separator: string): string => {
  requireTextLength(texts.reduce((units, text) => units + text.length + separator.length, 0));
  return texts.join(separator);
};

/** Reports whether a text has surrogates: characters that are two UTF-16 units. */
export const hasPairs = (text: string): boolean => /[\ud800-\udfff]/.test(text);

/** Formats a double as Go's %g does. */
export const formatDouble = (value: number): string => {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "-Inf" : "+Inf";
  const [digits = "", power] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent >= -4 && exponent < 6) return Object.is(value, -0) ? "-0" : `${value}`;
  return `${digits}e${exponent < 0 ? "-" : "+"}${`${Math.abs(exponent)}`.padStart(2, "0")}`;
};

/** Formats a duration in seconds, such as `90s` or `1.5s`. */
export const formatDuration = ({ nanos }: Duration): string => {
  const second = 1_000_000_000n;
  const seconds = Number(nanos / second) + Number(nanos % second) / 1e9;
  const text = `${seconds}`;
  return `${text.includes("e") ? seconds.toFixed(9).replace(/0+$/, "") : text}s`;
};

/** Formats a duration as Go does, such as `1h30m0s` or `1.5ms`. */
const formatDurationAsGo = ({ nanos }: Duration): string => {
  const span = nanos < 0n ? -nanos : nanos;
  // Below a second, Go takes a smaller unit. Its number of nanoseconds is ten to the power of `fractionDigits`.
  const units: [name: string, fractionDigits: number][] = [
    ["ns", 0],
    ["µs", 3],
    ["ms", 6],
  ];
  const [unit, fractionDigits] = units.find(([, places]) => span < 10n ** BigInt(places + 3)) ?? ["s", 9];
  const minutes = span / 60_000_000_000n;
  // The nanoseconds without whole minutes: the last `fractionDigits` digits stand after the point.
  const nanosDigits = `${span % 60_000_000_000n}`.padStart(fractionDigits + 1, "0");
  const fraction = fractionDigits === 0 ? "" : nanosDigits.slice(-fractionDigits).replace(/0+$/, "");
  const integer = fractionDigits === 0 ? nanosDigits : nanosDigits.slice(0, -fractionDigits);
  const seconds = `${integer}${fraction && `.${fraction}`}${unit}`;
  if (span === 0n) return "0s";
  return `${nanos < 0n ? "-" : ""}${span >= 3_600_000_000_000n ? `${minutes / 60n}h` : ""}${
    minutes > 0n ? `${minutes % 60n}m` : ""
  }${seconds}`;
};

/** Decodes UTF-8. Throws if it isn't valid. */
export const decodeBytes = (bytes: Uint8Array): string => {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new EvaluationError("invalid UTF-8 in bytes, cannot convert to string");
  }
};

/** Returns the text of a value that isn't bytes, a list or a map, as the function `string` does. */
export const toText = (value: Value): string => {
  if (value instanceof Uint) return `${value.value}`;
  if (isDouble(value)) return formatDouble(getDouble(value));
  if (value instanceof Duration) return formatDuration(value);
  if (value instanceof Timestamp) return formatTimestamp(value);
  return `${value}`;
};

/** Formats a value as Go's %v does, for error messages. */
export const formatValue = (value: Value): string => {
  // In cel-go, null is the number 0 of an enum of protobuf.
  if (value === null) return "0";
  if (value instanceof TypeValue) return formatType(value.of);
  if (value instanceof Uint8Array) return `[${value.join(" ")}]`;
  if (value instanceof Optional)
    return value.value === undefined ? "optional.none()" : `optional(${formatValue(value.value)})`;
  if (value instanceof Timestamp)
    // Go shows a time as `2006-01-02 15:04:05 +0200 +0200`: with the offset, and with the zone's name, which is the
    // offset, too.
    return formatTimestamp(value)
      .replace(/[+-]..:..$/, (zone) => ` ${zone.replace(":", "")}`.repeat(2))
      .replace("T", " ")
      .replace("Z", " +0000 UTC");
  if (value instanceof Duration) return formatDurationAsGo(value);
  if (isList(value)) return `[${toArray(value).map(formatValue).join(", ")}]`;
  if (!isMap(value)) return toText(value);
  const entries = Array.from(listEntries(value), ([key, member]) => `${formatValue(key)}: ${formatValue(member)}`);
  return `{${entries.join(", ")}}`;
};
