import { declareFunction, declareMethod, type FunctionDeclaration, member } from "../functions.ts";
import { StructValue } from "../structs.ts";
import { bool, listOf, optionalOf, parameter } from "../types.ts";
import {
  Duration,
  EvaluationError,
  emptyOptional,
  findSize,
  getDouble,
  isDouble,
  Optional,
  Timestamp,
  Uint,
  type Value,
} from "../values.ts";
import { formatValue } from "./value-text.ts";

/** The start of the year 1, in nanoseconds since 1970. */
const yearOne = -62_135_596_800_000_000_000n;

/** Reports whether a value is the zero value of its type, such as 0, "" or an empty list. Some types have none. */
const isZero = (value: Value): boolean => {
  if (value === null || value === false || value === 0) return true;
  if (isDouble(value)) return getDouble(value) === 0;
  if (value instanceof Uint) return value.value === 0n;
  if (value instanceof Duration) return value.nanos === 0n;
  // Go's zero time is the start of the year 1.
  if (value instanceof Timestamp) return value.nanos === yearOne;
  if (value instanceof StructValue) return value.type.name !== "JSONPatch" && value.fields.size === 0;
  return findSize(value) === 0;
};

const unwrap = (list: readonly Value[]): readonly Value[] =>
  list.flatMap((element) => {
    if (!(element instanceof Optional)) throw new EvaluationError(`value ${formatValue(element)} is not optional`);
    return element.value === undefined ? [] : [element.value];
  });

const toOptional = (value: Value | undefined) => (value === undefined ? emptyOptional : new Optional(value));
const toNonZero = (value: Value) => (isZero(value) ? emptyOptional : new Optional(value));

const getValue = ({ value }: Optional): Value => {
  if (value === undefined) throw new EvaluationError("optional.none() dereference");
  return value;
};

const v = parameter("V");
const optional = optionalOf(v);
const list = listOf(v);
const optionals = listOf(optional);

/** The functions of optional values. Operators with optional values, such as `_?._`, are standard. */
export const optionalTypeFunctions: readonly FunctionDeclaration[] = [
  declareFunction("optional.of", "optional_of", [v], optional, toOptional),
  declareFunction("optional.ofNonZeroValue", "optional_ofNonZeroValue", [v], optional, toNonZero),
  declareFunction("optional.none", "optional_none", [], optional, () => emptyOptional),
  declareMethod("value", "optional_value", [optional], v, getValue),
  declareMethod("hasValue", "optional_hasValue", [optional], bool, ({ value }: Optional) => value !== undefined),
  // The next two have no evaluation here: the program evaluates their argument only if the optional is empty.
  { name: "or", overloads: [member("optional_or_optional", [optional, optional], optional)] },
  { name: "orValue", overloads: [member("optional_orValue_value", [optional, v], v)] },
  declareMethod("last", "list_last", [list], optional, (values: readonly Value[]) => toOptional(values.at(-1))),
  declareMethod("first", "list_first", [list], optional, (values: readonly Value[]) => toOptional(values[0])),
  declareFunction("optional.unwrap", "optional_unwrap", [optionals], list, unwrap),
  declareMethod("unwrapOpt", "optional_unwrapOpt", [optionals], list, unwrap),
];
