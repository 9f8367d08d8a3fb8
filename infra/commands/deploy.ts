import { runInStage } from "../aws/stage.ts";
import { findRuleByNameOrPlugin } from "../catalogue/rule-names.ts";
import {
  type Command,
  commonCommandOptions,
  type ParsedOptions,
  writeJson,
  writeNote,
  writeOutput,
} from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import { handleInterrupt } from "../cli/interrupt.ts";
import { clusterAccessOptions, parseDurationMilliseconds, readListOption, stageOption } from "../cli/options.ts";
import { createProgressPrinter } from "../cli/progress.ts";
import { readClusterCredentials } from "../clusters/access.ts";
import { deployStage, planDeployment } from "../rollout/deploy.ts";
import { estimateStageCosts } from "../rollout/plan/cost.ts";
import { readEndpointType } from "../rollout/plan/kept-functions.ts";
import type { DeploymentPlan } from "../rollout/plan/plan.ts";
import { formatPlan, toPlanData } from "../rollout/plan/plan-report.ts";
import type { DeploymentJob } from "../rollout/preparation.ts";
import type { CanaryOptions } from "../rollout/versions/canary.ts";
import { readDeploymentConfig, readEndpointOptions } from "./shared/options.ts";

export default {
  summary:
    "Deploys the rules: first the functions and, after tests of these functions pass, the webhook entries in clusters. After an error, run deploy again to continue.",
  options: {
    ...stageOption,
    ...clusterAccessOptions,
    "plan-only": { type: "boolean", says: "print the plan and change nothing" },
    canary: {
      type: "string",
      value: "SHARE",
      says: "start a canary: send only this part of the reviews to new versions at first, for instance 10%",
    },
    for: { type: "string", value: "TIME", default: "10m", says: "how long the canary is watched" },
    harden: { type: "boolean", says: "make rules that guard security fail closed, in this and later deployments" },
    "harden-after": {
      type: "string",
      value: "NUMBER",
      default: "1000",
      says: "the number of reviews without a failure after which such rules fail closed automatically",
    },
    soften: {
      type: "string",
      multiple: true,
      value: "RULE",
      says: "make a rule that fails closed fail open again; deployments without this option keep the rule failing closed",
    },
    forget: {
      type: "string",
      multiple: true,
      value: "NAME",
      says: "a cluster that no longer exists: deploy without deleting its entries, and forget it",
    },
    wave: { type: "string", value: "NUMBER", default: "1", says: "how many clusters are updated at the same time" },
    write: {
      type: "string",
      value: "FOLDER",
      says: "write the entries, without a key, into this folder instead of applying them",
    },
    "key-from": {
      type: "string",
      value: "TEXT",
      says: "with --write: write this text instead of the key; your GitOps tool replaces it by the key",
    },
    config: commonCommandOptions.config,
    output: commonCommandOptions.output,
  },

  async run({ options }) {
    const project = await readDeploymentConfig(options);
    const stop = new AbortController();
    const halt = () => {
      writeNote("interrupted; what is being changed is ended first, and another Ctrl-C ends the command at once");
      stop.abort();
    };
    // Mistakes in options are reported before AWS is called.
    const chosen = {
      ...project,
      deployer: readClusterCredentials(options, project.clusters),
      ...(await readEndpointOptions(options)),
      harden: options.flag("harden") || parseHardenAfter(options),
      soften: parseSoften(options, project),
      canary: parseCanary(options, stop.signal),
      forgotten: readListOption(options, "forget"),
      signal: stop.signal,
      wave: parseWave(options),
      ...parseWrite(options),
    };
    return runInStage(options, async (stage) => {
      const job: DeploymentJob = { ...chosen, stage, progress: createProgressPrinter() };
      const isJson = options.text("output") === "json";
      const show = async (plan: DeploymentPlan) => {
        const costs = await estimateStageCosts(
          stage,
          readEndpointType(plan.template),
          plan.parts.map(({ part }) => part),
        );
        if (isJson) writeJson(toPlanData(plan, costs));
        else writeOutput(formatPlan(plan, costs));
      };
      if (options.flag("plan-only")) {
        const plan = await planDeployment(job);
        await show(plan);
        if (plan.clusters.some(({ unknown }) => unknown !== undefined)) return 3;
        return plan.limits.length > 0 ? 1 : 0;
      }
      const forget = handleInterrupt(halt);
      try {
        job.progress.say(await deployStage(job, show));
      } finally {
        forget();
        // A call that has no answer yet would keep the process alive. The timer itself doesn't.
        if (stop.signal.aborted) setTimeout(() => process.exit(), 1000).unref();
      }
      return 0;
    });
  },
} satisfies Command;

const parseHardenAfter = (options: ParsedOptions): number => {
  const reviews = options.number("harden-after") ?? 1000;
  if (reviews === 0) throw new Complaint("--harden-after takes a number from 1, not 0; --harden does it at once");
  return reviews;
};

/** Reads --soften, which makes rules fail open again: names of rules, of their plugins, or of groups. */
const parseSoften = (
  options: ParsedOptions,
  { catalogue, config }: Pick<DeploymentJob, "catalogue" | "config">,
): string[] => {
  const names = [...catalogue, ...config.groups].map(({ name }) => name);
  return readListOption(options, "soften").map((text) => {
    const found = findRuleByNameOrPlugin(text, names);
    const suggestion = formatDidYouMean(text, names).trim();
    if (found === undefined)
      throw new Complaint(
        `--soften takes a rule or a group of postern.yaml, not "${text}"${suggestion === "" ? "" : `; ${suggestion}`}`,
      );
    return found;
  });
};

const parseWave = (options: ParsedOptions): number => {
  const number = options.number("wave") ?? 1;
  if (number === 0) throw new Complaint("--wave takes a number from 1, not 0");
  return number;
};

/** Reads --write, a folder for unapplied entries, and --key-from, a placeholder for the key that a GitOps tool adds. */
const parseWrite = (options: ParsedOptions): Pick<DeploymentJob, "write" | "keyPlaceholder"> => {
  const [write, keyPlaceholder] = [options.text("write"), options.text("key-from")];
  if (keyPlaceholder !== undefined && write === undefined) throw new Complaint("--key-from needs --write");
  return { write, keyPlaceholder };
};

/** Reads --canary, such as 10%, and --for. */
const parseCanary = (options: ParsedOptions, signal: AbortSignal): CanaryOptions | undefined => {
  const [text, milliseconds] = [options.text("canary"), parseDurationMilliseconds(options.text("for"), "for")];
  if (text === undefined) return undefined;
  const [, number] = /^(\d{1,2})%$/.exec(text) ?? [];
  if (number === undefined || Number(number) === 0)
    throw new Complaint(`--canary takes a share from 1% to 99%, not "${text}"`);
  return { share: Number(number) / 100, milliseconds, signal };
};
