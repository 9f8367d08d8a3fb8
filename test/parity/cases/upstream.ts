import { isDeepStrictEqual } from "node:util";
import type { Case } from "#lib/recording/recording.ts";
import type { Rule } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { getCaseOperation, getCasePhase } from "../../../infra/catalogue/cases.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import { type ControlPlaneBinaries, newestMinor } from "../../control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../../control-plane/client.ts";
import type { TestCluster, TestClusterOptions } from "../../control-plane/cluster.ts";
import {
  type ComparableServerAnswer,
  comparePluginAndPortAnswers,
  formatAnswerDiff,
  type ParityComparisonResult,
  toComparable,
} from "../compare.ts";
import { comparisonConfigs, type PluginPort } from "../plugins.ts";
import {
  createNeededObjects,
  ensureNamespace,
  insertStoredUid,
  listCaseNamespaces,
  renameNamespaces,
} from "./case-objects.ts";
import { buildCaseRequest } from "./case-request.ts";
import type { RuleCases } from "./case-setups.ts";
import {
  type CaseBodyBuilder,
  type CaseToSend,
  getFirstMessageLine,
  isAccepted,
  type ObservedTestServer,
  prepareCaseObjectOrGetRefusal,
  type SentCaseWithReviews,
  sendCase,
} from "./sending.ts";

/** Returns the reason if the cases of a rule can't be sent to an API server with the plugin that it reimplements. */
export const explainMissingUpstreamServer = (
  { rule: { upstreamPlugin, needs = {} } }: PluginPort,
  plugins: string[],
  { version }: ControlPlaneBinaries,
): string | undefined => {
  const verbs = Object.values(needs).map(({ verb }) => verb);
  if (!plugins.includes(upstreamPlugin.plugin)) return `Kubernetes ${version} has no plugin ${upstreamPlugin.plugin}`;
  if (verbs.includes("https"))
    return `${upstreamPlugin.plugin} calls a service, and its cases have only recorded answers of the service`;
  if (verbs.includes("ledger")) return `the answers of ${upstreamPlugin.plugin} depend on earlier requests`;
};

/**
 * In the test's clusters, every user has every right, and there are no policies. Returns the reason if a plugin would
 * therefore answer the cases differently from the rule that reimplements it.
 */
export const explainIncomparable = ({ rule }: PluginPort): string | undefined => {
  const { plugin } = rule.upstreamPlugin;
  if (rule.authorizedBy)
    return `${plugin} refuses only users without a right, and every user of the test has every right`;
  return (
    comparisonConfigs[plugin]?.policies &&
    `${plugin} reads policies from its cluster, and the cases have policies in their settings`
  );
};

/**
 * Returns the name of the API server in which the plugin that a rule reimplements is on. Several plugins share an API
 * server, but only one of them may decide about missing namespaces. A plugin that refuses everything shares none.
 */
export const getPluginServerName = ({ name, rule }: PluginPort): string => {
  // A rule that must have exemptions reimplements a plugin that refuses everything.
  if (rule.exemptionRequired) return `plugins-${name}`;
  // The plugins of these two rules refuse requests that other plugins refuse, too. Validating plugins are called one
  // after another, webhooks in parallel, so the messages may differ. So these two are not in most plugins' server.
  if (["namespace-lifecycle", "pod-resize-validator"].includes(name)) return "plugins-namespace-lifecycle";
  // The server plugins-namespace-auto-provision has ServiceAccount, which would refuse a kubelet's pod before
  // NodeRestriction does, and Priority, which from Kubernetes 1.37 on also sets the priority of pod groups.
  if (["node-restriction", "pod-group-protection"].includes(name)) return "plugins-namespace-lifecycle";
  // The plugins of these rules report a missing namespace themselves, so NamespaceAutoProvision must not create it.
  if (["namespace-exists", "pod-node-selector", "pod-toleration-restriction"].includes(name))
    return "plugins-namespace-exists";
  return "plugins-namespace-auto-provision";
};

/** Reports whether a case has the settings with which the rule decides as its plugin. */
export const hasPluginEquivalentSettings = ({ rule }: PluginPort, { settings }: Case) =>
  isDeepStrictEqual(
    mergeWithDefaults(rule.settings ?? {}, settings),
    mergeWithDefaults(rule.settings ?? {}, rule.upstreamPlugin.settings),
  );

/** Returns the namespace of a case, which no other case has. */
export const getCaseNamespace = ({ name }: CatalogueRule, index: number) => `${name}-${index}`;

const readsResource = ({ needs = {} }: Rule, resource: string) =>
  Object.values(needs).some(({ kind }) => kind?.resource === resource);

/**
 * Returns the options of an API server with these plugins. The objects of cases are created before the plugins are
 * turned on.
 */
