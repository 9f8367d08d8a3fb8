import { describeStageIdentity } from "../aws/identity.ts";
import type { WarmVersion } from "../aws/lambda-functions.ts";
import { mostDenials } from "../aws/saved-queries.ts";
import { queryDefinitionType, type StackTemplate } from "../aws/stack.ts";
import { type AwsStage, runInStage } from "../aws/stage.ts";
import { isRuleName } from "../catalogue/rule-names.ts";
import {
  type Command,
  commonCommandOptions,
  formatTable,
  type ParsedOptions,
  writeJson,
  writeNote,
  writeOutput,
} from "../cli/command.ts";
import { Complaint, requireComplaint, toSentence } from "../cli/complaint.ts";
import { clusterAccessOptions, parseDurationMilliseconds, stageOption } from "../cli/options.ts";
import { createProgressPrinter, formatCount, runInParallel } from "../cli/progress.ts";
import { getConfigFile } from "../cli/roots.ts";
import { quoteForShell, toOneLine } from "../cli/terminal.ts";
import { readClusterCredentials } from "../clusters/access.ts";
import { type RegisteredCluster, readRegisteredCluster } from "../clusters/registered.ts";
import { isClusterName } from "../config/validation.ts";
import { readProject, reportBroken } from "../project/project.ts";
import { type ClusterHealth, probeClusterHealth } from "../rollout/clusters/cluster-health.ts";
import { type LiveRuleState, readFunctionState } from "../rollout/clusters/disarm.ts";
import { tryFindStageDifferences } from "../rollout/plan/differences.ts";
import { formatDifferences, toDifferenceData } from "../rollout/plan/plan-report.ts";
import { type AlarmHealth, checkStageAlarms } from "../rollout/stage/alarm-health.ts";
import { formatDenials, readDenials, requireReleased } from "../rollout/stage/denials.ts";
import { formatExceptions, readExceptions } from "../rollout/stage/exceptions.ts";
import { checkLedger, formatLedgerHealth } from "../rollout/stage/ledger-table.ts";
import { formatQuotas, readQuotas } from "../rollout/stage/quota-status.ts";
import { getClusterConfig, openTargetCluster } from "../rollout/targets.ts";
import { listReleasedVersions, type Release } from "../rollout/versions/releases.ts";
import { tryReadReleaseStore } from "../rollout/versions/rollback.ts";
import { describePlacements } from "../webhooks/native-policies.ts";
import { instanceNameOption, readAwsIdentity, readDeploymentConfig, readInstanceName } from "./shared/options.ts";

const { cluster, kubeconfig, context } = clusterAccessOptions;

