import { mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { isMap, parseDocument } from "yaml";
import { updateCataloguePages } from "../catalogue/readme.ts";
import { loadRules, readRule } from "../catalogue/registry.ts";
import { requireValidRuleName } from "../catalogue/rule-names.ts";
import { getFunctionsFolder, getProjectSource, listRuleFolders } from "../catalogue/sources.ts";
import { type Command, commonCommandOptions, writeNote, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { findNearestFile, getConfigFile, getProjectRoot, hasConfig, openProject, packageRoot } from "../cli/roots.ts";
import { addSchemaLine, writeSchemas } from "../config/schemas.ts";
import { formatYamlFlow } from "../diff/yaml-lines.ts";
import { type CustomKindFiles, readCustomKind } from "../project/custom-kind.ts";
import { reportBroken } from "../project/project.ts";
import { readAllRules, readConfigText, readRuleNames } from "../project/project-rules.ts";

export default {
  summary: "Creates a rule: a folder that passes all checks, and a line in postern.yaml that turns it on.",
  usage: "NAME",
  options: {
    mutate: {
      type: "boolean",
      says: "create a rule that changes objects (default for names that begin with default- or add-)",
    },
    crd: {
      type: "string",
      value: "FILE",
      says: "create a rule for the custom kind whose CustomResourceDefinition this file has, with its TypeScript types",
    },
    config: commonCommandOptions.config,
  },

  async run({ options, words: [name = ""] }) {
    requireValidRuleName(name);
    const folder = join(getFunctionsFolder(), name);
    const file = getConfigFile();
    const text = hasConfig() ? await readConfigText(file) : "";
    const mutates = options.flag("mutate") || /^(default|add)-/.test(name);
    const crd = options.text("crd");
    const kind = crd === undefined ? undefined : await readCustomKind(crd);
    const isReplacement = (await readRuleNames()).includes(name);
    await createRuleFolder(folder, name, new URL(mutates ? "new/mutate/" : "new/validate/", import.meta.url), kind);
    if (isReplacement) writeNote(`functions/${name} replaces the rule of this name that a catalogue has`);
    await turnOnRule(file, text, name);
    // If there was no postern.yaml, `turnOnRule` has created it, so it can be opened now.
    openProject(file);
    await writeSchemas(dirname(file), await readAllRules());
    const { rules, broken } = await loadRules(await listRuleFolders([getProjectSource()]));
    // A rule that can't be loaded would be missing in the list of rules, so the list isn't written.
    reportBroken(broken, () => false); // Reports broken rules, but none of them makes this command fail.
    if (broken.length === 0) await updateCataloguePages(rules);
    writeOutput(
      `created functions/${name} and turned it on in ${basename(file)}.\nEdit its rule.ts and cases.yaml; postern test ${name} runs them, postern serve --watch serves them.\n`,
    );
  },
} satisfies Command;

/** Creates the folder of a rule from a template. Deletes the folder again if the rule can't be loaded from it. */
const createRuleFolder = async (folder: string, name: string, from: URL, kind?: CustomKindFiles) => {
  await mkdir(getFunctionsFolder(), { recursive: true });
  await mkdir(folder).catch((error) => {
    throw new Complaint(
      error.code === "EEXIST"
        ? `functions/${name} is there already`
        : `functions/${name} can't be made: ${error.message}`,
    );
  });
  for (const file of await readdir(from)) {
    const text = (await readFile(new URL(file, from), "utf8")).replace(/^# NAME/, `# ${name}`);
    await writeFile(join(folder, file), kind ? kind.adapt(file, text) : text);
  }
  for (const [file, text] of Object.entries(kind?.files ?? {})) await writeFile(join(folder, file), text);
  await makeImportable(folder);
  await readRule(folder, name).catch(async (error) => {
    await rm(folder, { recursive: true });
    throw error;
  });
};

/**
 * Makes it possible to load the file in a rule's folder, which is an ES module and imports `postern/…`. If no
 * package.json has the type module, adds one to functions/. If no postern is installed, links node_modules/postern.
 */
const makeImportable = async (folder: string) => {
  const manifest = findNearestFile(folder, "package.json");
  if (manifest === undefined || JSON.parse(await readFile(manifest, "utf8")).type !== "module")
    await writeFile(join(getFunctionsFolder(), "package.json"), '{ "private": true, "type": "module" }\n');
  try {
    createRequire(join(folder, "rule.ts")).resolve("postern/rule");
  } catch {
    const link = join(getProjectRoot(), "node_modules/postern");
    await mkdir(dirname(link), { recursive: true });
    await symlink(packageRoot, link, "junction");
    writeNote(`node_modules/postern is a link to ${packageRoot}: no package postern is installed here`);
  }
};

/** Adds to postern.yaml a line that turns the rule on, and the line that names the schema. The other text stays. */
const turnOnRule = async (file: string, oldText: string, name: string) => {
  const text = addSchemaLine(oldText);
  const rules = parseDocument(text).get("rules");
  const key = formatYamlFlow(name);
  if (isMap(rules) && !rules.flow && rules.range) {
    const [start, , end] = rules.range;
    const indent = " ".repeat(start - text.lastIndexOf("\n", start) - 1);
    await writeFile(file, `${text.slice(0, end).trimEnd()}\n${indent}${key}:\n${text.slice(end).replace(/^\n/, "")}`);
    return;
  }
  if (rules != null) throw new Complaint(`${basename(file)} has its rules in braces; add ${name} yourself`);
  const rest = text.replace(/^rules:.*\n?/m, "");
  await writeFile(file, `${rest && `${rest.trimEnd()}\n`}rules:\n  ${key}:\n`);
};
