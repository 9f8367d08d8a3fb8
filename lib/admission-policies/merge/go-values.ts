import { formatDouble } from "../../cel/libraries/value-text.ts";
import { isMap, type JsonMap } from "../../json.ts";
import { quoteAsGo } from "../../objects/go/quoted.ts";

/**
 * A value of an expression that upstream leaves in its Go type. For the bytes "hi", `type` is "[]uint8", `text` (Go's
 * %v) is "[104 105]", and `syntax` (%#v) is "[]uint8{0x68, 0x69}". `operand` is "aGk=", the JSON that upstream makes of
 * the value in an operation of a JSON patch. If upstream makes no JSON of the value even there, `operand` is undefined.
 */
export class GoValue {
  readonly type: string;
  readonly text: string;
  readonly syntax: string;
  readonly operand: unknown;
  constructor(type: string, text: string, syntax: string, operand?: unknown) {
    this.type = type;
    this.text = text;
    this.syntax = syntax;
    this.operand = operand;
  }
}

export const isJsonMap = (value: unknown): value is JsonMap => isMap(value) && !(value instanceof GoValue);

/** Formats JSON as Go's %v does. */
export const formatGo = (value: unknown): string => {
  if (value instanceof GoValue) return value.text;
  if (value === null) return "<nil>";
  if (typeof value === "number") return formatNumber(value);
  if (Array.isArray(value)) return `[${value.map(formatGo).join(" ")}]`;
  if (!isMap(value)) return String(value);
  return `map[${listSorted(value)
    .map(([key, member]) => `${key}:${formatGo(member)}`)
    .join(" ")}]`;
};

/** Formats JSON as Go's %#v does. */
export const formatGoSyntax = (value: unknown): string => {
  if (value instanceof GoValue) return value.syntax;
  if (value === null) return "interface {}(nil)";
  if (typeof value === "string") return quoteAsGo(value);
  if (Array.isArray(value)) return `[]interface {}{${value.map(formatGoSyntax).join(", ")}}`;
  if (!isMap(value)) return formatGo(value);
  const members = listSorted(value).map(([key, member]) => `${quoteAsGo(key)}:${formatGoSyntax(member)}`);
  return `map[string]interface {}{${members.join(", ")}}`;
};

/** Returns the name of a value's type in Go. The value must not be a number or null. */
export const nameGoType = (value: unknown): string => {
  if (value instanceof GoValue) return value.type;
  if (Array.isArray(value)) return "[]interface {}";
  return isMap(value) ? "map[string]interface {}" : typeof value === "boolean" ? "bool" : "string";
};

const listSorted = (map: JsonMap) => Object.entries(map).sort(([left], [right]) => (left < right ? -1 : 1));

/** Formats a number as Go does: an integer of 64 bits with all digits, another number with an exponent from 1e6 on. */
const formatNumber = (number: number): string =>
  Number.isInteger(number) && Math.abs(number) < 2 ** 63 ? String(number) : formatDouble(number);
