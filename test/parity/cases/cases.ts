import { readFile } from "node:fs/promises";
import { UnansweredFailure } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import { describeCaseDifferences } from "../../../infra/catalogue/case-differences.ts";
import { buildReview, evaluateCase, parseCases, readCases } from "../../../infra/catalogue/cases.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import { type ControlPlaneBinaries, listPlugins, newestMinor, webhookPlugins } from "../../control-plane/binaries.ts";
import type { TestClusterClient } from "../../control-plane/client.ts";
import { bootClusters } from "../../control-plane/cluster.ts";
import { listParityObjectFlags, listRulesThatReplacePlugins, type PluginPort } from "../plugins.ts";
import { installKinitirasPolicyCrds } from "../policy-fixtures.ts";
import { insertStoredUid, renameNamespaces } from "./case-objects.ts";
import {
  buildCaseSetupKey,
  buildWebhookSetups,
  type CaseRulesWithSettings,
  type CaseSetupServer,
  type RuleCases,
  serveSetups,
} from "./case-setups.ts";
import { checkCaseAgainstApiServer } from "./expectation.ts";
import {
  buildUpstreamServerOptions,
  compareCaseWithUpstreamPlugin,
  explainIncomparable,
  explainMissingUpstreamServer,
  getCaseNamespace,
  getPluginServerName,
  hasPluginEquivalentSettings,
} from "./upstream.ts";

/** The results of a rule's cases on a real API server. The fields are part of the JSON output. */
export interface RealServerCaseResults {
  rule: string;
  cases: number;
  /** The number of cases with the outcome that they state. */
  asStated: number;
  /** Cases that no API server can send to a webhook as they are, with reasons. */
  notSent: { name: string; reason: string }[];
  /** The comparison with the plugin that the rule reimplements, only for cases that have the plugin's settings. */
  pluginComparison?: {
    equal: number;
    /** The numbers of cases with known differences, by the reason. */
    known: Record<string, number>;
    /** Cases not compared with the plugin, with reasons: for instance, their objects can't exist in a cluster. */
    leftOut: { name: string; reason: string }[];
  };
  /** The reason why the cases are not compared with a plugin. */
  whyNotCompared?: string;
  differences: CaseDifference[];
}

/** Results of a rule's cases and, in `outcomes`, of cases that record answers of a plugin that Kubernetes removed. */
export interface RuleCaseResults extends RealServerCaseResults {
  outcomes?: RealServerCaseResults;
}

/** A case whose answer differs from what the case states, or from what the compiled-in plugin answers. */
export interface CaseDifference {
  name: string;
  from: "case" | "upstream";
  /** A diff: `-` lines are what the case states or the plugin answers, `+` lines are what the rule answers. */
  diff: string;
}

/** Running API servers, to which cases of rules are sent. */
export interface CaseChecker {
  /** An admin client of the API server that has no plugins and calls the rules instead. */
  admin: TestClusterClient;
  /** Sends cases of a rule. Their settings must be among those of the cases that the servers were opened with. */
  check(listed: CatalogueRule, cases: Case[]): Promise<RealServerCaseResults>;
  stop(): Promise<void>;
}

/**
 * Starts one API server without plugins, which calls every rule with all settings of its cases. For the rules that
 * reimplement a plugin (ports), starts more API servers, which have these plugins.
 */
