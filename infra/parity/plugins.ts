import { readFileSync } from "node:fs";
import { parse } from "yaml";
import type { Rule, UpstreamPlugin } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ScenarioName } from "./generators/scenarios.ts";

export type PluginPort = CatalogueRule & { rule: Rule & { upstreamPlugin: UpstreamPlugin<object> } };

/** Returns the rules that are ports of a plugin. */
export const listPluginPorts = (catalogue: CatalogueRule[]): PluginPort[] =>
  catalogue.filter((listed): listed is PluginPort => listed.rule.upstreamPlugin !== undefined);

/** What a plugin and its port need to be compared. Both API servers get the same. */
export interface PortComparisonConfig {
  /**
   * Weights in the random choice of the objects' namespaces; `default` has 2. `own` stands for a namespace of the
   * sequence, which doesn't exist at first.
   */
  namespaces?: Record<string, number>;
  scenarios?: readonly ScenarioName[];
  /**
   * Set if all other plugins are off. The API server calls webhooks after most plugins. A plugin that refuses or
   * changes the same objects would come after the compared plugin and before the port, and only their order would
   * differ.
   */
  alone?: true;
  /** Admission plugins that stay on although all others but the compared one are off. */
  keptPlugins?: readonly string[];
  /** Command-line flags that both kube-apiservers of this plugin's comparison get beside the usual ones. */
  flags?: readonly string[];
  /** True if the compared API servers use RBAC; without it, every user has every right. */
  rbac?: true;
  /** Settings of plugin and rule in the comparison, if the rule's default settings would leave too much untested. */
  settings?: object;
  /** The first fields of the plugin's configuration file, before the settings; without it, the plugin has no file. */
  configuration?: { apiVersion?: string; kind?: string };
  /** True if the plugin and the port ask a webhook backend about images, as ImagePolicyWebhook does. */
  imageBackend?: true;
}

/** The plugins that are compared, each with what the comparison needs, by the plugin's name. */
export const comparisonConfigs: Record<string, PortComparisonConfig> = parse(
  readFileSync(new URL("plugins.yaml", import.meta.url), "utf8"),
);

/** The kube-apiserver flags that enable the APIs of all objects of the generated surroundings. */
export const apiserverFlagsForParityObjects: readonly string[] = [
  "PodGroupProtection",
  "ClusterTrustBundleAttest",
].flatMap((plugin) => comparisonConfigs[plugin]?.flags ?? []);
