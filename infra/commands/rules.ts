import { type Command, common, print, table } from "../command.ts";
import { configFile, readConfig } from "../config.ts";
import { writeListing } from "../listing.ts";
import { readCatalogue } from "../registry.ts";

export default {
  summary: "Lists the catalogue, and where each rule is on.",
  options: {
    config: common.config,
    output: common.output,
    write: { type: "boolean", says: "write the list to functions/README.md instead; npm run fix does it" },
  },

  async run({ options }) {
    const catalogue = await readCatalogue();
    if (options.flag("write")) return writeListing(catalogue);
    const { clusters } = await readConfig(options.text("config") ?? configFile, catalogue);
    const rules = catalogue.map(({ name, phases, rule }) => {
      const modes = [...clusters].flatMap(([cluster, { rules }]) =>
        rules.has(name) ? [[cluster, rules.get(name)?.mode ?? "off"]] : [],
      );
      return { name, phases, summary: rule.summary, modes: Object.fromEntries(modes) as Record<string, string> };
    });
    if (options.text("output") === "json") return print(`${JSON.stringify(rules, null, 2)}\n`);
    const shown = (modes: Record<string, string>) => {
      const entries = Object.entries(modes);
      return clusters.size === 1
        ? (entries[0]?.[1] ?? "-")
        : entries.map((entry) => entry.join(": ")).join(", ") || "-";
    };
    print(
      table([
        ["RULE", "PHASE", "MODE", "WHAT IT DOES"],
        ...rules.map(({ name, phases, summary, modes }) => [name, phases.join(", "), shown(modes), summary]),
      ]),
    );
  },
} satisfies Command;
