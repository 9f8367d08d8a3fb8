import { isIP } from "node:net";
import { dirname } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type { Operation } from "#lib/review.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ParsedOptions } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { readListOption } from "../cli/options.ts";
import { createProgressPrinter } from "../cli/progress.ts";
import type { ClusterConfig } from "../config/config.ts";
import { resolveConfigPath } from "../config/connections.ts";
import { formatManifestFault, type ManifestFault } from "../manifests/manifests.ts";
import { prepareManifestCheck } from "./check.ts";
import { startKubernetes } from "./evaluation/kubernetes-handlers.ts";
import {
  type FieldValidation,
  noFindings,
  type ObjectCheckResult,
  type ObjectEvaluation,
} from "./evaluation/object-evaluation.ts";
import type { InputReadFailure } from "./reports/check-report.ts";
import type { PolicyReportVersion } from "./reports/policyreport.ts";

/** A check of files or of a cluster that has started; `each` passes on its evaluations. */
interface StartedCheck {
  unreadableInputs: readonly InputReadFailure[];
  notes: ReadonlySet<string>;
  /** The names of the files in which objects were found. */
  files: readonly string[];
  /** The Secrets that rules and plugins have read so far. */
  secretsRead: ReadonlySet<object>;
  /** The API group and version of policy reports that the checked cluster serves; undefined for a check of files. */
  reportVersion?: PolicyReportVersion | undefined;
  /** Calls `take` with each evaluation in turn, and waits for its promise before the next call. */
  each(take: (evaluation: ObjectEvaluation) => Promise<void>): Promise<void>;
}

/** The command line of `postern check`, and the project that it is run in. */
interface CheckRequest {
  options: ParsedOptions;
  /** The files, folders and globs in the command line. */
  words: readonly string[];
  /** The path of postern.yaml. */
  file: string;
  catalogue: CatalogueRule[];
  cluster: [name: string, ClusterConfig];
  /** All clusters of postern.yaml. */
  clusters: readonly string[];
}

/** Starts a check of manifests. `each` passes the results on, one after another. */
export const startFileCheck = async (request: CheckRequest, signal: AbortSignal): Promise<StartedCheck> => {
  const { options, words, file, cluster } = request;
  const [, { connect }] = cluster;
  const configuredState = connect?.manifests;
  const state = options.texts("state");
  const [namespace = "default"] = options.texts("namespace");
  const check = await prepareManifestCheck({
    ...readOptions(request),
    paths: words,
    build: options.flag("build"),
    reviews: options.texts("review"),
    state:
      state.length === 0 && configuredState !== undefined ? [resolveConfigPath(configuredState, dirname(file))] : state,
    isStrict: options.flag("strict"),
    old: options.texts("old"),
    operation: readOperation(options),
    validate: readValidation(options),
    namespace,
    startKubernetes,
  });
  return {
    unreadableInputs: check.faults.map(toUnread),
    notes: check.notes,
    files: check.files,
    secretsRead: check.secretsRead,
    each: async (take) => {
      let count = 0;
      for await (const evaluation of check.evaluations) {
        // The loop waits for a turn after every 64 objects: signals are handled only between turns of the event loop.
        if (++count % 64 === 0) await turn();
        if (signal.aborted) break;
        await take(evaluation);
      }
    },
  };
};

/** Starts a check of everything in a cluster (--live). */
export const startClusterCheck = async (request: CheckRequest, signal: AbortSignal): Promise<StartedCheck> => {
  // A check of files doesn't need the modules that call an API server.
  const { prepareClusterCheck } = await import("./live/cluster-check.ts");
  const { options } = request;
  const { run, ...check } = await prepareClusterCheck(
    {
      ...readOptions(request),
      ...(await readClusterOptions(request)),
      operation: readOperation(options) ?? "CREATE",
    },
    signal,
  );
  return { ...check, files: [], each: (take) => run(createProgressPrinter(), take) };
};

