import { existsSync, globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire, isBuiltin } from "node:module";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";
import { getOwn } from "#lib/json.ts";
import type { Need } from "#lib/needs.ts";
import { getVariants, listPhases, type Phase, type Rule } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { Complaint, requireComplaint, toSentence } from "../cli/complaint.ts";
import { findClosest, formatDidYouMean } from "../cli/did-you-mean.ts";
import { moduleExtension, packageRoot } from "../cli/roots.ts";
import { requireValidRuleName } from "./rule-names.ts";
import { findShapeMistakes } from "./rule-shape.ts";
import { formatRuleMistake, locateMistakes } from "./rule-source.ts";
import {
  getProjectSource,
  listRuleFolders,
  projectSourceName,
  type RuleFolder,
  type RuleSource,
  toRuleFolder,
} from "./sources.ts";
import { compiledInPlugins } from "./upstream-plugins.ts";

/** A rule, or a group in the form of a rule. */
export interface CatalogueRule extends RuleFolder {
  phases: Phase[];
  rule: Rule;
  /** The rules of a group; absent for a rule. A group has no folder: its `folder` and `file` are empty. */
  members?: CatalogueRule[];
}

/** A folder whose rule can't be loaded. */
export interface BrokenRule extends RuleFolder {
  /** Says why the rule can't be loaded, with the file and, if known, the line. */
  sentence: string;
  /** The rule as its file exports it, if the file loads but members of the rule are wrong. */
  listed?: CatalogueRule;
}

/** The position of webhooks in kube-apiserver's plugin chain, for rules without `order`. */
const defaultOrder = 37;

/** Returns all rules, in the order of the compiled-in plugins. Throws if a rule can't be loaded. */
export const readCatalogue = async (
  sources: readonly RuleSource[] = [getProjectSource()],
): Promise<CatalogueRule[]> => {
  const { rules, broken } = await loadRules(await listRuleFolders(sources));
  if (broken.length > 0) throw new Complaint(broken.map(({ sentence }) => sentence).join("\n"));
  return rules;
};

/** Loads the rules of these folders; returns them in the order of the compiled-in plugins. */
export const loadRules = async (
  folders: readonly RuleFolder[],
): Promise<{ rules: CatalogueRule[]; broken: BrokenRule[] }> => {
  const broken: BrokenRule[] = [];
  const found = await Promise.all(
    folders.map(async (place) => {
      const addBroken = (message: string, listed?: CatalogueRule): [] => {
        const sentence = place.source === projectSourceName ? message : `${place.source}: ${message}`;
        broken.push({ ...place, sentence, ...(listed && { listed }) });
        return [];
      };
      try {
        const listed = await loadRule(place);
        const mistakes = await locateMistakes(place, findShapeMistakes(listed.rule));
        return mistakes.length === 0 ? [listed] : addBroken(mistakes.map(formatRuleMistake).join("\n"), listed);
      } catch (error) {
        return addBroken(requireComplaint(error).message);
      }
    }),
  );
  const rules = found.flat();
  return {
    rules: rules.sort((left, right) => getOrder(left) - getOrder(right) || (left.name < right.name ? -1 : 1)),
    broken,
  };
};

/**
 * Says for which clusters a rule is useful if it reimplements a plugin that is on by default; undefined for other
 * rules, unless they have a `worthwhile` sentence.
 */
export const describeUseOfDefaultOnPlugin = ({ upstreamPlugin }: Rule): string | undefined =>
  upstreamPlugin?.worthwhile ??
  (upstreamPlugin && compiledInPlugins[upstreamPlugin.plugin]?.isOn
    ? `The API server's plugin ${upstreamPlugin.plugin} does the same by default. The rule is for clusters that turned this plugin off.`
    : undefined);

const getOrder = ({ rule }: CatalogueRule) => rule.order ?? defaultOrder;

/** Returns the rule in a folder, also if the folder is in no catalogue. */
export const readRule = (folder: string, name: string): Promise<CatalogueRule> => loadRule(toRuleFolder(folder, name));

/** Loads a rule from its folder. A folder with a missing file or an invalid rule is a Complaint. */
const loadRule = async (ruleFolder: RuleFolder): Promise<CatalogueRule> => {
  const { name, folder, place, file } = ruleFolder;
  requireValidRuleName(name, place);
  for (const needed of [file, "cases.yaml", "README.md"])
    if (!existsSync(join(folder, needed))) throw new Complaint(`${place} has no ${needed}`);
  const rule = requireRule(await importRule(join(folder, file), `${place}/${file}`), `${place}/${file}`);
  return { ...ruleFolder, phases: listPhases(rule), rule };
};

