import { dirname } from "node:path";
import { asksCluster } from "#lib/needs.ts";
import type { Rule } from "#lib/rule.ts";
import { updateCataloguePages } from "../catalogue/readme.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { updateTableOfCheckPage } from "../check/documented-coverage.ts";
import { type Command, commonCommandOptions, formatTable, writeJson, writeOutput } from "../cli/command.ts";
import { getConfigFile, hasOwnRules } from "../cli/roots.ts";
import { toOneLine } from "../cli/terminal.ts";
import { writeSchemas } from "../config/schemas.ts";
import { findPresentPlugins, formatPresentPlugins, getStatedFacts } from "../project/present-plugins.ts";
import { readProjectIfAny } from "../project/project.ts";
import { readAllRules, requireConfig } from "../project/project-rules.ts";
import { estimateDollarsPerMillionCalls } from "../rollout/plan/cost.ts";

export default {
  summary: "Lists the rules, where they come from, and the mode of each in each cluster.",
  options: {
    config: commonCommandOptions.config,
    output: commonCommandOptions.output,
    write: {
      type: "boolean",
      says: "write the tables in functions/README.md, docs/how-to/choose-rules.md and docs/reference/check.md, and the schemas for editors to .postern, as npm run fix does",
    },
  },

  async run({ options }) {
    if (options.flag("write")) {
      if (!hasOwnRules()) requireConfig();
      await writeSchemas(dirname(getConfigFile()), await readAllRules());
      const rules = await readCatalogue();
      await updateCataloguePages(rules);
      return updateTableOfCheckPage(rules);
    }
    const { catalogue, broken, config } = await readProjectIfAny("all");
    const { clusters } = config;
    const getModes = (name: string): Record<string, string> => {
      const modes = [...clusters].flatMap(([cluster, { rules }]) =>
        rules.has(name) ? [[cluster, rules.get(name)?.mode ?? "off"]] : [],
      );
      return Object.fromEntries(modes);
    };
    const clusterFacts = [...clusters].map(([name, cluster]) => ({ name, cluster, facts: getStatedFacts(cluster) }));
    const present = findPresentPlugins(catalogue, clusterFacts);
    const rules = [
      ...catalogue.map(({ name, source, phases, rule }) => {
        const found = present.find((other) => other.rule === name);
        return {
          name,
          from: source,
          phases,
          summary: rule.summary,
          modes: getModes(name),
          ...(found && {
            presentPlugin: { plugin: found.plugin, clusters: found.clusters },
            millionReviews: estimateMillionReviews(rule),
          }),
        };
      }),
      ...broken.map(({ name, source, sentence }) => {
        return { name, from: source, phases: [], broken: sentence, modes: getModes(name) };
      }),
    ];
    if (options.text("output") === "json") return writeJson(rules);
    const formatModes = (modes: Record<string, string>) => {
      const entries = Object.entries(modes);
      return clusters.size === 1
        ? (entries[0]?.[1] ?? "-")
        : entries.map((entry) => entry.join(": ")).join(", ") || "-";
    };
    // If rules come from several sources, a column says from which one each rule comes.
    const hasSources = new Set(rules.map(({ from }) => from)).size > 1;
    writeOutput(
      formatTable([
        ["RULE", ...(hasSources ? ["FROM"] : []), "PHASE", "MODE", "WHAT IT DOES"],
        ...rules.map(({ name, from, phases, modes, ...rule }) => [
          name,
          ...(hasSources ? [from] : []),
          phases.join(", ") || "-",
          formatModes(modes),
          toOneLine("broken" in rule ? rule.broken : rule.summary),
        ]),
      ]),
    );
    const describeCosts = (name: string) => {
      const group = config.groups.find((candidate) => candidate.name === name);
      const members = group?.members ?? catalogue.filter((listed) => listed.name === name);
      const { url, http } = estimateMillionReviews(...members.map(({ rule }) => rule));
      return `about $${url.toFixed(2)} for a million reviews with function URLs, and $${http.toFixed(2)} with an HTTP API`;
    };
    const lines = formatPresentPlugins(present, describeCosts);
    if (lines.length > 0) writeOutput(`\n${lines.join("\n")}\n`);
  },
} satisfies Command;

/** Estimates the dollars for a million reviews of a rule, or of the rules of a group, by endpoint type. */
export const estimateMillionReviews = (...rules: Rule[]) => {
  const readsCluster = rules.some((rule) => asksCluster(rule));
  // A review takes about 5 ms, and about 30 ms if the rule reads from the cluster.
  const milliseconds = readsCluster ? 30 : 5;
  // The estimate is shown only for rules that copy an admission plugin which is on in an API server. None of them keeps
  // a ledger (its own data in a table), so the ledger costs nothing.
  const fixed = { memoryMegabytes: 256, phases: 1, warmEnvironments: 0, ledgerDollars: 0 };
  const factors = { ...fixed, milliseconds, readsCluster };
  return {
    url: estimateDollarsPerMillionCalls(factors, "url"),
    http: estimateDollarsPerMillionCalls(factors, "http"),
  };
};
