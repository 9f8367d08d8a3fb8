import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Plugin } from "esbuild";
import type { ObjectSchema } from "#lib/admission-policies/schemas.ts";
import { isMap, toList, toMap } from "#lib/json.ts";
import { packageRoot } from "../cli/roots.ts";

type Types = ObjectSchema["types"];

/** The type that the schemas of custom kinds refer to. */
const metadataType = "meta.v1.ObjectMeta";
export const schemasFile = "lib/admission-policies/built-in-schemas.json";

/** Leaves out the schemas of kinds that no policy in a bundle's settings merges an ApplyConfiguration into. */
export const createSchemaPlugin = (settings: unknown): Plugin => ({
  name: "policy-schemas",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]built-in-schemas\.json$/ }, async () => {
      const { types }: ObjectSchema = JSON.parse(await readFile(join(packageRoot, schemasFile), "utf8"));
      return { contents: JSON.stringify({ types: selectTypes(types, listMergedGroups(settings)) }), loader: "json" };
    });
  },
});

/** Returns the API groups whose objects policies merge configurations into; "*" stands for all. */
const listMergedGroups = (value: unknown): string[] => {
  if (Array.isArray(value)) return value.flatMap(listMergedGroups);
  if (!isMap(value)) return [];
  const { kind, spec } = value;
  if (kind !== "MutatingAdmissionPolicy") return Object.values(value).flatMap(listMergedGroups);
  const { mutations, matchConstraints } = toMap(spec);
  if (toList(mutations).every((mutation) => toMap(mutation).patchType !== "ApplyConfiguration")) return [];
  return toList(toMap(matchConstraints).resourceRules).flatMap((rule) => {
    const { apiGroups, resources } = toMap(rule);
    // The object of a subresource can have a kind of another group, such as that of an eviction.
    const hasSubresources = toList(resources).some((resource) => /[*/]/.test(String(resource)));
    return hasSubresources ? ["*"] : toList(apiGroups).map(String);
  });
};

/** Returns the types of the kinds of these groups, and all that they refer to. */
const selectTypes = (types: Types, groups: readonly string[]): Types => {
  if (groups.includes("*")) return types;
  const isMerged = (name: string) =>
    groups.some((group) => (group === "" ? /^v\d\w*\//.test(name) : name.startsWith(`${group}/`)));
  const kept = new Set(groups.length === 0 ? [] : [metadataType, ...Object.keys(types).filter(isMerged)]);
  // The loop also visits the names that it adds.
  for (const name of kept)
    for (const reference of listTexts(types[name])) if (Object.hasOwn(types, reference)) kept.add(reference);
  return Object.fromEntries(Object.entries(types).filter(([name]) => kept.has(name)));
};

const listTexts = (value: unknown): string[] => {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(listTexts) : [];
};
