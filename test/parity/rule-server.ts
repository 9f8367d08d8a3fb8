import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import type { AnsweredReviewFacts } from "#lib/core/log-line.ts";
import type { OpenCapabilities } from "#lib/needs.ts";
import { listPhases, type Phase, type Rule } from "#lib/rule.ts";
import { type CatalogueRule, readCatalogue } from "../../infra/catalogue/registry.ts";
import { getFunctionsFolder, toRuleFolder } from "../../infra/catalogue/sources.ts";
import { chooseCluster, type PolicySupport } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { createListedEndpoint, listServedRulesAndGroups } from "../../infra/project/served.ts";
import { type GatewayHandler, openImitatedApiGateway } from "../../infra/serve/gateway.ts";
import { createGatewayHandler } from "../../infra/serve/handlers.ts";
import { buildWebhookConfigurations } from "../../infra/webhooks/configurations.ts";
import { exemptResourcesCondition } from "../../infra/webhooks/entry.ts";
import { getCollectionPath, getObjectApiPath, type TestClusterClient } from "../control-plane/client.ts";
import type { ConfigurationUseDetector } from "./scripted-endpoints.ts";
import { createTestSigner } from "./test-key.ts";

/** Wraps a rule that exists only in a test, so that it has the form of a rule of the catalogue. */
export const buildTestRule = (name: string, rule: Rule): CatalogueRule => ({
  ...toRuleFolder(join(getFunctionsFolder(), name), name),
  phases: listPhases(rule),
  rule,
});

/** What a test provides to serve rules: a certificate, fake capabilities, and a hook around the rules' handlers. */
export interface TestRuleServerOptions {
  certificate: ServerCertificate;
  openCapabilities?: OpenCapabilities;
  /** Returns the handler that is called instead of a rule's handler, and that may itself call the rule's handler. */
  wrapHandler?(name: string, handler: GatewayHandler): GatewayHandler;
}

/** Options of a test's webhook configurations: name, cluster in the URLs, signer of the URLs' keys, and entries. */
export interface TestWebhookOptions {
  name?: string;
  cluster?: string;
  signer?: ReturnType<typeof createTestSigner>;
  /** True if each rule gets only one webhook entry, as if it had no variants. */
  withoutVariants?: boolean;
  /** The policies that the API server evaluates itself; they get no webhook entry. */
  policySupport?: PolicySupport | undefined;
}

/** Serves these rules behind Postern's gateway. A test can replace the keys and the postern.yaml at any time. */
export const serveTestRules = async (rules: CatalogueRule[], yaml: string, host: TestRuleServerOptions) => {
  const defaultSigner = createTestSigner(1);
  const reports: AnsweredReviewFacts[] = [];
  let config = parseConfig(yaml, rules);
  const gateway = await openImitatedApiGateway(host.certificate, "127.0.0.1", 0);

  /** Replaces postern.yaml and the public keys, from the next request on. */
  const serve = (text: string, publicKeys = defaultSigner.publicKey) => {
    config = parseConfig(text, rules);
    const { openCapabilities = createUnconnectedCapabilities, wrapHandler = (_, handler) => handler } = host;
    const collectReport = (report: AnsweredReviewFacts) => void reports.push(report);
    const handlers = listServedRulesAndGroups(config, rules).map((listed) => {
      const endpoint = createListedEndpoint(config, listed, {
        publicKeys,
        openCapabilities,
        writeLogLine: collectReport,
      });
      return [listed.name, wrapHandler(listed.name, createGatewayHandler(endpoint))] as const;
    });
    gateway.serve(new Map(handlers));
  };
  const buildManifests = ({
    name = "postern",
    cluster: clusterName,
    signer = defaultSigner,
    withoutVariants = false,
    policySupport,
  }: TestWebhookOptions = {}) => {
    const [chosenName, cluster] = chooseCluster(config, clusterName);
    const segment = signer.segment(chosenName, cluster.keyVersions.at(-1));
    const buildAddress = (rule: string, phase: string) => `${gateway.url}/${segment}/${rule}/${phase}`;
    const catalogue = withoutVariants ? rules.map(deleteVariants) : rules;
    return buildWebhookConfigurations(
      catalogue,
      { ...cluster, policySupport },
      {
        name,
        address: buildAddress,
        ca: host.certificate.ca,
        harden: false,
        // The warnings say that a request could wait too long for webhooks. Tests have webhooks of more rules and
        // policies than Postern allows in a cluster, but each request calls few of them, so the warnings are ignored.
        warnOfLongWait: () => {},
      },
    );
  };
  /** Runs `act`, and returns its result with the reports of the reviews that were answered while it ran. */
  const collectReports = async <T>(act: () => Promise<T>): Promise<[T, AnsweredReviewFacts[]]> => {
    const start = reports.length;
    return [await act(), reports.slice(start)];
  };
  serve(yaml);
  return {
    reports,
    serve,
    manifests: buildManifests,
    during: collectReports,
    url: gateway.url,
    stop: () => gateway.close(),
  };
};

/**
 * Serves all rules of the catalogue for a test, with this postern.yaml and a new certificate. `openCapabilities`
 * returns the functions through which the rules ask a cluster.
 */
