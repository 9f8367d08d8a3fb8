import {
  deleteMember,
  type FoundValue,
  getOrCreateMap,
  getOwn,
  type JsonMap,
  readOptionalMap,
  requireTexts,
  setMapMembers,
  unescapeJsonPointerStep,
} from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import type { OverrideTemplate, PolicyConstant } from "../types.ts";

/** Applies a template of annotations or labels in place, and reports whether anything changed. */
export const changeMetadata = (
  object: KubernetesObject,
  name: "annotations" | "labels",
  template: OverrideTemplate,
  referenced: FoundValue | undefined,
): boolean => {
  const place = `metadata.${name}`;
  if (template.operation !== "remove") {
    const members = buildMembers(template, referenced);
    return (
      Object.keys(members).length > 0 &&
      setMapMembers(getOrCreateMap(object, "metadata", "metadata"), name, members, place)
    );
  }
  const key = requireKey(template);
  const map = readOptionalMap(getOwn(readOptionalMap(object.metadata, "metadata"), name), place);
  return map !== undefined && deleteMember(map, key);
};

/** Reports whether a constant has a field that is set. An empty list or map counts as not set. */
export const hasNonEmptyConstant = (constant: PolicyConstant | null | undefined): boolean =>
  Object.values(readOptionalMap(constant, "template.value") ?? {}).some((value) =>
    typeof value === "object" ? Object.keys(value ?? {}).length > 0 : value !== undefined,
  );

/** Returns the annotations or labels to set: the constant's, or else the referenced value with template.path as key. */
const buildMembers = (template: OverrideTemplate, referenced: FoundValue | undefined): JsonMap => {
  const { value, valueRef } = template;
  if (hasNonEmptyConstant(value) && value) return buildConstantMembers(template, value);
  if (!valueRef) throw new Error("template needs value or valueRef");
  const key = requireKey(template);
  return referenced === undefined
    ? {}
    : Object.fromEntries([[key, toText(referenced.value, "what template.valueRef names")]]);
};

/**
 * Returns the annotations or labels that a constant sets: one for a scalar, several for a stringMap. In keys, `~1`
 * means a slash, because kinitiras writes them into paths of a JSON patch; requireKey decodes the key of a scalar.
 */
const buildConstantMembers = (template: OverrideTemplate, constant: PolicyConstant): JsonMap => {
  const { string, integer, float, boolean, stringSlice, integerSlice, floatSlice, stringMap } = constant;
  const scalar = string ?? integer ?? float ?? boolean;
  if (scalar !== undefined && scalar !== null)
    return Object.fromEntries([[requireKey(template), toText(scalar, "template.value")]]);
  if ([stringSlice, integerSlice, floatSlice].some((list) => list?.length))
    throw new Error("template.value must not be a list: annotations and labels are texts");
  const texts = requireTexts(stringMap, "template.value.stringMap");
  if (texts === undefined) throw new Error("template.value must be a constant of a known kind");
  return Object.fromEntries(Object.entries(texts).map(([key, text]) => [unescapeJsonPointerStep(key), text]));
};

/** Returns the key in `path`. As in upstream, which puts it into the path of a JSON patch, `~1` in it means a slash. */
const requireKey = ({ path }: OverrideTemplate): string => {
  if (typeof path !== "string" || path === "") throw new Error("template.path must be the key to set or to remove");
  return unescapeJsonPointerStep(path);
};

const toText = (value: unknown, what: string): string => {
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return String(value);
  throw new Error(`${what} must be a text, a number or a boolean`);
};
