import { getOwn, isMap, type JsonMap, toList, toMap } from "../../json.ts";
import builtIn from "./built-in-schemas.json" with { type: "json" };

/** The schema of a kind for a merge: its type (`root`), and the types that are referred to by names. */
export interface ObjectSchema {
  readonly root: TypeReference;
  readonly types: Readonly<Record<string, ValueType>>;
}

/** A type, or the name of a type. */
export type TypeReference = string | ValueType;

/** The type of a value. With `scalar`, it may be a scalar; with `items`, a list; with `fields` or `values`, a map. */
export interface ValueType {
  readonly scalar?: "string" | "number" | "boolean" | "any";
  /** The type of a list's elements. */
  readonly items?: TypeReference;
  /** The members that identify an element of a list. Empty for a set; absent for an atomic list. */
  readonly keys?: readonly string[];
  /** The values of keys that an element doesn't have. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** The types of a map's members. */
  readonly fields?: Readonly<Record<string, TypeReference>>;
  /** The type of the members that are not in `fields`. */
  readonly values?: TypeReference;
  readonly isAtomic?: boolean;
  /** The name of another type. This type differs from it only in `isAtomic`. */
  readonly base?: string;
}

/**
 * The predefined types. `any` is any scalar; `atomic` and `unknown` are any scalar, list or map. A merge replaces lists
 * as a whole, because no type here has `keys`, and also `atomic` maps. Maps of type `unknown` are merged by members.
 */
const commonTypes: Readonly<Record<string, ValueType>> = {
  string: { scalar: "string" },
  number: { scalar: "number" },
  boolean: { scalar: "boolean" },
  any: { scalar: "any" },
  atomic: { scalar: "any", items: "atomic", values: "atomic", isAtomic: true },
  unknown: { scalar: "any", items: "atomic", values: "unknown" },
};

export const resolveType = (types: ObjectSchema["types"], reference: TypeReference): ValueType => {
  if (typeof reference === "string") return commonTypes[reference] ?? (getOwn(types, reference) as ValueType);
  const { base, ...rest } = reference;
  return base === undefined ? reference : { ...resolveType(types, base), ...rest };
};

/** Reports whether values of a type may be maps. */
export const hasMembers = ({ fields, values }: ValueType): boolean => fields !== undefined || values !== undefined;

/** Reports whether a group, or a version of it, has built-in kinds. */
export const hasSchemas = (group: string, version = ""): boolean => {
  const start = `${group === "" ? "" : `${group}/`}${version}`;
  return builtIn.versions.some((known) => (version === "" ? known.startsWith(start) : known === start));
};

interface GroupVersionKind {
  group: string;
  version: string;
  kind: string;
}

/**
 * Returns the schema of a built-in kind, or of a kind that a CustomResourceDefinition serves. As in upstream, a kind
 * has no schema if it isn't in the OpenAPI document of its own group and version, such as Scale of autoscaling/v1.
 */
export const findSchema = (
  { group, version, kind }: GroupVersionKind,
  customResourceDefinitions: readonly unknown[],
): ObjectSchema | undefined => {
  const { types } = builtIn as unknown as Pick<ObjectSchema, "types">;
  const name = `${group === "" ? "" : `${group}/`}${version}/${kind}`;
  if (Object.hasOwn(types, name)) return { root: name, types };
  for (const definition of customResourceDefinitions) {
    const { spec } = toMap(definition);
    const { group: ownGroup, names, versions } = toMap(spec);
    if (ownGroup !== group || toMap(names).kind !== kind) continue;
    const served = toList(versions)
      .map(toMap)
      .find(({ name, served }) => name === version && served === true);
    if (served) return { root: convertVersion(served), types };
  }
  return undefined;
};

/** Types, cached by the version of a CustomResourceDefinition: each review has the same objects from the settings. */
const customTypes = new WeakMap<object, TypeReference>();

/** Converts the schema of a version of a CustomResourceDefinition to a type, once. */
const convertVersion = (version: JsonMap): TypeReference => {
  const known = customTypes.get(version);
  if (known !== undefined) return known;
  const { openAPIV3Schema: schema } = toMap(version.schema);
  // The schema may leave out apiVersion, kind and metadata. convertSchema adds them to every embedded resource.
  const type = isMap(schema)
    ? convertSchema({ ...schema, "x-kubernetes-embedded-resource": true })
    : { values: "unknown" };
  customTypes.set(version, type);
  return type;
};

