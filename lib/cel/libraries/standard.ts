import { countTraversal, getCostSize } from "../cost-formulas.ts";
import { type Evaluate, type FunctionDeclaration, member, type Overload, overload } from "../functions.ts";
import { requireHashable } from "../program/evaluation.ts";
import { StructValue } from "../structs.ts";
import {
  bool,
  bytes,
  double,
  duration,
  dyn,
  int,
  listOf,
  mapOf,
  optionalOf,
  parameter,
  string,
  type Type,
  timestamp,
  typeOf,
  uint,
} from "../types.ts";
import {
  CelMap,
  CelObject,
  compareNumbers,
  createNoSuchOverloadError,
  Duration,
  EvaluationError,
  findInMap,
  findSize,
  getDouble,
  getType,
  isDouble,
  isEqual,
  isInt,
  isList,
  isMap,
  JoinedList,
  type List,
  Timestamp,
  TypeValue,
  toDouble,
  toInt,
  toUint,
  Uint,
  type Value,
} from "../values.ts";
import { ignoreErrors } from "./errors.ts";
import { compilePattern } from "./regex.ts";
import { addToTimestamp, createDuration, subtractTimestamps } from "./time.ts";
import { hasPairs, requireTextLength } from "./value-text.ts";

const growing = Symbol("growing");
/** A list that a loop builds. The operator `+` appends to it in place. A class instead of a mark would be slower. */
type GrowingList = Value[] & { [growing]?: true };

export const createGrowingList = (): readonly Value[] => Object.assign<GrowingList, object>([], { [growing]: true });

export const isGrowingList = (list: List): list is GrowingList => (list as GrowingList)[growing] === true;

/** The most elements of a joined list. Without it, an expression could double a list again and again at no cost. */
const maxListElements = 2 ** 20;

/** Joins two lists. A list that a loop builds grows in place; other lists are not copied. */
const concatenate = (left: List, right: List): List => {
  if (left.length + right.length > maxListElements) throw new EvaluationError("list has too many elements");
  if (isGrowingList(left)) {
    for (const element of right) left.push(element);
    return left;
  }
  if (left.length === 0) return right;
  return right.length === 0 ? left : new JoinedList(left, right);
};

/** Throws upstream's error for an operand without the operator. The error names it unless the type has methods. */
export const refuseOperand = (operator: string, left: Value): never => {
  const hasMethods = typeof left === "string" || left instanceof Duration || left instanceof Timestamp;
  throw hasMethods ? createNoSuchOverloadError() : new EvaluationError(`no such overload: ${operator}`);
};

/** The functions of an operator, by the types of its operands. */
interface Arithmetic {
  readonly ofDoubles?: (left: number, right: number) => number;
  /** For ints that are safe integers. If the result isn't safe, `ofBigints` computes it again. */
  readonly ofIntegers: (left: number, right: number) => number;
  readonly ofBigints: (left: bigint, right: bigint) => bigint;
  /** For operands that are no numbers. Returns undefined if the left operand's type doesn't have the operator. */
  readonly ofOthers?: (left: Value, right: Value) => Value | undefined;
}

/** Returns the function of an operator for two operands of the same type. */
const compute = (operator: string, { ofDoubles, ofIntegers, ofBigints, ofOthers }: Arithmetic): Evaluate => {
  const computeIntegers = (left: number | bigint, right: number | bigint) =>
    toInt(ofBigints(BigInt(left), BigInt(right)));
  return (left: Value, right: Value): Value => {
    if (isInt(left)) {
      if (!isInt(right)) throw createNoSuchOverloadError();
      if (typeof left === "bigint" || typeof right === "bigint") return computeIntegers(left, right);
      const result = ofIntegers(left, right);
      // The addition of 0 converts -0 to 0.
      return Number.isSafeInteger(result) ? result + 0 : computeIntegers(left, right);
    }
    if (left instanceof Uint) {
      if (!(right instanceof Uint)) throw createNoSuchOverloadError();
      return toUint(ofBigints(left.value, right.value));
    }
    if (ofDoubles && isDouble(left)) {
      if (!isDouble(right)) throw createNoSuchOverloadError();
      return toDouble(ofDoubles(getDouble(left), getDouble(right)));
    }
    return ofOthers?.(left, right) ?? refuseOperand(operator, left);
  };
};

/**
 * Adds two values that are no numbers. Returns undefined if their types don't fit; the caller then reports the error.
 * But for lists and bytes, throws an error without the operator's name, as upstream's method Add of these types does.
 */
