import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { build, type Plugin } from "esbuild";
import type { ObjectSchema } from "#lib/admission-policies/merge/schemas.ts";
import { isMap, type JsonMap, toList, toMap } from "#lib/json.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { toPlural } from "#lib/recording/recorded-answers.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { moduleExtension, packageRoot } from "../cli/roots.ts";
import { listStrings } from "./cel.ts";

type Types = ObjectSchema["types"];

/** This type is kept with any others, because schemas of custom kinds refer to it. */
const metadataType = "meta.v1.ObjectMeta";
export const schemasFile = "lib/admission-policies/merge/built-in-schemas.json";

/**
 * Keeps only the schemas that a bundle's policies need: those of the kinds that MutatingAdmissionPolicies change by an
 * ApplyConfiguration. The resourceRules of such a policy say which kinds it changes.
 */
export const createSchemaPlugin = (settings: unknown): Plugin =>
  createMatchedSchemasPlugin(listResourceRulesOfApplyConfigurations(settings));

/** Keeps only the schemas of kinds that these elements of a `match` match. */
const createMatchedSchemasPlugin = (matches: readonly JsonMap[]): Plugin => ({
  name: "schema-selection",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]built-in-schemas\.json$/ }, async () => {
      const { types, ...rest } = JSON.parse(await readFile(join(packageRoot, schemasFile), "utf8"));
      return { contents: JSON.stringify({ ...rest, types: selectTypes(types, matches) }), loader: "json" };
    });
  },
});

/** The file with the module that explains failed reviews. It is not in the bundle: it is read only if a rule failed. */
export const explanationFile = "review-faults.cjs";

/**
 * Keeps the module `review-faults`, which explains failed reviews, out of a bundle. The module that imports it is
 * replaced by one that loads `explanationFile` from the bundle's folder when a review has failed.
 */
export const explanationBeside: Plugin = {
  name: "explanation-beside",
  setup({ onLoad }) {
    const contents = `export const loadReviewFaults = () => require("./${explanationFile}");`;
    onLoad({ filter: /[\\/]review-faults-import\.[jt]s$/ }, () => ({ contents }));
  },
};

/**
 * Returns the content of `explanationFile`, by its name, for rules with this `match`. The file is a module that finds
 * what is wrong with an invalid review. It has the schemas of the matched kinds, and is built once for each `match`.
 */
export const buildExplanationFile = (
  match: readonly RequestMatch[] = [matchAnything],
): Promise<Record<string, Uint8Array>> => {
  const matchAsJson = JSON.stringify(match);
  const file = explanationsByMatch.get(matchAsJson) ?? bundleExplanation(match, matchAsJson);
  explanationsByMatch.set(matchAsJson, file);
  return file;
};

const matchAnything: RequestMatch = { apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"] };
/** The built files, by the JSON of a `match`: many rules have the same one. */
const explanationsByMatch = new Map<string, Promise<Record<string, Uint8Array>>>();

/** Bundles the code that explains to the sender what is wrong with an invalid review. */
const bundleExplanation = async (match: readonly RequestMatch[], matchAsJson: string) => {
  const { outputFiles } = await build({
    stdin: {
      contents: `import { findReviewFault as find } from "./lib/core/review-faults${moduleExtension}";
        export const findReviewFault = (request) => find(request, ${matchAsJson});`,
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
    plugins: [createMatchedSchemasPlugin(match.map((element) => ({ ...element })))],
    logLevel: "silent",
  });
  const [file] = outputFiles;
  if (file === undefined) throw new Error(`esbuild made nothing of ${explanationFile}`);
  return { [explanationFile]: file.contents };
};

/** Finds, anywhere in settings, policies that apply an ApplyConfiguration. Returns their `resourceRules`. */
const listResourceRulesOfApplyConfigurations = (value: unknown): JsonMap[] => {
  if (Array.isArray(value)) return value.flatMap(listResourceRulesOfApplyConfigurations);
  if (!isMap(value)) return [];
  const { kind, spec } = value;
  if (kind !== "MutatingAdmissionPolicy") return Object.values(value).flatMap(listResourceRulesOfApplyConfigurations);
  const { mutations, matchConstraints } = toMap(spec);
  const isMerging = toList(mutations).some((mutation) => toMap(mutation).patchType === "ApplyConfiguration");
  return isMerging ? toList(toMap(matchConstraints).resourceRules).map(toMap) : [];
};

/** Returns the types of kinds that `matches` match, and all types that these refer to. */
const selectTypes = (types: Types, matches: readonly JsonMap[]): Types => {
  const predicates = matches.map(createKindPredicate);
  const isMatched = (name: string) => {
    // For instance apps/v1/Deployment.
    const [, apiVersion = "", kind = ""] = /^(.+)\/(\w+)$/.exec(name) ?? [];
    return predicates.some((matchesKind) => matchesKind(apiVersion, kind));
  };
  const kept = new Set(matches.length === 0 ? [] : [metadataType, ...Object.keys(types).filter(isMatched)]);
  // The loop also visits names that it adds to `kept`.
  for (const name of kept)
    for (const reference of listStrings(types[name])) if (Object.hasOwn(types, reference)) kept.add(reference);
  return Object.fromEntries(Object.entries(types).filter(([name]) => kept.has(name)));
};

/** Returns a function that reports whether an element of a `match` may match objects of a kind. */
const createKindPredicate = ({ apiGroups, apiVersions, resources }: JsonMap) => {
  // A subresource may have a kind of its own, such as Binding of pods/binding.
  const names = toList(resources).flatMap((resource) => String(resource).split("/"));
  return (apiVersion: string, kind: string): boolean => {
    const { group, version } = splitApiVersion(apiVersion);
    const isNamed = [toPlural(kind), kind.toLowerCase(), "*"].some((name) => names.includes(name));
    return isNamed && includes(apiGroups, group) && includes(apiVersions, version);
  };
};

const includes = (list: unknown, value: string): boolean => toList(list).some((item) => item === "*" || item === value);
