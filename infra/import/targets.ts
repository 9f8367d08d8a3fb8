import { toMap } from "#lib/json.ts";
import { compiledInPlugins, isEffectiveByDefault } from "../catalogue/upstream-plugins.ts";
import { Complaint, requireComplaint } from "../cli/complaint.ts";
import { isFit, minorShape } from "../cli/shape.ts";
import type { ClusterApi } from "../clusters/api.ts";
import { readClusterMinor } from "../clusters/version.ts";

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

/** Plugins that a managed service turns on beyond the defaults, as a page of its documentation says. */
interface PublishedFact {
  on: readonly string[];
  /** The minors of Kubernetes that the page is about; undefined if it names none. */
  minors?: readonly string[];
  page: string;
}

/** What managed services publish about their plugins; read in November 2026. */
const services: Readonly<Record<string, readonly PublishedFact[]>> = {
  eks: [
    {
      on: ["NodeRestriction", "ExtendedResourceToleration"],
      minors: ["1.33", "1.34", "1.35"],
      page: "https://docs.aws.amazon.com/eks/latest/userguide/platform-versions.html",
    },
  ],
  aks: [
    {
      on: ["PodNodeSelector", "PodTolerationRestriction", "ExtendedResourceToleration"],
      page: "https://learn.microsoft.com/en-us/azure/aks/faq",
    },
    {
      on: ["NodeRestriction"],
      minors: ["1.33", "1.34"],
      page: "https://learn.microsoft.com/en-us/azure/aks/cis-kubernetes",
    },
  ],
  gke: [],
};

/** Returns the target of `--target`: a minor of Kubernetes, with the name of a managed service before it or not. */
export const parseTarget = (text: string): ImportTarget => {
  const [, service, kubernetes = ""] = /^(?:([a-z]+)-)?(\d+\.\d+)$/.exec(text) ?? [];
  const known = Object.keys(services);
  if (!isFit(minorShape, kubernetes) || (service !== undefined && !known.includes(service)))
    throw new Complaint(
      `--target takes a minor of Kubernetes from 1.33 on, with one of ${known.join(", ")} before it or not, such as eks-1.35 or 1.35, not "${text}"`,
    );
  return describeTarget(service, kubernetes);
};

const describeTarget = (service: string | undefined, kubernetes: string): ImportTarget => {
  const name = service === undefined ? `Kubernetes ${kubernetes}` : `${service}-${kubernetes}`;
  const all = service === undefined ? [] : (services[service] ?? []);
  const facts = all.filter(({ minors }) => minors === undefined || minors.includes(kubernetes));
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
  const kubernetes = await readClusterMinor(cluster);
  const { gitVersion } = toMap(await cluster.read("/version"));
  const [, service] = /[-+](eks|gke)\b/.exec(String(gitVersion)) ?? [];
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
