import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { isMap, isSeq, parseDocument } from "yaml";
import type { Phase } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { packageRoot } from "../cli/roots.ts";
import type { PosternConfig } from "../config/config.ts";
import { formatYamlLines } from "../diff/yaml-lines.ts";
import { readProject } from "../project/project.ts";
import { buildRuleWebhookEntries } from "../webhooks/entry.ts";
import { buildGroupWebhookEntry } from "../webhooks/groups.ts";
import type { CatalogueSummary, RuleDetails, RuleSummary } from "./messages.ts";

/** Returns all rules that the project can use, with their modes in postern.yaml. Rules that are on come first. */
export const listRules = async (file: string): Promise<CatalogueSummary> => {
  const { catalogue, broken, config } = await readProject(file, "all");
  const rules = catalogue.map((catalogueRule) => summarizeRule(catalogueRule, config));
  const brokenRules = broken.map(({ name, source, sentence }) => {
    return { name, source, phases: [], summary: sentence, modes: {} };
  });
  const isOff = ({ modes }: RuleSummary) => Object.values(modes).every((mode) => mode === "off");
  const [offRules, onRules] = [rules.filter(isOff), rules.filter((rule) => !isOff(rule))];
  return { rules: [...onRules, ...brokenRules, ...offRules], clusters: [...config.clusters.keys()] };
};

/** Describes the rule of this name; undefined if there is none. */
export const describeRule = async (file: string, name: string): Promise<RuleDetails | undefined> => {
  const { catalogue, config } = await readProject(file, "all");
  const catalogueRule = catalogue.find((rule) => rule.name === name);
  if (catalogueRule === undefined) return undefined;
  const group = config.groups.find(({ members }) => members.includes(catalogueRule));
  // Parity: how often a rule of Postern and the plugin of kube-apiserver that it reimplements gave the same answer.
  const isRuleOfPostern = catalogueRule.folder.startsWith(join(packageRoot, "functions/"));
  const [readme, parity] = await Promise.all([
    readFile(join(catalogueRule.folder, "README.md"), "utf8"),
    isRuleOfPostern ? readParityWithPlugin(name) : undefined,
  ]);
  return {
    ...summarizeRule(catalogueRule, config),
    readme,
    cases: await readCaseTexts(catalogueRule),
    setups: [...config.clusters].flatMap(([cluster, clusterConfig]) => {
      const setup = clusterConfig.rules.get(name);
      if (setup === undefined) return [];
      // The entries are shown as they are before `postern deploy` makes those of security rules fail closed.
      const isHardened = false;
      const listEntries = (phase: Phase) =>
        phase === "mutate" && group !== undefined
          ? buildGroupWebhookEntry(group, clusterConfig, isHardened)
          : buildRuleWebhookEntries(catalogueRule, phase, setup, isHardened);
      const entries = Object.fromEntries(catalogueRule.phases.map((phase) => [phase, listEntries(phase)]));
      // The conversion to JSON removes undefined members.
      const jsonValue = JSON.parse(JSON.stringify({ ...setup, webhookEntries: setup.mode === "off" ? [] : entries }));
      return [{ cluster, text: formatYamlLines(jsonValue).join("\n") }];
    }),
    ...(parity && { parity }),
  };
};

const summarizeRule = ({ name, source, phases, rule }: CatalogueRule, { clusters }: PosternConfig): RuleSummary => {
  const modes = [...clusters].map(([cluster, { rules }]) => [cluster, rules.get(name)?.mode ?? "off"]);
  return { name, source, phases, summary: rule.summary, modes: Object.fromEntries(modes) };
};

/** Returns the text of each case in the rule's cases.yaml. */
const readCaseTexts = async ({ folder }: CatalogueRule) => {
  const text = await readFile(join(folder, "cases.yaml"), "utf8");
  const { contents } = parseDocument(text);
  const items = isSeq(contents) ? contents.items.filter((item) => isMap(item)) : [];
  return items.map((item) => {
    const [start = 0, end = 0] = item.range ?? [];
    return { name: String(item.get("name")), text: `- ${text.slice(start, end).trimEnd()}` };
  });
};

/** Reads the rule's row of the parity table in docs/background/parity.md. */
const readParityWithPlugin = async (name: string) => {
  const text = await readFile(join(packageRoot, "docs/background/parity.md"), "utf8");
  const splitRow = (row = "") => row.split("|").map((cell) => cell.trim());
  const headerCells = splitRow(/^\| rule [^|]*\| v1\..*$/m.exec(text)?.[0]);
  const minors = headerCells.filter((head) => head.startsWith("v1."));
  // The page has other tables with the rule's name. Only the parity table has cells such as "991 / 9 / 0".
  const row = text.split("\n").find((line) => line.startsWith(`| ${name} |`) && line.includes(" / "));
  return row === undefined ? undefined : { minors, cells: splitRow(row).slice(2, 2 + minors.length) };
};
