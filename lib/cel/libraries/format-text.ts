import { quoteAsGo } from "../../objects/go/quoted.ts";
import type { Expression } from "../parser/syntax.ts";
import type { Type } from "../types.ts";
import {
  Duration,
  EvaluationError,
  getDouble,
  getType,
  isDouble,
  isList,
  isMap,
  listEntries,
  Timestamp,
  TypeValue,
  toArray,
  Uint,
  type Value,
} from "../values.ts";
import { rewordErrors } from "./errors.ts";
import { decodeBytes, requireTextLength, toText } from "./value-text.ts";

// The function `format` of version 2 of cel-go's strings library. It formats %f and %e for the locale en-US.

/** Replaces each clause of a format, such as %s or %.2f, by the argument with the same index. */
export const formatText = (format: string, args: readonly Value[]): string => {
  const getArgument = (index: number): Value => {
    if (index >= args.length) throw createIndexError(index);
    return args[index] as Value;
  };
  /** At least the length of the result: the format's length and those of the formatted arguments. */
  let maxResultLength = format.length;
  return replaceClauses(format, args.length, getArgument, (clause, value, precision) => {
    const type = getType(value);
    // A clause for numbers accepts only texts such as NaN.
    const isWrongText = typeof value === "string" && clause.texts?.test(value) === false;
    if (isWrongText || !clause.kinds.includes(type.kind)) throw createMisuseError(clause, type);
    const text = clause.format(value, precision);
    maxResultLength += text.length;
    requireTextLength(maxResultLength);
    return text;
  });
};

/**
 * Finds an error in a call of `format` whose text and list of arguments are literals. Upstream reports such errors when
 * it compiles the expression. Without `expression`, the error concerns the whole call.
 */
export const findFormatIssue = (
  format: string,
  args: readonly Expression[],
  types: ReadonlyMap<Expression, Type>,
): { message: string; expression?: Expression } | undefined => {
  let used = 0;
  let wrong: Expression | undefined;
  const getArgument = (index: number): Expression | undefined => {
    used++;
    return args[index];
  };
  try {
    replaceClauses(format, args.length, getArgument, (clause, argument) => {
      wrong = findMisuse(clause, argument as Expression, types);
      if (wrong) throw createMisuseError(clause, types.get(wrong) as Type);
      return "";
    });
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error;
    return wrong ? { message: error.message, expression: wrong } : { message: error.message };
  }
  if (used >= args.length) return undefined;
  return { message: `too many arguments supplied to string.format (expected ${used}, got ${args.length})` };
};

/** Returns what a clause can't format because of its type: the argument, or a part of it if it is a list or a map. */
const findMisuse = (
  clause: Clause,
  argument: Expression,
  types: ReadonlyMap<Expression, Type>,
): Expression | undefined => {
  const kind = types.get(argument)?.kind ?? "dyn";
  if (kind !== "dyn" && !clause.kinds.includes(kind)) return argument;
  const parts =
    clause !== textClause
      ? []
      : argument.kind === "list"
        ? argument.elements.map(({ value }) => value)
        : argument.kind === "map"
          ? argument.entries.flatMap(({ key, value }) => [key, value])
          : [];
  for (const part of parts) {
    const wrong = findMisuse(clause, part, types);
    if (wrong) return wrong;
  }
  return undefined;
};

/** A clause of a format, such as %s. */
interface Clause {
  /** The kinds of values that the clause can format. */
  readonly kinds: readonly Type["kind"][];
  /** Upstream's error for a value of another kind. */
  readonly misuse: string;
  /** The texts that the clause can format; absent if it can format all. */
  readonly texts?: RegExp;
  readonly format: (value: Value, precision: number) => string;
}

/** Replaces each clause of a format, such as %d or %.2f, by its formatted argument, and %% by %. */
const replaceClauses = <Argument>(
  format: string,
  argumentCount: number,
  getArgument: (index: number) => Argument,
  formatClause: (clause: Clause, argument: Argument, precision: number) => string,
): string => {
  let next = 0;
  const clauses = /%(?:%|(?:\.(\d*))?(.)?)/gsu;
  return format.replace(clauses, (match: string, digits: string | undefined, verb: string | undefined) => {
    if (match === "%%") return "%";
    const index = next++;
    // As in upstream, the getArgument of formatText throws for a missing argument, before the clause is parsed.
    const argument = getArgument(index);
    if (match === "%") throw new EvaluationError("unexpected end of string");
    // The getArgument of findFormatIssue doesn't throw.
    if (index >= argumentCount) throw createIndexError(index);
    const clause = parseClause(digits, verb);
    return formatClause(clause, argument, Number(digits ?? 6));
  });
};

