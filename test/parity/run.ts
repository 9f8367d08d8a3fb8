import { randomInt } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { resolveRuleNames } from "../../infra/catalogue/rule-names.ts";
import { type Command, commonCommandOptions, writeOutput } from "../../infra/cli/command.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { runInParallel } from "../../infra/cli/progress.ts";
import { getProjectRoot } from "../../infra/cli/roots.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { runScript } from "../../infra/main.ts";
import { readConfig, reportBroken } from "../../infra/project/project.ts";
import { readAllRules } from "../../infra/project/project-rules.ts";
import type { MinorParityResults } from "./parity-report.ts";

const command = {
  summary:
    "Compares rules with the plugins that they reimplement on real API servers, and runs the cases of every rule.",
  usage: "[RULE…]",
  options: {
    minor: {
      type: "string",
      value: "MINOR,…",
      says: "compare with these minors of Kubernetes, such as 1.33,1.37 (default: the newest; with --write all)",
    },
    seed: {
      type: "string",
      value: "N",
      says: "repeat the requests of this seed (default: a random seed; with --write that of docs/background/parity.md)",
    },
    requests: {
      type: "string",
      value: "N",
      says: "the number of generated requests for each rule; 0 runs only the cases (default: 2000; with --write that of docs/background/parity.md)",
    },
    config: {
      type: "string",
      value: "FILE",
      says: "read the rules' settings from this file (default: the settings of the plugins)",
    },
    output: commonCommandOptions.output,
    write: {
      type: "boolean",
      says: "also write the results to docs/background/parity.md; what isn't compared stays as it is",
    },
  },

  async run({ options, words }) {
    const json = options.text("output") === "json";
    const [file, isWritten] = [options.text("config"), options.flag("write")];
    if (isWritten && file !== undefined)
      throw new Complaint("--write needs the settings of the plugins; leave out --config");

    // These modules are loaded here, because `postern` without a verb loads this file, too. A port is a rule that
    // reimplements a plugin.
    const { listPlugins, requireBinaries } = await import("../control-plane/binaries.ts");
    const { checkAllCases } = await import("./cases/cases.ts");
    const { measureParity } = await import("./parity.ts");
    const { listRulesThatReplacePlugins: listPorts } = await import("./plugins.ts");
    const {
      alignParityTableRow: alignRow,
      areAsExpected,
      describeCaseResults: describeCases,
      describeParityDifferences: describeParity,
      parityTableHeadings: headings,
      buildParityTableRow: buildRow,
      chooseComparedMinors: chooseMinors,
      findReportedRun,
      insertParityReport: insertReport,
      listReportedVersions,
    } = await import("./parity-report.ts");
    const page = join(getProjectRoot(), "docs/background/parity.md");
    const oldText = isWritten ? await readFile(page, "utf8") : "";
    const reported = findReportedRun(oldText);
    const requests = options.number("requests") ?? reported?.requests ?? 2000;
    const seed = options.number("seed") ?? reported?.seed ?? randomInt(2 ** 31);
    if (seed >= 2 ** 31) throw new Complaint(`--seed must be below 2147483648, not ${seed}`);
    const isPart = words.length > 0 || options.text("minor") !== undefined;
    if (reported && requests > 0 && isPart && (requests !== reported.requests || seed !== reported.seed))
      throw new Complaint(
        `--write: docs/background/parity.md has the results of ${reported.requests} requests of the seed ${reported.seed}; compare all rules and minors, or leave out --requests and --seed`,
      );
    const minors = chooseMinors(options.text("minor"), isWritten && requests > 0);
    const { catalogue, broken, names } = await readAllRules();
    const chosenNames = resolveRuleNames(words, names);
    const isChosen = (name: string) => chosenNames.length === 0 || chosenNames.includes(name);
    reportBroken(broken, isChosen);
    const cluster =
      file === undefined ? undefined : chooseCluster(await readConfig(file, catalogue, names), undefined)[1];
    const servers = await Promise.all(minors.map(async (minor) => ({ minor, binaries: await requireBinaries(minor) })));
    const versions = servers.map(({ binaries }) => binaries.version);
    const unreported =
      words.length > 0 ? versions.filter((version) => !listReportedVersions(oldText).includes(version)) : [];
    if (isWritten && unreported.length > 0)
      throw new Complaint(
        `--write: docs/background/parity.md has no results of ${unreported.join(", ")}; leave out the rules`,
      );

    const rules = catalogue.filter(({ name }) => isChosen(name));
    const longestName = Math.max(...rules.map(({ name }) => name.length));
    const print = (text: string) => json || writeOutput(text);
    const runs: MinorParityResults[] = [];
    for (const { minor, binaries } of servers) {
      const { version } = binaries;
      const { all } = await listPlugins(binaries);
      const ports = listPorts(requests > 0 ? rules : []).filter(({ rule }) => all.includes(rule.upstreamPlugin.plugin));
      print(`Kubernetes ${version}${ports.length > 0 ? `, seed ${seed}\n\n${alignRow(headings, longestName)}` : ""}\n`);
      // Two rules are compared at a time: one alone leaves a core idle while its API servers start.
      const found = await runInParallel(2, ports, async (port) => {
        const settings = cluster?.rules.get(port.name)?.settings;
        const parity = await measureParity(port, binaries, { requests, seed, ...(settings && { settings }) });
        print(`${alignRow(buildRow(parity), longestName)}\n`);
        return parity;
      });
      const cases = await checkAllCases(binaries, rules);
      const repeating = `--minor ${minor} --seed ${seed} --requests ${requests}${file === undefined ? "" : ` --config ${file}`}`;
      print(describeCases(cases) + describeParity(found, repeating));
      runs.push({ kubernetes: version, rules: found, cases });
    }
    if (json) writeOutput(`${JSON.stringify({ seed, minors: runs }, null, 2)}\n`);
    if (isWritten) {
      const order = catalogue.map(({ name }) => name);
      await writeFile(page, insertReport(oldText, { runs, requests, seed, names: order }));
    }
    return runs.every(({ rules, cases }) => rules.every(({ unexplained }) => unexplained === 0) && areAsExpected(cases))
      ? 0
      : 1;
  },
} satisfies Command;

await runScript("npm run parity --", command);
