import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAnswerCache } from "#lib/cluster/answer-cache.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createRecordedCapabilities, type RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { Phase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { getCasePhase } from "../../../infra/catalogue/cases.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import { readOrCreateServerCertificate } from "../../../infra/keys/keys.ts";
import type { TestCluster } from "../../control-plane/cluster.ts";
import type { PluginPort } from "../plugins.ts";
import {
  applyConfigurations,
  createTestWebhookConfigurations,
  deleteTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  getConfigurationKind,
  includeVitalRequests,
  serveTestRules,
  type TestWebhookOptions,
  type WebhookManifests,
  waitUntilWebhooksCalled,
} from "../rule-server.ts";
import { openScriptedWebhookEndpoints } from "../scripted-endpoints.ts";
import {
  createTestObserverRule,
  type ObservedTestServer,
  restrictWebhooksToCaseSetup,
  type SentCaseWithReviews,
  sendCaseAndObserveReviews,
} from "./sending.ts";

/** A rule and its cases. */
export interface RuleCases {
  listed: CatalogueRule;
  cases: Case[];
}

/**
 * A setup: rules with the settings that some cases need. Its webhooks are called only for requests that name this
 * setup.
 */
export interface CaseRulesWithSettings {
  name: string;
  rules: Record<string, object>;
  /** The labels that a namespace needs so that the rules are called in it. */
  labels: Record<string, string>;
  /**
   * The only phase that is called. The other phase could change the object first, or refuse what this phase admits.
   */
  phase?: Phase;
  /** The variant of the rule that the setup calls; the other variants are not called in any namespace. */
  variant?: string | undefined;
}

/** Returns the key of the setup that a case needs. Cases with the same key share a setup. */
export const buildCaseSetupKey = ({ name, rule }: CatalogueRule, entry: Case) =>
  JSON.stringify([name, entry.variant, getCasePhase(entry), mergeWithDefaults(rule.settings ?? {}, entry.settings)]);

/**
 * Returns the setups of all cases by key. For each group of ports (rules that reimplement a plugin), there is one more
 * setup, with the group's name as key, in which the rules have the settings of their plugins.
 */
export const buildWebhookSetups = (
  all: RuleCases[],
  groups: Map<string, PluginPort[]>,
): Map<string, CaseRulesWithSettings> => {
  const setups = new Map<string, CaseRulesWithSettings>();
  const configure = (settings: object) => ({ failurePolicy: "Fail", exempt: { namespaces: [] }, settings });
  for (const { listed, cases } of all)
    for (const entry of cases) {
      const key = buildCaseSetupKey(listed, entry);
      if (setups.has(key)) continue;
      const settings = mergeWithDefaults(listed.rule.settings ?? {}, entry.settings);
      setups.set(key, {
        name: `case-${setups.size}`,
        rules: { [listed.name]: configure(settings) },
        labels: getNamespaceLabels(listed, settings),
        phase: getCasePhase(entry),
        variant: entry.variant,
      });
    }
  for (const [group, ports] of groups) {
    // The API server limits the sum of the webhooks' timeouts for one request, so each rule gets a short one.
    const rules = ports.map(({ name, rule }) => [
      name,
      { ...configure({ ...rule.upstreamPlugin.settings }), timeoutSeconds: 2 },
    ]);
    setups.set(group, { name: group, rules: Object.fromEntries(rules), labels: {} });
  }
  return setups;
};

const getNamespaceLabels = (
  { rule: { namespaceSelector } }: CatalogueRule,
  settings: object,
): Record<string, string> => {
  const selector = typeof namespaceSelector === "function" ? namespaceSelector(settings) : namespaceSelector;
  return (selector && "matchLabels" in selector && selector.matchLabels) || {};
};

/**
 * Returns a rule without `authorizedBy`, which exempts users with a right: here every user has every right, so the rule
 * would never be called. Also removes `checkSettings`, which would refuse settings with clusters that this test lacks.
 */
const omitUserExemptionAndSettingsCheck = (listed: CatalogueRule): CatalogueRule => {
  const { authorizedBy: _, checkSettings: __, ...rule } = listed.rule;
  return { ...listed, rule };
};

/** A server for the webhooks of an API server, which evaluates the rules of all setups. */
export interface CaseSetupServer {
  caseServer: ObservedTestServer;
  /** Registers only the webhooks of these setups: with those of all setups, each request would match hundreds. */
  callOnly(wanted: CaseRulesWithSettings[]): Promise<void>;
  /** Sets the recorded answers that a setup's rules get. Rules of other setups read the cluster, without a cache. */
  setAnswers(setup: CaseRulesWithSettings, answers: RecordedCapabilityAnswers): void;
  stop(): Promise<void>;
}

/**
 * Serves the rules of all setups behind one gateway, and a webhook that observes every request. In postern.yaml, each
 * setup is a cluster with this minor of Kubernetes.
 */
