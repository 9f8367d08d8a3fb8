import type { CatalogueRule } from "../catalogue/registry.ts";
import type { DeployedObject } from "../clusters/api.ts";
import type { ClusterConfig } from "../config/config.ts";
import { buildWebhookConfigurations, getRuleNameOfEntry, type WebhookEntry } from "../webhooks/configurations.ts";
import { buildFunctionRbacObjects } from "../webhooks/rbac.ts";

/** Where a cluster's webhook entries reach the functions of a stage. */
export interface RuleEndpoints {
  base(rule: string): string;
  /**
   * The CA certificates (PEM) by which an API server verifies the endpoints; undefined if its own root ones suffice.
   */
  ca?: string | undefined;
  stage: string;
}

export const stageLabel = "postern.dev/stage";

/** The text that replaces a cluster's URL key in manifests that are stored or shown. */
const placeholder = "{key}";

export const webhookConfigurationName = "postern";

/** Returns all objects that a cluster gets, roles first; the URLs have a placeholder for the cluster's key. */
export const buildClusterManifests = (
  catalogue: CatalogueRule[],
  [name, cluster]: [string, ClusterConfig],
  { base, ca, stage }: RuleEndpoints,
  hardened: ReadonlySet<string>,
): DeployedObject[] =>
  [
    ...buildFunctionRbacObjects(catalogue, cluster, webhookConfigurationName),
    ...buildWebhookConfigurations(catalogue, cluster, {
      name: webhookConfigurationName,
      address: (rule, path) => `${base(rule)}/${name}.${placeholder}/${rule}/${path}`,
      ca,
      harden: (rule) => hardened.has(rule),
    }),
    // The cast is safe: buildRoles and buildConfigurations return only objects of the kinds of DeployedObject.
  ].map((object) => addLabel(object as DeployedObject, stage));

const addLabel = (manifest: DeployedObject, stage: string): DeployedObject => {
  const { metadata } = manifest;
  return { ...manifest, metadata: { ...metadata, labels: { ...metadata.labels, [stageLabel]: stage } } };
};

/** Returns the manifests with a cluster's key in the webhooks' URLs; `segment` is the cluster's name and its key. */
export const insertKeyIntoUrls = (manifests: DeployedObject[], segment: string): DeployedObject[] => {
  const [cluster] = segment.split(".");
  return manifests.map((manifest) =>
    Array.isArray(manifest.webhooks)
      ? {
          ...manifest,
          webhooks: manifest.webhooks.map((webhook: WebhookEntry) => {
            const url = webhook.clientConfig.url.replace(`/${cluster}.${placeholder}/`, `/${segment}/`);
            return { ...webhook, clientConfig: { ...webhook.clientConfig, url } };
          }),
        }
      : manifest,
  );
};

/** Returns the webhook entries of all webhook configurations among these objects. */
export const listEntries = (manifests: DeployedObject[]): WebhookEntry[] =>
  manifests.flatMap(({ webhooks }) => (Array.isArray(webhooks) ? webhooks : []));

/** Returns the names of the rules and groups that the webhook entries in these objects call. */
export const listCalledRules = (manifests: DeployedObject[]): string[] => [
  ...new Set(listEntries(manifests).flatMap((webhook) => getRuleNameOfEntry(webhook) ?? [])),
];

/** Keeps one webhook entry for each rule, cluster and phase; the entries of further variants are left out. */
export const dropVariantEntries = (entries: WebhookEntry[]): WebhookEntry[] => [
  ...new Map(
    entries.map((entry) => [entry.clientConfig.url.replace(/\/(mutate|validate)\/[^/]+$/, "/$1"), entry]),
  ).values(),
];
