// The types of postern.yaml, as everything but its validation sees it. validation.ts checks what is written;
// infra/project reads the file.
import { fileURLToPath } from "node:url";
import type { Mode } from "#lib/decide.ts";
import type { Path } from "#lib/recording/redacted.ts";
import type { Listed } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";

export const configFile = fileURLToPath(new URL("../../postern.yaml", import.meta.url));

export interface Cluster {
  /** Those that functions accept; the last is the one in use. */
  keyVersions: number[];
  /** By rule; a rule that postern.yaml doesn't name for this cluster isn't here. */
  rules: Map<string, Setup>;
  /** The same in every cluster, for their Lambdas are. */
  groups: Group[];
  /** The way to its API, for rules that ask it something. */
  connect?: Connect;
}

export interface Config {
  clusters: Map<string, Cluster>;
  groups: Group[];
}

/** Requests that a rule's entry never sees. Any one exempts. */
export interface Exempt {
  namespaces?: string[];
  namespaceLabels?: Record<string, string>;
  users?: string[];
  groups?: string[];
}

/** What postern.yaml says of one rule in one cluster, everything filled in. */
export interface Setup {
  mode: Mode;
  failurePolicy?: "Fail" | "Ignore";
  timeoutSeconds?: number;
  exempt?: Exempt;
  /** Where its function records reviews; nowhere, if not said. */
  record?: Keeping;
  settings: object;
}

/** Several mutators behind one entry and one Lambda, to save calls that are made one after the other. */
export interface Group {
  name: string;
  /** In the order of the compiled-in chain. */
  members: Listed[];
}

/** What postern.yaml says of the way to a cluster's API. */
export interface Connect {
  eks?: string;
  region?: string;
  server?: string;
  /** PEM, or the name of a file that has it. */
  ca?: string;
  tokenSecret?: string;
  tokenParameter?: string;
  kubeconfig?: string;
  context?: string;
  /** A folder of manifests in a cluster's place. */
  manifests?: string;
}

/** Where functions record reviews, as `record` of postern.yaml says it, everything filled in. */
export interface Keeping {
  bucket: string;
  prefix: string;
  /** Of a hundred reviews one, unless said otherwise. */
  share: number;
  /** Where free text of objects is kept. */
  keep?: readonly Path[];
}

/** The cluster that was named, or the only one. */
export const chooseCluster = (config: Config, name: string | undefined): [string, Cluster] => {
  const names = [...config.clusters.keys()].join(", ");
  const chosen = name ?? (config.clusters.size === 1 ? names : undefined);
  if (chosen === undefined) throw new Complaint(`--cluster must say which one: ${names}`);
  const cluster = config.clusters.get(chosen);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${chosen}"; it has ${names}`);
  return [chosen, cluster];
};