export default {
  summary:
    "Prints the live version of each rule, and the state of alarms, endpoints and webhook entries. Without --stage, prints what is registered in clusters, and what is missing or left over there.",
  options: {
    ...stageOption,
    cluster,
    kubeconfig,
    context,
    ...instanceNameOption,
    denials: {
      type: "boolean",
      says: "print only refused requests: the user, the object, the rule, the reason and how often",
    },
    since: {
      type: "string",
      value: "TIME",
      default: "24h",
      says: "count denials, and requests that exceptions let through, of this last period: from 1m to 30d",
    },
    rule: { type: "string", value: "RULE", says: "with --denials: only this rule" },
    config: commonCommandOptions.config,
    output: commonCommandOptions.output,
  },

  async run({ options }) {
    if (options.flag("denials")) return showDenials(options);
    if (options.text("rule") !== undefined) throw new Complaint("--rule is for --denials");
    if (options.text("stage") === undefined) return showRegisteredClusters(options);
    const file = getConfigFile();
    // If postern.yaml can't be read, the rest of the status is shown all the same.
    const project = await readProject(file)
      .then((found) => {
        reportBroken(found.broken, () => true); // Each rule is needed, so a broken one is an error.
        return found;
      })
      .catch((error) => {
        writeNote(toSentence(error));
        return undefined;
      });
    return runInStage(options, async (stage) => {
      let isKnown = true;
      const tryRead = async <T>(reading: Promise<T>, what = ""): Promise<T | undefined> =>
        reading.catch((error) => {
          writeNote(`${what}${toSentence(error)}`);
          isKnown = false;
          return undefined;
        });
      const identity = await tryRead(stage.readStageIdentity());
      const releases = await tryReadReleaseStore(stage, createProgressPrinter());
      const all = releases?.all ?? [];
      const { states, standings, faults } = await readStandings(stage, all);
      for (const fault of faults) writeNote(fault);
      if (standings.length + faults.length === 0) throw new Complaint(`stage ${stage.name} has no functions`, 1);
      const [newest] = all;
      const queries: string[] = [];
      const { differences, notes } = await tryFindStageDifferences(stage, states, newest, async () => {
        const template = await stage.stack.readTemplate();
        queries.push(...listSavedQueries(template));
        return template;
      });
      for (const note of notes) writeNote(note);
      const [released, wanted] = [Object.keys(newest?.clusters ?? {}), options.text("cluster")];
      if (newest && wanted !== undefined && !released.includes(wanted))
        throw new Complaint(
          `release r${newest.id} has no cluster "${wanted}"; it has ${released.join(", ") || "none"}`,
        );
      const names = released.filter((name) => (wanted ?? name) === name);
      const deployer = readClusterCredentials(options, names);
      const found = await runInParallel(3, names, async (name) =>
        newest ? probeClusterHealth({ stage, file, deployer, ...project }, name, newest) : undefined,
      );
      const clusters = found.filter((health) => health !== undefined);
      const live = standings.map(({ rule }) => rule);
      const alarms = await tryRead(checkStageAlarms(stage, live), "the alarms can't be read: ");
      const ledger = await tryRead(checkLedger(stage, standings), "the ledger's table can't be read: ");
      const exceptions = await tryRead(
        readExceptions(stage, newest, readSince(options)),
        "what exceptions let through can't be read: ",
      );
      const keepsQuotas = standings.some(({ rule, keepsLedger }) => rule === "workload-quota" && keepsLedger);
      const quotas =
        project && keepsQuotas
          ? await tryRead(readQuotas(stage, project.config, Date.now()), "the quotas can't be read: ")
          : undefined;
      if (options.text("output") === "json")
        writeJson({
          ...(identity ?? { stage: stage.name }),
          release: summarizeRelease(newest),
          rules: standings,
          differences: toDifferenceData(differences),
          ledger,
          ...quotas,
          exceptions,
          alarms,
          queries,
          clusters,
        });
      else
        writeOutput(
          [
            identity ? `${describeStageIdentity(identity)}\n` : "",
            formatStandings(newest, standings),
            differences.length > 0 ? `\nchanged in AWS\n${formatDifferences(differences).join("\n")}\n` : "",
            ledger ? formatLedgerHealth(ledger) : "",
            quotas ? formatQuotas(quotas) : "",
            formatExceptions(exceptions, readSince(options)),
            formatAlarms(alarms),
            formatQueries(queries),
            ...clusters.map(formatHealth),
          ].join(""),
        );
      const isWell =
        differences.length === 0 &&
        clusters.every(({ sick, drift }) => sick.length + drift.length === 0) &&
        (ledger?.faults ?? []).length === 0 &&
        (alarms ?? []).every(({ topics, canRing }) => topics.length === 0 || canRing !== false);
      isKnown &&=
        releases !== undefined &&
        notes.length === 0 &&
        clusters.every(({ unknown }) => unknown.length === 0) &&
        (alarms ?? []).every(({ canRing }) => canRing !== null);
      if (faults.length > 0 || !isWell) return 1;
      return isKnown ? 0 : 3;
    });
  },
} satisfies Command;

const readSince = (options: ParsedOptions) =>
  new Date(Date.now() - parseDurationMilliseconds(options.text("since"), "since", "30d"));

/** Prints what rules have denied. */
const showDenials = async (options: ParsedOptions): Promise<number> => {
  const [rule, cluster] = [options.text("rule"), options.text("cluster")];
  if (rule !== undefined && !isRuleName(rule))
    throw new Complaint(`--rule takes a rule name, such as pod-security, not "${rule}"`);
  if (cluster !== undefined && !isClusterName(cluster))
    throw new Complaint(`--cluster takes a cluster name, such as prod-eu, not "${cluster}"`);
  const since = readSince(options);
  return runInStage(options, async (stage) => {
    const request = { since, rule, cluster };
    const releases = await tryReadReleaseStore(stage, createProgressPrinter());
    requireReleased(releases?.all ?? [], request);
    const denials = await readDenials(stage, request);
    if (options.text("output") === "json")
      writeJson({ stage: stage.name, since, denials, complete: denials.length < mostDenials });
    else writeOutput(formatDenials(denials, request));
    return 0;
  });
};

