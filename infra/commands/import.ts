import { existsSync } from "node:fs";
import { basename } from "node:path";
import { text as readAll } from "node:stream/consumers";
import { newestKubernetes } from "#lib/since.ts";
import {
  type Command,
  commonCommandOptions,
  type ParsedOptions,
  writeJson,
  writeNote,
  writeOutput,
} from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { readOptionFile } from "../cli/options.ts";
import { getConfigFile, getProjectRoot, hasConfig } from "../cli/roots.ts";
import { toOneLine } from "../cli/terminal.ts";
import { openClusterApi, readClusterCredentials } from "../clusters/access.ts";
import type { ClusterApi } from "../clusters/api.ts";
import { chooseCluster } from "../config/config.ts";
import { readAdmissionConfiguration } from "../import/admission-configuration.ts";
import { type AdmissionFlags, parseAdmissionFlags } from "../import/flags.ts";
import { importApiServer } from "../import/import.ts";
import { type ImportTarget, parseTarget, readLiveTarget } from "../import/targets.ts";
import { readProject } from "../project/project.ts";
import { readAwsIdentity } from "./shared/options.ts";

export default {
  summary: "Prints the postern.yaml that replaces a self-managed API server's admission plugins on a managed cluster.",
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
      says: `the cluster that gets the rules: a minor of Kubernetes such as 1.35, or a service with a minor, such as eks-1.35, gke-1.35 or aks-1.35 (default: ${newestKubernetes})`,
    },
    live: {
      type: "boolean",
      says: "instead of --target: read the version and the service from the cluster that gets the rules; postern.yaml or --kubeconfig names it",
    },
    cluster: { ...commonCommandOptions.cluster, says: "with --live: the cluster of postern.yaml" },
    kubeconfig: { type: "string", value: "FILE", says: "with --live: the kubeconfig of the cluster" },
    context: { type: "string", value: "NAME", says: "with --live: the kubeconfig context" },
    output: commonCommandOptions.output,
  },

  async run({ options, words }) {
    if (words.join(" ") !== "apiserver")
      throw new Complaint(
        `name what to import: postern import apiserver${words.length > 0 ? `, not postern import ${words.join(" ")}` : ""}`,
      );
    const target = await readTarget(options);
    const file = options.text("config");
    const flags = await readFlags(options, file);
    const configurations = file === undefined ? new Map() : await readAdmissionConfiguration(file);
    const { outcomes, text } = await importApiServer({ flags, configurations }, target);
    if (options.text("output") === "json")
      writeJson({
        target: target.name,
        kubernetes: target.kubernetes,
        source: target.pluginSummary, // a text: which plugins are on in the target, and the pages that say so
        plugins: outcomes,
      });
    else writeOutput(text);
    const unfinished = outcomes.filter(({ outcome }) => outcome === "open"); // The user must do a part of the work.
    for (const { plugin, reason } of unfinished) writeNote(toOneLine(`${plugin}: ${reason}`));
    return unfinished.length > 0 ? 3 : 0;
  },
} satisfies Command;

/** Returns the cluster that gets the rules: from --target, or with --live from the cluster itself. */
const readTarget = async (options: ParsedOptions): Promise<ImportTarget> => {
  const [target, cluster, kubeconfig, context] = ["target", "cluster", "kubeconfig", "context"].map(options.text);
  if (options.flag("live")) {
    if (target !== undefined) throw new Complaint("--target and --live can't be combined");
    return readLiveTarget(await openLiveCluster(options));
  }
  if ((cluster ?? kubeconfig ?? context) !== undefined)
    throw new Complaint("--cluster, --kubeconfig and --context need --live");
  return parseTarget(target ?? newestKubernetes);
};

/** Opens the cluster of --kubeconfig, or else a cluster of the project's postern.yaml. */
const openLiveCluster = async (options: ParsedOptions): Promise<ClusterApi> => {
  const kubeconfig = options.text("kubeconfig");
  const credentials = { identity: readAwsIdentity, neededRight: "read /version" };
  if (kubeconfig !== undefined) {
    const context = options.text("context");
    return openClusterApi(context ?? basename(kubeconfig), undefined, { ...credentials, kubeconfig, context });
  }
  if (!hasConfig()) throw new Complaint("--live needs --kubeconfig FILE, or a postern.yaml whose cluster has connect");
  const folder = getProjectRoot();
  const [name, { connect }] = chooseCluster((await readProject(getConfigFile())).config, options.text("cluster"));
  return openClusterApi(name, connect, { ...credentials, folder, ...readClusterCredentials(options, [name]) });
};

/** Reads --flags. Without this option, no flag is set, but --config must be given. `file` is the value of --config. */
const readFlags = async (options: ParsedOptions, file: string | undefined): Promise<AdmissionFlags> => {
  const value = options.text("flags");
  if (value === undefined && file === undefined)
    throw new Complaint(
      "name the flags of the API server, or its AdmissionConfiguration: --flags FILE, or --config FILE",
    );
  const noFlags: AdmissionFlags = { enabled: [], disabled: [], gates: new Map<string, boolean>() };
  const flags = value === undefined ? noFlags : parseAdmissionFlags(...(await readFlagText(value)));
  if (flags.configFile !== undefined && file === undefined)
    throw new Complaint(
      `--flags has --admission-control-config-file=${flags.configFile}; give this file with --config`,
    );
  return flags;
};

/** Returns the text of --flags, which may be a file or standard input, and its name for messages. */
const readFlagText = async (value: string): Promise<[text: string, where: string]> => {
  if (value === "-") return [await readAll(process.stdin), "standard input"];
  if (existsSync(value)) return [await readOptionFile(value, "--flags"), basename(value)];
  // A text like a path may be the mistyped path of a file.
  const isLikePath = /^[^\n=:]{1,256}$/.test(value);
  return [value, isLikePath ? `--flags ${JSON.stringify(value)}, which is no file,` : "the text of --flags"];
};
