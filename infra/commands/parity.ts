import { randomInt } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Difference, Parity } from "../../test/cluster/parity.ts";
import { type Command, common, print } from "../command.ts";
import { Complaint } from "../complaint.ts";
import { chooseCluster, readConfig } from "../config.ts";
import { catalogueFolder, readCatalogue } from "../registry.ts";

export default {
  summary: "Asks a real API server with a compiled-in plugin and one with its port the same, and compares.",
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
    const { findBinaries } = await import("../../test/cluster/binaries.ts");
    const { parityOf, portsAmong } = await import("../../test/cluster/parity.ts");
    const catalogue = await readCatalogue();
    const ports = portsAmong(catalogue);
    for (const word of words) {
      if (!catalogue.some(({ name }) => name === word))
        throw new Complaint(`there is no rule "${word}"; postern rules lists them`);
      if (!ports.some(({ name }) => name === word))
        throw new Complaint(
          `${word} is a port of no compiled-in plugin; those are ${ports.map(({ name }) => name).join(", ")}`,
        );
    }
    const config = options.text("config");
    const setups = config === undefined ? undefined : chooseCluster(await readConfig(config, catalogue), undefined)[1];
    const binaries = await findBinaries();
    if (!binaries) throw new Complaint("kube-apiserver and etcd are not here: npm run cluster builds them", 3);

    const found: Parity[] = [];
    const chosen = ports.filter(({ name }) => words.length === 0 || words.includes(name));
    const longest = Math.max(...chosen.map(({ name }) => name.length));
    // Each row when it is known: all take minutes.
    const row = (cells: (string | number)[]) =>
      json ||
      print(
        `${cells.map((cell, at) => (at === 0 ? String(cell).padEnd(longest) : String(cell).padStart(headings[at]?.length ?? 0))).join("  ")}\n`,
      );
    if (!json) print(`Kubernetes ${binaries.version}, seed ${seed}\n\n`);
    row(headings);
    for (const port of chosen) {
      const settings = setups?.rules.get(port.name)?.settings;
      const one = await parityOf(port, binaries, { requests, seed, ...(settings && { settings }) });
      row(rowOf(one));
      found.push(one);
    }
    print(
      json
        ? `${JSON.stringify({ kubernetes: binaries.version, seed, rules: found }, null, 2)}\n`
        : remarks(found, seed),
    );
    if (options.flag("write")) await writeReport(found, binaries.version, seed);
    return found.some(({ unexplained }) => unexplained > 0) ? 1 : 0;
  },
} satisfies Command;

const headings = ["RULE", "REQUESTS", "EQUAL", "KNOWN", "UNEXPLAINED", "CALLS", "WITHOUT CONDITIONS"];
const rowOf = ({ rule, requests, equal, known, unexplained, calls }: Parity) => {
  return [rule, requests, equal, sum(known), unexplained, calls.made, calls.withoutConditions];
};

const file = join(catalogueFolder, "README.md");
const [begin, end] = ["<!-- Written by npx postern parity --write. -->", "<!-- End of parity. -->"];

/** The section of functions/README.md; whatever stands around it stays. */
const writeReport = async (found: Parity[], version: string, seed: number): Promise<void> => {
  const present = await readFile(file, "utf8");
  const [before = "", rest] = present.split(begin);
  const after = rest?.split(end)[1] ?? "\n";
  await writeFile(file, `${before.trimEnd()}\n\n${begin}\n\n${section(found, version, seed)}\n\n${end}${after}`);
};

const section = (found: Parity[], version: string, seed: number): string => {
  const columns = [
    "rule",
    "requests",
    "equal",
    "known differences",
    "unexplained",
    "calls",
    "calls without conditions",
  ];
  const rows = [columns, columns.map((_, at) => (at === 0 ? "---" : "---:")), ...found.map(rowOf)];
  const reasons = [...new Set(found.flatMap(({ known }) => Object.keys(known)))].map((reason) => {
    const rules = found.filter(({ known }) => reason in known).map(({ rule }) => rule);
    return `- ${reason} (${rules.join(", ")})`;
  });
  return [
    "## Parity",
    `The same generated requests to kube-apiserver ${version} with a compiled-in plugin, and to one without it that calls the\nrule (seed ${seed}). Beside them, how often the rule was called for them, and how often it would be without its\nmatchConditions; the answers are the same.`,
    rows.map((row) => `| ${row.join(" | ")} |`).join("\n"),
    ...(reasons.length > 0 ? [`Known differences:\n\n${reasons.join("\n")}`] : []),
  ].join("\n\n");
};

/** What there is to say below the table. */
const remarks = (found: Parity[], seed: number): string => {
  const reasons = [...new Set(found.flatMap(({ known }) => Object.keys(known)))];
  return [
    ...(reasons.length > 0 ? ["\nKnown differences:\n", ...reasons.map((reason) => `- ${reason}\n`)] : []),
    ...found.flatMap(({ rule, requests, differences }) =>
      differences.map(
        (difference) =>
          `\n${told(rule, difference)}\nTo ask again: npx postern parity ${rule} --seed ${seed} --requests ${requests}\n`,
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
