import { randomInt } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { requireRules } from "../catalogue/names.ts";
import { catalogueFolder, readRules } from "../catalogue/registry.ts";
import { type Command, common, print } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { chooseCluster } from "../config/config.ts";
import { allAsSaid, hearingsSection, hearingsTable } from "../parity/case-table.ts";
import type { RuleHearing } from "../parity/cases.ts";
import type { Difference, Parity } from "../parity/parity.ts";
import { reportBroken } from "../project/project.ts";
import { readConfig } from "../project/read.ts";

export default {
  summary: "Asks a real API server with a compiled-in plugin and one with its port the same, and every rule its cases.",
  usage: "[RULE…]",
  options: {
    seed: { type: "string", value: "N", says: "ask what was asked with this seed (another one each time)" },
    requests: { type: "string", value: "N", default: "2000", says: "how many for each rule" },
    config: { type: "string", value: "FILE", says: "take the rules' settings from this; without it, the plugins' own" },
    output: common.output,
    write: { type: "boolean", says: "write the table to functions/README.md, too" },
  },

  async run({ options, words }) {
    const [requests = 2000, seed = randomInt(2 ** 31)] = [options.number("requests"), options.number("seed")];
    const json = options.text("output") === "json";
    if (requests === 0) throw new Complaint("--requests must be at least 1");
    if (options.flag("write") && words.length > 0)
      throw new Complaint("--write is of all rules; leave out their names");
    if (seed >= 2 ** 31) throw new Complaint("--seed must be below 2147483648");

    // Only this verb needs what tests are made of.
    const { pluginsIn, requireBinaries } = await import("../parity/control-plane/binaries.ts");
    const { hearCases } = await import("../parity/cases.ts");
    const { parityOf, portsAmong } = await import("../parity/parity.ts");
    const { rules: catalogue, broken } = await readRules();
    const ports = portsAmong(catalogue);
    const wanted = requireRules(
      words,
      [...catalogue, ...broken].map(({ name }) => name),
    );
    reportBroken(broken, (rule) => wanted.length === 0 || wanted.includes(rule));
    const config = options.text("config");
    const setups =
      config === undefined ? undefined : chooseCluster(await readConfig(config, catalogue, broken), undefined)[1];
    const binaries = await requireBinaries();

    const found: Parity[] = [];
    const isChosen = ({ name }: { name: string }) => wanted.length === 0 || wanted.includes(name);
    const { all } = await pluginsIn(binaries);
    const chosen = ports.filter((port) => isChosen(port) && all.includes(port.rule.twin.plugin));
    const longest = Math.max(...chosen.map(({ name }) => name.length));
    // Each row when it is known: all take minutes.
    const row = (cells: (string | number)[]) =>
      json ||
      print(
        `${cells.map((cell, at) => (at === 0 ? String(cell).padEnd(longest) : String(cell).padStart(headings[at]?.length ?? 0))).join("  ")}\n`,
      );
    if (!json) print(`Kubernetes ${binaries.version}${chosen.length > 0 ? `, seed ${seed}\n` : ""}\n`);
    if (chosen.length > 0) row(headings);
    for (const port of chosen) {
      const settings = setups?.rules.get(port.name)?.settings;
      const one = await parityOf(port, binaries, { requests, seed, ...(settings && { settings }) });
      row(rowOf(one));
      found.push(one);
    }
    const cases = await hearCases(binaries, catalogue.filter(isChosen));
    print(
      json
        ? `${JSON.stringify({ kubernetes: binaries.version, seed, rules: found, cases }, null, 2)}\n`
        : hearingsTable(cases) +
            remarks(found, [
              "--seed",
              seed,
              "--requests",
              requests,
              ...(config === undefined ? [] : ["--config", config]),
            ]),
    );
    if (options.flag("write")) await writeReport(found, cases, binaries.version, seed);
    return found.some(({ unexplained }) => unexplained > 0) || !allAsSaid(cases) ? 1 : 0;
  },
} satisfies Command;