const addOthers = (left: Value, right: Value): Value | undefined => {
  if (typeof left === "string" && typeof right === "string") {
    requireTextLength(left.length + right.length);
    return left + right;
  }
  if (left instanceof Duration && right instanceof Duration) return createDuration(left.nanos + right.nanos);
  if (left instanceof Duration && right instanceof Timestamp) return addToTimestamp(right, left.nanos);
  if (left instanceof Timestamp && right instanceof Duration) return addToTimestamp(left, right.nanos);
  if (isList(left) && isList(right)) return concatenate(left, right);
  if (left instanceof Uint8Array && right instanceof Uint8Array) return Buffer.concat([left, right]);
  if (isList(left) || left instanceof Uint8Array) throw createNoSuchOverloadError();
  return undefined;
};

export const add = compute("_+_", {
  ofDoubles: (left, right) => left + right,
  ofIntegers: (left, right) => left + right,
  ofBigints: (left, right) => left + right,
  ofOthers: addOthers,
});

const subtractOthers = (left: Value, right: Value): Value | undefined => {
  if (left instanceof Duration && right instanceof Duration) return createDuration(left.nanos - right.nanos);
  if (left instanceof Timestamp && right instanceof Duration) return addToTimestamp(left, -right.nanos);
  return left instanceof Timestamp && right instanceof Timestamp ? subtractTimestamps(left, right) : undefined;
};

const negate = (value: Value): Value => {
  if (isInt(value)) return toInt(-BigInt(value));
  if (isDouble(value)) return toDouble(-getDouble(value));
  if (value instanceof Duration) return createDuration(-value.nanos);
  // In upstream, booleans have a method Negate, so their error differs from that of other operands.
  if (typeof value === "boolean") throw createNoSuchOverloadError();
  return refuseOperand("-_", value);
};

const invert = (value: Value): Value => {
  if (typeof value !== "boolean") throw createNoSuchOverloadError();
  return !value;
};

/** Compares texts by code points. JavaScript compares UTF-16 units, which differs for texts with surrogates. */
const compareTexts = (left: string, right: string): number => {
  if (hasPairs(left) || hasPairs(right)) return Buffer.compare(Buffer.from(left), Buffer.from(right));
  return left < right ? -1 : Number(left > right);
};

/** The types whose values have an order. */
export const comparableTypes: readonly Type[] = [int, uint, double, bool, duration, timestamp, string, bytes];

/** Reports whether values of a value's type have an order. */
export const isComparable = (value: Value): boolean => comparableTypes.includes(getType(value));

/** Returns a negative number if the left value is smaller, 0 if both are equal, a positive number if it is larger. */
export const compareValues = (left: Value, right: Value, operator = "_<_"): number => {
  if (typeof left === "string" && typeof right === "string") return compareTexts(left, right);
  const order = compareNumbers(left, right);
  // A NaN on the left is an error even if the right value is no number, so that `order` is undefined.
  if (Number.isNaN(order) || Number.isNaN(left)) throw new EvaluationError("NaN values cannot be ordered");
  if (order !== undefined) return order;
  if (typeof left === "boolean" && typeof right === "boolean") return Number(left) - Number(right);
  if (left instanceof Uint8Array && right instanceof Uint8Array) return Buffer.compare(left, right);
  const isTime = left instanceof Duration || left instanceof Timestamp;
  if (isTime && right instanceof CelObject && left.type === right.type) {
    const difference = left.nanos - (right as Duration | Timestamp).nanos;
    return difference < 0n ? -1 : Number(difference > 0n);
  }
  // If values of the left one's type have an order, upstream calls its method Compare, whose error has no operator.
  throw isComparable(left) ? createNoSuchOverloadError() : new EvaluationError(`no such overload: ${operator}`);
};

/** Reports whether two values are equal. Values that can't be compared are not equal. */
export const isSame = (left: Value, right: Value): boolean => ignoreErrors(() => isEqual(left, right)) ?? false;

const hasSame = (list: List, value: Value): boolean => {
  for (const element of list) if (isSame(value, element)) return true;
  return false;
};

/** Returns the value of `value in container`. */
const isIn = (value: Value, container: Value): boolean => {
  if (isList(container)) return hasSame(container, value);
  if (isMap(container)) {
    // A CelMap is a Go map in upstream: looking up bytes fails, unless the map is empty. Other maps have text keys.
    if (container instanceof CelMap && container.entries.size > 0) requireHashable(value);
    return findInMap(container, value) !== undefined;
  }
  throw createNoSuchOverloadError();
};

const getSize = (value: Value): Value => findSize(value) ?? refuseOperand("size", value);

const isMatch = (text: Value, pattern: Value): boolean => {
  // For a text that is no string, cel-go's error may name `matches` (see refuseOperand). For a pattern, it never does.
  if (typeof text !== "string") return refuseOperand("matches", text);
  if (typeof pattern !== "string") throw createNoSuchOverloadError();
  return compilePattern(pattern).test(text);
};

