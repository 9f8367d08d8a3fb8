// Shapes describe the values that input files may have. They use keywords of JSON Schema, so editors and commands check
// files by the same shapes. A mismatch contains the path of a wrong value and what is expected there. The caller adds
// the file and the line.
import { isMap } from "#lib/json.ts";
import { quoteValue } from "#lib/policy/values/texts.ts";

type JsonType = keyof typeof typeChecks;

/** The supported keywords of JSON Schema, and members that only this program uses. */
interface JsonSchema {
  type?: JsonType | readonly JsonType[];
  enum?: readonly unknown[];
  pattern?: string;
  minLength?: number;
  minimum?: number;
  exclusiveMinimum?: number;
  maximum?: number;
  items?: JsonSchema;
  properties?: Readonly<Record<string, JsonSchema>>;
  required?: readonly string[];
  /** The schema of members that `properties` doesn't name; false if only the named members are allowed. */
  additionalProperties?: JsonSchema | false;
  description?: string;
  default?: unknown;
  /**
   * The expected value in messages, such as "a list of texts". Without this, a wrong value is reported as a mismatch of
   * the map or list that contains it.
   */
  expected?: string;
  /** A condition that no keyword can express. Editors don't check it. */
  meetsCondition?(value: unknown): boolean;
  /** Keywords for editors only. In commands, other code checks the same conditions, with its own messages. */
  editorKeywords?: Readonly<Record<string, unknown>>;
}

export type InputShape = JsonSchema & { expected: string };

/** A value that doesn't fit its shape. */
export interface ShapeMismatch {
  path: string[];
  expected: string;
  /** The wrong value, which messages show; undefined for a member that must be left out, whatever its value is. */
  value: unknown;
  /** The known members, if the mismatch is an unknown member. */
  known?: string[];
}

/** Returns the end of a sentence about a mismatch, such as `, not "1"` or `, not { a: 1, b: […] }`. */
export const describeFoundValue = ({ value }: Pick<ShapeMismatch, "value">): string => {
  if (value === undefined) return "";
  if (Array.isArray(value)) return `, not [${joinFirst(value.map(quoteInner))}]`;
  if (!isMap(value)) return `, not ${quoteValue(value)}`;
  const members = Object.entries(value).map(([key, member]) => `${key}: ${quoteInner(member)}`);
  return `, not ${members.length > 0 ? `{ ${joinFirst(members)} }` : "{}"}`;
};

const quoteInner = (value: unknown): string => {
  if (Array.isArray(value)) return "[…]";
  return isMap(value) ? "{…}" : quoteValue(value);
};

/** Joins the first three parts. */
const joinFirst = (parts: readonly string[]): string =>
  parts.length > 3 ? `${parts.slice(0, 3).join(", ")}, …` : parts.join(", ");

/** The checks for a schema's `type`, by its name. */
const typeChecks = {
  string: (value: unknown) => typeof value === "string",
  number: (value: unknown) => typeof value === "number",
  integer: Number.isSafeInteger,
  boolean: (value: unknown) => typeof value === "boolean",
  null: (value: unknown) => value === null,
  array: Array.isArray,
  object: isMap,
};

export const textShape: InputShape = { expected: "a text", type: "string" };
export const mapShape: InputShape = { expected: "a map", type: "object" };
export const numberShape: InputShape = { expected: "a number", type: "number" };
export const flagShape: InputShape = { expected: "true or false", type: "boolean" };
export const textListShape: InputShape = { expected: "a list of texts", type: "array", items: { type: "string" } };
export const textMapShape: InputShape = {
  expected: "a map of texts",
  type: "object",
  additionalProperties: { type: "string" },
};
export const anyShape: InputShape = { expected: "anything" };

/** The shape of a minor version of Kubernetes, such as 1.35. The oldest that Postern supports is 1.33. */
export const minorShape: InputShape = {
  expected: 'a minor version in quotes, for instance "1.35" (for a cluster before 1.33: "1.33")',
  type: "string",
  pattern: "^1\\.(3[3-9]|[4-9][0-9]|[1-9][0-9]{2})$",
};

/** Returns the shape of a list whose elements are maps with at least these members. */
export const createMapListShape = (expected: string, members: Record<string, JsonSchema> = {}): InputShape => {
  return { expected, type: "array", items: createMapSchema(members) };
};

/** Returns the schema of a map with at least these members. */
export const createMapSchema = (members: Record<string, JsonSchema>): JsonSchema => {
  return { type: "object", properties: members, required: Object.keys(members) };
};