const headings = ["RULE", "REQUESTS", "EQUAL", "KNOWN", "UNEXPLAINED", "CALLS", "ACTED", "WITHOUT CONDITIONS", "SAVED"];
const rowOf = ({ rule, requests, equal, known, unexplained, calls }: Parity) => {
  return [
    rule,
    requests,
    equal,
    sum(known),
    unexplained,
    calls.made,
    calls.acted,
    calls.withoutConditions,
    saved(calls),
  ];
};

/** The share of the calls that the conditions spare. */
const saved = ({ made, withoutConditions }: Parity["calls"]) =>
  withoutConditions > 0 ? `${Math.round(100 * (1 - made / withoutConditions))}%` : "-";

const file = join(catalogueFolder, "README.md");
const [begin, end] = ["<!-- Written by npx postern parity --write. -->", "<!-- End of parity. -->"];

const writeReport = async (found: Parity[], cases: RuleHearing[], version: string, seed: number): Promise<void> => {
  const both = `${section(found, version, seed)}\n\n${hearingsSection(cases)}`;
  await writeFile(file, withSection(await readFile(file, "utf8"), both));
};

/** The page with this as its section on parity, in the old one's place or at the end; whatever stands around it stays. */
export const withSection = (page: string, section: string): string => {
  const [before = "", rest] = page.split(begin);
  const after = rest?.split(end)[1] ?? "\n";
  return `${before.trimEnd()}\n\n${begin}\n\n${section}\n\n${end}${after}`;
};

export const section = (found: Parity[], version: string, seed: number): string => {
  const columns = [
    "rule",
    "requests",
    "equal",
    "known differences",
    "unexplained",
    "calls",
    "acted",
    "calls without conditions",
    "saved",
  ];
  const rows = [columns, columns.map((_, at) => (at === 0 ? "---" : "---:")), ...found.map(rowOf)];
  const reasons = [...new Set(found.flatMap(({ known }) => Object.keys(known)))].map((reason) => {
    const rules = found.filter(({ known }) => reason in known).map(({ rule }) => rule);
    return `- ${reason} (${rules.join(", ")})`;
  });
  return [
    "## Parity",
    `The same generated requests to kube-apiserver ${version} with a compiled-in plugin, and to one without it that calls the\nrule (seed ${seed}). Beside them, how often the rule was called for them, how often it refused or changed\nsomething, how often it is called for the same answers without its matchConditions, and the share of calls that they save.`,
    rows.map((row) => `| ${row.join(" | ")} |`).join("\n"),
    ...(reasons.length > 0 ? [`Known differences:\n\n${reasons.join("\n")}`] : []),
  ].join("\n\n");
};

/** What there is to say below the table. */
const remarks = (found: Parity[], asked: (string | number)[]): string => {
  const reasons = [...new Set(found.flatMap(({ known }) => Object.keys(known)))];
  return [
    ...(reasons.length > 0 ? ["\nKnown differences:\n", ...reasons.map((reason) => `- ${reason}\n`)] : []),
    ...found.flatMap(({ failedConditions }) =>
      Object.entries(failedConditions).map(
        ([webhook, count]) =>
          `\nThe API server could not evaluate the matchConditions of ${webhook} ${count === 1 ? "once" : `${count} times`}; each counts as unexplained.\n`,
      ),
    ),
    ...found.flatMap(({ rule, differences }) =>
      differences.map(
        (difference) => `\n${told(rule, difference)}\nTo ask again: npx postern parity ${rule} ${asked.join(" ")}\n`,
      ),
    ),
  ].join("");
};

const told = (rule: string, { calls, diff, recurs, withoutConditions }: Difference) =>
  [
    `${rule}${withoutConditions ? ", called without its matchConditions," : ""} differs from upstream (-) in the answer to the last of`,
    ...calls.map((call) => `  ${call}`),
    ...(recurs ? [] : ["but not when asked again"]),
    diff,
  ].join("\n");

const sum = (counts: Record<string, number>) => Object.values(counts).reduce((one, other) => one + other, 0);