export const buildUpstreamServerOptions = (
  ports: PluginPort[],
  all: RuleCases[],
  options: TestClusterOptions,
): TestClusterOptions => {
  const fill = async (as: TestCluster["as"]) => {
    for (const { listed, cases } of all.filter(({ listed }) => ports.some(({ name }) => name === listed.name)))
      for (const [index, entry] of cases.entries()) {
        const caseNamespace = getCaseNamespace(listed, index);
        const moved = renameNamespaces(entry, caseNamespace);
        for (const namespace of listCaseNamespaces(moved)) await ensureNamespace(as("admin"), namespace);
        const request = await buildCaseRequest(listed, moved, caseNamespace, as("admin"));
        // A PriorityClass would affect other cases, so it is created only while its case is sent. If a rule reads
        // PriorityClasses, they are the only objects without a namespace in its cases.
        const isPriorityClass = request.namespace === undefined && readsResource(listed.rule, "priorityclasses");
        if (!isPriorityClass) await prepareCaseObjectOrGetRefusal(as("admin"), request, {});
      }
  };
  return { ...options, late: { enable: ports.map(({ rule }) => rule.upstreamPlugin.plugin), fill } };
};

/** Intended differences between rules and plugins that only cases show, not generated requests. rules.md lists them. */
const knownCaseDifferences: {
  rule: string;
  reason: string;
  explains(wanted: TestClusterResponse, actual: TestClusterResponse): boolean;
}[] = [
  {
    rule: "limit-ranger",
    reason: "upstream's arithmetic overflows from 2^63 on, and admits such an amount",
    explains: (wanted, actual) =>
      isAccepted(wanted) && / but (limit|request) is \d+E$/.test(String(actual.body.message)),
  },
];

type UpstreamComparison = ParityComparisonResult & { diff: string; leftOut?: string };

/**
 * Creates the objects that a case needs in the API server with the plugin and in the one that calls the rule, sends the
 * case to both, and compares their answers.
 */
export const compareCaseWithUpstreamPlugin = async (
  ours: ObservedTestServer,
  upstream: TestClusterClient,
  question: CaseToSend,
  buildBody: CaseBodyBuilder,
  setupName: string,
): Promise<UpstreamComparison> => {
  const { listed, entry } = question;
  const given = entry[getCasePhase(entry)] ?? {};
  /** The objects that could not be created for the case in each API server. */
  const lacks = new Map<TestClusterClient, string[]>();
  const createNeeded = async (admin: TestClusterClient, stored: object) => {
    const created = await createNeededObjects(admin, listed, insertStoredUid(entry, entry.oldObject, stored));
    lacks.set(admin, created.lacks);
    return created.deleteAll;
  };
  const sendUpstream = () => sendCase({ admin: upstream }, { ...question, prepare: createNeeded }, given, buildBody);
  const [wanted, actual] = await Promise.all([
    sendUpstream(),
    sendCase(ours, { ...question, prepare: createNeeded }, given, buildBody, setupName),
  ]);
  const answerOfRule = toComparable(actual, actual.name);
  const minor = entry.kubernetes ?? newestMinor;
  /** Compares an answer of the plugin with the answer of the rule. */
  const compareAnswer = (
    sent: SentCaseWithReviews,
  ): { plain: ComparableServerAnswer; comparison: UpstreamComparison } => {
    const plain = toComparable(sent, sent.name);
    const result = comparePluginAndPortAnswers({ rule: listed.name, minor }, plain, answerOfRule);
    return { plain, comparison: { ...result, diff: formatAnswerDiff(plain, answerOfRule) } };
  };
  const first = compareAnswer(wanted);
  let { comparison } = first;
  // A plugin may read objects in random order and so answer differently each time: more answers are compared. Only a
  // CREATE is sent again: others need an object that is stored before the plugin is on, and then deleted.
  const mayVary = listed.rule.needs !== undefined && getCaseOperation(entry) === "CREATE";
  let varies = false;
  for (let left = 8; left > 0 && mayVary && comparison.verdict === "different"; left--) {
    const again = compareAnswer(await sendUpstream());
    varies ||= !isDeepStrictEqual(again.plain, first.plain);
    if (again.comparison.verdict !== "different") comparison = again.comparison;
  }
  const explanation = knownCaseDifferences.find(
    ({ rule, explains }) => rule === listed.name && explains(wanted.answer, actual.answer),
  );
  if (comparison.verdict === "different" && explanation)
    comparison = { ...comparison, verdict: "known", reason: explanation.reason };

  const isRefused = String(actual.answer.body.message).startsWith("admission webhook ");
  const isRuleAsStated = isRefused === (entry.refused !== undefined);
  if (comparison.verdict !== "different" && isRuleAsStated) return comparison;
  // The answers differ, or the rule doesn't answer as the case states. Finds the reason to leave the case out, if any.
  const { code, body } = wanted.answer;
  // The name of the namespace ends with the number of the case, which changes if cases are added before it.
  const message = getFirstMessageLine(body).replaceAll(question.namespace, "…");
  // A case in which the plugin itself fails is left out if the rule answers as the case states.
  const pluginFailure = code === 500 && isRuleAsStated ? `the plugin answers 500: ${message}` : undefined;
  const [ourLacks = [], upstreamLacks = []] = [ours.admin, upstream].map((one) => lacks.get(one));
  // Objects that couldn't be created may be the reason that the rule doesn't answer as stated. They explain different
  // answers of both servers only if the servers lack different objects.
  const isExplainedByLack = comparison.verdict !== "different" || !isDeepStrictEqual(ourLacks, upstreamLacks);
  const missingObject = isExplainedByLack ? (ourLacks[0] ?? upstreamLacks[0]) : undefined;
  const leftOut = missingObject ?? pluginFailure ?? (varies ? "upstream's answers vary" : undefined);
  return { ...comparison, ...(leftOut !== undefined && { leftOut }) };
};
