import { setFlagsFromString } from "node:v8";
import { oldestKubernetes } from "#lib/since.ts";
import type { BrokenRule } from "../catalogue/registry.ts";
import { watchForLoops } from "../catalogue/rule-loops.ts";
import { posternCatalogue } from "../catalogue/sources.ts";
import type { ObjectEvaluation } from "../check/evaluation/object-evaluation.ts";
import { restrictClusterToRules } from "../check/evaluation/rule-webhooks.ts";
import type { ManifestFix } from "../check/fixes/fix.ts";
import type { CheckSummary } from "../check/reports/check-report.ts";
import { addToSummary, createSummary, formatUnread } from "../check/reports/format.ts";
import { checkReportFormats, createCheckReport, policyReportGroupsHelp } from "../check/reports/forms.ts";
import { hideSecretsInEvaluation } from "../check/reports/hidden-values.ts";
import { hasNewDenial, readKnownFindings } from "../check/reports/known-findings.ts";
import { openReportWriter, parseOutputOptions, refuseInputsAsReports } from "../check/reports/outputs.ts";
import { defaultObjectsPerClusterListPage, saveState, startClusterCheck, startFileCheck } from "../check/subjects.ts";
import { type Command, commonCommandOptions, type ParsedOptions, writeNote, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { handleInterrupt } from "../cli/interrupt.ts";
import { isNoFile, readListOption } from "../cli/options.ts";
import { clearLine } from "../cli/progress.ts";
import { getConfigFile, hasConfig } from "../cli/roots.ts";
import { isFit, minorShape } from "../cli/shape.ts";
import { toOneLine } from "../cli/terminal.ts";
import { type ClusterConfig, chooseCluster } from "../config/config.ts";
import { createRuleEnabledPredicate, readProjectIfAny, reportBroken } from "../project/project.ts";
import { rulesOption } from "./shared/rules-option.ts";

export default {
  summary:
    "Checks manifests, or everything in a cluster, against the rules: prints what the rules would change and refuse.",
  usage: "[PATH…]",
  optionsInPlaceOfWords: ["live"],
  options: {
    config: commonCommandOptions.config,
    cluster: commonCommandOptions.cluster,
    rules: { ...rulesOption, says: "check only these rules, even if postern.yaml doesn't turn them on" },
    plugins: {
      type: "string",
      multiple: true,
      value: "PLUGIN",
      isValue: (word, hasPathsBefore) => hasPathsBefore || isNoFile(word),
      says: "turn on a compiled-in plugin of the API server, or with a hyphen before its name, turn it off: --plugins=NodeRestriction,-PodSecurity; none turns all off (default: those that are on in every API server)",
    },
    kubernetes: {
      type: "string",
      value: "MINOR",
      says: "the minor version of Kubernetes, such as 1.35 (default: the cluster's in postern.yaml; else with --live the one that it runs, without --live the newest)",
    },
    operation: {
      type: "string",
      value: "NAME",
      says: "CREATE, UPDATE or DELETE (default: UPDATE for objects in --old or --state, else CREATE, as kubectl apply does)",
    },
    old: {
      type: "string",
      multiple: true,
      value: "PATH",
      says: "manifests of the objects before an update: check then sends updates of these objects",
    },
    as: { type: "string", value: "USER", default: "kubernetes-admin", says: "the user who sends the manifests" },
    "as-group": { type: "string", multiple: true, value: "GROUP", isValue: isNoFile, says: "a group of this user" },
    namespace: {
      type: "string",
      short: "n",
      multiple: true,
      value: "NAME",
      isValue: isNoFile,
      says: "the namespace of manifests without one (default: default); with --live: check only these namespaces",
    },
    state: { type: "string", multiple: true, value: "PATH", says: "manifests of objects that exist in the cluster" },
    strict: {
      type: "boolean",
      says: "without --state and --live, assume nothing about the cluster: an answer that depends on its objects is undecided",
    },
    build: {
      type: "boolean",
      says: "build kustomizations with kustomize or kubectl, and charts with helm, and check the results; nothing is downloaded",
    },
    review: { type: "string", multiple: true, value: "PATH", says: "also check these recorded AdmissionReviews" },
    webhooks: {
      type: "string",
      multiple: true,
      value: "PATH",
      says: "also use these webhook configurations of other programs",
    },
    call: {
      type: "string",
      multiple: true,
      value: "HOST",
      isValue: isNoFile,
      says: "call webhooks of other programs at this host, instead of only reporting them; with --live, rules may call it, too; loopback stands for this machine",
    },
    "no-pod-templates": { type: "boolean", says: "don't check the Pods that workloads would create" },
    harden: {
      type: "boolean",
      says: "treat rules that guard security as failing closed, as in the output of postern manifests --harden",
    },
    fix: {
      type: "boolean",
      says: "write the changes that rules and policies make to the objects into the manifest files",
    },
    live: { type: "boolean", says: "check everything in the cluster instead of manifests" },
    save: {
      type: "string",
      value: "FILE",
      says: "with --live: instead of checking, write what --state needs from the cluster to this file, without values of Secrets",
    },
    kubeconfig: {
      type: "string",
      value: "FILE",
      says: "with --live: the kubeconfig to use if the cluster's connect setting has no credentials",
    },
    context: { type: "string", value: "NAME", says: "with --live: the kubeconfig context" },
    page: {
      type: "string",
      value: "N",
      says: `with --live: the maximum number of objects that one request reads (default: ${defaultObjectsPerClusterListPage})`,
    },
    validate: {
      type: "string",
      value: "MODE",
      says: "what to do with unknown fields, as for kubectl: strict (deny the object, the default), warn or ignore",
    },
    known: {
      type: "string",
      value: "FILE",
      says: "the SARIF report of an earlier check: the forms text and github omit its findings, and the exit code is 1 only if a denial is not in it",
    },
    all: {
      type: "boolean",
      says: "with the form text: list every object, even without findings, and don't group objects",
    },
    output: {
      ...commonCommandOptions.output,
      multiple: true,
      value: "FORM[=FILE]",
      isValue: (word) => checkReportFormats.includes(word.split(/[=,]/)[0] ?? ""),
      says: `${checkReportFormats.join(", ")}; several forms are possible if each but one goes to a file; policyreport needs the CRDs of ${policyReportGroupsHelp} in the cluster`,
    },
  },

  async run({ options, words }) {
    // Without this flag, V8 often keeps the objects of all evaluations in memory until the end of the check.
    setFlagsFromString("--no-allocation-site-pretenuring");
    const outputs = parseOutputOptions(readListOption(options, "output"), checkReportFormats);
    const isLive = options.flag("live");
    checkOptions(options, words);
    const file = getConfigFile();
    const only = readListOption(options, "rules");
    if (!hasConfig() && only.length === 0)
      writeNote(
        "there is no postern.yaml in this folder or above it, so no rule is on: this checks what the API server itself does; --rules RULE checks a rule",
      );
    const { catalogue, broken, names, config } = await readProjectIfAny(only);
    const [name, clusterConfig] = chooseCluster(config, options.text("cluster"));
    const restricted =
      only.length === 0 ? clusterConfig : restrictClusterToRules(clusterConfig, only, catalogue, names);
    const cluster: [string, ClusterConfig] = [name, { ...restricted, ...readKubernetesOption(options) }];
    const brokenOfCluster = broken.filter((rule) => createRuleEnabledPredicate(cluster[1])(rule.name));
    reportBroken(broken, () => false); // Broken rules are reported, but none is needed.
    const stop = new AbortController();
    const request = { options, words, file, catalogue, cluster, clusters: [...config.clusters.keys()] };
    const saveFile = options.text("save");
    if (saveFile !== undefined) {
      writeOutput(`${await saveState(request, saveFile, stop.signal)}\n`);
      return 0;
    }
    const knownFile = options.text("known");
    const known = knownFile === undefined ? undefined : await readKnownFindings(knownFile, writeNote);
    const source = await (isLive ? startClusterCheck : startFileCheck)(request, stop.signal);
    const pathOptions = ["state", "old", "review", "webhooks", "kubeconfig"];
    const named = [file, ...words, ...pathOptions.flatMap((option) => options.texts(option))];
    await refuseInputsAsReports(outputs, [...named, ...source.files]);

    const summary: CheckSummary = { ...createSummary(), ...(known && { newlyDenied: 0 }) };
    const fixes: ManifestFix[] = [];
    const fixing = options.flag("fix") ? await import("../check/fixes/fix.ts") : undefined;
    const isWatched = isLive && process.stdout.isTTY === true;
    const outlets = await openReportWriter(
      outputs,
      (output) =>
        createCheckReport(output, {
          isLive,
          listsAll: options.flag("all"),
          catalogue,
          reportVersion: source.reportVersion,
          known,
        }),
      () => isWatched && clearLine(),
    );
    const forget = handleInterrupt(() => stop.abort());
    const ownRules = catalogue.filter(({ source }) => source !== posternCatalogue);
    const watch = ownRules.length === 0 ? undefined : watchForLoops(ownRules, endCheck);
    if (isLive && source.reportVersion === undefined && outputs.some(({ form }) => form === "policyreport"))
      writeNote(
        `cluster ${name} does not serve reports; kubectl apply accepts them once the cluster has the CRDs of ${policyReportGroupsHelp}`,
      );
    try {
      await source.each(async (found) => {
        watch?.noteProgress();
        const evaluation = markBrokenRules(found, brokenOfCluster);
        addToSummary(summary, evaluation.checked);
        const shown = hideSecretsInEvaluation(evaluation, source.secretsRead);
        if (known && hasNewDenial(shown.checked, known)) summary.newlyDenied = (summary.newlyDenied ?? 0) + 1;
        await outlets.add(shown);
        const fix = fixing?.toFix(evaluation, source.secretsRead);
        if (fix) fixes.push(fix);
      });
      const { unreadableInputs } = source;
      summary.faults = unreadableInputs.length;
      const wasInterrupted = stop.signal.aborted;
      await outlets.end({ summary, unreadableInputs, notes: [...source.notes], wasInterrupted });
      for (const sentence of [...source.notes, ...formatUnread(unreadableInputs, options.flag("all"))])
        writeNote(toOneLine(sentence));
      if (wasInterrupted) {
        writeNote(`ended early: objects after the first ${summary.objects} were not checked`);
        return 3;
      }
    } catch (error) {
      await outlets.abandon();
      throw error;
    } finally {
      forget();
      watch?.stop();
    }
    await fixing?.writeFixes(fixes);
    if ((summary.newlyDenied ?? summary.denied) > 0) return 1;
    return summary.undecided + summary.faults + brokenOfCluster.length > 0 ? 3 : 0;
  },
} satisfies Command;

/** Returns the minor version in --kubernetes as a member of the cluster's config; {} without the option. */
const readKubernetesOption = (options: ParsedOptions): Pick<ClusterConfig, "kubernetes"> => {
  const kubernetes = options.text("kubernetes");
  if (kubernetes === undefined) return {};
  if (!isFit(minorShape, kubernetes))
    throw new Complaint(
      `--kubernetes takes a minor version from ${oldestKubernetes} on, such as 1.35, not "${kubernetes}"`,
    );
  return { kubernetes };
};

/** Makes the verdict of an evaluation undecided if rules could not be loaded, unless another rule denies the object. */
const markBrokenRules = (evaluation: ObjectEvaluation, broken: readonly BrokenRule[]): ObjectEvaluation => {
  if (broken.length === 0) return evaluation;
  const { verdict, undecided } = evaluation.checked;
  return {
    ...evaluation,
    checked: {
      ...evaluation.checked,
      verdict: verdict === "denied" ? verdict : "undecided",
      undecided: [...undecided, ...broken.map(({ sentence }) => sentence)],
    },
  };
};

/** The options that can't be combined with --save, which checks nothing. */
const checkOnly = ["rules", "plugins", "operation", "as-group", "webhooks", "call", "harden", "known", "all", "output"];

/** Throws if options or paths are combined that don't fit together. */
const checkOptions = (options: ParsedOptions, words: readonly string[]): void => {
  const isGiven = (name: string) => options.flag(name) || options.texts(name).length > 0;
  if (options.flag("live")) {
    const files = ["state", "strict", "validate", "old", "review", "build", "fix"]
      .filter(isGiven)
      .map((name) => `--${name}`);
    const [wrong] = [...words, ...files];
    if (wrong !== undefined)
      throw new Complaint(`--live checks what the cluster has; it can't be combined with ${wrong}`);
    const unused = options.text("save") !== undefined && checkOnly.find(isGiven);
    if (options.text("save") === "-") throw new Complaint("--save takes a file, not -");
    if (unused) throw new Complaint(`--save checks nothing; it can't be combined with --${unused}`);
    return;
  }
  const liveOption = ["save", "kubeconfig", "context", "page"].find(isGiven);
  if (liveOption !== undefined) throw new Complaint(`--${liveOption} needs --live`);
  if (options.texts("namespace").length > 1)
    throw new Complaint(
      "--namespace takes one name, the namespace of manifests without one; with --live it takes several",
    );
  if (options.flag("build") && options.flag("fix"))
    throw new Complaint("--fix writes into manifest files, and what --build makes is in none; use one of them");
  if (words.length + options.texts("review").length === 0)
    throw new Complaint(
      "name files or folders of manifests, or a cluster: postern check PATH…, or postern check --live; the path - is standard input",
    );
};

/** Ends the process after a rule's code ran too long and was stopped: the object that it evaluated has no result. */
const endCheck = (stopReason: string): void => {
  writeNote(stopReason);
  process.exit(3);
};
