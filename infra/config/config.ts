// The types of postern.yaml after validation. infra/project reads the file; validation.ts checks it.
import { fileURLToPath } from "node:url";
import type { Mode } from "#lib/decide.ts";
import type { Path } from "#lib/recording/redacted.ts";
import type { Listed } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";

export const configFile = fileURLToPath(new URL("../../postern.yaml", import.meta.url));

export interface Cluster {
  /** The versions that functions accept; new URLs get the last one. */
  keyVersions: number[];
  /** By rule name. A rule that postern.yaml doesn't name for this cluster is absent. */
  rules: Map<string, Setup>;
  /** The same in every cluster, because the clusters share Lambdas. */
  groups: Group[];
  connect?: Connect;
}

export interface Config {
  clusters: Map<string, Cluster>;
  groups: Group[];
}

/** Requests that the API server doesn't send to the rule. Matching any one value exempts a request. */
export interface Exempt {
  namespaces?: string[];
  namespaceLabels?: Record<string, string>;
  users?: string[];
  groups?: string[];
}

/** The config of one rule in one cluster: postern.yaml merged with the defaults. */
export interface Setup {
  mode: Mode;
  failurePolicy?: "Fail" | "Ignore";
  timeoutSeconds?: number;
  exempt?: Exempt;
  /** Where the rule's function records reviews; undefined if it records none. */
  record?: Keeping;
  settings: object;
}

/** Several mutating rules behind one webhook entry and one Lambda, which saves sequential calls. */
export interface Group {
  name: string;
  /** In the order of the compiled-in plugins. */
  members: Listed[];
}

/** How to reach a cluster's API: `connect` in postern.yaml. */
export interface Connect {
  eks?: string;
  region?: string;
  server?: string;
  /** PEM, or the name of a file with PEM. */
  ca?: string;
  tokenSecret?: string;
  tokenParameter?: string;
  kubeconfig?: string;
  context?: string;
  /** A folder of manifests that is used as the cluster. */
  manifests?: string;
}

export interface Keeping {
  bucket: string;
  prefix: string;
  /** The fraction of reviews that is recorded; 0.01 by default. */
  share: number;
  /** The fields of objects whose free text is kept. */
  keep?: readonly Path[];
}

export const chooseCluster = (config: Config, name: string | undefined): [string, Cluster] => {
  const names = [...config.clusters.keys()].join(", ");
  const chosen = name ?? (config.clusters.size === 1 ? names : undefined);
  if (chosen === undefined) throw new Complaint(`--cluster must say which one: ${names}`);
  const cluster = config.clusters.get(chosen);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${chosen}"; it has ${names}`);
  return [chosen, cluster];
};