export const openCaseServers = async (binaries: ControlPlaneBinaries, all: RuleCases[]): Promise<CaseChecker> => {
  await using opening = new AsyncDisposableStack();
  const plugins = await listPlugins(binaries);
  const rules = all.map(({ listed }) => listed);
  const ports = listRulesThatReplacePlugins(rules).filter(
    (port) => explainMissingUpstreamServer(port, plugins.all, binaries) === undefined,
  );
  const groups = Map.groupBy(ports, getPluginServerName);
  const withoutPlugins = {
    flags: ["--allow-privileged=true", ...listParityObjectFlags(binaries.minor)],
    disable: plugins.defaultOn.filter((plugin) => !webhookPlugins.includes(plugin)),
  };
  const withPlugins = [...groups.values()].map((ports) => buildUpstreamServerOptions(ports, all, withoutPlugins));
  const clusters = await bootClusters(binaries, [withoutPlugins, ...withPlugins]);
  for (const { stop } of clusters) opening.defer(stop);
  const [ours, ...others] = clusters;
  if (!ours) throw new Error("no API server was booted");
  await installKinitirasPolicyCrds(ours.admin);
  // Setups are rules with settings: those of cases, and those of each server with plugins, whose name is then the key.
  const setups = buildWebhookSetups(all, groups);
  const setupServer = await serveSetups(setups, rules, binaries.minor, ours);
  opening.defer(setupServer.stop);

  const upstream = new Map([...groups.keys()].map((group, index) => [group, others[index]?.admin]));
  const getSetup = (key: string): CaseRulesWithSettings => {
    const setup = setups.get(key);
    if (!setup) throw new Error(`no setup has the key ${key}`);
    return setup;
  };
  const check = (listed: CatalogueRule, cases: Case[]): Promise<RealServerCaseResults> => {
    const [portedRule] = listRulesThatReplacePlugins([listed]);
    const whyNotCompared =
      portedRule &&
      (explainMissingUpstreamServer(portedRule, plugins.all, binaries) ?? explainIncomparable(portedRule));
    const setupKey = portedRule && whyNotCompared === undefined ? getPluginServerName(portedRule) : undefined;
    const pluginServer = setupKey === undefined ? undefined : upstream.get(setupKey);
    const comparedPlugin =
      portedRule && setupKey !== undefined && pluginServer ? { portedRule, setupKey, pluginServer } : undefined;
    return checkRule(listed, cases, { setupServer, minor: binaries.minor, getSetup, whyNotCompared, comparedPlugin });
  };
  const running = opening.move();
  return { admin: ours.admin, check, stop: () => running.disposeAsync() };
};

/** What a check of a rule needs besides its cases. */
interface RuleContext {
  /** Answers the calls of webhooks. For each setup, it has rules with the settings of some cases. */
  setupServer: CaseSetupServer;
  /** The minor of the API servers. */
  minor: string;
  getSetup(key: string): CaseRulesWithSettings;
  /** The reason why the cases are not compared with a plugin. */
  whyNotCompared: string | undefined;
  /**
   * The plugin with which the cases are compared: the rule that reimplements it, the key of the setup with the plugin's
   * settings, and the API server with the plugin.
   */
  comparedPlugin: { portedRule: PluginPort; setupKey: string; pluginServer: TestClusterClient } | undefined;
}

/** Sends the cases of a rule to the API server that calls the rule, and to the API server with the plugin, if any. */
const checkRule = async (
  listed: CatalogueRule,
  cases: Case[],
  { setupServer, minor, getSetup, whyNotCompared, comparedPlugin }: RuleContext,
): Promise<RealServerCaseResults> => {
  const pluginComparison: RealServerCaseResults["pluginComparison"] = comparedPlugin && {
    equal: 0,
    known: {},
    leftOut: [],
  };
  const results: RealServerCaseResults = {
    rule: listed.name,
    cases: cases.length,
    asStated: 0,
    notSent: [],
    differences: [],
    ...(pluginComparison && { pluginComparison }),
    ...(whyNotCompared && { whyNotCompared }),
  };
  const setups = cases.map((entry) => getSetup(buildCaseSetupKey(listed, entry)));
  await setupServer.callOnly([...setups, ...(comparedPlugin ? [getSetup(comparedPlugin.setupKey)] : [])]);
  for (const [index, stated] of cases.entries()) {
    const { name } = stated;
    const caseOfMinor = { ...stated, kubernetes: minor };
    const reason = await explainUnsendable(listed, stated, caseOfMinor);
    if (reason !== undefined) {
      results.notSent.push({ name, reason });
      continue;
    }
    const setup = getSetup(buildCaseSetupKey(listed, caseOfMinor));
    const namespace = getCaseNamespace(listed, index);
    const prepareAnswers = async (_: TestClusterClient, stored: object) => {
      setupServer.setAnswers(setup, insertStoredUid(caseOfMinor.needs ?? {}, caseOfMinor.oldObject, stored));
      // Nothing was created in the API server, so there is nothing to delete after the case.
      return async () => {};
    };
    const question = { listed, entry: caseOfMinor, namespace, labels: setup.labels };
    const finding = await checkCaseAgainstApiServer(
      setupServer.caseServer,
      { ...question, prepare: prepareAnswers },
      setup.name,
    );
    if ("reason" in finding) {
      results.notSent.push({ name, reason: finding.reason });
      continue;
    }
    if (finding.diff === undefined) results.asStated += 1;
    else results.differences.push({ name, from: "case", diff: finding.diff });

    if (!comparedPlugin || !pluginComparison || !hasPluginEquivalentSettings(comparedPlugin.portedRule, caseOfMinor))
      continue;
    const { pluginServer, setupKey } = comparedPlugin;
    const moved = { ...question, entry: renameNamespaces(caseOfMinor, namespace) };
    const comparison = await compareCaseWithUpstreamPlugin(
      setupServer.caseServer,
      pluginServer,
      moved,
      finding.buildBody,
      setupKey,
    );
    if (comparison.leftOut !== undefined) pluginComparison.leftOut.push({ name, reason: comparison.leftOut });
    else if (comparison.verdict === "equal") pluginComparison.equal += 1;
    else if (comparison.verdict === "known")
      pluginComparison.known[comparison.reason] = (pluginComparison.known[comparison.reason] ?? 0) + 1;
    else results.differences.push({ name, from: "upstream", diff: comparison.diff });
  }
  return results;
};

