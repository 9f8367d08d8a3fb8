import type { CatalogueRule } from "../../catalogue/registry.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import type { ClusterConfig } from "../../config/config.ts";
import { getRuleNameOfEntry, type WebhookEntry } from "../../webhooks/configurations.ts";
import { buildClusterObjects } from "../../webhooks/objects.ts";

/** Where a cluster's webhook entries reach the functions of a stage. */
export interface RuleEndpoints {
  base(rule: string): string;
  /**
   * The CA certificates (PEM) by which an API server verifies the endpoints; undefined if its own root ones suffice.
   */
  ca?: string | undefined;
  /** The CA certificates (PEM) of the cluster's relay. */
  relayCa?: string | undefined;
  stage: string;
  /** The stage's partition, account, region and name, in one text. */
  identity: string;
}

const stageLabel = "postern.dev/stage";
/** The annotation of each object in a cluster that says which stage put it there, as `partition:account:region:stage`. */
export const identityAnnotation = "postern.dev/identity";

/** The text in place of a cluster's name and its key in manifests that are stored or shown. */
const segmentPlaceholder = "{cluster}.{key}";

export const webhookConfigurationName = "postern";

/**
 * Returns all objects that a cluster gets, roles first. The URLs have a placeholder for the cluster and its key, so that
 * clusters with the same rules have equal objects, which a release stores once.
 */
export const buildClusterManifests = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  endpoints: RuleEndpoints,
  hardened: ReadonlySet<string>,
): DeployedObject[] => {
  const known = built.get(catalogue) ?? new Map<string, DeployedObject[]>();
  built.set(catalogue, known);
  const { rules, groups, connect, service, policySupport } = cluster;
  const together = groups.map(({ name, members }) => [name, ...members.map((member) => member.name)]);
  const names = [...rules.keys(), ...groups.map(({ name }) => name)];
  const addresses = [endpoints.identity, endpoints.ca, service, endpoints.relayCa, names.map(endpoints.base)];
  const setup = [[...rules], together, Object.keys(connect ?? {}), policySupport];
  const key = JSON.stringify([setup, [...hardened].sort(), addresses]);
  const manifests = known.get(key) ?? buildManifests(catalogue, cluster, endpoints, hardened);
  known.set(key, manifests);
  return manifests;
};

/** The objects by what they are built from: many clusters have the same, and a fleet's take long to build. */
const built = new WeakMap<CatalogueRule[], Map<string, DeployedObject[]>>();

const buildManifests = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  { base, ca, relayCa, stage, identity }: RuleEndpoints,
  hardened: ReadonlySet<string>,
): DeployedObject[] =>
  buildClusterObjects(catalogue, cluster, {
    name: webhookConfigurationName,
    address: (rule, path) => `${base(rule)}/${segmentPlaceholder}/${rule}/${path}`,
    ca,
    relayCa,
    harden: (rule) => hardened.has(rule),
    // The cast is safe: the function returns only objects of the kinds of DeployedObject.
  }).map((object) => addOwner(object as DeployedObject, stage, identity));

const addOwner = (manifest: DeployedObject, stage: string, identity: string): DeployedObject => {
  const { metadata } = manifest;
  const labels = { ...metadata.labels, [stageLabel]: stage };
  const annotations = { ...metadata.annotations, [identityAnnotation]: identity };
  return { ...manifest, metadata: { ...metadata, labels, annotations } };
};

/** Returns the manifests with a cluster's key in the webhooks' URLs; `segment` is the cluster's name and its key. */
export const insertKeyIntoUrls = (manifests: DeployedObject[], segment: string): DeployedObject[] =>
  manifests.map((manifest) =>
    Array.isArray(manifest.webhooks)
      ? {
          ...manifest,
          webhooks: manifest.webhooks.map((webhook: WebhookEntry) => {
            // A function returns the segment, because a text like $& in it would have a meaning.
            const url = webhook.clientConfig.url.replace(`/${segmentPlaceholder}/`, () => `/${segment}/`);
            return { ...webhook, clientConfig: { ...webhook.clientConfig, url } };
          }),
        }
      : manifest,
  );

/** Returns the webhook entries of all webhook configurations among these objects. */
export const listEntries = (manifests: Record<string, unknown>[]): WebhookEntry[] =>
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