/** Compares the objects in clusters with those that `postern manifests` prints. Returns the exit code. */
const showRegisteredClusters = async (options: ParsedOptions): Promise<number> => {
  const { file, catalogue, config, clusters: names } = await readDeploymentConfig(options);
  const name = readInstanceName(options);
  const deployer = { ...readClusterCredentials(options, names), neededRight: "read webhook configurations and roles" };
  const targets = { stage: { readAwsKeys: readAwsIdentity }, file, deployer, config };
  const unknown: string[] = [];
  const found = await runInParallel(3, names, async (cluster) => {
    try {
      const api = await openTargetCluster(targets, cluster);
      return await readRegisteredCluster(api, catalogue, getClusterConfig({ config }, cluster), name);
    } catch (error) {
      unknown.push(requireComplaint(error).message);
      return undefined;
    }
  });
  const clusters = found.filter((registered) => registered !== undefined);
  for (const line of [...clusters.flatMap(({ notes }) => notes), ...new Set(unknown)]) writeNote(toOneLine(line));
  if (options.text("output") === "json") writeJson({ clusters });
  else writeOutput(clusters.map(formatRegisteredCluster).join("\n"));
  if (clusters.some(({ differences }) => differences.length > 0)) return 1;
  return unknown.length > 0 ? 3 : 0;
};

/** Returns what `postern status` without --stage prints of a cluster. */
const formatRegisteredCluster = ({
  cluster,
  server,
  name,
  objects,
  others,
  calls,
  differences,
}: RegisteredCluster): string => {
  const rows = objects.map(({ kind, name, entries, since, changed, by }) => [
    kind,
    name,
    entries?.toString(),
    since,
    changed === null ? "" : `${changed} by ${by}`,
  ]);
  const left = differences.filter(({ what, entry }) => what === "left over" && entry === undefined);
  // The names are quoted, because the name of a role may have characters with a meaning in a shell.
  const names = left.map(({ kind, name }) => quoteForShell(`${kind.toLowerCase()}/${name}`));
  const isNamespaced = left.some(({ kind }) => kind === "ServiceAccount");
  return [
    `cluster ${cluster} at ${server}: ${rows.length === 0 ? "nothing is " : ""}registered as ${name}`,
    calls.length === 0 ? "" : `, calls ${calls.join(", ")}`,
    others.length === 0 ? "\n" : `; --name shows the other configurations: ${others.map(toOneLine).join(", ")}\n`,
    rows.length === 0 ? "" : `\n${formatTable([["KIND", "NAME", "ENTRIES", "SINCE", "CHANGED"], ...rows])}`,
    ...differences.map(({ sentence }) => `  ~ ${toOneLine(sentence)}\n`),
    differences.length === 0 ? "\nnothing is missing or left over\n" : "",
    names.length === 0 ? "" : `\nkubectl delete ${isNamespaced ? "-n kube-system " : ""}${names.join(" ")}\n`,
  ].join("");
};

/**
 * Reads the states of all rules, and makes the `standings` of them, which the command prints. If a state can't be read,
 * a sentence in `faults` says so, and the others are shown.
 */
const readStandings = async ({ functions }: AwsStage, all: Release[]) => {
  const faults: string[] = [];
  const rules = await functions.listRules();
  const found = await runInParallel(5, rules, (rule) =>
    readFunctionState(functions, rule, all.length > 0 ? listReleasedVersions(all, rule) : undefined, {
      mayLackAlias: true,
    }).catch((error) => {
      faults.push(requireComplaint(error).message);
      return undefined;
    }),
  );
  const states = found.filter((state) => state !== undefined);
  const standings = await runInParallel(5, states, async (state) => {
    // These members are for comparisons with AWS. The command prints only the rest.
    const { live: _, versions: __, latest: ___, ruleVersion: ____, ...printedState } = state;
    const isWarm = all[0]?.warm?.includes(state.rule);
    return { ...printedState, ...(isWarm && { warm: await functions.listWarmVersions(state.rule) }) };
  });
  return { states, standings, faults };
};

