import { type FunctionDeclaration, member, overload } from "../functions.ts";
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

const yearOne = -62_135_596_800_000_000_000n;

/** Reports whether a value is the empty one of its type. Types without one have no such value. */
const isZero = (value: Value): boolean => {
  if (value === null || value === false || value === 0) return true;
  if (isDouble(value)) return getDouble(value) === 0;
  if (value instanceof Uint) return value.value === 0n;
  if (value instanceof Duration) return value.nanoseconds === 0n;
  // Go's zero time is not that of 1970.
  if (value instanceof Timestamp) return value.nanoseconds === yearOne;
  if (value instanceof StructValue) return value.type.name !== "JSONPatch" && value.fields.size === 0;
  return findSize(value) === 0;
};

const unwrap = (list: readonly Value[]): readonly Value[] =>
  list.flatMap((element) => {
    if (!(element instanceof Optional)) throw new EvaluationError(`value ${formatValue(element)} is not optional`);
    return element.value === undefined ? [] : [element.value];
  });

const v = parameter("V");
const optional = optionalOf(v);
const list = listOf(v);

/** The functions of optional values. Operators with optional values, such as `_?._`, are standard. */
export const optionalFunctions: readonly FunctionDeclaration[] = [
  { name: "optional.of", overloads: [overload("optional_of", [v], optional, (value: Value) => new Optional(value))] },
  {
    name: "optional.ofNonZeroValue",
    overloads: [
      overload("optional_ofNonZeroValue", [v], optional, (value: Value) =>
        isZero(value) ? emptyOptional : new Optional(value),
      ),
    ],
  },
  { name: "optional.none", overloads: [overload("optional_none", [], optional, () => emptyOptional)] },
  {
    name: "value",
    overloads: [
      member("optional_value", [optional], v, ({ value }: Optional) => {
        if (value === undefined) throw new EvaluationError("optional.none() dereference");
        return value;
      }),
    ],
  },
  {
    name: "hasValue",
    overloads: [member("optional_hasValue", [optional], bool, ({ value }: Optional) => value !== undefined)],
  },
  // The program evaluates these two: the argument only if the optional is empty.
  { name: "or", overloads: [member("optional_or_optional", [optional, optional], optional)] },
  { name: "orValue", overloads: [member("optional_orValue_value", [optional, v], v)] },
  {
    name: "last",
    overloads: [
      member("list_last", [list], optional, (values: readonly Value[]) =>
        values.length === 0 ? emptyOptional : new Optional(values.at(-1)),
      ),
    ],
  },
  {
    name: "first",
    overloads: [
      member("list_first", [list], optional, (values: readonly Value[]) =>
        values.length === 0 ? emptyOptional : new Optional(values[0]),
      ),
    ],
  },
  { name: "optional.unwrap", overloads: [overload("optional_unwrap", [listOf(optional)], list, unwrap)] },
  { name: "unwrapOpt", overloads: [member("optional_unwrapOpt", [listOf(optional)], list, unwrap)] },
];