/** A quantity with such a large exponent that the API server needs minutes to compute with it, such as "1e99999". */
const hugeExponent = /"[+-]?[\d.]+e[+-]?\d{5,}"/i;

/**
 * Returns why a case can't be sent to API servers of a minor at this time, for instance because the rule would now
 * decide otherwise. Whether the API server accepts the case's objects is not checked here. `caseOfMinor` is the case
 * for the API servers' minor.
 */
const explainUnsendable = async (
  listed: CatalogueRule,
  stated: Case,
  caseOfMinor: Case,
): Promise<string | undefined> => {
  const isWrong = await hasOtherOutcome(listed, caseOfMinor);
  const dependsOnMinor = listed.rule.since !== undefined;
  if (dependsOnMinor && isWrong) return `the case states the answer of Kubernetes ${stated.kubernetes ?? newestMinor}`;
  // If a case is wrong even at its own time (`now`), it is sent all the same, so that the mistake is reported.
  if (!isWrong && (await hasOtherOutcome(listed, { ...caseOfMinor, now: new Date().toISOString() })))
    return "the case sets the time (`now`), and the rule answers otherwise at the time of the test";
  if (!buildReview(listed, caseOfMinor).request.userInfo.username) return "a user without a name sends no request";
  return hugeExponent.test(JSON.stringify([stated.mutate, stated.validate, stated.oldObject]))
    ? "the API server takes minutes to compute with the quantity"
    : undefined;
};

/** Reports whether a rule decides otherwise than the case states, or reads something that the case doesn't record. */
const hasOtherOutcome = (listed: CatalogueRule, entry: Case): Promise<boolean> =>
  evaluateCase(listed, entry, buildReview(listed, entry)).then(
    (decision) => describeCaseDifferences(entry, decision).length > 0,
    // Another error isn't an outcome: the rule fails again when an API server calls it, and the test reports the error.
    (error: unknown) => error instanceof UnansweredFailure,
  );

/** Returns the rules with their cases, and with those recorded from a plugin that was removed from Kubernetes. */
export const readAllCases = (rules: CatalogueRule[]): Promise<(RuleCases & { pluginCases: Case[] })[]> =>
  Promise.all(
    rules.map(async (listed) => ({ listed, cases: await readCases(listed), pluginCases: await readOutcomes(listed) })),
  );

/** Returns the recorded outcomes of a plugin that was removed from Kubernetes, as more cases of the rule. */
const readOutcomes = async ({ name, phases }: CatalogueRule): Promise<Case[]> => {
  const text = await readFile(new URL(`outcomes/${name}.yaml`, import.meta.url), "utf8").catch(() => undefined);
  if (text === undefined) return [];
  return parseCases(text, `outcomes/${name}.yaml`, phases).flatMap((entry) => {
    const { validate, oldObject } = entry;
    if (!validate || oldObject || validate.metadata?.generateName) return [entry];
    // The added label makes the new object of the update differ from the old object.
    const update = { ...validate, metadata: { ...validate.metadata, labels: { app: "a" } } };
    return [entry, { ...entry, name: `an update of ${entry.name}`, oldObject: validate, validate: update }];
  });
};

/**
 * Sends all cases of these rules to API servers, also those recorded from removed plugins (`pluginCases`), and compares
 * the answers with the expected ones.
 */
export const checkAllCases = async (
  binaries: ControlPlaneBinaries,
  rules: CatalogueRule[],
): Promise<RuleCaseResults[]> => {
  const all = await readAllCases(rules);
  await using opened = new AsyncDisposableStack();
  const servers = await openCaseServers(
    binaries,
    all.map(({ listed, cases, pluginCases }) => ({ listed, cases: [...cases, ...pluginCases] })),
  );
  opened.defer(servers.stop);
  const results: RuleCaseResults[] = [];
  for (const { listed, cases, pluginCases } of all)
    results.push({
      ...(await servers.check(listed, cases)),
      ...(pluginCases.length > 0 && { outcomes: await servers.check(listed, pluginCases) }),
    });
  return results;
};
