import { existsSync } from "node:fs";
import { mkdir, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { buildDirectInvocationBundles, buildFunctions } from "../build/build.ts";
import type { RuleBundle } from "../build/bundle.ts";
import { computeFunctionSettings } from "../build/deployment.ts";
import { findExcessResources, findLargeEnvironments } from "../build/limits.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { resolveRuleNames } from "../catalogue/rule-names.ts";
import { type Command, commonCommandOptions, formatTable, writeJson, writeNote, writeOutput } from "../cli/command.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { readListOption } from "../cli/options.ts";
import { getConfigFile } from "../cli/roots.ts";
import type { PosternConfig } from "../config/config.ts";
import { readOrCreateUrlSigner } from "../keys/keys.ts";
import { createRuleConfiguredPredicate, readProject, reportBroken } from "../project/project.ts";
import { rulesOption } from "./shared/rules-option.ts";

export default {
  summary:
    "Writes a bundle of each rule that is on into the folder dist/. deploy does this itself; run build before npx osls package.",
  options: {
    config: commonCommandOptions.config,
    // A bundle is the code of a Lambda function. Without --to, build also writes files with which osls deploys it.
    to: {
      type: "string",
      value: "FOLDER",
      says: "write only bundles, into this folder; callers invoke such a function directly, not through an HTTPS address",
    },
    rules: { ...rulesOption, says: "with --to, build only these rules, even if they are off" },
    output: commonCommandOptions.output,
  },

  async run({ options }) {
    const file = getConfigFile();
    const chosen = readListOption(options, "rules");
    const { catalogue, broken, names, config } = await readProject(file, chosen);
    const to = options.text("to");
    if (to === undefined && chosen.length > 0) throw new Complaint("--rules needs --to");
    const rules = resolveRuleNames(chosen, names);
    reportBroken(broken, rules.length > 0 ? (name) => rules.includes(name) : createRuleConfiguredPredicate(config));
    if (to !== undefined) await requireFolderForBundles(to, names);
    const bundles =
      to === undefined
        ? await buildAll(config, catalogue, file)
        : await buildDirectInvocationBundles(config, catalogue, to, rules);

    const rows = bundles.map(({ name, bytes, hash }) => ({ rule: name, bytes, sha256: hash }));
    if (options.text("output") === "json") writeJson(rows);
    else
      writeOutput(
        formatTable([
          ["RULE", "KB", "SHA-256"],
          ...rows.map(({ rule, bytes, sha256 }) => [rule, (bytes / 1024).toFixed(1), sha256]),
        ]),
      );
  },
} satisfies Command;

/** Creates the folder of --to. Throws a Complaint if it can't be created, or has a rule's folder that is no bundle. */
const requireFolderForBundles = async (folder: string, ruleNames: readonly string[]): Promise<void> => {
  await mkdir(folder, { recursive: true }).catch((error) => {
    throw new Complaint(`--to must name a folder, not ${folder}: ${toSentence(error)}`);
  });
  const isBundle = (name: string) => existsSync(join(folder, name, "index.cjs"));
  const other = (await readdir(folder)).find((name) => ruleNames.includes(name) && !isBundle(name));
  if (other !== undefined)
    throw new Complaint(`--to can't be ${folder}: ${join(folder, other)} is no bundle; name another folder`);
};

/** Builds all rules that are on, and what `npx osls package` needs. Throws if a limit of AWS is exceeded. */
const buildAll = async (config: PosternConfig, catalogue: CatalogueRule[], file: string): Promise<RuleBundle[]> => {
  const { publicKey } = await readOrCreateUrlSigner(join(dirname(file), ".postern"));
  const { bundles, resources, notes } = await buildFunctions(config, catalogue, file, publicKey);
  const functions = bundles.map((bundle) => ({ name: bundle.name, ...computeFunctionSettings(bundle, publicKey) }));
  const limits = [...findExcessResources(resources), ...findLargeEnvironments(functions)];
  if (limits.length > 0) throw new Complaint(limits.join("\n"), 1);
  for (const note of notes) writeNote(note);
  return bundles;
};
