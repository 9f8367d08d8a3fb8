import { spawn } from "node:child_process";
import { once } from "node:events";
import { globSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Command, common, type Options, print } from "../command.ts";
import { Complaint } from "../complaint.ts";
import { chooseCluster, configFile, readConfig } from "../config.ts";
import { readCatalogue } from "../registry.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

export default {
  summary:
    "Runs the cases of rules and the laws that every rule obeys; or of policies the cases that their author wrote.",
  usage: "[RULE…]",
  options: {
    policy: {
      type: "string",
      multiple: true,
      value: "FILE",
      says: "test the policies of this file or folder, and no rules; may be given again",
    },
    cases: { type: "string", multiple: true, value: "FILE", says: "the cases of the policies; may be given again" },
    config: {
      ...common.config,
      says: "policies' rules are set up as there, but for the policies; by defaults otherwise",
    },
    cluster: { ...common.cluster, says: "and as for this cluster" },
    output: common.output,
  },

  async run({ options, words }) {
    const [policies, cases] = [options.texts("policy"), options.texts("cases")];
    if (policies.length + cases.length > 0) {
      if (policies.length === 0 || cases.length === 0 || words.length > 0)
        throw new Complaint("postern test takes the names of rules, or --policy FILE and --cases FILE");
      return testPolicies(policies, cases, options);
    }
    const [idle] = ["config", "cluster", "output"].filter((name) => options.text(name) !== undefined);
    if (idle !== undefined) throw new Complaint(`--${idle} is for policies, which --policy names`);
    const names = (await readCatalogue()).map(({ name }) => name);
    const unknown = words.find((word) => !names.includes(word));
    if (unknown !== undefined) throw new Complaint(`there is no rule "${unknown}"; postern rules lists them`);
    const chosen = words.length > 0 ? words : names;
    const own = chosen.flatMap((name) => globSync(`functions/${name}/**/*.test.ts`, { cwd: root }));
    const env = { ...process.env, POSTERN_RULES: words.join(",") };
    const child = spawn(process.execPath, ["--test", "test/catalogue.test.ts", ...own], {
      cwd: root,
      stdio: "inherit",
      env,
    });
    const [code] = await once(child, "exit");
    return code === 0 ? 0 : 1;
  },
} satisfies Command;

/** Nobody is asked: what a case says is all there is. */
const testPolicies = async (places: string[], files: string[], options: Options): Promise<number> => {
  const [{ explainAll, readPolicies, written }, tried, { evaluate }] = await Promise.all([
    import("../policies/explained.ts"),
    import("../policies/tried.ts"),
    import("#lib/cue/engine.ts"),
  ]);
  const asJson = options.text("output") === "json";
  const read = await readPolicies(places);
  const documents = read.map(({ value }) => value);
  const faulty = (await explainAll(read, (source) => evaluate(source))).filter(({ faults }) => faults.length > 0);
  if (faulty.length > 0) {
    const faults = faulty.map((one) => ({ ...one, does: [], warnings: [], unlikeKinitiras: [] }));
    if (asJson)
      print(`${JSON.stringify({ policies: faulty.map(({ policy, faults }) => ({ policy, faults })) }, null, 2)}\n`);
    else print(faults.map(written).join("\n"));
    return 1;
  }
  const catalogue = await readCatalogue();
  const [config, cluster] = [options.text("config"), options.text("cluster")];
  const setups =
    config === undefined && cluster === undefined
      ? undefined
      : chooseCluster(await readConfig(config ?? configFile, catalogue), cluster)[1].rules;
  const judges = tried.judgesOf(catalogue, documents, setups);
  const trials = await Promise.all(
    files.map(async (file) => (await tried.readTrials(file, judges)).map((trial) => [file, ...trial] as const)),
  );
  const all = [];
  for (const trial of trials.flat()) {
    const one = await tried.tryCase(...trial);
    all.push(one);
    if (!asJson) print(tried.lineOf(one));
  }
  print(asJson ? `${JSON.stringify({ cases: all }, null, 2)}\n` : `\n${tried.summaryOf(all)}`);
  return tried.codeOf(all);
};