// Reading a text or bytes costs a tenth of its size (countTraversal). getCostSize returns the size that determines
// the cost of a value; of an optional, the size of the value in it.

const countShorter: Overload["cost"] = ([left = null, right = null]) =>
  countTraversal(Math.min(getCostSize(left), getCostSize(right)));
const countBoth: Overload["cost"] = ([left = null, right = null]) =>
  countTraversal(getCostSize(left) + getCostSize(right));
const countReadingSecond: Overload["cost"] = ([, value = null]) => countTraversal(getCostSize(value));
/** Returns the cost of `in`: upstream charges 1 for each element of a list. */
const countElements: Overload["cost"] = ([, list = null]) => getCostSize(list);
const countSearch: Overload["cost"] = ([text = null, part = null]) =>
  countTraversal(getCostSize(text)) * countTraversal(getCostSize(part));
/** Returns the cost of `matches`. Upstream estimates that each part of a pattern has four characters. */
const countMatching: Overload["cost"] = ([text = null, pattern = null]) =>
  countTraversal(getCostSize(text) + 1) * countTraversal(getCostSize(pattern), 0.25);

// Type parameters with upstream's names: A and B in CEL's own library, K and V in the library of optionals.
const [one, other] = [parameter("A"), parameter("B")];
const list = listOf(one);
const map = mapOf(one, other);
const [key, value] = [parameter("K"), parameter("V")];
const [listOfV, mapOfKV, optionalOfV] = [listOf(value), mapOf(key, value), optionalOf(value)];

/** The pairs of types that can be compared, and their names in upstream's ids of overloads. */
const ordered: readonly (readonly [name: string, left: Type, right: Type])[] = [
  ["bool", bool, bool],
  ["int64", int, int],
  ["int64_double", int, double],
  ["int64_uint64", int, uint],
  ["uint64", uint, uint],
  ["uint64_double", uint, double],
  ["uint64_int64", uint, int],
  ["double", double, double],
  ["double_int64", double, int],
  ["double_uint64", double, uint],
  ["string", string, string],
  ["bytes", bytes, bytes],
  ["timestamp", timestamp, timestamp],
  ["duration", duration, duration],
];

/** Declares a method of texts that tests whether a text contains a part. */
const declareTextTest = (
  name: string,
  id: string,
  cost: Overload["cost"],
  evaluate: (text: string, part: string) => boolean,
): FunctionDeclaration => ({
  name,
  overloads: [member(id, [string, string], bool, undefined, cost)],
  evaluate: (text: Value, part: Value) => {
    if (typeof text !== "string" || typeof part !== "string") throw createNoSuchOverloadError();
    return evaluate(text, part);
  },
});

/** Declares an operator such as `<`. `isTrue` gets -1, 0 or 1. The shorter text decides the cost. */
const declareOrder = (name: string, id: string, isTrue: (order: number) => boolean): FunctionDeclaration => ({
  name,
  overloads: ordered.map(([type, left, right]) =>
    overload(
      `${id}_${type}`,
      [left, right],
      bool,
      undefined,
      type === "string" || type === "bytes" ? countShorter : undefined,
    ),
  ),
  evaluate: (left: Value, right: Value) => isTrue(compareValues(left, right, name)),
});

/**
 * The functions of CEL itself, except functions of times. Operators without `evaluate` are evaluated by the program. If
 * an operand's type isn't known, the order of overloads decides which type it gets.
 */
