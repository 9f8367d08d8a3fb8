/** The kind of a type. There are several types of the kinds `struct` and `opaque`, which differ by their names. */
type TypeKind =
  | "bool"
  | "bytes"
  | "double"
  | "duration"
  | "dyn"
  | "error"
  | "int"
  | "list"
  | "map"
  | "null"
  | "opaque"
  | "parameter"
  | "string"
  | "struct"
  | "timestamp"
  | "type"
  | "uint";

/** A static type of CEL. */
export interface Type {
  readonly kind: TypeKind;
  /** The type's name at run time, such as `google.protobuf.Duration`; or the name of a type parameter. */
  readonly name: string;
  /** The types of a list's elements, a map's keys and values, or an optional's value; of `type(int)`, the type int. */
  readonly parameters: readonly Type[];
}

const createType = (kind: TypeKind, name: string, ...parameters: Type[]): Type =>
  Object.freeze({ kind, name, parameters });

export const bool = createType("bool", "bool");
export const bytes = createType("bytes", "bytes");
export const double = createType("double", "double");
export const duration = createType("duration", "google.protobuf.Duration");
export const dyn = createType("dyn", "dyn");
/** The type of an expression in which an error was found. */
export const error = createType("error", "*error*");
export const int = createType("int", "int");
export const nullType = createType("null", "null_type");
export const string = createType("string", "string");
export const timestamp = createType("timestamp", "google.protobuf.Timestamp");
export const uint = createType("uint", "uint");

export const listOf = (element: Type): Type => createType("list", "list", element);
export const mapOf = (key: Type, value: Type): Type => createType("map", "map", key, value);
export const typeOf = (type?: Type): Type => createType("type", "type", ...(type ? [type] : []));
export const optionalOf = (value: Type): Type => createType("opaque", "optional_type", value);
export const opaque = (name: string): Type => createType("opaque", name);
export const struct = (name: string): Type => createType("struct", name);
/** A type parameter in a function's signature. Each call of the function may have another type for it. */
export const parameter = (name: string): Type => createType("parameter", name);

export const isOptional = ({ kind, name }: Type): boolean => kind === "opaque" && name === "optional_type";

/** Reports whether two types and their parameters are the same. */
export const isSameType = (left: Type, right: Type): boolean =>
  left === right ||
  (left.kind === right.kind &&
    left.name === right.name &&
    left.parameters.length === right.parameters.length &&
    left.parameters.every((type, index) => isSameType(type, right.parameters[index] as Type)));

const shortNames: Partial<Record<TypeKind, string>> = { duration: "duration", null: "null", timestamp: "timestamp" };

/** Formats a type for error messages, such as `map(string, list(int))`. */
export const formatType = ({ kind, name, parameters }: Type): string => {
  const shownName = kind === "error" ? "!error!" : (shortNames[kind] ?? name);
  return parameters.length === 0 ? shownName : `${shownName}(${parameters.map(formatType).join(", ")})`;
};
