import { Quantity } from "./libraries/quantity.ts";
import { type CelObject, isDouble, isInt, isList, isMap, Optional, TypeValue, type Value } from "./values.ts";

/** Returns the name that a value's type has in cel-go's source, as some error messages have it. */
export const nameGoType = (value: Value | undefined): string => {
  if (value === undefined) return "*types.Err";
  if (value === null) return "types.Null";
  if (typeof value === "boolean") return "types.Bool";
  if (typeof value === "string") return "types.String";
  if (isInt(value)) return "types.Int";
  if (isDouble(value)) return "types.Double";
  if (value instanceof Uint8Array) return "types.Bytes";
  if (isList(value)) return "*types.baseList";
  if (isMap(value)) return "*types.baseMap";
  if (value instanceof Optional) return "*types.Optional";
  if (value instanceof TypeValue) return "*types.Type";
  const { name } = (value as CelObject).type;
  if (value instanceof Quantity && value.text === undefined) return "*cel.Quantity";
  const own = name.slice(name.lastIndexOf(".") + 1);
  if (name.startsWith("google.") || name === "uint") return `types.${own.charAt(0).toUpperCase()}${own.slice(1)}`;
  return own === "NamedFormat" ? "cel.Format" : `cel.${own}`;
};