export const createEnumShape = (expected: string, ...words: unknown[]): InputShape => ({ expected, enum: words });

/** Returns the shape of a map with these optional members. Other members must have the shape `others`, if any. */
export const createMapShape = (members: Record<string, InputShape>, others?: InputShape): InputShape => {
  return { ...mapShape, properties: members, additionalProperties: others ?? false };
};

/** Returns a shape that also accepts null. */
export const allowNull = ({ type = [], ...inner }: InputShape): InputShape => {
  return { ...inner, type: [type, "null" as const].flat() };
};

/** Reports whether a value fits a schema. The keywords have the meaning that JSON Schema defines. */
export const isFit = (schema: JsonSchema, value: unknown): boolean => {
  const { type, enum: words, meetsCondition = () => true } = schema;
  if (type !== undefined && ![type].flat().some((name) => typeChecks[name](value))) return false;
  if (words !== undefined && !words.includes(value)) return false;
  return areContentsFit(schema, value) && meetsCondition(value);
};

/** Reports whether a value of the right type also fits the other keywords of its schema. */
const areContentsFit = (schema: JsonSchema, value: unknown): boolean => {
  if (typeof value === "string") {
    const { pattern, minLength = 0 } = schema;
    return value.length >= minLength && (pattern === undefined || new RegExp(pattern).test(value));
  }
  if (typeof value === "number") {
    const { minimum = value, exclusiveMinimum: bound, maximum = value } = schema;
    return !(value < minimum || value > maximum) && (bound === undefined || value > bound);
  }
  if (Array.isArray(value)) return value.every((element) => isFit(schema.items ?? {}, element));
  if (!isMap(value)) return true;
  const { required = [] } = schema;
  if (!required.every((key) => Object.hasOwn(value, key))) return false;
  return Object.entries(value).every(([key, member]) => {
    const memberSchema = findMemberSchema(schema, key);
    return memberSchema !== false && (memberSchema === undefined || isFit(memberSchema, member));
  });
};

const findMemberSchema = ({ properties = {}, additionalProperties }: JsonSchema, key: string) =>
  Object.hasOwn(properties, key) ? properties[key] : additionalProperties;

/** Returns the places at which a value from a file doesn't have the wanted shape, in the order of the file. */
export const findMisfits = (value: unknown, wanted: InputShape, path: string[] = []): ShapeMismatch[] => {
  if (isFit(wanted, value)) return [];
  const known = Object.keys(wanted.properties ?? {});
  const isList = Array.isArray(value);
  const found = Object.entries(isMap(value) || isList ? value : {}).flatMap(([key, member]): ShapeMismatch[] => {
    const innerShape = isList ? wanted.items : findMemberSchema(wanted, key);
    const innerPath = [...path, key];
    if (innerShape === false)
      return [{ path: innerPath, expected: `one of ${known.join(", ")}`, value: member, known }];
    return innerShape?.expected === undefined
      ? []
      : findMisfits(member, { ...innerShape, expected: innerShape.expected }, innerPath);
  });
  if (found.length > 0) return found;
  // An empty enum is the shape of a member that must be left out here, so the message doesn't show its value.
  const mustBeLeftOut = wanted.enum?.length === 0;
  const shownValue = mustBeLeftOut ? undefined : value;
  return [{ path, expected: wanted.expected, value: shownValue }];
};

/** Returns a shape as JSON Schema for editors. Members for which no value is accepted are left out. */
export const toJsonSchema = (shape: JsonSchema): Record<string, unknown> => {
  const {
    expected,
    meetsCondition: _,
    editorKeywords,
    properties,
    items,
    additionalProperties,
    ...keywords
  } = shape as Partial<InputShape>;
  const members = Object.entries(properties ?? {}).filter(([, member]) => member.enum?.length !== 0);
  // Of a map, editors report each wrong member by itself. A schema without keywords accepts every value.
  const isMapWithMembers = properties !== undefined || additionalProperties !== undefined;
  const acceptsEveryValue = Object.keys(keywords).length === 0;
  const hasMessage = expected !== undefined && !isMapWithMembers && !acceptsEveryValue;
  return {
    ...keywords,
    ...(hasMessage && { errorMessage: `must be ${expected}` }),
    ...(items && { items: toJsonSchema(items) }),
    ...(properties && {
      properties: Object.fromEntries(members.map(([name, member]) => [name, toJsonSchema(member)])),
    }),
    ...(additionalProperties !== undefined && {
      additionalProperties: additionalProperties && toJsonSchema(additionalProperties),
    }),
    ...editorKeywords,
  };
};
