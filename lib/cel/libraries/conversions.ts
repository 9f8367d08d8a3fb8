import { countStandardReading } from "../cost-formulas.ts";
import { declareFunction, type FunctionDeclaration, overload } from "../functions.ts";
import { bool, bytes, double, duration, dyn, int, parameter, string, type Type, timestamp, uint } from "../types.ts";
import {
  type Double,
  type Duration,
  EvaluationError,
  getDouble,
  type Timestamp,
  toDouble,
  toInt,
  toUint,
  type Uint,
  type Value,
} from "../values.ts";
import { createConversionError, getUnixSeconds, identify } from "./time.ts";
import { decodeBytes, toText } from "./value-text.ts";

/** Returns a function that converts a text to an int or a uint. `pattern` matches the texts with valid digits. */
const parseInteger =
  (resultType: Type, pattern: RegExp, convert: (value: bigint) => Value) =>
  (text: string): Value => {
    // Without leading zeros, an integer of 64 bits has at most 20 characters, including its sign.
    const digits = text.replace(/^([+-]?)0+(?=\d)/, "$1").replace(/^\+/, "");
    if (!pattern.test(text) || digits.length > 20) throw createConversionError(string, resultType);
    try {
      return convert(BigInt(digits));
    } catch {
      throw createConversionError(string, resultType);
    }
  };

const decimal = /^[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:e[+-]?\d[\d_]*)?$/i;
const hexadecimal = /^([+-]?)0x([\da-f_]*)(?:\.([\da-f_]*))?p([+-]?\d[\d_]*)$/i;

/** Reads a double as Go's `strconv.ParseFloat` does. */
const parseDouble = (text: string): Value => {
  if (/^nan$/i.test(text)) return Number.NaN;
  if (/^[+-]?inf(?:inity)?$/i.test(text))
    return text.startsWith("-") ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  const value = findNumber(text);
  if (value === undefined || !Number.isFinite(value)) throw createConversionError(string, double);
  return toDouble(value);
};

/** Parses a decimal or hexadecimal number of Go, such as `1_000.5` or `0x1p-2`; undefined if it is invalid. */
const findNumber = (text: string): number | undefined => {
  // An underscore stands between digits, or after the prefix.
  if (/^[+-]?_|(?<![\da-fx])_|_(?![\da-f])/i.test(text)) return undefined;
  const digits = text.replaceAll("_", "");
  // `decimal` allows underscores only after decimal digits. So it refuses `1e_5`, which the test above allows, because
  // e is a hexadecimal digit.
  if (decimal.test(text)) return Number(digits);
  const [, sign, whole = "", fraction = "", power] = hexadecimal.exec(digits) ?? [];
  if (power === undefined || whole + fraction === "") return undefined;
  const value = Number(BigInt(`0x${whole}${fraction}`)) * 2 ** (Number(power) - 4 * fraction.length);
  return sign === "-" ? -value : value;
};

const parseBool = (text: string): Value => {
  if (/^(?:1|t|T|TRUE|true|True)$/.test(text)) return true;
  if (/^(?:0|f|F|FALSE|false|False)$/.test(text)) return false;
  throw createConversionError(string, bool);
};

const doubleToInt = (value: number | Double): Value => {
  const number = getDouble(value);
  if (!(number > -(2 ** 63) && number < 2 ** 63)) throw new EvaluationError("integer overflow");
  return toInt(BigInt(Math.trunc(number)));
};

const doubleToUint = (value: number | Double): Value => {
  const number = getDouble(value);
  if (!(number >= 0 && number < 2 ** 64)) throw new EvaluationError("unsigned integer overflow");
  return toUint(BigInt(Math.trunc(number)));
};

const encode = (text: string): Value => new TextEncoder().encode(text);

/** The conversions between CEL's own types, except conversions to durations and timestamps. */
export const conversionFunctions: readonly FunctionDeclaration[] = [
  declareFunction("dyn", "to_dyn", [parameter("A")], dyn, identify),
  declareFunction("bool", "bool_to_bool", [bool], bool, identify),
  declareFunction("bool", "string_to_bool", [string], bool, parseBool),
  declareFunction("bytes", "bytes_to_bytes", [bytes], bytes, identify),
  // A call costs 1 (CEL limits costs); from string to bytes and back, `countStandardReading` counts by the length.
  { name: "bytes", overloads: [overload("string_to_bytes", [string], bytes, encode, countStandardReading)] },
  declareFunction("double", "double_to_double", [double], double, identify),
  declareFunction("double", "int64_to_double", [int], double, (of: number | bigint) => toDouble(Number(of))),
  declareFunction("double", "string_to_double", [string], double, parseDouble),
  declareFunction("double", "uint64_to_double", [uint], double, (of: Uint) => toDouble(Number(of.value))),
  declareFunction("int", "int64_to_int64", [int], int, identify),
  declareFunction("int", "double_to_int64", [double], int, doubleToInt),
  declareFunction("int", "duration_to_int64", [duration], int, (of: Duration) => toInt(of.nanos)),
  declareFunction("int", "string_to_int64", [string], int, parseInteger(int, /^[+-]?\d+$/, toInt)),
  declareFunction("int", "timestamp_to_int64", [timestamp], int, (of: Timestamp) => toInt(getUnixSeconds(of))),
  declareFunction("int", "uint64_to_int64", [uint], int, (of: Uint) => toInt(of.value)),
  declareFunction("string", "string_to_string", [string], string, identify),
  declareFunction("string", "bool_to_string", [bool], string, toText),
  { name: "string", overloads: [overload("bytes_to_string", [bytes], string, decodeBytes, countStandardReading)] },
  declareFunction("string", "double_to_string", [double], string, toText),
  declareFunction("string", "duration_to_string", [duration], string, toText),
  declareFunction("string", "int64_to_string", [int], string, toText),
  declareFunction("string", "timestamp_to_string", [timestamp], string, toText),
  declareFunction("string", "uint64_to_string", [uint], string, toText),
  declareFunction("uint", "uint64_to_uint64", [uint], uint, identify),
  declareFunction("uint", "double_to_uint64", [double], uint, doubleToUint),
  declareFunction("uint", "int64_to_uint64", [int], uint, (of: number | bigint) => toUint(BigInt(of))),
  declareFunction("uint", "string_to_uint64", [string], uint, parseInteger(uint, /^\d+$/, toUint)),
];
