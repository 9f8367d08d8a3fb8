import { readFileSync } from "node:fs";
import { parse } from "yaml";
import type { Rule, UpstreamPlugin } from "#lib/rule.ts";
import { mergeSince, type Since } from "#lib/since.ts";
import type { CatalogueRule } from "../../infra/catalogue/registry.ts";
import type { ScenarioName } from "./generators/scenarios.ts";

/** A rule that reimplements an admission plugin. */
export type PluginPort = CatalogueRule & { rule: Rule & { upstreamPlugin: UpstreamPlugin<object> } };

/** Returns the rules that reimplement a plugin. */
export const listRulesThatReplacePlugins = (catalogue: CatalogueRule[]): PluginPort[] =>
  catalogue.filter((listed): listed is PluginPort => listed.rule.upstreamPlugin !== undefined);

/** The configuration of the two API servers for the comparison of a plugin with its rule. */
export interface ComparisonConfig {
  /**
   * The weights of namespaces in the random choice of objects' namespaces. `default` has the weight 2. `own` stands for
   * a namespace that only one sequence of requests uses, and that doesn't exist at first.
   */
  namespaces?: Record<string, number>;
  scenarios?: readonly ScenarioName[];
  /**
   * True if all other plugins are off. The API server calls webhooks late: after the compared plugin come the other
   * plugins, then the rule. If another plugin refuses or changes an object, the answers differ only for this reason.
   */
  otherPluginsOff?: true;
  /** With `otherPluginsOff`: further admission plugins that are on. */
  keptPlugins?: readonly string[];
  /** Additional command-line flags of both kube-apiservers. */
  flags?: readonly string[];
  /** True if the API servers use RBAC. Otherwise, each user has all rights. */
  rbac?: true;
  /** The settings of plugin and rule. Needed if the rule's default settings leave too much untested. */
  settings?: object;
  /** The first fields of the plugin's configuration file, before the settings. Without it, the plugin has no file. */
  configuration?: { apiVersion?: string; kind?: string };
  /** True if the plugin and the rule ask a backend about images, as ImagePolicyWebhook does. */
  imageBackend?: true;
  /** The kind of policies that are evaluated. The plugin reads them from its cluster, the rule from its settings. */
  policies?: "validating" | "mutating";
}

/** How each plugin is compared with its rule. `since` has what changes with a minor version of Kubernetes. */
export const comparisonConfigs: Record<string, ComparisonConfig & { since?: Since<ComparisonConfig> }> = parse(
  readFileSync(new URL("plugins.yaml", import.meta.url), "utf8"),
);

/** Returns the configuration for the comparison of a plugin in a minor version of Kubernetes. */
export const getComparisonConfig = (plugin: string, minor: string): ComparisonConfig => {
  const { since, ...config } = comparisonConfigs[plugin] ?? {};
  return mergeSince({ "1.0": config, ...since }, minor);
};

/**
 * Returns the flags of kube-apiserver that enable the APIs of all objects in comparisons. If a plugin has `settings` in
 * plugins.yaml, its flags are left out: they may change more than the APIs.
 */
export const listParityObjectFlags = (minor: string): string[] => {
  const configs = Object.keys(comparisonConfigs).map((plugin) => getComparisonConfig(plugin, minor));
  return [...new Set(configs.flatMap(({ flags, settings }) => (settings || !flags ? [] : flags)))];
};
