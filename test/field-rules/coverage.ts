import types from "../../infra/apiserver/defaults/types.json" with { type: "json" };
import { type FieldRule, selectFieldRules } from "../../infra/apiserver/validation/fields.ts";

type Words = Record<string, Record<string, string>>;

const words: Words = types.types;
const parts = ["required", "forbidden", "enum", "min", "max", "format", "keys"] as const;

/**
 * Returns the rows of the table in docs/check.md: each kind that check validates, with the number of its fields, and of
 * those that have a rule. Fields of the status and those that the API server sets are left out.
 */
export const listCoverage = (): string[] => {
  const rules = selectFieldRules();
  return Object.entries<Record<string, string>>(types.kinds)
    .flatMap(([apiVersion, kinds]) =>
      Object.entries(kinds).map(([kind, word]) => {
        const own = rules.kinds[`${apiVersion} ${kind}`] ?? {};
        const found: boolean[] = [];
        const visit = (word: string, type: string, member: string, path: string): void => {
          const plain = word.replace(/^\??\*?/, "");
          if (path !== "") found.push(hasRule({ ...rules.types[type]?.[member], ...own[path] }));
          if (/^[[{]/.test(plain)) {
            const element = plain.startsWith("[") ? "[]" : "{}";
            visit(plain.slice(1), type, `${member}${element}`, `${path}${element}`);
          }
          for (const [name, inner] of Object.entries(words[plain] ?? {}))
            if (!isSystemField(path, name)) visit(inner, plain, name, path === "" ? name : `${path}.${name}`);
        };
        visit(word, "", "", "");
        return `| ${kind} (\`${apiVersion}\`) | ${found.length} | ${found.filter(Boolean).length} |`;
      }),
    )
    .sort();
};

const hasRule = (rule: FieldRule): boolean => parts.some((part) => Boolean(rule[part]));

const settable = ["name", "generateName", "labels", "annotations", "finalizers", "ownerReferences"];

const isSystemField = (path: string, name: string): boolean =>
  (path === "" && ["apiVersion", "kind", "status"].includes(name)) ||
  (/(^|\.)metadata$/.test(path) && !settable.includes(name));
