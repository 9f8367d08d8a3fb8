import { existsSync } from "node:fs";
import { text as readAll } from "node:stream/consumers";
import { newestKubernetes } from "../apiserver/minors.ts";
import { type Command, commonCommandOptions, type ParsedOptions, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { readOptionFile } from "../cli/options.ts";
import { toOneLine } from "../cli/terminal.ts";
import { readAdmissionConfiguration } from "../import/admission-configuration.ts";
import { type AdmissionFlags, parseAdmissionFlags } from "../import/flags.ts";
import { importApiServer } from "../import/import.ts";
import { parseTarget } from "../import/targets.ts";

export default {
  summary:
    "Prints the postern.yaml that does on a managed cluster what a self-managed API server's admission plugins did.",
  usage: "apiserver",
  options: {
    flags: {
      type: "string",
      value: "TEXT|FILE",
      takesFlags: true,
      says: "kube-apiserver's command line, or a file with it: a static Pod's manifest, a systemd unit, kubeadm's ClusterConfiguration, or - for standard input",
    },
    config: {
      type: "string",
      value: "FILE",
      says: "the AdmissionConfiguration: the file that --admission-control-config-file names",
    },
    target: {
      type: "string",
      value: "NAME",
      default: newestKubernetes,
      says: "the cluster that gets the rules: a minor of Kubernetes such as 1.35, with eks-, gke- or aks- before it or not",
    },
    output: commonCommandOptions.output,
  },

  async run({ options, words }) {
    if (words.join(" ") !== "apiserver")
      throw new Complaint(
        `postern import takes one word, apiserver${words.length > 0 ? `, not ${words.join(" ")}` : ""}`,
      );
    const target = parseTarget(options.text("target") ?? "");
    const file = options.text("config");
    const flags = await readFlags(options, file);
    const configurations = file === undefined ? new Map() : await readAdmissionConfiguration(file);
    const { outcomes, text } = await importApiServer({ flags, configurations }, target);
    if (options.text("output") === "json")
      writeOutput(
        `${JSON.stringify({ target: target.name, kubernetes: target.kubernetes, plugins: outcomes }, null, 2)}\n`,
      );
    else writeOutput(text);
    const open = outcomes.filter(({ outcome }) => outcome === "open");
    for (const { plugin, reason } of open) process.stderr.write(`${toOneLine(`${plugin}: ${reason}`)}\n`);
    return open.length > 0 ? 3 : 0;
  },
} satisfies Command;

/** Reads --flags; without it, no flag is set. */
const readFlags = async (options: ParsedOptions, file: string | undefined): Promise<AdmissionFlags> => {
  const value = options.text("flags");
  if (value === undefined && file === undefined)
    throw new Complaint("one of --flags and --config must say what the API server had");
  const noFlags: AdmissionFlags = { enabled: [], disabled: [], gates: new Map<string, boolean>() };
  const flags = value === undefined ? noFlags : parseAdmissionFlags(await readFlagText(value), "--flags");
  if (flags.configFile !== undefined && file === undefined)
    throw new Complaint(
      `--flags has --admission-control-config-file=${flags.configFile}; give this file with --config`,
    );
  return flags;
};

const readFlagText = async (value: string): Promise<string> => {
  if (value === "-") return readAll(process.stdin);
  return existsSync(value) ? readOptionFile(value, "--flags") : value;
};
