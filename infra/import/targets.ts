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
  /** The plugins that are on although Kubernetes has them off by default. */
  on: ReadonlySet<string>;
  /** Where it is known from which plugins are on. */
  source: string;
}

/** Returns the target of `--target`: a minor of Kubernetes, with the name of a managed service before it or not. */
export const parseTarget = (text: string): ImportTarget => {
  const [, service, kubernetes = ""] = /^(?:([a-z]+)-)?(\d+\.\d+)$/.exec(text) ?? [];
  if (!isFit(minorShape, kubernetes) || (service !== undefined && !isManagedService(service)))
    throw new Complaint(
      `--target takes a minor of Kubernetes from 1.33 on, with one of ${Object.keys(serviceNames).join(", ")} before it or not, such as eks-1.35 or 1.35, not "${text}"`,
    );
  return describeTarget(service, kubernetes);
};

const describeTarget = (service: ManagedService | undefined, kubernetes: string): ImportTarget => {
  const name = service === undefined ? `Kubernetes ${kubernetes}` : `${service}-${kubernetes}`;
  const all = service === undefined ? [] : listPublishedFacts(service, kubernetes);
  // A rule is there for a plugin that the cluster may have turned off.
  const facts = all.filter(({ isOption }) => !isOption);
  const known = facts.map(({ on, page }) => `, and ${on.join(", ")} (${page})`).join("");
  const unknown = service !== undefined && facts.length === 0 ? `; what ${name} turns on besides isn't known here` : "";
  return {
    name,
    kubernetes,
    on: new Set(facts.flatMap(({ on }) => on)),
    source: `the plugins that Kubernetes ${kubernetes} has on by default${known}${unknown}`,
  };
};

/** What `readLiveTarget` asks of a cluster. */
type AskedCluster = Pick<ClusterApi, "cluster" | "read" | "readText">;

/**
 * Returns what is known of a running cluster. No API says which plugins are on. The metrics have those that the API
 * server has called since its start, so that a plugin without a metric may be on, too.
 */
export const readLiveTarget = async (cluster: AskedCluster): Promise<ImportTarget> => {
  const { minor: kubernetes, service } = await readClusterVersion(cluster);
  const target = describeTarget(service, kubernetes);
  const called = await listCalledPlugins(cluster).catch(requireComplaint);
  if (called instanceof Complaint) return { ...target, source: `${target.source}; ${called.message}` };
  const further = called.filter((plugin) => !isOnInTarget(plugin, target));
  const source = further.length > 0 ? `${target.source}, and ${further.join(", ")} (/metrics)` : target.source;
  return { ...target, on: new Set([...target.on, ...further]), source };
};

/** A plugin behind a gate may have been called and done nothing. */
const listCalledPlugins = async (cluster: AskedCluster): Promise<string[]> => {
  const series = /^apiserver_admission_controller_admission_duration_seconds_count\{(?:.*,)?name="(\w+)"/gm;
  const called = new Set([...(await cluster.readText("/metrics")).matchAll(series)].map(([, name]) => name));
  return Object.entries(compiledInPlugins).flatMap(([name, { gate }]) => (called.has(name) && !gate ? [name] : []));
};

/** Reports whether a plugin is on in the target, and has an effect. */
export const isOnInTarget = (plugin: string, { kubernetes, on }: ImportTarget): boolean =>
  on.has(plugin) || isEffectiveByDefault(plugin, kubernetes);
