import type { Listed } from "../catalogue/registry.ts";
import type { Manifest } from "../clusters/api.ts";
import type { Cluster } from "../config/config.ts";
import { configurations, ruleOf, type Webhook } from "../webhooks/configurations.ts";
import { roles } from "../webhooks/rbac.ts";

/** Where a stage's rules are served. */
export interface Endpoints {
  /** What a rule's URLs begin with. */
  base(rule: string): string;
  /** PEM, where the API server's own roots don't suffice. */
  ca?: string | undefined;
  /** Whose they are. */
  stage: string;
}

/** Says of what a cluster was told which stage told it. */
export const stageLabel = "postern.dev/stage";

/** Stands where a cluster's key would: what is kept and shown has no key. */
const placeholder = "{key}";

export const configurationName = "postern";

/** All that a cluster is told: roles, then webhook configurations, without its key. */
export const manifestsOf = (
  catalogue: Listed[],
  [name, cluster]: [string, Cluster],
  { base, ca, stage }: Endpoints,
  hardened: ReadonlySet<string>,
): Manifest[] =>
  [
    ...roles(catalogue, cluster, configurationName),
    ...configurations(catalogue, cluster, {
      name: configurationName,
      address: (rule, path) => `${base(rule)}/${name}.${placeholder}/${rule}/${path}`,
      ca,
      harden: (rule) => hardened.has(rule),
    }),
    // What these two make has the shape of a manifest.
  ].map((one) => labelled(one as Manifest, stage));

const labelled = (manifest: Manifest, stage: string): Manifest => {
  const { metadata } = manifest;
  return { ...manifest, metadata: { ...metadata, labels: { ...metadata.labels, [stageLabel]: stage } } };
};

/** The same with a cluster's key in its URLs; `segment` is the cluster and its key. */
export const withKey = (manifests: Manifest[], segment: string): Manifest[] => {
  const [cluster] = segment.split(".");
  return manifests.map((manifest) =>
    Array.isArray(manifest.webhooks)
      ? {
          ...manifest,
          webhooks: manifest.webhooks.map((webhook: Webhook) => {
            const url = webhook.clientConfig.url.replace(`/${cluster}.${placeholder}/`, `/${segment}/`);
            return { ...webhook, clientConfig: { ...webhook.clientConfig, url } };
          }),
        }
      : manifest,
  );
};

/** The entries among manifests. */
export const listEntries = (manifests: Manifest[]): Webhook[] =>
  manifests.flatMap(({ webhooks }) => (Array.isArray(webhooks) ? webhooks : []));

/** The rules and groups that manifests have entries for. */
export const listCalledRules = (manifests: Manifest[]): string[] => [
  ...new Set(listEntries(manifests).flatMap((webhook) => ruleOf(webhook) ?? [])),
];

/** Of the many entries that some rules have, one for each cluster and phase. */
export const selectOnePerPhase = (entries: Webhook[]): Webhook[] => [
  ...new Map(entries.map((one) => [one.clientConfig.url.replace(/\/(mutate|validate)\/[^/]+$/, "/$1"), one])).values(),
];
