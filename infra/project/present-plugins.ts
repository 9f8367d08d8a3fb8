import { isSame } from "#lib/json.ts";
import type { Rule } from "#lib/rule.ts";
import { mergeWithDefaults, typeMetaKeys } from "#lib/settings.ts";
import {
  type ApiServerFacts,
  findManagedService,
  findReasonToBeOn,
  isVersionNeeded,
  type ReasonToBeOn,
} from "../catalogue/managed-services.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig, RuleConfig } from "../config/config.ts";
import { shortenList } from "./setup-differences.ts";

/** A rule that is on in clusters whose API servers have the rule's upstream plugin on, too. */
export interface PresentPlugin {
  rule: string;
  plugin: string;
  /** The group that has the rule. */
  group?: string;
  clusters: (ReasonToBeOn & {
    cluster: string;
    /** The names of settings that differ from the plugin's. */
    settings: string[];
  })[];
}

interface KnownCluster {
  name: string;
  cluster: Pick<ClusterConfig, "rules" | "groups">;
  facts: ApiServerFacts;
}

/** Finds rules whose plugin is on, or probably on, in an API server that calls the rule. */
export const findPresentPlugins = (
  catalogue: readonly CatalogueRule[],
  clusters: readonly KnownCluster[],
): PresentPlugin[] =>
  catalogue.flatMap(({ name, rule }) => {
    const { plugin = "" } = rule.upstreamPlugin ?? {};
    const found = clusters.flatMap(({ name: cluster, cluster: { rules }, facts }) => {
      const config = rules.get(name);
      const reason = findReasonToBeOn(plugin, facts);
      if (config === undefined || !doesWorkOfPlugin(rule, config) || reason === undefined) return [];
      return [{ cluster, ...reason, settings: listOwnSettings(rule, config.settings) }];
    });
    if (found.length === 0) return [];
    const groups = clusters.flatMap(({ cluster }) => cluster.groups);
    const group = groups.find(({ members }) => members.some((member) => member.name === name))?.name;
    return [{ rule: name, plugin, ...(group !== undefined && { group }), clusters: found }];
  });

/** Reports whether a cluster must be asked for its `/version` to find out if the plugin of one of its rules is on. */
export const hasPluginDependingOnVersion = (
  catalogue: readonly CatalogueRule[],
  cluster: Pick<ClusterConfig, "rules" | "connect" | "kubernetes">,
): boolean =>
  catalogue.some(({ name, rule }) => {
    const config = cluster.rules.get(name);
    const { plugin = "" } = rule.upstreamPlugin ?? {};
    return config !== undefined && doesWorkOfPlugin(rule, config) && isVersionNeeded(plugin, getStatedFacts(cluster));
  });

/** Returns service and minor version of a cluster's API server, from postern.yaml. */
export const getStatedFacts = ({
  connect = {},
  kubernetes,
}: Pick<ClusterConfig, "connect" | "kubernetes">): ApiServerFacts => {
  return { service: findManagedService(connect), kubernetes };
};

/**
 * Reports whether a rule that is on does what its plugin does. A rule that reads policies in `manifests` for its
 * settings doesn't: the plugin evaluates the policies in the cluster.
 */
const doesWorkOfPlugin = ({ upstreamPlugin, manifests }: Rule, { mode }: RuleConfig): boolean =>
  mode !== "off" && upstreamPlugin !== undefined && manifests === undefined;

/** Returns the names of settings that differ from the rule's defaults and from the plugin's. */
const listOwnSettings = ({ settings: defaults = {}, upstreamPlugin }: Rule, settings: object): string[] => {
  const upstream = mergeWithDefaults(defaults, upstreamPlugin?.settings);
  return Object.entries(settings).flatMap(([key, value]) => {
    const isUpstream = [defaults, upstream].some((usual) => isSame(Reflect.get(usual, key), value));
    return isUpstream || typeMetaKeys.includes(key) ? [] : [key];
  });
};

/** Returns lines about rules whose plugins are on in API servers, with the costs of each rule or of its group. */
export const formatPresentPlugins = (
  found: readonly PresentPlugin[],
  describeCosts: (rule: string) => string,
): string[] => {
  if (found.length === 0) return [];
  const lines = found.flatMap(({ rule, plugin, group, clusters }) => {
    const costs = describeCosts(group ?? rule);
    const byReason = Map.groupBy(clusters, ({ isSure, reason, settings }) => {
      const settingsNote = settings.length === 0 ? "" : `; the rule has settings of its own: ${settings.join(", ")}`;
      return [isSure ? "is on" : "is probably on", `${reason}${settingsNote}`].join("\n");
    });
    return [
      `  ${rule}: ${group === undefined ? "" : `in the group ${group}, `}${costs}`,
      ...[...byReason].map(([key, sameReason]) => {
        const [state, reason] = key.split("\n");
        return `    ${plugin} ${state} in ${shortenList(sameReason.map(({ cluster }) => cluster))}: ${reason}`;
      }),
    ];
  });
  return [
    "rules that an API server may not need, because it has their plugin on (npx postern explain RULE says what else they do)",
    ...lines,
  ];
};
