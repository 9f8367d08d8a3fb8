// The types of postern.yaml after it was validated. infra/project reads the file, and validation.ts validates it.
import type { EnforcementMode } from "#lib/core/evaluation.ts";
import type { RuleException } from "#lib/core/exceptions.ts";
import type { LogDetail } from "#lib/core/log-line.ts";
import type { UnredactedPath } from "#lib/recording/redaction.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";

/** What postern.yaml says about one cluster. */
export interface ClusterConfig {
  /** The versions of the cluster's URL key that functions accept. New webhook URLs have the last one. */
  keyVersions: number[];
  /** The configs by rule name. Rules that postern.yaml doesn't name are absent. */
  rules: Map<string, RuleConfig>;
  /** The groups of rules. All clusters have the same groups, because they use the same Lambda functions. */
  groups: RuleGroup[];
  /**
   * The minor version of Kubernetes, such as `1.35`, from postern.yaml. Deployments read it from the cluster if it's
   * absent.
   */
  kubernetes?: string;
  /** Which policies the cluster's API server can evaluate. Without it, rules evaluate all policies. */
  policySupport?: PolicySupport | undefined;
  connect?: ClusterConnectConfig;
  /** The relay through which the cluster's API server calls rules; without it, it calls their URLs. */
  service?: RelayService;
}

/** A Service in a cluster that forwards reviews to Postern: `clusters.<name>.service` in postern.yaml. */
export interface RelayService {
  namespace: string;
  name: string;
  port?: number;
  /** The CA certificates of the relay: PEM, its base64, or the name of a file with PEM. */
  ca: string;
}

/** Which admission policies an API server evaluates. */
export interface PolicySupport {
  /** Its minor version. */
  kubernetes: string;
  /** The kinds of policies that it serves in v1. */
  kinds: readonly string[];
  /** The kinds that it serves but doesn't apply, as a test has shown. */
  unapplied?: readonly string[] | undefined;
}

/** The content of postern.yaml. */
export interface PosternConfig {
  /** The general section `rules`, by rule name. Functions use it for clusters that are added after their deployment. */
  rules: Map<string, RuleConfig>;
  clusters: Map<string, ClusterConfig>;
  /** The clusters of earlier releases that postern.yaml doesn't name any more. Functions refuse their keys. */
  refused?: readonly string[];
  groups: RuleGroup[];
  /** "minimal" if the functions' log lines have no users and messages; else undefined. */
  logs?: LogDetail;
}

/** `exempt` in postern.yaml. A request is exempt if it matches at least one of these exemptions. */
export interface RuleExemptions {
  namespaces?: string[];
  namespaceLabels?: Record<string, string>;
  users?: string[];
  groups?: string[];
  /** Exemptions that end at a time, which the rule's function checks. `place` is the file and line in postern.yaml. */
  exceptions?: (RuleException & { place: string })[];
}

/** The config of one rule in one cluster: postern.yaml merged with the defaults. */
export interface RuleConfig {
  mode: EnforcementMode;
  failurePolicy?: "Fail" | "Ignore";
  timeoutSeconds?: number;
  exempt?: RuleExemptions;
  /** Where and how often the rule's function records reviews; undefined if it records none. */
  record?: ReviewRecordingConfig;
  /** The reserved concurrency of the rule's function, the same in every cluster. */
  reserved?: number;
  /** The number of warm environments of the rule's function, the same in every cluster. */
  warm?: number;
  settings: object;
}

/** Mutating rules that share one webhook entry and one Lambda function, so the API server makes one call for all. */
export interface RuleGroup {
  name: string;
  /** The rules, in the order in which an API server runs its compiled-in plugins. */
  members: CatalogueRule[];
}

/** `connect` in postern.yaml: the address and the credentials of a cluster's API server. */
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
  /** The path of a folder of manifests, which rules read in place of a cluster's API server. */
  manifests?: string;
}

/** `record` in postern.yaml: where and how a function records reviews. */
export interface ReviewRecordingConfig {
  bucket: string;
  prefix: string;
  /** The fraction of reviews that is recorded; 0.01 by default. */
  share: number;
  /** The fields whose texts are recorded unchanged. In other fields, texts that may contain secrets are replaced. */
  keep?: readonly UnredactedPath[];
}

/** The path of a value in postern.yaml: the keys and indexes that lead to it. */
export type ConfigPath = (string | number)[];

/** Reports a mistake in postern.yaml. A message has the path and then the sentence, for instance "must be a number". */
export type ReportMistake = (path: ConfigPath, sentence: string) => void;

/** Returns the cluster of the option --cluster. Without the option, postern.yaml must have only one cluster. */
export const chooseCluster = (config: PosternConfig, name: string | undefined): [string, ClusterConfig] => {
  const [first, ...others] = config.clusters.keys();
  const names = [...config.clusters.keys()].join(", ");
  const chosen = name ?? (others.length === 0 ? first : undefined);
  if (chosen === undefined) throw new Complaint(`--cluster is missing; it must name one of ${names}`);
  const cluster = config.clusters.get(chosen);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${chosen}"; it has ${names}`);
  return [chosen, cluster];
};
