import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { build, type Plugin } from "esbuild";
import type { ObjectSchema } from "#lib/admission-policies/merge/schemas.ts";
import { isMap, type JsonMap, toList, toMap } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { toPlural } from "#lib/recording/recorded-answers.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { moduleExtension, packageRoot } from "../cli/roots.ts";
import { listTexts } from "./cel.ts";

type Types = ObjectSchema["types"];

/** The type that the schemas of custom kinds refer to. */
const metadataType = "meta.v1.ObjectMeta";
export const schemasFile = "lib/admission-policies/merge/built-in-schemas.json";

/** Leaves out the schemas of kinds that no policy in a bundle's settings merges an ApplyConfiguration into. */
export const createSchemaPlugin = (settings: unknown): Plugin => createSelectionPlugin(listMergeRules(settings));

/** Leaves out the schemas of kinds that none of the rows matches. */
const createSelectionPlugin = (rules: readonly JsonMap[]): Plugin => ({
  name: "schema-selection",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]built-in-schemas\.json$/ }, async () => {
      const { types, ...rest } = JSON.parse(await readFile(join(packageRoot, schemasFile), "utf8"));
      return {
        contents: JSON.stringify({ ...rest, types: selectTypes(types, rules) }),
        loader: "json",
      };
    });
  },
});

/** The module that explains failed reviews, in a file beside a bundle: a function reads it only after a rule has failed. */
export const explanationFile = "review-faults.cjs";

/** Replaces the module that loads that one. */
export const explanationBeside: Plugin = {
  name: "explanation-beside",
  setup({ onLoad }) {
    const contents = `export const loadReviewFaults = () => require("./${explanationFile}");`;
    onLoad({ filter: /[\\/]review-faults-import\.[jt]s$/ }, () => ({ contents }));
  },
};

/**
 * Returns that file for a rule with these rows, by default with rows that match everything. It has the types of the kinds
 * that they match.
 */
export const readExplanationFiles = (rows: readonly RequestMatch[] = [anyRow]): Promise<Record<string, Uint8Array>> => {
  const text = JSON.stringify(rows);
  const made = explanations.get(text) ?? createExplanationFiles(rows, text);
  explanations.set(text, made);
  return made;
};

const anyRow: RequestMatch = { apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"] };
/** The files that were made, by their rows: most rules match the same. */
const explanations = new Map<string, Promise<Record<string, Uint8Array>>>();

const createExplanationFiles = async (rows: readonly RequestMatch[], text: string) => {
  const { outputFiles } = await build({
    stdin: {
      contents: `import { findReviewFault as find } from "./lib/core/review-faults${moduleExtension}";
        export const findReviewFault = (request) => find(request, ${text});`,
      resolveDir: packageRoot,
    },
    absWorkingDir: packageRoot,
    bundle: true,
    write: false,
    outfile: explanationFile,
    format: "cjs",
    platform: "node",
    target: "node24",
    minify: true,
    legalComments: "none",
    plugins: [createSelectionPlugin(rows.map((row) => ({ ...row })))],
    logLevel: "silent",
  });
  const [file] = outputFiles;
  if (file === undefined) throw new Error(`esbuild made nothing of ${explanationFile}`);
  return { [explanationFile]: file.contents };
};

/** Returns the rules of the policies that merge configurations. */
const listMergeRules = (value: unknown): JsonMap[] => {
  if (Array.isArray(value)) return value.flatMap(listMergeRules);
  if (!isMap(value)) return [];
  const { kind, spec } = value;
  if (kind !== "MutatingAdmissionPolicy") return Object.values(value).flatMap(listMergeRules);
  const { mutations, matchConstraints } = toMap(spec);
  const isMerging = toList(mutations).some((mutation) => toMap(mutation).patchType === "ApplyConfiguration");
  return isMerging ? toList(toMap(matchConstraints).resourceRules).map(toMap) : [];
};

/** Returns the types of the kinds that rules match, and all that they refer to. */
const selectTypes = (types: Types, rules: readonly JsonMap[]): Types => {
  const matches = rules.map(createKindMatch);
  const isMerged = (name: string) => {
    const [, apiVersion = "", kind = ""] = /^(.+)\/(\w+)$/.exec(name) ?? [];
    return matches.some((match) => match(apiVersion, kind));
  };
  const kept = new Set(rules.length === 0 ? [] : [metadataType, ...Object.keys(types).filter(isMerged)]);
  // The loop also visits the names that it adds.
  for (const name of kept)
    for (const reference of listTexts(types[name])) if (Object.hasOwn(types, reference)) kept.add(reference);
  return Object.fromEntries(Object.entries(types).filter(([name]) => kept.has(name)));
};

const createKindMatch = ({ apiGroups, apiVersions, resources }: JsonMap) => {
  // A subresource may have a kind of its own, such as Binding of pods/binding.
  const names = toList(resources).flatMap((resource) => String(resource).split("/"));
  return (apiVersion: string, kind: string): boolean => {
    const { group, version } = splitApiVersion(apiVersion);
    const isNamed = [toPlural(kind), kind.toLowerCase(), "*"].some((name) => names.includes(name));
    return isNamed && includes(apiGroups, group) && includes(apiVersions, version);
  };
};

const includes = (list: unknown, value: string): boolean => toList(list).some((one) => one === "*" || one === value);