const embeddedFields = { apiVersion: "string", kind: "string", metadata: "meta.v1.ObjectMeta" };

/** Returns the type that a `$ref` refers to: its name and its schema. */
export type FindReferred = (reference: string) => { name: string; schema: JsonMap };

const refuseReference: FindReferred = (reference) => {
  throw new Error(`a CustomResourceDefinition can't refer to ${reference}`);
};

/**
 * Converts a schema of an OpenAPI document or a CustomResourceDefinition to a type, or to the name of a type, as
 * upstream does. `keepsUnknown`: an outer schema has x-kubernetes-preserve-unknown-fields.
 */
export const convertSchema = (
  schema: JsonMap,
  findReferred: FindReferred = refuseReference,
  keepsUnknown = false,
): TypeReference => {
  const reference = getReference(schema);
  const { type, format = "", "x-kubernetes-map-type": mapType } = schema;
  if (reference !== undefined) {
    const { name } = findReferred(reference);
    return mapType === undefined ? name : { base: name, isAtomic: mapType === "atomic" };
  }
  if (type === "integer" || type === "number") return "number";
  if (type === "boolean") return "boolean";
  if (type === "string") return format === "" || format === "byte" ? "string" : "any";
  const keeps = keepsUnknown || schema["x-kubernetes-preserve-unknown-fields"] === true;
  const convert = (inner: unknown) => convertSchema(toMap(inner), findReferred, keeps);
  if (type === "object") return convertMap(schema, convert, keeps);
  if (type === "array") return convertList(schema, convert, findReferred);
  // A value of a schema without a type may be a scalar, a list or a map: the members for all three are put together.
  const list = convertList(schema, convert, findReferred);
  return { scalar: "any", ...list, ...convertMap(schema, convert, keeps) };
};

/** Returns the reference of a schema. It is in `allOf` if a field of a built-in type has a default or a description. */
const getReference = ({ $ref, allOf }: JsonMap): string | undefined => {
  const [only, another] = toList(allOf);
  const reference = $ref ?? (another === undefined ? toMap(only).$ref : undefined);
  return typeof reference === "string" ? reference : undefined;
};

/** Converts a schema to a type of maps. `keepsUnknown`: members that the schema doesn't state are kept. */
const convertMap = (schema: JsonMap, convert: (inner: unknown) => TypeReference, keepsUnknown: boolean): ValueType => {
  const entries = Object.entries(toMap(schema.properties)).map(([key, inner]) => [key, convert(inner)]);
  const isEmbedded = schema["x-kubernetes-embedded-resource"] === true;
  const fields = { ...Object.fromEntries(entries), ...(isEmbedded && embeddedFields) };
  const hasFields = Object.keys(fields).length > 0;
  // Without additionalProperties, other members are allowed if there are no fields, or if unknown members are kept.
  const { additionalProperties: others = keepsUnknown || !hasFields } = schema;
  return {
    ...((hasFields || others === false) && { fields }),
    ...(others !== false && { values: isMap(others) ? convert(others) : "unknown" }),
    ...(schema["x-kubernetes-map-type"] === "atomic" && { isAtomic: true }),
  };
};

/** Converts a schema to a type of lists: a set, a list with keys, or an atomic list. */
const convertList = (
  schema: JsonMap,
  convert: (inner: unknown) => TypeReference,
  findReferred: FindReferred,
): ValueType => {
  const { items, "x-kubernetes-list-type": listType, "x-kubernetes-list-map-keys": mapKeys } = schema;
  const elements = items === undefined ? "atomic" : convert(items);
  if (listType === "set") return { items: elements, keys: [] };
  if (listType !== "map") return { items: elements };
  const reference = getReference(toMap(items));
  const { properties } = toMap(reference === undefined ? items : findReferred(reference).schema);
  const defaults = toList(mapKeys).flatMap((key) => {
    const value = toMap(getOwn(properties, String(key))).default;
    return value === undefined || value === null ? [] : [[key, value]];
  });
  return {
    items: elements,
    keys: toList(mapKeys).map(String),
    ...(defaults.length > 0 && { defaults: Object.fromEntries(defaults) }),
  };
};
