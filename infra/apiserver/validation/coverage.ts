import { joinApiVersion } from "#lib/objects/api-version.ts";
import newestTypes from "../defaults/types.json" with { type: "json" };
import { standardKinds } from "../kinds/kinds.ts";
import { type FieldRule, selectFieldRules } from "./fields.ts";
import immutable from "./immutable.json" with { type: "json" };

type Words = Record<string, Record<string, string>>;

const types: { kinds: Words; types: Words } = newestTypes;
const immutableFields: Record<string, object> = immutable;

/** How much of a built-in kind is known in the newest minor of Kubernetes. */
export interface KindCoverage {
  apiVersion: string;
  kind: string;
  /** The number of its fields, without those of the status and those that the API server sets; 0 if nothing is known. */
  fields: number;
  /** How many of the fields have a rule. */
  withRule: number;
  /** How many of the fields can't be changed. */
  immutable: number;
}

/** Lists the built-in kinds that an API server has on, by their names. */
export const listKindCoverage = (): KindCoverage[] =>
  standardKinds
    .filter(({ off }) => !off)
    .map((found) => {
      const apiVersion = joinApiVersion(found.kind);
      const { kind } = found.kind;
      const fields = findFields(apiVersion, kind);
      return {
        apiVersion,
        kind,
        fields: fields.length,
        withRule: fields.filter(hasRule).length,
        immutable: Object.keys(immutableFields[`${apiVersion} ${kind}`] ?? {}).length,
      };
    })
    .sort((left, right) => (`${left.kind} ${left.apiVersion}` < `${right.kind} ${right.apiVersion}` ? -1 : 1));

/** Returns the rule of each field of a kind; it is empty for a field without one. */
const findFields = (apiVersion: string, kind: string): FieldRule[] => {
  const rules = selectFieldRules();
  const own = rules.kinds[`${apiVersion} ${kind}`] ?? {};
  const found: FieldRule[] = [];
  const visit = (word: string, type: string, member: string, path: string): void => {
    const plain = word.replace(/^\??\*?/, "");
    if (path !== "") found.push({ ...rules.types[type]?.[member], ...own[path] });
    if (/^[[{]/.test(plain)) {
      const element = plain.startsWith("[") ? "[]" : "{}";
      visit(plain.slice(1), type, `${member}${element}`, `${path}${element}`);
    }
    for (const [name, inner] of Object.entries(types.types[plain] ?? {}))
      if (!isSystemField(path, name)) visit(inner, plain, name, path === "" ? name : `${path}.${name}`);
  };
  const word = types.kinds[apiVersion]?.[kind];
  if (word !== undefined) visit(word, "", "", "");
  return found;
};

const parts = ["required", "forbidden", "enum", "min", "max", "format", "keys"] as const;

const hasRule = (rule: FieldRule): boolean => parts.some((part) => Boolean(rule[part]));

const settable = ["name", "generateName", "labels", "annotations", "finalizers", "ownerReferences"];

const isSystemField = (path: string, name: string): boolean =>
  (path === "" && ["apiVersion", "kind", "status"].includes(name)) ||
  (/(^|\.)metadata$/.test(path) && !settable.includes(name));