/** Returns the default export of a rule's file. If it can't be loaded, the Complaint names the line. */
const importRule = async (file: string, place: string): Promise<unknown> => {
  try {
    return (await rejectIfNeverSettled(import(pathToFileURL(file).href))).default;
  } catch (error) {
    const line = findErrorLine(error, dirname(file));
    const sentence =
      (await findSyntaxError(file)) ??
      (await explainImportError(error, file)) ??
      `${toSentence(error)}${line && ` (${line})`}`;
    throw new Complaint(`${place} does not load: ${sentence}`);
  }
};

/** The time that loading a rule may take, in milliseconds. Many rules are loaded at the same time. */
const loadLimit = 60_000;

/** Functions that reject pending loads of rules: at an await that never ends, Node.js would exit without an error. */
const openLoads = new Set<() => void>();
process.on("beforeExit", () => {
  for (const fail of openLoads) fail();
});

/** Rejects after `loadLimit`, and earlier if nothing is left that this process waits for. */
const rejectIfNeverSettled = <T>(loading: Promise<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    const fail = () => reject(new Error("its top-level await never ends"));
    const timer = setTimeout(fail, loadLimit).unref();
    openLoads.add(fail);
    const stopWaiting = () => {
      clearTimeout(timer);
      openLoads.delete(fail);
    };
    loading.then(resolve, reject).then(stopWaiting);
  });

/** Returns where in a rule's folder an error was thrown: "line 3" for the rule's file, or "helpers.ts line 3". */
const findErrorLine = (error: unknown, folder: string): string => {
  const stack = error instanceof Error ? (error.stack ?? "") : "";
  const [, ...frames] = stack.split(`${pathToFileURL(folder).href}/`);
  // For instance `rule.ts:3:12` or, with a query, `rule.ts?1:3:12`.
  const [, file = "", line] = /^([^\s:?]+)(?:\?\d+)?:(\d+)/.exec(frames[0] ?? "") ?? [];
  return line === undefined ? "" : formatLine(file, line);
};

const formatLine = (file: string, line: number | string): string =>
  `${/^rule\.[jt]s$/.test(file) ? "" : `${file} `}line ${line}`;

/** Returns the syntax error that esbuild finds in a file: unlike Node's error, it has a line. */
const findSyntaxError = async (file: string): Promise<string | undefined> => {
  const { build } = await import("esbuild");
  const result = await build({
    entryPoints: [file],
    write: false,
    logLevel: "silent",
    bundle: true,
    format: "esm",
    platform: "node",
    packages: "external",
  }).catch((failure: { errors?: { text: string; location?: { file: string; line: number } | null }[] }) => failure);
  const [first] = result.errors ?? [];
  if (first?.location == null) return first?.text;
  const { file: where, line } = first.location;
  return `${first.text} (${formatLine(relative(dirname(file), resolve(where)), line)})`;
};