/** Returns the clause for the letter of a format such as %.2f (`verb`). `digits` are those after the point, if any. */
const parseClause = (digits: string | undefined, verb: string | undefined): Clause => {
  const place = "could not parse formatting clause";
  if (digits !== undefined) {
    const fault =
      verb === undefined
        ? "could not find end of precision specifier"
        : digits === ""
          ? 'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
          : BigInt(digits) >= 2n ** 63n
            ? `error while converting precision to integer: strconv.Atoi: parsing "${digits}": value out of range`
            : undefined;
    if (fault !== undefined) throw new EvaluationError(`${place}: error while parsing precision: ${fault}`);
  }
  const clause = clauses.get(verb as string);
  if (clause) return clause;
  // Upstream's message contains only the first byte of the character.
  const byte = String.fromCharCode(Buffer.from(verb as string)[0] as number);
  throw new EvaluationError(`${place}: unrecognized formatting clause "${byte}"`);
};

const createIndexError = (index: number): EvaluationError => new EvaluationError(`index ${index} out of range`);

const createFormattingError = (fault: string): EvaluationError =>
  new EvaluationError(`error during formatting: ${fault}`);

const createMisuseError = ({ misuse }: Clause, { name }: Type): EvaluationError =>
  createFormattingError(`${misuse}, was given ${name}`);

/** Quotes a text as Go's %q does. */
const quoteText = (text: string): string => quoteAsGo(text.toWellFormed());

/** Formats a value for the clause %s. */
const formatAny = (value: Value): string => {
  if (value instanceof TypeValue) return value.of.name;
  if (value instanceof Uint8Array) return formatBytes(value);
  if (isList(value)) return `[${toArray(value).map(toLiteral).join(", ")}]`;
  if (!isMap(value)) return toText(value);
  const entries = Array.from(listEntries(value), ([key, member]) => [toKeyLiteral(key), toLiteral(member)] as const);
  entries.sort(([left], [right]) => Buffer.compare(Buffer.from(left), Buffer.from(right)));
  return `{${entries.map((entry) => entry.join(":")).join(", ")}}`;
};

/** Decodes bytes for the clause %s. As in upstream, an error quotes the decoder's message in place of the argument. */
const formatBytes = (value: Uint8Array): string =>
  rewordErrors(
    () => decodeBytes(value),
    (message) => `error during formatting: could not convert argument ${quoteText(message)} to string`,
  );

/** Formats an element of a list or a map for the clause %s. */
const toLiteral = (value: Value): string => {
  if (typeof value === "string") return quoteText(value);
  if (value instanceof Uint8Array) return `b${quoteText(formatBytes(value))}`;
  if (value instanceof Duration) return `duration(${quoteText(toText(value))})`;
  if (value instanceof Timestamp) return `timestamp(${quoteText(toText(value))})`;
  if (isDouble(value)) {
    const number = getDouble(value);
    if (!Number.isFinite(number)) return quoteText(toText(value));
    const sign = number < 0 || Object.is(number, -0) ? "-" : "";
    return sign + formatDecimal(number, 6).join(".");
  }
  const { kind, name } = getType(value);
  if (!textClause.kinds.includes(kind)) throw createFormattingError(`no formatting function for ${name}`);
  return formatAny(value);
};

const toKeyLiteral = (key: Value): string => {
  const { kind, name } = getType(key);
  if (kind === "string") return quoteText(key as string);
  if (kind === "bool" || kind === "int" || kind === "uint") return toText(key);
  throw createFormattingError(`no formatting function for map key of type ${name}`);
};

/** Formats an integer in a base. Formats texts and bytes in hexadecimal. */
const formatInteger = (value: Value, base: number): string => {
  if (typeof value === "string" || value instanceof Uint8Array) return Buffer.from(value as string).toString("hex");
  return (value instanceof Uint ? value.value : BigInt(value as number)).toString(base);
};

const toBinary = (value: Value) => formatInteger(value, 2);
const toOctal = (value: Value) => formatInteger(value, 8);

const textClause: Clause = {
  kinds: ["bool", "bytes", "double", "duration", "int", "list", "map", "null", "string", "timestamp", "type", "uint"],
  misuse:
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
  format: formatAny,
};

/** Returns a clause for doubles. It also accepts the texts NaN, Infinity and -Infinity. */
const createDoubleClause = (name: string, format: (value: number, precision: number) => string): Clause => ({
  kinds: ["double", "string"],
  misuse: `${name} clause can only be used on doubles`,
  texts: /^(?:NaN|-?Infinity)$/,
  format: (value, precision) => format(isDouble(value) ? getDouble(value) : Number(value), precision),
});

/** The largest precision that upstream's number formatter accepts, and what it prints for a larger one. */
const maxPrecision = 10_000_009;
const textAboveMaxPrecision = "%!(NOVERB)";