export const serveCatalogueForTests = async (yaml: string, openCapabilities?: OpenCapabilities) => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "postern-served-"));
  const certificate = await readOrCreateServerCertificate(folder.path, "127.0.0.1");
  return serveTestRules(await readCatalogue(), yaml, { certificate, ...(openCapabilities && { openCapabilities }) });
};

/** Returns the rule without its variants, so that it has one webhook entry instead of one for each variant. */
const deleteVariants = ({ rule: { variants: _, ...rule }, ...listed }: CatalogueRule): CatalogueRule => ({
  ...listed,
  rule,
});

/** Returns the kind of webhook configuration that has a phase's entries: mutating for `mutate`, else validating. */
export const getConfigurationKind = (phase: Phase | undefined) =>
  phase === "mutate" ? "MutatingWebhookConfiguration" : "ValidatingWebhookConfiguration";

export type WebhookManifests = ReturnType<typeof buildWebhookConfigurations>;

/**
 * Extends the timeouts of entries, because a busy machine may be slow. A timeout of one second stays, because tests use
 * it for calls that are to time out.
 */
export const extendWebhookTimeoutsForTests = (manifests: WebhookManifests): WebhookManifests =>
  manifests.map(({ webhooks, ...manifest }) => ({
    ...manifest,
    webhooks: webhooks.map((one) => ({ ...one, timeoutSeconds: one.timeoutSeconds === 1 ? 1 : 30 })),
  }));

/**
 * Removes the condition that exempts requests which keep a control plane alive, because upstream's plugins see these
 * requests, too.
 */
export const includeVitalRequests = (manifests: WebhookManifests): WebhookManifests =>
  manifests.map(({ webhooks, ...manifest }) => ({
    ...manifest,
    webhooks: webhooks.map(({ matchConditions = [], ...webhook }) => {
      const others = matchConditions.filter(({ name }) => name !== exemptResourcesCondition);
      return { ...webhook, ...(others.length > 0 && { matchConditions: others }) };
    }),
  }));

/** Creates webhook configurations. Throws if the API server refuses one. */
export const createTestWebhookConfigurations = async (
  admin: TestClusterClient,
  manifests: WebhookManifests,
  query = "",
): Promise<void> => {
  for (const body of manifests) {
    const { code, body: answer } = await admin({ method: "POST", path: `${getCollectionPath(body)}${query}`, body });
    if (code !== 201) throw new Error(`the API server refuses the ${body.kind}: ${answer.message}`);
  }
};

/** Applies webhook configurations, as `kubectl apply --server-side` does, and waits until the API server uses them. */
export const applyConfigurations = async (
  admin: TestClusterClient,
  manifests: WebhookManifests,
  detector: ConfigurationUseDetector,
): Promise<void> => {
  const announced = manifests.map((manifest) => detector.announce(manifest));
  for (const { body } of announced) {
    const { code, body: answer } = await admin({
      method: "PATCH",
      path: `${getObjectApiPath(body)}?fieldManager=postern&force=true`,
      contentType: "application/apply-patch+yaml",
      body,
    });
    if (code >= 300) throw new Error(`the API server refuses the ${body.kind}: ${answer.message}`);
  }
  await waitUntil("timed out: the API server still does not call the new webhooks", async () => {
    const { code, warnings } = await detector.sendProbe(admin);
    // In tests of AlwaysDeny, a mutating entry refuses the probe, so the API server calls no validating configuration.
    // There, the validating one has no entry but the detector's, and so no effect: it isn't awaited.
    const mustBeInUse = ({ body }: (typeof announced)[number]) => code < 300 || body.webhooks.length > 1;
    return announced.filter(mustBeInUse).every(({ word }) => warnings.includes(word));
  });
};

/** Deletes webhook configurations, and waits until the API server no longer uses them. */
export const deleteTestWebhookConfigurations = async (
  admin: TestClusterClient,
  manifests: WebhookManifests,
  detector: ConfigurationUseDetector,
): Promise<void> => {
  for (const body of manifests) await admin({ method: "DELETE", path: getObjectApiPath(body) });
  await waitUntil("timed out: the API server still calls the deleted webhooks", async () => {
    const { code, warnings } = await detector.sendProbe(admin);
    const isGone = ({ kind, metadata }: WebhookManifests[number]) =>
      !warnings.some((word) => word.startsWith(`${kind}/${metadata.name}/`));
    return code === 201 && manifests.every(isGone);
  });
};

/** Waits until a condition is true. Throws this message if it isn't true after two minutes, or `milliseconds`. */
export const waitUntil = async (
  timeoutMessage: string,
  isDone: () => Promise<boolean> | boolean,
  milliseconds = 120_000,
): Promise<void> => {
  for (const end = Date.now() + milliseconds; Date.now() < end; await wait(50)) if (await isDone()) return;
  throw new Error(timeoutMessage);
};

/**
 * Repeats the request `probe` until `seen` reports that webhooks were called. The API server needs about a second
 * before it uses a new configuration.
 */
export const waitUntilWebhooksCalled = (probe: () => Promise<unknown>, seen: () => boolean): Promise<void> =>
  waitUntil("the API server did not call the webhooks", async () => {
    await probe();
    return seen();
  });
