import { type EndpointConfig, findClusterSetup } from "#lib/core/endpoint.ts";
import type { Phase } from "#lib/rule.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import { listRulesCalledByEntries } from "../../clusters/apply.ts";
import type { WebhookEntry } from "../../webhooks/configurations.ts";
import type { ReleasedCluster, ReleasedRule } from "./releases.ts";

/** What is known of a Lambda version that answers webhook calls. */
export interface AnsweringLambdaVersion {
  phases: Phase[]; // the webhooks that it answers: those that mutate, those that validate, or both
  /** The config with which the version was built. */
  config: EndpointConfig;
}

/** Returns what decides which calls a version answers: its phases, and its config (its `share` of postern.yaml). */
export const toAnsweringVersion = ({ phases, share }: ReleasedRule): AnsweringLambdaVersion => ({
  phases,
  config: share,
});

/** A webhook entry that the version of its rule would not answer, and why. */
export interface OrphanedWebhookEntry {
  entry: string;
  phase: Phase;
  /** The end of a sentence that begins with the version, such as "doesn't mutate". */
  why: string;
  /** True if the version doesn't accept the cluster's key, so none of the cluster's entries for it gets an answer. */
  isKeyRefused: boolean;
}

/** Returns a cluster's entries that these versions would not answer. Skips rules that are not in `served`. */
export const findOrphanedEntries = (
  cluster: string,
  { manifests, keyVersion }: ReleasedCluster,
  served: ReadonlyMap<string, AnsweringLambdaVersion>,
): OrphanedWebhookEntry[] =>
  listRulesCalledByEntries(manifests).flatMap(({ rule, variant, phase }): OrphanedWebhookEntry[] => {
    const version = served.get(rule);
    if (version === undefined) return [];
    const entry = variant === undefined ? rule : `${variant}.${rule}`;
    const toOrphan = (why: string, { isKeyRefused = false } = {}) => [{ entry, phase, why, isKeyRefused }];
    const { config } = version;
    const { variants: usualVariants = {} } = config;
    const setup = findClusterSetup(config, cluster);
    if (setup === undefined || setup.keyVersions.length === 0)
      return toOrphan(`doesn't know cluster ${cluster}`, { isKeyRefused: true });
    if (!setup.keyVersions.includes(keyVersion))
      return toOrphan(`doesn't accept its key of version ${keyVersion}`, { isKeyRefused: true });
    if (setup.mode === "off") return []; // a rule that is off allows every request that has an accepted key
    if (!version.phases.includes(phase)) return toOrphan(`doesn't ${phase}`);
    const hasVariant = variant === undefined || Object.hasOwn(setup.variants ?? usualVariants, variant);
    return hasVariant ? [] : toOrphan(`has no variant ${variant}`);
  });

/**
 * Returns manifests without these webhook entries. A webhook configuration that loses all its entries stays as an empty
 * one: a user who only applies files would otherwise keep the old one in the cluster.
 */
export const removeOrphanedEntries = (manifests: DeployedObject[], orphans: OrphanedWebhookEntry[]): DeployedObject[] =>
  manifests.map((manifest) => {
    if (!Array.isArray(manifest.webhooks)) return manifest;
    const phase = manifest.kind === "MutatingWebhookConfiguration" ? "mutate" : "validate";
    const orphanedNames = new Set(
      orphans.filter((orphan) => orphan.phase === phase).map(({ entry }) => `${entry}.postern.dev`),
    );
    return { ...manifest, webhooks: manifest.webhooks.filter(({ name }: WebhookEntry) => !orphanedNames.has(name)) };
  });
