import { dirname } from "node:path";
import { readCatalogue, updateRuleListInReadme } from "../catalogue/registry.ts";
import { updateTablesOfCheckPage } from "../check/documented-coverage.ts";
import { type Command, commonCommandOptions, formatTable, writeJson, writeOutput } from "../cli/command.ts";
import { getConfigFile, hasOwnRules } from "../cli/roots.ts";
import { toOneLine } from "../cli/terminal.ts";
import { writeSchemas } from "../config/schemas.ts";
import { readProjectIfAny } from "../project/project.ts";
import { readAllRules, requireConfig } from "../project/project-rules.ts";

export default {
  summary: "Lists the rules, where they come from, and the mode of each in each cluster.",
  options: {
    config: commonCommandOptions.config,
    output: commonCommandOptions.output,
    write: {
      type: "boolean",
      says: "write the lists in functions/README.md and docs/check.md, and the schemas for editors to .postern, as npm run fix does",
    },
  },

  async run({ options }) {
    if (options.flag("write")) {
      if (!hasOwnRules()) requireConfig();
      await writeSchemas(dirname(getConfigFile()), await readAllRules());
      const rules = await readCatalogue();
      await updateRuleListInReadme(rules);
      return updateTablesOfCheckPage(rules);
    }
    const { catalogue, broken, config } = await readProjectIfAny("all");
    const { clusters } = config;
    const getModes = (name: string): Record<string, string> => {
      const modes = [...clusters].flatMap(([cluster, { rules }]) =>
        rules.has(name) ? [[cluster, rules.get(name)?.mode ?? "off"]] : [],
      );
      return Object.fromEntries(modes);
    };
    const rules = [
      ...catalogue.map(({ name, source, phases, rule }) => {
        return { name, from: source, phases, summary: rule.summary, modes: getModes(name) };
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
    // A project with rules of its own and of catalogues has a column that tells them apart.
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
  },
} satisfies Command;
