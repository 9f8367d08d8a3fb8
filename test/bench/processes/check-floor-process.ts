import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { evaluateRule } from "#lib/core/evaluation.ts";
import type { Phase } from "#lib/rule.ts";
import { readCatalogue } from "../../../infra/catalogue/registry.ts";
import { prepareManifestCheck } from "../../../infra/check/check.ts";
import { chooseCluster } from "../../../infra/config/config.ts";
import { readInput } from "../../../infra/manifests/input.ts";
import { readConfig } from "../../../infra/project/project.ts";
import { setBenchReportFields } from "./meter.ts";

/** The measured CPU seconds of the work that no check of manifests can avoid. */
export interface UnavoidableCheckCpuSeconds {
  /** CPU seconds to read the files with the `yaml` package alone. */
  yamlPackageReading: number;
  /** CPU seconds to read the files with the reader of `postern check`. */
  ownReading: number;
  /** CPU seconds of the rules alone, for all calls of rules that check makes. */
  rules: number;
}

const [config = "", folder = ""] = process.argv.slice(2);

const measureSeconds = async (act: () => unknown): Promise<number> => {
  const before = process.cpuUsage();
  await act();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
};

/** Reads and parses every document of every file with the `yaml` package, and does nothing else. */
const readAll = () => {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const { parentPath, name } of files) {
    const text = readFileSync(join(parentPath, name), "utf8");
    for (const document of parseAllDocuments(text, { version: "1.1", prettyErrors: false }))
      if (!("toJS" in document) || document.toJS() === null) throw new Error(`${name} holds nothing`);
  }
};

/** Repeats all of check's calls of rules, without the rest of check, and returns the seconds of CPU time. */
const measureRules = async (): Promise<number> => {
  const catalogue = await readCatalogue();
  const [name, cluster] = chooseCluster(await readConfig(config, catalogue), undefined);
  const { evaluations } = await prepareManifestCheck({
    catalogue,
    cluster: [name, cluster],
    harden: false,
    paths: [folder],
    reviews: [],
    state: [],
    isStrict: false,
    validate: "strict",
    old: [],
    webhooks: [],
    hosts: [],
    plugins: ["none"],
    operation: undefined,
    user: { username: "jane" },
    namespace: "default",
    alsoPods: false,
    startKubernetes: async () => undefined,
  });
  const rules = new Map(catalogue.map((listed) => [listed.name, listed.rule]));
  const now = new Date();
  let seconds = 0;
  for await (const { steps } of evaluations) {
    const calls = steps.flatMap(({ hook, phase, outcome, request }) => {
      const rule = rules.get(hook.replace(/\.postern\.dev$/, ""));
      const { mode = "enforce", settings = {} } = cluster.rules.get(hook.replace(/\.postern\.dev$/, "")) ?? {};
      if (rule === undefined || request === undefined || outcome !== "called") return [];
      return [{ rule, phase: phase satisfies Phase, request, around: { name: hook, mode, settings, now } }];
    });
    seconds += await measureSeconds(async () => {
      for (const { rule, phase, request, around } of calls) await evaluateRule(rule, phase, request, around);
    });
  }
  return seconds;
};

const ownReading = await measureSeconds(() => readInput([folder]));
const yamlPackageReading = await measureSeconds(readAll);
setBenchReportFields({
  yamlPackageReading,
  ownReading,
  rules: await measureRules(),
} satisfies UnavoidableCheckCpuSeconds);