export const standardFunctions: readonly FunctionDeclaration[] = [
  { name: "_?_:_", overloads: [overload("conditional", [bool, one, one], one)] },
  { name: "_&&_", overloads: [overload("logical_and", [bool, bool], bool)] },
  { name: "_||_", overloads: [overload("logical_or", [bool, bool], bool)] },
  { name: "!_", overloads: [overload("logical_not", [bool], bool)], evaluate: invert },
  { name: "@not_strictly_false", overloads: [overload("not_strictly_false", [bool], bool)] },
  { name: "_==_", overloads: [overload("equals", [one, one], bool)] },
  { name: "_!=_", overloads: [overload("not_equals", [one, one], bool)] },
  {
    name: "_+_",
    overloads: [
      overload("add_bytes", [bytes, bytes], bytes, undefined, countBoth),
      overload("add_double", [double, double], double),
      overload("add_duration_duration", [duration, duration], duration),
      overload("add_duration_timestamp", [duration, timestamp], timestamp),
      overload("add_timestamp_duration", [timestamp, duration], timestamp),
      overload("add_int64", [int, int], int),
      overload("add_list", [list, list], list),
      overload("add_string", [string, string], string, undefined, countBoth),
      overload("add_uint64", [uint, uint], uint),
    ],
    evaluate: add,
  },
  {
    name: "_/_",
    overloads: [
      overload("divide_double", [double, double], double),
      overload("divide_int64", [int, int], int),
      overload("divide_uint64", [uint, uint], uint),
    ],
    evaluate: compute("_/_", {
      ofDoubles: (left, right) => left / right,
      ofIntegers: (left, right) => (left - (left % right)) / right,
      ofBigints: (left, right) => {
        if (right === 0n) throw new EvaluationError("division by zero");
        return left / right;
      },
    }),
  },
  {
    name: "_%_",
    overloads: [overload("modulo_int64", [int, int], int), overload("modulo_uint64", [uint, uint], uint)],
    evaluate: compute("_%_", {
      ofIntegers: (left, right) => left % right,
      ofBigints: (left, right) => {
        if (right === 0n) throw new EvaluationError("modulus by zero");
        // If the quotient has more than 64 bits, upstream refuses to compute the remainder, too.
        if (right === -1n) toInt(-left);
        return left % right;
      },
    }),
  },
  {
    name: "_*_",
    overloads: [
      overload("multiply_double", [double, double], double),
      overload("multiply_int64", [int, int], int),
      overload("multiply_uint64", [uint, uint], uint),
    ],
    evaluate: compute("_*_", {
      ofDoubles: (left, right) => left * right,
      ofIntegers: (left, right) => left * right,
      ofBigints: (left, right) => left * right,
    }),
  },
  {
    name: "-_",
    overloads: [overload("negate_double", [double], double), overload("negate_int64", [int], int)],
    evaluate: negate,
  },
  {
    name: "_-_",
    overloads: [
      overload("subtract_double", [double, double], double),
      overload("subtract_duration_duration", [duration, duration], duration),
      overload("subtract_int64", [int, int], int),
      overload("subtract_timestamp_duration", [timestamp, duration], timestamp),
      overload("subtract_timestamp_timestamp", [timestamp, timestamp], duration),
      overload("subtract_uint64", [uint, uint], uint),
    ],
    evaluate: compute("_-_", {
      ofDoubles: (left, right) => left - right,
      ofIntegers: (left, right) => left - right,
      ofBigints: (left, right) => left - right,
      ofOthers: subtractOthers,
    }),
  },
  declareOrder("_<_", "less", (order) => order < 0),
  declareOrder("_<=_", "less_equals", (order) => order <= 0),
  declareOrder("_>_", "greater", (order) => order > 0),
  declareOrder("_>=_", "greater_equals", (order) => order >= 0),
  {
    name: "_[_]",
    overloads: [
      overload("index_list", [list, int], one),
      overload("index_map", [map, one], other),
      overload("optional_list_index_int", [optionalOf(listOfV), int], optionalOfV),
      overload("optional_map_index_value", [optionalOf(mapOfKV), key], optionalOfV),
    ],
  },
  { name: "_?._", overloads: [overload("select_optional_field", [dyn, string], optionalOfV)] },
  {
    name: "_[?_]",
    overloads: [
      overload("list_optindex_optional_int", [listOfV, int], optionalOfV),
      overload("optional_list_optindex_optional_int", [optionalOf(listOfV), int], optionalOfV),
      overload("map_optindex_optional_value", [mapOfKV, key], optionalOfV),
      overload("optional_map_optindex_optional_value", [optionalOf(mapOfKV), key], optionalOfV),
    ],
  },
  {
    name: "@in",
    overloads: [overload("in_list", [one, list], bool, undefined, countElements), overload("in_map", [one, map], bool)],
    evaluate: isIn,
  },
  {
    name: "size",
    overloads: [bytes, list, map, string].flatMap((type) => [
      overload(`size_${type.name}`, [type], int),
      member(`${type.name}_size`, [type], int),
    ]),
    evaluate: getSize,
  },
  {
    name: "type",
    overloads: [overload("type", [one], typeOf(one))],
    // For a message, upstream returns the type `type`.
    evaluate: (of: Value) => new TypeValue(of instanceof StructValue ? typeOf() : getType(of)),
  },
  declareTextTest("contains", "contains_string", countSearch, (text, part) => text.includes(part)),
  declareTextTest("endsWith", "ends_with_string", countReadingSecond, (text, part) => text.endsWith(part)),
  declareTextTest("startsWith", "starts_with_string", countReadingSecond, (text, part) => text.startsWith(part)),
  {
    name: "matches",
    overloads: [
      overload("matches", [string, string], bool, undefined, countMatching),
      member("matches_string", [string, string], bool, undefined, countMatching),
    ],
    evaluate: isMatch,
    precompile: (source) => {
      const pattern = compilePattern(source);
      return (text: string) => pattern.test(text);
    },
  },
];
