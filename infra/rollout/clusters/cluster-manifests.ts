import type { CatalogueRule } from "../../catalogue/registry.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import type { ClusterConfig } from "../../config/config.ts";
import { getRuleNameOfEntry, type WebhookEntry } from "../../webhooks/configurations.ts";
import { buildClusterObjects } from "../../webhooks/objects.ts";

/** Where a cluster's webhook entries reach the functions of a stage. */
export interface RuleEndpoints {
  /** Returns the base URL of a rule's function. */
  base(rule: string): string;
  /** The CA certificates (PEM) by which an API server verifies the endpoints; undefined if a public CA signed them. */
  ca?: string | undefined;
  /**
   * The CA certificates (PEM) of the relay: the proxy in the cluster that passes reviews on to the functions. Undefined
   * if the cluster has no relay.
   */
  relayCa?: string | undefined;
  stage: string;
  /** The stage's partition, account, region and name, in one string. */
  identity: string;
}

const stageLabel = "postern.dev/stage";
/** The annotation with the stage that has created an object in a cluster, as `partition:account:region:stage`. */
export const identityAnnotation = "postern.dev/identity";

/** The text in place of a cluster's name and its key in manifests that are stored or shown. */
const segmentPlaceholder = "{cluster}.{key}";

export const webhookConfigurationName = "postern";

/**
 * Returns all objects for a cluster, RBAC roles first. Entries of `failClosedRules` get failurePolicy Fail. URLs have a
 * placeholder for the cluster's name and key, so clusters with the same rules have equal objects, which are built once.
 */
export const buildClusterManifests = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  endpoints: RuleEndpoints,
  failClosedRules: ReadonlySet<string>,
): DeployedObject[] => {
  const builtObjects = objectsByCatalogue.get(catalogue) ?? new Map<string, DeployedObject[]>();
  objectsByCatalogue.set(catalogue, builtObjects);
  const { rules, groups, connect, service, policySupport } = cluster;
  const groupMembers = groups.map(({ name, members }) => [name, ...members.map((member) => member.name)]);
  const names = [...rules.keys(), ...groups.map(({ name }) => name)];
  const addresses = [endpoints.identity, endpoints.ca, service, endpoints.relayCa, names.map(endpoints.base)];
  const connectFields = Object.keys(connect ?? {}); // The objects depend on which fields are set, not on values.
  const setup = [[...rules], groupMembers, connectFields, policySupport];
  const key = JSON.stringify([setup, [...failClosedRules].sort(), addresses]);
  const manifests = builtObjects.get(key) ?? buildManifests(catalogue, cluster, endpoints, failClosedRules);
  builtObjects.set(key, manifests);
  return manifests;
};

/** Built objects, by the JSON of what they are built from. Clusters have equal objects, and to build them is slow. */
const objectsByCatalogue = new WeakMap<CatalogueRule[], Map<string, DeployedObject[]>>();

/** Returns a cluster's objects. Their URLs have a placeholder in place of the cluster's name and its secret key. */
const buildManifests = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  { base, ca, relayCa, stage, identity }: RuleEndpoints,
  failClosedRules: ReadonlySet<string>,
): DeployedObject[] =>
  buildClusterObjects(catalogue, cluster, {
    name: webhookConfigurationName,
    address: (rule, path) => `${base(rule)}/${segmentPlaceholder}/${rule}/${path}`,
    ca,
    relayCa,
    harden: (rule) => failClosedRules.has(rule), // the entries of these rules get failurePolicy Fail
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
            // The replacement is a function, because in a replacement string, `$&` would stand for the match.
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

/** Keeps one webhook entry for each rule and phase, also if the rule has several variants with an entry each. */
export const dropVariantEntries = (entries: WebhookEntry[]): WebhookEntry[] => {
  // The URL of a variant ends in /validate/VARIANT or /mutate/VARIANT.
  const removeVariant = (url: string) => url.replace(/\/(mutate|validate)\/[^/]+$/, "/$1");
  return [...new Map(entries.map((entry) => [removeVariant(entry.clientConfig.url), entry])).values()];
};
