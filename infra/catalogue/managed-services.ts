import { newestKubernetes } from "#lib/since.ts";
import { knownMinors, minors } from "../cli/minors.ts";
import { isEffectiveByDefault } from "./upstream-plugins.ts";

// This file says which admission plugins are on in managed services. Users can't set the flags of these API servers.

export type ManagedService = "eks" | "gke" | "aks";

export const serviceNames: Readonly<Record<ManagedService, string>> = { eks: "EKS", gke: "GKE", aks: "AKS" };

/** Plugins that a managed service turns on beyond Kubernetes' defaults, as a page of its documentation says. */
interface PublishedFact {
  on: readonly string[];
  /** The minor versions of Kubernetes for which the page says so; undefined if it names no versions. */
  minors?: readonly string[];
  /** True if the service has an option that turns the plugins off. */
  canBeTurnedOff?: boolean;
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
      canBeTurnedOff: true,
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

/** Returns what a service publishes about one minor version of Kubernetes. */
export const listPublishedFacts = (service: ManagedService, kubernetes: string): PublishedFact[] =>
  published[service].filter(({ minors }) => minors === undefined || minors.includes(kubernetes));

/** What is known of an API server, to find out which admission plugins are on in it. */
export interface ApiServerFacts {
  service?: ManagedService | undefined;
  kubernetes?: string | undefined;
}

/** The end of the host name in an API server's address, by service. Addresses of GKE usually have no host name. */
const hosts: Readonly<Record<ManagedService, RegExp>> = {
  eks: /\.eks\.amazonaws\.com(\.cn)?$/,
  gke: /\.gke\.goog$/,
  aks: /\.azmk8s\.io$/,
};

/** Finds out from a cluster's `connect` in postern.yaml which service manages it; undefined if it doesn't show that. */
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

/** Why a plugin is on in an API server. */
export interface ReasonToBeOn {
  /** True if the service says that the plugin is on. If false, a flag or an option may have turned the plugin off. */
  isSure: boolean;
  reason: string;
}

/**
 * Returns why a plugin is on in an API server; undefined if nothing shows that it is on. If the minor version is
 * unknown, the reason must be true for all known minor versions.
 */
export const findReasonToBeOn = (plugin: string, { service, kubernetes }: ApiServerFacts): ReasonToBeOn | undefined => {
  const matching = minors.filter((minor) => minor === kubernetes);
  const [possible, version] = matching.length > 0 ? [matching, ` ${kubernetes}`] : [minors, ""];
  const fact =
    service &&
    published[service].find(
      ({ on, minors: valid }) =>
        on.includes(plugin) && (valid === undefined || possible.every((minor) => valid.includes(minor))),
    );
  if (fact)
    return {
      isSure: !fact.canBeTurnedOff,
      reason: `${serviceNames[service]}${version} has it on${fact.canBeTurnedOff ? " by default" : ""} (${fact.page})`,
    };
  if (!possible.every((minor) => isEffectiveByDefault(plugin, minor))) return undefined;
  return { isSure: false, reason: `it is on by default in Kubernetes${version || ` ${knownMinors}`}` };
};

/**
 * Reports whether an API server must be asked for its `/version` to find out if a plugin is on, because the known facts
 * leave it open. The answer shows the minor version, and EKS or GKE, but never AKS.
 */
export const isVersionNeeded = (plugin: string, { service, kubernetes }: ApiServerFacts): boolean => {
  const possibleServices = service === undefined ? [undefined, "eks" as const, "gke" as const] : [service];
  const possibleMinors = kubernetes === undefined ? minors : [kubernetes];
  const states = possibleServices.flatMap((possibleService) =>
    possibleMinors.map(
      (minor) => findReasonToBeOn(plugin, { service: possibleService, kubernetes: minor }) !== undefined,
    ),
  );
  const isOnInSome = states.includes(true);
  const isOnInAll = !states.includes(false);
  return isOnInSome && !isOnInAll;
};

/** Describes in which minor versions a service has a plugin on, for instance "on" or "on from 1.35"; "-" for none. */
export const describeMinorsOfService = (plugin: string | undefined, service: ManagedService): string => {
  const found = minors.flatMap((kubernetes) => {
    const reason = plugin === undefined ? undefined : findReasonToBeOn(plugin, { service, kubernetes });
    return reason ? [kubernetes] : [];
  });
  const [first, last] = [found[0], found.at(-1)];
  if (plugin === undefined || first === undefined) return "-";
  const canBeTurnedOff = published[service].some(({ on, canBeTurnedOff }) => canBeTurnedOff && on.includes(plugin));
  if (found.length === minors.length) return canBeTurnedOff ? "on, unless turned off" : "on";
  if (last === newestKubernetes) return `on from ${first}`;
  return first === last ? `on in ${first}` : `on in ${first} to ${last}`;
};
