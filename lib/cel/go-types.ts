import { getType, type Value } from "./values.ts";

/** Go's names of types, by CEL's names, if they can't be derived from CEL's names. */
const goNames: Readonly<Record<string, string>> = {
  "kubernetes.NamedFormat": "cel.Format",
  list: "*types.baseList",
  map: "*types.baseMap",
  null_type: "types.Null",
  optional_type: "*types.Optional",
  type: "*types.Type",
};

/** Returns the Go name of a value's type: `types.Int` in cel-go, `cel.URL` in Kubernetes. Error messages contain it. */
export const nameGoType = (value: Value | undefined): string => {
  if (value === undefined) return "*types.Err";
  const { kind, name } = getType(value);
  const shortName = name.slice(name.lastIndexOf(".") + 1);
  const isKubernetesType = kind === "opaque" || kind === "struct";
  return (
    goNames[name] ??
    (isKubernetesType ? `cel.${shortName}` : `types.${shortName.charAt(0).toUpperCase()}${shortName.slice(1)}`)
  );
};
