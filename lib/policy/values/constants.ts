import { isMap, isText } from "../../json.ts";
import type { PolicyCondition, PolicyConstant } from "../types.ts";
import { type ExactFraction, parseDecimal } from "./decimals.ts";

type ListMembers = (value: unknown) => unknown[] | undefined;

const listSingle: ListMembers = (value) => [value];
const listElements: ListMembers = (value) => (Array.isArray(value) ? value : undefined);
const listMapValues: ListMembers = (value) => (isMap(value) ? Object.values(value) : undefined);

const isFloat = (value: unknown) => parseFloatText(value) !== undefined;
const parseFloatText = (value: unknown): ExactFraction | undefined =>
  typeof value === "string" ? parseDecimal(value) : undefined;

/** The fields of a constant, of which the first set one counts: what is expected, its members, and their check. */
const fields: Record<
  keyof PolicyConstant,
  [expected: string, members: ListMembers, fits: (member: unknown) => boolean]
> = {
  string: ["a string", listSingle, isText],
  integer: ["an integer", listSingle, Number.isInteger],
  float: ["a decimal number in a string", listSingle, isFloat],
  boolean: ["true or false", listSingle, (value) => typeof value === "boolean"],
  stringSlice: ["a list of strings", listElements, isText],
  integerSlice: ["a list of integers", listElements, Number.isInteger],
  floatSlice: ["a list of decimal numbers in strings", listElements, isFloat],
  stringMap: ["a map of strings", listMapValues, isText],
};

/** Returns the name of the first field that is set in a policy's constant; an empty list or map counts as not set. */
export const findSetField = (constant: PolicyConstant | undefined): keyof PolicyConstant | undefined =>
  (Object.keys(fields) as (keyof PolicyConstant)[]).find((field) => {
    const value = constant?.[field];
    return typeof value === "object" ? Object.keys(value).length > 0 : value !== undefined;
  });

/** Returns a constant's value, with floats as exact `ExactFraction`s; undefined if it has none. */
export const parseConstant = (constant: PolicyConstant | undefined): { value: unknown } | undefined => {
  const constantFields: unknown = constant ?? {};
  if (!isMap(constantFields)) throw new Error("value must be an object with a field such as string or integer");
  for (const [field, [expected, listMembers, fits]] of Object.entries(fields)) {
    const value = Object.hasOwn(constantFields, field) ? constantFields[field] : undefined;
    if (value === undefined || value === null) continue;
    const members = listMembers(value);
    if (!members?.every(fits)) throw new Error(`value.${field} must be ${expected}`);
    if (members.length === 0) continue;
    if (!field.startsWith("float")) return { value };
    return { value: Array.isArray(value) ? members.map(parseFloatText) : parseFloatText(value) };
  }
  return undefined;
};

export const needsComparison = ({ cond }: PolicyCondition): boolean => cond !== "Exist" && cond !== "NotExist";
