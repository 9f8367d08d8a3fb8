import { knownMinors, newestKubernetes, oldestKubernetes, parseMinor } from "#lib/since.ts";
import { isEffectiveByDefault } from "./upstream-plugins.ts";

// What managed services have on. Users can't set the flags of their API servers.

export type ManagedService = "eks" | "gke" | "aks";

export const serviceNames: Readonly<Record<ManagedService, string>> = { eks: "EKS", gke: "GKE", aks: "AKS" };

/** Plugins that a managed service turns on beyond Kubernetes' defaults, as a page of its documentation says. */
interface PublishedFact {
  on: readonly string[];
  /** The minors of Kubernetes that the page is about; undefined if it names none. */
  minors?: readonly string[];
  /** Whether users can turn the plugins off, by an option of the service. */
  isOption?: boolean;
  page: string;
}

/** What managed services publish about their plugins; read in November 2026. */
const published: Readonly<Record<ManagedService, readonly PublishedFact[]>> = {
  eks: [
    {
      on: ["NodeRestriction", "ExtendedResourceToleration"],
      minors: ["1.33", "1.34", "1.35"],
      page: "https://docs.aws.amazon.com/eks/latest/userguide/platform-versions.html",
    },
  ],
  gke: [
    {
      on: ["DenyServiceExternalIPs"],
      isOption: true,
      page: "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster",
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
};

export const isManagedService = (text: string): text is ManagedService => Object.hasOwn(serviceNames, text);

/** Returns what a service publishes about one minor of Kubernetes. */
export const listPublishedFacts = (service: ManagedService, kubernetes: string): PublishedFact[] =>
  published[service].filter(({ minors }) => minors === undefined || minors.includes(kubernetes));

/** What is known of a cluster's API server without asking it about plugins. */
export interface ApiServerFacts {
  service?: ManagedService | undefined;
  kubernetes?: string | undefined;
}

/** The end of the host in an API server's address, by service; GKE's addresses usually have no name. */
const hosts: Readonly<Record<ManagedService, RegExp>> = {
  eks: /\.eks\.amazonaws\.com(\.cn)?$/,
  gke: /\.gke\.goog$/,
  aks: /\.azmk8s\.io$/,
};

/** Returns the service of a cluster by its `connect` in postern.yaml; undefined if that doesn't show it. */
export const findManagedService = ({
  eks,
  server,
}: {
  eks?: string | undefined;
  server?: string | undefined;
}): ManagedService | undefined => {
  if (eks !== undefined) return "eks";
  if (server === undefined || !URL.canParse(server)) return undefined;
  const { hostname } = new URL(server);
  return Object.keys(hosts)
    .filter(isManagedService)
    .find((service) => hosts[service].test(hostname));
};

const minors = Array.from(
  { length: parseMinor(newestKubernetes) - parseMinor(oldestKubernetes) + 1 },
  (_, index) => `1.${parseMinor(oldestKubernetes) + index}`,
);

/** Why a plugin is on in an API server. */
export interface ReasonToBeOn {
  /** Whether the service says so; otherwise a flag or an option can have turned the plugin off. */
  isSure: boolean;
  reason: string;
}

/** Returns why a plugin is on in an API server; undefined if nothing says so. An unknown minor may be any known one. */
export const findReasonToBeOn = (plugin: string, { service, kubernetes }: ApiServerFacts): ReasonToBeOn | undefined => {
  const possible = minors.filter((minor) => minor === kubernetes);
  const [all, version] = possible.length > 0 ? [possible, ` ${kubernetes}`] : [minors, ""];
  const fact =
    service &&
    published[service].find(
      ({ on, minors: own }) => on.includes(plugin) && all.every((minor) => own === undefined || own.includes(minor)),
    );
  if (fact)
    return {
      isSure: !fact.isOption,
      reason: `${serviceNames[service]}${version} has it on${fact.isOption ? " by default" : ""} (${fact.page})`,
    };
  if (!all.every((minor) => isEffectiveByDefault(plugin, minor))) return undefined;
  return { isSure: false, reason: `it is on by default in Kubernetes${version || ` ${knownMinors}`}` };
};

/** Reports whether an API server's `/version` can decide if a plugin is on. It doesn't show that a cluster is one of AKS. */
export const isDecidedByVersion = (plugin: string, { service, kubernetes }: ApiServerFacts): boolean => {
  const services = service === undefined ? [undefined, "eks" as const, "gke" as const] : [service];
  const answers = services.flatMap((one) =>
    (kubernetes === undefined ? minors : [kubernetes]).map(
      (minor) => findReasonToBeOn(plugin, { service: one, kubernetes: minor }) !== undefined,
    ),
  );
  return new Set(answers).size > 1;
};

/** Describes in which known minors of Kubernetes a service has a plugin on: `on`, `on from 1.35`; "-" for none. */
export const describeMinorsOfService = (plugin: string | undefined, service: ManagedService): string => {
  const found = minors.flatMap((kubernetes) => {
    const reason = plugin === undefined ? undefined : findReasonToBeOn(plugin, { service, kubernetes });
    return reason ? [kubernetes] : [];
  });
  const [first, last] = [found[0], found.at(-1)];
  if (plugin === undefined || first === undefined) return "-";
  const isOption = published[service].some(({ on, isOption }) => isOption && on.includes(plugin));
  if (found.length === minors.length) return isOption ? "on, unless turned off" : "on";
  if (last === newestKubernetes) return `on from ${first}`;
  return first === last ? `on in ${first}` : `on in ${first} to ${last}`;
};
