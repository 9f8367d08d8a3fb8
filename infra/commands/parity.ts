import { randomInt } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { resolveRuleNames } from "../catalogue/rule-names.ts";
import { functionsFolder } from "../catalogue/sources.ts";
import { type Command, commonCommandOptions, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { chooseCluster } from "../config/config.ts";
import type { PortParityResult } from "../parity/parity.ts";
import { readConfig, reportBroken } from "../project/project.ts";
import { readAllRules } from "../project/rules.ts";

export default {
  summary: "Compares ports with their upstream plugins on real API servers, and runs the cases of every rule there.",
  usage: "[RULE…]",
  options: {
    seed: { type: "string", value: "N", says: "repeat the requests of this seed (default: a random seed)" },
    requests: { type: "string", value: "N", default: "2000", says: "the number of generated requests for each port" },
    config: {
      type: "string",
      value: "FILE",
      says: "read the rules' settings from this file (default: the settings of the plugins)",
    },
    output: commonCommandOptions.output,
    write: { type: "boolean", says: "also write the table to functions/README.md" },
  },

  async run({ options, words }) {
    const [requests = 2000, seed = randomInt(2 ** 31)] = [options.number("requests"), options.number("seed")];
    const json = options.text("output") === "json";
    if (requests === 0) throw new Complaint("--requests must be at least 1");
    if (options.flag("write") && words.length > 0) throw new Complaint("--write needs all rules; leave out the names");
    if (seed >= 2 ** 31) throw new Complaint("--seed must be below 2147483648");

    // These modules are loaded here, because `postern` without a verb loads this file, too.
    const { listPlugins, requireBinaries } = await import("../parity/control-plane/binaries.ts");
    const { checkAllCases } = await import("../parity/cases/cases.ts");
    const { measureParity } = await import("../parity/parity.ts");
    const { listPluginPorts: listPorts } = await import("../parity/plugins.ts");
    const {
      alignParityTableRow: alignRow,
      areAsExpected,
      describeCaseResults: describeCases,
      describeParityDifferences: describeParity,
      parityTableHeadings: headings,
      buildParityTableRow: buildRow,
      insertParityReport: insertReport,
    } = await import("../parity/report.ts");
    const { catalogue, broken, names } = await readAllRules();
    const wanted = resolveRuleNames(words, names);
    const isChosen = (name: string) => wanted.length === 0 || wanted.includes(name);
    reportBroken(broken, isChosen);
    const file = options.text("config");
    const cluster =
      file === undefined ? undefined : chooseCluster(await readConfig(file, catalogue, names), undefined)[1];
    const binaries = await requireBinaries();
    const { version } = binaries;

    const rules = catalogue.filter(({ name }) => isChosen(name));
    const { all } = await listPlugins(binaries);
    const ports = listPorts(rules).filter(({ rule }) => all.includes(rule.upstreamPlugin.plugin));
    const longest = Math.max(...ports.map(({ name }) => name.length));
    const printRow = (cells: (string | number)[]) => json || writeOutput(`${alignRow(cells, longest)}\n`);
    if (!json) writeOutput(`Kubernetes ${version}${ports.length > 0 ? `, seed ${seed}\n` : ""}\n`);
    if (ports.length > 0) printRow(headings);
    const found: PortParityResult[] = [];
    for (const port of ports) {
      const settings = cluster?.rules.get(port.name)?.settings;
      const parity = await measureParity(port, binaries, { requests, seed, ...(settings && { settings }) });
      printRow(buildRow(parity));
      found.push(parity);
    }
    const cases = await checkAllCases(binaries, rules);
    const repeating = `--seed ${seed} --requests ${requests}${file === undefined ? "" : ` --config ${file}`}`;
    writeOutput(
      json
        ? `${JSON.stringify({ kubernetes: version, seed, rules: found, cases }, null, 2)}\n`
        : describeCases(cases) + describeParity(found, repeating),
    );
    if (options.flag("write")) {
      const page = join(functionsFolder, "README.md");
      await writeFile(page, insertReport(await readFile(page, "utf8"), { found, cases, version, seed }));
    }
    return found.some(({ unexplained }) => unexplained > 0) || !areAsExpected(cases) ? 1 : 0;
  },
} satisfies Command;