const formatSpecial = (value: number): string => (Number.isNaN(value) ? "NaN" : value < 0 ? "-∞" : "∞");

/** Formats a number for the clause %f. */
const formatFixed = (value: number, precision: number): string => {
  if (precision > maxPrecision) return textAboveMaxPrecision;
  if (!Number.isFinite(value)) return formatSpecial(value);
  // Upstream stores the maximum of digits after the point in two bytes (precision % 2 ** 16), but the minimum in one
  // byte (precision % 256). So from 256 on, trailing zeros beyond the minimum are dropped. A double has at most 1074
  // digits after the point, so 1100 suffice.
  const [integerDigits, digits] = formatDecimal(value, Math.min(precision % 2 ** 16, 1100));
  const fraction = precision < 256 ? digits : digits.replace(/0+$/, "").padEnd(precision % 256, "0");
  const grouped = integerDigits.replace(/\B(?=(?:\d{3})+$)/g, ",");
  return `${value < 0 ? "-" : ""}${grouped}${fraction && `.${fraction}`}`;
};

/** Formats with six digits after the point. Upstream takes the precision as the width, and stores it in two bytes. */
const formatScientific = (value: number, width: number): string => {
  if (width > maxPrecision) return textAboveMaxPrecision;
  const text = Number.isFinite(value) ? formatPower(value) : formatSpecial(value);
  return text.padStart(width % 2 ** 16);
};

/** Formats a finite number as upstream does for %e: 1500 becomes `1.500000×10⁰³`. */
const formatPower = (value: number): string => {
  let exponent = Number(value.toExponential().split("e")[1]);
  // Seven digits, or fewer for 0.
  let digits = `${scaleAndRoundMagnitude(value, 6 - exponent)}`.padEnd(7, "0");
  // 9.9999999 is rounded to 10.000000, which has eight digits.
  if (digits.length > 7) {
    exponent++;
    digits = digits.slice(0, 7);
  }
  const power = `${Math.abs(exponent)}`.padStart(2, "0").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹".charAt(Number(digit)));
  return `${value < 0 ? "-" : ""}${digits.charAt(0)}.${digits.slice(1)}×10${exponent < 0 ? "⁻" : ""}${power}`;
};

/** Returns the digits before and after the point, without the sign. */
const formatDecimal = (value: number, places: number): [whole: string, fraction: string] => {
  const digits = `${scaleAndRoundMagnitude(value, places)}`.padStart(places + 1, "0");
  const point = digits.length - places;
  return [digits.slice(0, point), digits.slice(point)];
};

/** Multiplies the absolute value by a power of ten, and rounds it to the nearest integer; a half is rounded to even. */
const scaleAndRoundMagnitude = (value: number, power: number): bigint => {
  const bits = new BigUint64Array(new Float64Array([Math.abs(value)]).buffer)[0] as bigint;
  const exponent = Number(bits >> 52n);
  const mantissa = (bits & (2n ** 52n - 1n)) + (exponent === 0 ? 0n : 2n ** 52n);
  const shift = BigInt(Math.max(exponent, 1) - 1075);
  // A double is mantissa * 2 ** shift.
  const numerator = mantissa * (shift > 0 ? 1n << shift : 1n) * (power > 0 ? 10n ** BigInt(power) : 1n);
  const denominator = (shift < 0 ? 1n << -shift : 1n) * (power < 0 ? 10n ** BigInt(-power) : 1n);
  const [quotient, twice] = [numerator / denominator, (numerator % denominator) * 2n];
  return twice > denominator || (twice === denominator && quotient % 2n === 1n) ? quotient + 1n : quotient;
};

const hexadecimal: Clause = {
  kinds: ["bytes", "int", "string", "uint"],
  misuse: "only integers, byte buffers, and strings can be formatted as hex",
  format: (value) => formatInteger(value, 16),
};

/** The clauses by their letter, such as d in %d. */
const clauses: ReadonlyMap<string, Clause> = new Map<string, Clause>([
  ["s", textClause],
  ["d", { kinds: ["int", "uint"], misuse: "decimal clause can only be used on integers", format: toText }],
  ["f", createDoubleClause("fixed-point", formatFixed)],
  ["e", createDoubleClause("scientific", formatScientific)],
  [
    "b",
    { kinds: ["bool", "int", "uint"], misuse: "only integers and bools can be formatted as binary", format: toBinary },
  ],
  ["x", hexadecimal],
  ["X", { ...hexadecimal, format: (value) => formatInteger(value, 16).toUpperCase() }],
  ["o", { kinds: ["int", "uint"], misuse: "octal clause can only be used on integers", format: toOctal }],
]);