/** Writes what `--state` needs of the cluster to a file, and returns a sentence about it. */
export const saveState = async (request: CheckRequest, file: string, signal: AbortSignal): Promise<string> => {
  const { saveClusterState } = await import("./live/saved-state.ts");
  return saveClusterState(await readClusterOptions(request), file, signal);
};

/** Returns the options of a check with --live. `cluster` is a pair: the name of the checked cluster, and its config. */
const readClusterOptions = async ({ options, file, cluster }: CheckRequest) => {
  const { readClusterCredentials } = await import("../clusters/access.ts");
  const [clusterName] = cluster;
  return {
    cluster,
    namespaces: readListOption(options, "namespace"),
    credentials: { ...readClusterCredentials(options, [clusterName]), folder: dirname(file), identity: loadIdentity },
    objectsPerPage: readObjectsPerPage(options),
  };
};

/** Returns the options that checks of files and of clusters have in common. */
const readOptions = ({ options, catalogue, cluster, clusters }: CheckRequest) => ({
  catalogue,
  cluster,
  clusters,
  harden: options.flag("harden"),
  webhooks: options.texts("webhooks"),
  hosts: readListOption(options, "call").map(requireHost),
  plugins: readListOption(options, "plugins"),
  user: readUser(options),
  alsoPods: !options.flag("no-pod-templates"),
});

const requireHost = (text: string): string => {
  if (isIP(text) || /^\w[\w.-]*$/.test(text)) return text.toLowerCase();
  throw new Complaint(`--call takes a host, such as policy.example.com, not "${text}"`);
};

/** The default of `--page`: how many objects one list request asks a cluster for. */
export const defaultObjectsPerClusterListPage = 250;
const maxObjectsPerPage = 1000;

/** Reads the user's AWS identity. Loads the AWS SDK only now, for a cluster that authenticates through AWS. */
const loadIdentity = async () => (await import("../aws/stage.ts")).createAwsStageClients("").readAwsKeys();

const readObjectsPerPage = (options: ParsedOptions): number => {
  const page = options.number("page") ?? defaultObjectsPerClusterListPage;
  if (page >= 1 && page <= maxObjectsPerPage) return page;
  throw new Complaint(`--page takes a number from 1 to ${maxObjectsPerPage}, not ${page}`);
};

export const toUnread = (fault: ManifestFault): InputReadFailure => {
  const { file, line, sentence } = fault;
  const about = { file, line, apiVersion: "", kind: "Document", name: file };
  const checked: ObjectCheckResult = { ...about, ...noFindings, verdict: "undecided", undecided: [sentence] };
  return { fault, text: formatManifestFault(fault), checked };
};

const readValidation = (options: ParsedOptions): FieldValidation => {
  const validate = options.text("validate") ?? "strict";
  if (validate === "strict" || validate === "warn" || validate === "ignore") return validate;
  throw new Complaint(`--validate takes strict, warn or ignore, not "${validate}"`);
};

const readOperation = (options: ParsedOptions): Operation | undefined => {
  const operation = options.text("operation")?.toUpperCase();
  if (operation === undefined || operation === "CREATE" || operation === "UPDATE" || operation === "DELETE")
    return operation;
  throw new Complaint(`--operation takes CREATE, UPDATE or DELETE, not "${operation}"; other operations need --review`);
};

/** Returns the user of `--as` with the groups that an API server adds, as for `kubectl --as`. */
const readUser = (options: ParsedOptions) => {
  const groups = readListOption(options, "as-group");
  const username = options.text("as") ?? "";
  const usual = username === "system:anonymous" ? "system:unauthenticated" : "system:authenticated";
  return { username, groups: [...new Set([...(groups.length === 0 ? listUserGroups(username) : groups), usual])] };
};

const listUserGroups = (username: string): string[] => {
  // The group that kubeadm gives its administrator.
  if (username === "kubernetes-admin") return ["kubeadm:cluster-admins"];
  const [, namespace] = /^system:serviceaccount:([^:]+):[^:]+$/.exec(username) ?? [];
  return namespace === undefined ? [] : ["system:serviceaccounts", `system:serviceaccounts:${namespace}`];
};
