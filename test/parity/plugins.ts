import { readFileSync } from "node:fs";
import { parse } from "yaml";
import type { Rule, UpstreamPlugin } from "#lib/rule.ts";
import { mergeSince, type Since } from "#lib/since.ts";
import type { CatalogueRule } from "../../infra/catalogue/registry.ts";
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
  /** The policies in CEL that the plugin and the port evaluate: the plugin those of its cluster, the port its settings'. */
  policies?: "validating" | "mutating";
}

/** What the comparisons need, by the plugin's name; `since` has the members that differ from a minor of Kubernetes on. */
export const comparisonConfigs: Record<string, PortComparisonConfig & { since?: Since<PortComparisonConfig> }> = parse(
  readFileSync(new URL("plugins.yaml", import.meta.url), "utf8"),
);

/** Returns what the comparison of a plugin needs in a minor of Kubernetes. */
export const getComparisonConfig = (plugin: string, minor: string): PortComparisonConfig => {
  const { since, ...config } = comparisonConfigs[plugin] ?? {};
  return mergeSince({ "1.0": config, ...since }, minor);
};

/**
 * Returns kube-apiserver's flags that enable the APIs of all objects in comparisons. The flags of a plugin whose rule
 * needs other settings with them are left out.
 */
export const listParityObjectFlags = (minor: string): string[] => {
  const configs = Object.keys(comparisonConfigs).map((plugin) => getComparisonConfig(plugin, minor));
  return [...new Set(configs.flatMap(({ flags, settings }) => (settings || !flags ? [] : flags)))];
};
