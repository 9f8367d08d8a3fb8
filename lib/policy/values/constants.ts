import { isMap, isText } from "../../json.ts";
import type { PolicyCondition, PolicyConstant } from "../types.ts";
import { type ExactFraction, parseDecimal } from "./decimals.ts";

/** Lists the scalars of a value; undefined if the value has the wrong type. */
type ListScalars = (value: unknown) => unknown[] | undefined;

const listSingle: ListScalars = (value) => [value];
const listElements: ListScalars = (value) => (Array.isArray(value) ? value : undefined);
const listMapValues: ListScalars = (value) => (isMap(value) ? Object.values(value) : undefined);

const isFloat = (value: unknown) => parseFloatText(value) !== undefined;
const parseFloatText = (value: unknown): ExactFraction | undefined =>
  typeof value === "string" ? parseDecimal(value) : undefined;

/** How to check the value in a field of a policy's constant, such as the "a" in `value: { string: "a" }`. */
interface ConstantField {
  /** The words of an error message after "must be". */
  expected: string;
  /** Lists the scalars of a value: the value itself, its elements, or the values of its members. */
  listScalars: ListScalars;
  isValid(scalar: unknown): boolean;
}

/** The fields of a constant. The first field that is set counts. */
const fields: Record<keyof PolicyConstant, ConstantField> = {
  string: { expected: "a string", listScalars: listSingle, isValid: isText },
  integer: { expected: "an integer", listScalars: listSingle, isValid: Number.isInteger },
  float: { expected: "a decimal number in a string", listScalars: listSingle, isValid: isFloat },
  boolean: { expected: "true or false", listScalars: listSingle, isValid: (value) => typeof value === "boolean" },
  stringSlice: { expected: "a list of strings", listScalars: listElements, isValid: isText },
  integerSlice: { expected: "a list of integers", listScalars: listElements, isValid: Number.isInteger },
  floatSlice: { expected: "a list of decimal numbers in strings", listScalars: listElements, isValid: isFloat },
  stringMap: { expected: "a map of strings", listScalars: listMapValues, isValid: isText },
};

/** Returns the name of the first field of a constant that is set. An empty list or map counts as not set. */
export const findSetField = (constant: PolicyConstant | undefined): keyof PolicyConstant | undefined =>
  (Object.keys(fields) as (keyof PolicyConstant)[]).find((field) => {
    const value = constant?.[field];
    return typeof value === "object" ? Object.keys(value).length > 0 : value !== undefined;
  });

/** Returns a constant's value, with floats as `ExactFraction`; undefined if no field is set. */
export const parseConstant = (constant: PolicyConstant | undefined): { value: unknown } | undefined => {
  const constantFields: unknown = constant ?? {};
  if (!isMap(constantFields)) throw new Error("value must be an object with a field such as string or integer");
  for (const [field, { expected, listScalars, isValid }] of Object.entries(fields)) {
    const value = Object.hasOwn(constantFields, field) ? constantFields[field] : undefined;
    if (value === undefined || value === null) continue;
    const scalars = listScalars(value);
    if (!scalars?.every(isValid)) throw new Error(`value.${field} must be ${expected}`);
    // An empty list or map counts as not set.
    if (scalars.length === 0) continue;
    if (!field.startsWith("float")) return { value };
    return { value: Array.isArray(value) ? scalars.map(parseFloatText) : parseFloatText(value) };
  }
  return undefined;
};

export const needsComparison = ({ cond }: PolicyCondition): boolean => cond !== "Exist" && cond !== "NotExist";