/** Returns what is printed of a release as JSON. `like` is the release that a rollback returned to. */
const summarizeRelease = (release: Release | undefined) => {
  if (release === undefined) return null;
  const { id, at, by, complete, like } = release;
  return { id, at, by, complete, ...(like !== undefined && { like }) };
};

/** Returns the table of live versions, and a line about the newest release. */
const formatStandings = (
  release: Release | undefined,
  standings: (LiveRuleState & { warm?: WarmVersion[] })[],
): string => {
  const rows = standings.map(({ rule, version, weights, modified, disarmed, previous, warm = [] }) => {
    const trial = Object.entries(weights).map(
      ([otherVersion, weight]) => `, ${Math.round(weight * 100)}% version ${otherVersion}`,
    );
    const states = [
      // A disarmed rule allows everything until a time.
      ...(disarmed && disarmed.until > new Date() ? [`disarmed until ${disarmed.until.toISOString()}`] : []),
      ...warm.map(({ version, count, status, reason }) => {
        const why = reason === undefined ? "" : `: ${reason}`;
        return `${formatCount(count, "warm environment")} of version ${version} ${status}${why}`;
      }),
    ];
    return [rule, `${version}${trial.join("")}`, modified.toISOString(), previous ?? "-", states.join(", ")];
  });
  const rollback = release?.like === undefined ? "" : `, a rollback to r${release.like},`;
  const open = release?.complete === false ? ", not complete: run postern deploy again" : "";
  const head = release ? `release r${release.id}${rollback} of ${release.at}, by ${release.by}${open}\n\n` : "";
  return `${head}${formatTable([["RULE", "LIVE", "PUBLISHED", "BEFORE", ""], ...rows])}`;
};

/** Formats a table of alarms. If no alarm has a topic, one line says so in place of a reason for each alarm. */
const formatAlarms = (alarms: AlarmHealth[] = []): string => {
  if (alarms.length === 0) return "";
  const isSilent = alarms.every(({ topics }) => topics.length === 0);
  const rows = alarms.map(({ alarm, state, canRing, reasons, causes }) => {
    const ability = { true: "can ring", false: "can't ring", null: "unknown whether it can ring" }[`${canRing}`];
    return [alarm, state, [...(isSilent ? [] : [ability, ...reasons]), ...causes].join("; ")];
  });
  const hint = "no alarm can ring: alarmTopics in serverless.yml names no SNS topic\n";
  return `\n${formatTable([["ALARM", "STATE", ""], ...rows])}${isSilent ? hint : ""}`;
};

/** Lists the names of the queries that a stack saves in CloudWatch Logs Insights. */
const listSavedQueries = (template: StackTemplate | undefined): string[] =>
  Object.values(template?.Resources ?? {}).flatMap(({ Type, Properties }) =>
    Type === queryDefinitionType ? [String(Object(Properties).Name)] : [],
  );

const formatQueries = (queries: string[]): string =>
  queries.length === 0 ? "" : `\nqueries that CloudWatch Logs Insights has saved: ${queries.join(", ")}\n`;

/** Returns what `postern status` prints of a cluster's entries: failed calls (!), changes (~) and unknowns (?). */
const formatHealth = ({
  cluster,
  at,
  entries,
  asked,
  sick,
  slowest,
  drift,
  policies,
  unknown,
}: ClusterHealth): string => {
  const result = sick.length === 0 ? `all answer, the slowest in ${slowest} ms` : `${sick.length} don't answer`;
  const answers = asked === 0 ? "" : `, ${result}`;
  return [
    `\ncluster ${cluster}, updated ${at}: ${entries} ${entries === 1 ? "entry" : "entries"}${answers}`,
    ...describePlacements(policies).map((line) => `  policies ${line}`),
    ...sick.map((line) => `  ! ${line}`),
    ...drift.map((line) => `  ~ ${line}`),
    ...unknown.map((line) => `  ? ${line}`),
    "",
  ].join("\n");
};
