import type { Value } from "./values.ts";
import {
  Duration,
  getDouble,
  getType,
  isDouble,
  isInt,
  isList,
  isMap,
  listEntries,
  Optional,
  Timestamp,
  TypeValue,
  Uint,
} from "./values.ts";

/** Returns the text of a double as Go's `%v` and `%g` have it: with an exponent from 1e+06 and below 1e-04. */
export const formatDouble = (value: number): string => {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "-Inf";
  const [mantissa, power] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent >= -4 && exponent < 6) return formatPlainDouble(value);
  return `${mantissa}e${exponent < 0 ? "-" : "+"}${`${Math.abs(exponent)}`.padStart(2, "0")}`;
};

/** Returns the text of a finite double without an exponent, with as few digits as tell it from all others. */
export const formatPlainDouble = (value: number): string => {
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const [mantissa = "", power] = `${Math.abs(value)}`.split("e");
  if (power === undefined) return sign + mantissa;
  const [whole = "", fraction = ""] = mantissa.split(".");
  const exponent = Number(power);
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${whole}${fraction}`;
  return sign + whole + fraction.padEnd(exponent, "0");
};

/** Returns the text of a value in upstream's messages, as Go's `%v` makes it. */
export const formatValue = (value: Value): string => {
  // Upstream's null is a number for Go.
  if (value === null) return "0";
  if (typeof value === "string" || typeof value === "boolean" || isInt(value)) return `${value}`;
  if (isDouble(value)) return formatDouble(getDouble(value));
  if (value instanceof Uint) return `${value.value}`;
  if (value instanceof Uint8Array) return `[${value.join(" ")}]`;
  if (value instanceof Optional)
    return value.value === undefined ? "optional.none()" : `optional(${formatValue(value.value)})`;
  if (value instanceof TypeValue) return value.of.name;
  if (isList(value)) return `[${value.map(formatValue).join(", ")}]`;
  if (isMap(value))
    return `{${Array.from(listEntries(value), ([key, one]) => `${formatValue(key)}: ${formatValue(one)}`).join(", ")}}`;
  return `${value}`;
};

const goTypes: Record<string, string> = {
  bool: "types.Bool",
  bytes: "types.Bytes",
  double: "types.Double",
  int: "types.Int",
  list: "*types.baseList",
  map: "*types.baseMap",
  null_type: "types.Null",
  optional_type: "*types.Optional",
  string: "types.String",
  type: "*types.Type",
  uint: "types.Uint",
};

/** Returns the name of the type in Go that upstream has for a value, as Go's `%T` writes it. */
export const getGoType = (value: Value): string => {
  if (value instanceof Duration) return "types.Duration";
  if (value instanceof Timestamp) return "types.Timestamp";
  const { name } = getType(value);
  return goTypes[name] ?? `cel.${name.slice(name.lastIndexOf(".") + 1)}`;
};