/** Returns a sentence about an import of a missing module, or of a name that a module doesn't export. */
const explainImportError = async (error: unknown, ruleFile: string): Promise<string | undefined> => {
  const message = toSentence(error);
  const [, name] = / '(.*)' does not provide an export named '.*'$/.exec(message) ?? [];
  const [, exported = ""] = / does not provide an export named '(.*)'$/.exec(message) ?? [];
  if (name === undefined && !importErrors.has(String(getOwn(error, "code")))) return undefined;
  const [, importer = ruleFile] = / imported from (.*)$/.exec(message) ?? [];
  const { resolve } = createRequire(importer);
  if (name !== undefined) {
    const line = findErrorLine(error, dirname(ruleFile));
    const path = attempt(() => resolve(name));
    const known = path === undefined ? [] : Object.keys(await import(pathToFileURL(path).href).catch(() => ({})));
    const advice = formatDidYouMean(exported, known).trim() || "if it is a type, write import type";
    return `"${name}" has no export ${exported}${line && ` (${line})`}; ${advice}`;
  }
  const text = await readFile(importer, "utf8").catch(() => "");
  for (const { 1: specifier = "", index } of text.matchAll(/\b(?:from|import)\s*\(?\s*["']([^"'\n]+)["']/g)) {
    if (isBuiltin(specifier) || attempt(() => resolve(specifier)) !== undefined) continue;
    const line = formatLine(relative(dirname(ruleFile), importer), text.slice(0, index).split("\n").length);
    const isOfPostern = specifier.startsWith("postern/");
    // The last part must be similar, too: postern/objects/nosuch has much in common with postern/objects/pod.
    const known = (isOfPostern ? await listPosternModules() : []).filter((module) =>
      findClosest(basename(specifier), [basename(module)]),
    );
    const advice =
      formatDidYouMean(specifier, known).trim() || (isOfPostern ? "check its name" : "install its package");
    return `there is no "${specifier}" (${line}); ${advice}`;
  }
  return undefined;
};

/** The codes of Node.js for errors about an import that leads to no module. */
const importErrors = new Set(["ERR_MODULE_NOT_FOUND", "ERR_PACKAGE_PATH_NOT_EXPORTED", "ERR_UNSUPPORTED_DIR_IMPORT"]);

const attempt = <T>(call: () => T): T | undefined => {
  try {
    return call();
  } catch {
    return undefined;
  }
};

/** Returns the modules that Postern's package exports to rules, such as postern/rule. */
const listPosternModules = async (): Promise<string[]> => {
  const { exports } = JSON.parse(await readFile(join(packageRoot, "package.json"), "utf8"));
  return Object.keys(exports).flatMap((key) => {
    const [start = "", end] = key.slice("./".length).split("*");
    if (end === undefined) return [`postern/${start}`];
    const files = globSync(`lib/${start}**/*${moduleExtension}`, { cwd: packageRoot });
    return files.map((file) => `postern/${file.split(sep).join("/").slice("lib/".length, -moduleExtension.length)}`);
  });
};

/** Returns the rule that a file exports. Throws if it breaks a condition that the types of rule() can't express. */
const requireRule = (value: unknown, file: string): Rule => {
  if (typeof value !== "object" || value === null || !("summary" in value))
    throw new Complaint(`${file} must export a rule as its default: export default rule({ … })`);
  const rule = value as Rule;
  if (!/^[A-Z].*\.$/s.test(rule.summary))
    throw new Complaint(`${file}: summary must be a sentence, with a capital and a full stop`);
  if (rule.mutate === undefined && rule.validate === undefined)
    throw new Complaint(`${file} has neither mutate nor validate`);
  if (rule.order !== undefined && !(rule.order >= 1 && rule.order <= 41))
    throw new Complaint(`${file}: order is a position among kube-apiserver's compiled-in plugins, from 1 to 41`);
  if (rule.timeoutSeconds !== undefined && !(rule.timeoutSeconds >= 1 && rule.timeoutSeconds <= 30))
    throw new Complaint(`${file}: timeoutSeconds must be from 1 to 30`);
  const minors = Object.keys(rule.since ?? { "1.0": {} });
  const isAscending = minors.every(
    (minor, index) => index === 0 || Number(minor.slice(2)) > Number(minors[index - 1]?.slice(2)),
  );
  if (minors[0] !== "1.0" || !minors.every((minor) => /^1\.\d+$/.test(minor)) || !isAscending)
    throw new Complaint(
      `${file}: since must list minor versions of Kubernetes in ascending order, beginning with "1.0"`,
    );
  return rule;
};

/** Returns a rule and its settings, changed as the named variant says. The returned rule has no `variants`. */
export const applyVariant = (rule: Rule, settings: object, variant: string | undefined) => {
  const found = getVariants(rule, settings)?.find(({ name }) => name === variant);
  // Only variants have a failurePolicy and `native`, a policy that the API server evaluates in place of the function.
  const { name: _, settings: variantSettings, failurePolicy, native, ...differences } = found ?? { name: "" };
  const { variants: __, ...ruleWithoutVariants } = rule;
  return {
    rule: { ...ruleWithoutVariants, ...differences },
    settings: mergeWithDefaults(settings, variantSettings),
    failurePolicy,
    native,
  };
};

/** Reports whether a rule has a need of this verb, such as `ledger`. */
export const hasNeed = ({ rule }: Pick<CatalogueRule, "rule">, wanted: Need<unknown>["verb"]): boolean =>
  Object.values(rule.needs ?? {}).some(({ verb }) => verb === wanted);
