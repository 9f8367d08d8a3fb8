import { getType, type Value } from "./values.ts";

/** The names of types that don't follow from their names in CEL. */
const goNames: Readonly<Record<string, string>> = {
  "kubernetes.NamedFormat": "cel.Format",
  list: "*types.baseList",
  map: "*types.baseMap",
  null_type: "types.Null",
  optional_type: "*types.Optional",
  type: "*types.Type",
};

/** Returns the name that a value's type has in cel-go's source, as some error messages have it. */
export const nameGoType = (value: Value | undefined): string => {
  if (value === undefined) return "*types.Err";
  const { kind, name } = getType(value);
  const shortName = name.slice(name.lastIndexOf(".") + 1);
  const isOwn = kind === "opaque" || kind === "struct";
  return (
    goNames[name] ?? (isOwn ? `cel.${shortName}` : `types.${shortName.charAt(0).toUpperCase()}${shortName.slice(1)}`)
  );
};
