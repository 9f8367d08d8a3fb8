import {
  isManagedService,
  listPublishedFacts,
  type ManagedService,
  serviceNames,
} from "../catalogue/managed-services.ts";
import { compiledInPlugins, isEffectiveByDefault } from "../catalogue/upstream-plugins.ts";
import { Complaint, requireComplaint } from "../cli/complaint.ts";
import { isFit, minorShape } from "../cli/shape.ts";
import type { ClusterApi } from "../clusters/api.ts";
import { readClusterVersion } from "../clusters/version.ts";

/** The cluster that gets the rules. */
export interface ImportTarget {
  /** The target in messages, such as `eks-1.35`. */
  name: string;
  kubernetes: string;
  /** The plugins that are on in the target but off by default in Kubernetes. */
  additionalPlugins: ReadonlySet<string>;
  /** A phrase for the imported postern.yaml: which plugins are on, with the pages that document this. */
  pluginSummary: string;
}

/** Parses a value of `--target`, such as `1.35` or, with the name of a managed service, `eks-1.35`. */
export const parseTarget = (text: string): ImportTarget => {
  const [, service, kubernetes = ""] = /^(?:([a-z]+)-)?(\d+\.\d+)$/.exec(text) ?? [];
  if (!isFit(minorShape, kubernetes) || (service !== undefined && !isManagedService(service)))
    throw new Complaint(
      `--target takes a minor of Kubernetes from 1.33 on, with one of ${Object.keys(serviceNames).join(", ")} before it or not, such as eks-1.35 or 1.35, not "${text}"`,
    );
  return describeTarget(service, kubernetes);
};

/** Describes the clusters of a managed service as a target, or without a service, those of Kubernetes itself. */
const describeTarget = (service: ManagedService | undefined, kubernetes: string): ImportTarget => {
  const name = service === undefined ? `Kubernetes ${kubernetes}` : `${service}-${kubernetes}`;
  const publishedFacts = service === undefined ? [] : listPublishedFacts(service, kubernetes);
  // A plugin that clusters can turn off doesn't count as on, so that it gets a rule.
  const facts = publishedFacts.filter(({ canBeTurnedOff }) => !canBeTurnedOff);
  const publishedPart = facts.map(({ on, page }) => `, and ${on.join(", ")} (${page})`).join("");
  const unknownPart =
    service !== undefined && facts.length === 0 ? `; what ${name} turns on besides isn't known here` : "";
  return {
    name,
    kubernetes,
    additionalPlugins: new Set(facts.flatMap(({ on }) => on)),
    pluginSummary: `the plugins that Kubernetes ${kubernetes} has on by default${publishedPart}${unknownPart}`,
  };
};

/** The part of a cluster's API that `readLiveTarget` uses. */
type ReadableCluster = Pick<ClusterApi, "cluster" | "read" | "readText">;

/**
 * Returns a running cluster as a target. No API lists the plugins that are on. The metrics contain the plugins that the
 * API server has called since its start. A plugin without a metric may also be on.
 */
export const readLiveTarget = async (cluster: ReadableCluster): Promise<ImportTarget> => {
  const { minor: kubernetes, service } = await readClusterVersion(cluster);
  const target = describeTarget(service, kubernetes);
  const calledPlugins = await listCalledPlugins(cluster).catch(requireComplaint);
  if (calledPlugins instanceof Complaint)
    return { ...target, pluginSummary: `${target.pluginSummary}; ${calledPlugins.message}` };
  const otherPlugins = calledPlugins.filter((plugin) => !isOnInTarget(plugin, target));
  if (otherPlugins.length === 0) return target;
  return {
    ...target,
    additionalPlugins: new Set([...target.additionalPlugins, ...otherPlugins]),
    pluginSummary: `${target.pluginSummary}, and ${otherPlugins.join(", ")} (/metrics)`,
  };
};

/** Plugins that need a feature gate are left out: the API server calls them even if the gate is off. */
const listCalledPlugins = async (cluster: ReadableCluster): Promise<string[]> => {
  const metricPattern = /^apiserver_admission_controller_admission_duration_seconds_count\{(?:.*,)?name="(\w+)"/gm;
  const called = new Set([...(await cluster.readText("/metrics")).matchAll(metricPattern)].map(([, name]) => name));
  return Object.entries(compiledInPlugins).flatMap(([name, { gate }]) => (called.has(name) && !gate ? [name] : []));
};

/** Reports whether a plugin is on in the target, and has an effect. */
export const isOnInTarget = (plugin: string, { kubernetes, additionalPlugins }: ImportTarget): boolean =>
  additionalPlugins.has(plugin) || isEffectiveByDefault(plugin, kubernetes);
