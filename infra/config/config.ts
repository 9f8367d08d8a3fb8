// The types of postern.yaml after validation. infra/project reads the file; validation.ts checks it.
import type { EnforcementMode } from "#lib/core/evaluation.ts";
import type { RuleException } from "#lib/core/exceptions.ts";
import type { LogDetail } from "#lib/core/log-line.ts";
import type { UnredactedPath } from "#lib/recording/redaction.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";

export interface ClusterConfig {
  /** The versions of the cluster's URL key that functions accept. New webhook URLs get the last version. */
  keyVersions: number[];
  /** The configs by rule name. A rule that postern.yaml doesn't name for this cluster is absent. */
  rules: Map<string, RuleConfig>;
  /** The groups of rules, the same in every cluster, because the clusters share Lambda functions. */
  groups: RuleGroup[];
  /** The minor version of Kubernetes, such as `1.35`: postern.yaml's or, in a deployment, the one found in the cluster. */
  kubernetes?: string;
  /** What the cluster was found to support; without it, all policies are evaluated by their rules. */
  policySupport?: PolicySupport | undefined;
  connect?: ClusterConnectConfig;
  /** The relay through which the cluster's API server calls rules; without it, it calls their URLs. */
  service?: RelayService;
}

/** A Service of a cluster that forwards reviews to Postern: `clusters.<name>.service` in postern.yaml. */
export interface RelayService {
  namespace: string;
  name: string;
  port?: number;
  /** The CA certificates of the relay: PEM, its base64, or the name of a file with PEM. */
  ca: string;
}

/**
 * Which admission policies an API server evaluates: its minor version, the kinds that it serves in v1, and those of them
 * that it was found not to apply.
 */
export interface PolicySupport {
  kubernetes: string;
  kinds: readonly string[];
  unapplied?: readonly string[] | undefined;
}

export interface PosternConfig {
  /** The configs by rule name of the section `rules` for all clusters: those of a cluster that no function knows yet. */
  rules: Map<string, RuleConfig>;
  clusters: Map<string, ClusterConfig>;
  /** The clusters that an earlier release had and postern.yaml no longer names: functions refuse their keys. */
  refused?: readonly string[];
  groups: RuleGroup[];
  /** What the functions' log lines have; undefined for everything. */
  logs?: LogDetail;
}

/** Requests that the API server doesn't send to the rule, and exceptions. Matching any one exempts a request. */
export interface RuleExemptions {
  namespaces?: string[];
  namespaceLabels?: Record<string, string>;
  users?: string[];
  groups?: string[];
  /** The exemptions that end: the rule's function decides them by its clock. `place` is that in postern.yaml. */
  exceptions?: (RuleException & { place: string })[];
}

/** The config of one rule in one cluster: postern.yaml merged with the defaults. */
export interface RuleConfig {
  mode: EnforcementMode;
  failurePolicy?: "Fail" | "Ignore";
  timeoutSeconds?: number;
  exempt?: RuleExemptions;
  /** The bucket into which the rule's function records reviews; undefined if it records none. */
  record?: ReviewRecordingConfig;
  /** The reserved concurrency of the rule's function, the same in every cluster. */
  reserved?: number;
  /** The number of warm environments of the rule's function, the same in every cluster. */
  warm?: number;
  settings: object;
}

/** Several mutating rules behind one webhook entry and one Lambda, which saves sequential calls. */
export interface RuleGroup {
  name: string;
  /** The rules that share one function and webhook entry, in the order of the compiled-in plugins. */
  members: CatalogueRule[];
}

/** `connect` in postern.yaml: the address and the credentials of a cluster's API. */
export interface ClusterConnectConfig {
  eks?: string;
  region?: string;
  /** The IAM role with which commands call EKS and the cluster; without it, they use their own AWS identity. */
  role?: string;
  server?: string;
  /** The CA certificates of the cluster's API server: PEM, its base64, or the name of a file with PEM. */
  ca?: string;
  tokenSecret?: string;
  tokenParameter?: string;
  kubeconfig?: string;
  context?: string;
  /** The path of a folder of manifests, which rules read instead of a cluster's API server. */
  manifests?: string;
}

export interface ReviewRecordingConfig {
  bucket: string;
  prefix: string;
  /** The fraction of reviews that is recorded; 0.01 by default. */
  share: number;
  /** The fields whose free text recordings keep; in all other fields it is redacted. */
  keep?: readonly UnredactedPath[];
}

/** The path of a value in postern.yaml: the keys and indexes that lead to it. */
export type ConfigPath = (string | number)[];

/** Reports a mistake in postern.yaml. The sentence continues the path. */
export type ReportMistake = (path: ConfigPath, sentence: string) => void;

export const chooseCluster = (config: PosternConfig, name: string | undefined): [string, ClusterConfig] => {
  const names = [...config.clusters.keys()].join(", ");
  const chosen = name ?? (config.clusters.size === 1 ? names : undefined);
  if (chosen === undefined) throw new Complaint(`--cluster is missing; it must name one of ${names}`);
  const cluster = config.clusters.get(chosen);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${chosen}"; it has ${names}`);
  return [chosen, cluster];
};