export const serveSetups = async (
  setups: Map<string, CaseRulesWithSettings>,
  rules: CatalogueRule[],
  minor: string,
  { admin, server, ca, getToken }: TestCluster,
): Promise<CaseSetupServer> => {
  await using opening = new AsyncDisposableStack();
  const { path: folder } = opening.use(await mkdtempDisposable(join(tmpdir(), "postern-cases-")));
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  // The detector detects when the API server uses changed webhook configurations.
  const { detector, stop: stopDetector } = await openScriptedWebhookEndpoints(certificate);
  opening.defer(stopDetector);
  const observer = createTestObserverRule();
  const setupsWithObserver = [...setups.values(), { name: "observer", rules: { observer: {} } }];
  const clusters = Object.fromEntries(
    setupsWithObserver.map(({ name, rules }) => [name, { rules, kubernetes: minor }]),
  );
  const connection = { server, ca, credentials: { token: getToken("admin") } };
  const connections = Object.fromEntries(setupsWithObserver.map(({ name }) => [name, connection]));
  const live = createLiveCapabilities(connections, { cache: createAnswerCache({ entries: 0, bytes: 0 }) });
  const answers = new Map<string, RecordedCapabilityAnswers>();
  const chooseCapabilities = (cluster: string, milliseconds: number) => {
    const recording = answers.get(cluster);
    return recording ? createRecordedCapabilities(recording) : live(cluster, milliseconds);
  };
  // Every user here has every right, which exempts from some rules, and some settings name clusters that are missing.
  const listed = [...rules.map(omitUserExemptionAndSettingsCheck), observer.listed];
  const served = await serveTestRules(listed, JSON.stringify({ clusters }), {
    certificate,
    openCapabilities: chooseCapabilities,
  });
  opening.defer(served.stop);

  // The API server calls configurations in the order of their names. The observer's is called `z`, so that the observer
  // sees the changes that all others make. It also gets vital requests, which keep a control plane alive.
  const last = includeVitalRequests(served.manifests({ name: "z", cluster: "observer" }));
  await createTestWebhookConfigurations(admin, observer.restrictToTestRequests(extendWebhookTimeoutsForTests(last)));
  const caseServer: ObservedTestServer = { admin, observer };
  await waitUntilObserved(caseServer);

  const registered = new Map<CaseRulesWithSettings, WebhookManifests>();
  const callOnly = async (wanted: CaseRulesWithSettings[]) => {
    const deletedManifests: WebhookManifests = [];
    for (const [setup, manifests] of registered)
      if (!wanted.includes(setup)) {
        registered.delete(setup);
        deletedManifests.push(...manifests);
      }
    await deleteTestWebhookConfigurations(admin, deletedManifests, detector);
    const added = [...new Set(wanted)].filter((setup) => !registered.has(setup));
    for (const setup of added) registered.set(setup, buildManifests(setup, served.manifests));
    const addedManifests = added.flatMap((setup) => registered.get(setup) ?? []);
    await applyConfigurations(admin, addedManifests, detector);
  };
  const running = opening.move();
  return {
    caseServer,
    callOnly,
    setAnswers: (setup, recording) => void answers.set(setup.name, recording),
    stop: () => running.disposeAsync(),
  };
};

/**
 * Builds webhook configurations that have only the entries for the phase and the variant of this setup. The entry of a
 * variant is called in all namespaces.
 */
const buildManifests = (
  { name, phase, variant }: CaseRulesWithSettings,
  build: (options: TestWebhookOptions) => WebhookManifests,
): WebhookManifests => {
  // A rule may have variants: several entries, each with settings of its own. A setup with a phase serves cases. It has
  // the entry of one variant or, if its cases name no variant, the one entry of the rule without its variants. A setup
  // without a phase, for the comparison with plugins, has all entries. In postern.yaml, each setup is a cluster.
  const withoutVariants = phase !== undefined && variant === undefined;
  const manifests = build({ name, cluster: name, withoutVariants }).flatMap((manifest): WebhookManifests => {
    if (phase !== undefined && manifest.kind !== getConfigurationKind(phase)) return [];
    if (variant === undefined) return [manifest];
    const ofVariant = manifest.webhooks.filter((webhook) => webhook.name.startsWith(`${variant}.`));
    return [{ ...manifest, webhooks: ofVariant.map(({ namespaceSelector: _, ...webhook }) => webhook) }];
  });
  return restrictWebhooksToCaseSetup(name, extendWebhookTimeoutsForTests(includeVitalRequests(manifests)));
};

/** Waits until the API server sends requests to both webhooks of the observer. */
const waitUntilObserved = async (caseServer: ObservedTestServer) => {
  const path = "/api/v1/namespaces/default/configmaps?dryRun=All";
  const probe = { method: "POST" as const, path, user: { username: "jane" }, name: "probe" };
  const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "probe" } };
  const sent: SentCaseWithReviews[] = [];
  await waitUntilWebhooksCalled(
    async () => sent.push(await sendCaseAndObserveReviews(caseServer, probe, body)),
    () => sent.some(({ seen }) => seen.mutate && seen.validate),
  );
};
