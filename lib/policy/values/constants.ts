import { isMap } from "../../json.ts";
import type { Condition, Constant } from "../types.ts";
import { type Decimal, parseDecimal } from "./decimals.ts";

type Members = (value: unknown) => unknown[] | undefined;

const single: Members = (value) => [value];
const list: Members = (value) => (Array.isArray(value) ? value : undefined);
const map: Members = (value) => (isMap(value) ? Object.values(value) : undefined);

const isText = (value: unknown) => typeof value === "string";
const isFloat = (value: unknown) => floatOf(value) !== undefined;
const floatOf = (value: unknown): Decimal | undefined => (typeof value === "string" ? parseDecimal(value) : undefined);

/** In order of precedence: what a field holds, its members, and the check of each member. */
const fields: Record<keyof Constant, [expected: string, members: Members, fits: (member: unknown) => boolean]> = {
  string: ["a string", single, isText],
  integer: ["an integer", single, Number.isInteger],
  float: ["a decimal number in a string", single, isFloat],
  boolean: ["true or false", single, (value) => typeof value === "boolean"],
  stringSlice: ["a list of strings", list, isText],
  integerSlice: ["a list of integers", list, Number.isInteger],
  floatSlice: ["a list of decimal numbers in strings", list, isFloat],
  stringMap: ["a map of strings", map, isText],
};

/** Returns the first field of a constant that is set; an empty list or map counts as not set. */
export const settled = (constant: Constant | undefined): keyof Constant | undefined =>
  (Object.keys(fields) as (keyof Constant)[]).find((field) => {
    const value = constant?.[field];
    return typeof value === "object" ? Object.keys(value).length > 0 : value !== undefined;
  });

/** Returns a constant's value, with floats as exact `Decimal`s; undefined if it has none. */
export const constantOf = (constant: Constant | undefined): { value: unknown } | undefined => {
  const given: unknown = constant ?? {};
  if (!isMap(given)) throw new Error("value must be an object with a field such as string or integer");
  for (const [field, [expected, membersOf, fits]] of Object.entries(fields)) {
    const value = Object.hasOwn(given, field) ? given[field] : undefined;
    if (value === undefined || value === null) continue;
    const members = membersOf(value);
    if (!members?.every(fits)) throw new Error(`value.${field} must be ${expected}`);
    if (members.length === 0) continue;
    if (!field.startsWith("float")) return { value };
    return { value: Array.isArray(value) ? members.map(floatOf) : floatOf(value) };
  }
  return undefined;
};

export const compares = ({ cond }: Condition): boolean => cond !== "Exist" && cond !== "NotExist";
