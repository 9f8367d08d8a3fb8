import { dirname } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type { Operation } from "#lib/review.ts";
import type { Listed } from "../catalogue/registry.ts";
import type { Options } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { openProgress } from "../cli/progress.ts";
import { among, deployerIn } from "../commands/shared/options.ts";
import type { Cluster } from "../config/config.ts";
import { placeOf } from "../config/connections.ts";
import { openCheck } from "./check.ts";
import type { Checked } from "./checked.ts";
import type { Judged } from "./evaluation/evaluate.ts";
import { openAudit } from "./live/audit.ts";
import { type Fault, faultText } from "./manifests/documents.ts";
import type { ReportVersion } from "./reports/policyreport.ts";
import type { Unread } from "./reports/report.ts";

/** Where what is judged comes from. */
export interface Source {
  unread: readonly Unread[];
  notes: ReadonlySet<string>;
  /** Of a cluster: the reports that it serves. */
  reportVersion?: ReportVersion | undefined;
  /** Hands over one after the other, each when the last one is done with. */
  each(take: (judged: Judged) => Promise<void>): Promise<void>;
}

/** What is asked for. */
export interface Asked {
  options: Options;
  words: readonly string[];
  /** postern.yaml. */
  file: string;
  catalogue: Listed[];
  cluster: [name: string, Cluster];
}

/** What files hold, and recorded reviews. */
export const inFiles = async (
  { options, words, file, catalogue, cluster }: Asked,
  signal: AbortSignal,
): Promise<Source> => {
  const written = cluster[1].connect?.manifests;
  const state = options.texts("state");
  const [namespace = "default"] = options.texts("namespace");
  const check = await openCheck({
    ...{ catalogue, cluster, harden: options.flag("harden"), paths: words, reviews: options.texts("review") },
    state: state.length === 0 && written !== undefined ? [placeOf(written, dirname(file))] : state,
    ...{ old: options.texts("old"), webhooks: options.texts("webhooks"), hosts: among(options, "call") },
    ...{ operation: operationOf(options), user: userOf(options), namespace },
    alsoPods: !options.flag("no-pod-templates"),
  });
  return {
    unread: check.faults.map(unread),
    notes: check.notes,
    each: async (take) => {
      let count = 0;
      for await (const judged of check.judged) {
        // Otherwise nobody would hear that somebody wants to end it.
        if (++count % 64 === 0) await turn();
        if (signal.aborted) break;
        await take(judged);
      }
    },
  };
};

/** What a cluster has. */
export const inCluster = async ({ options, file, catalogue, cluster }: Asked, signal: AbortSignal): Promise<Source> => {
  const { unread, notes, reportVersion, run } = await openAudit(
    {
      ...{ catalogue, cluster, harden: options.flag("harden"), webhooks: options.texts("webhooks") },
      ...{ hosts: among(options, "call"), operation: operationOf(options) ?? "CREATE", user: userOf(options) },
      ...{ namespaces: among(options, "namespace"), alsoPods: !options.flag("no-pod-templates") },
      deployer: { ...deployerIn(options, [cluster[0]]), folder: dirname(file), identity },
      page: pageOf(options),
    },
    signal,
  );
  return { unread, notes, reportVersion, each: (take) => run(openProgress(), take) };
};

/** Of a list in a cluster, in objects. */
export const usualPage = 250;
const mostInPage = 1000;

/** AWS's clients are for clusters that know us by them. */
const identity = async () => (await import("../aws/stage.ts")).openStage("").identity();

const pageOf = (options: Options): number => {
  const page = options.number("page") ?? usualPage;
  if (page >= 1 && page <= mostInPage) return page;
  throw new Complaint(`--page takes a number from 1 to ${mostInPage}, not ${page}`);
};

/** What can't be read was not judged either. */
const unread = (fault: Fault): Unread => {
  const { file, line, sentence } = fault;
  const nothing = { denials: [], warnings: [], changes: [], passed: [] };
  const about = { file, line, apiVersion: "", kind: "Document", name: file };
  const checked: Checked = { ...about, verdict: "undecided", undecided: [sentence], ...nothing };
  return { fault, text: faultText(fault), checked };
};

const operationOf = (options: Options): Operation | undefined => {
  const said = options.text("operation")?.toUpperCase();
  if (said === undefined || said === "CREATE" || said === "UPDATE" || said === "DELETE") return said;
  throw new Complaint(`--operation takes CREATE, UPDATE or DELETE, not "${said}"; others are judged as --review`);
};

/** Somebody with the groups that an API server gives them, as for `kubectl --as`. */
const userOf = (options: Options) => {
  const groups = among(options, "as-group");
  const username = options.text("as") ?? "";
  const usual = username === "system:anonymous" ? "system:unauthenticated" : "system:authenticated";
  return { username, groups: [...new Set([...(groups.length === 0 ? bornInto(username) : groups), usual])] };
};

const bornInto = (username: string): string[] => {
  // As kubeadm makes its administrator.
  if (username === "kubernetes-admin") return ["kubeadm:cluster-admins"];
  const [, namespace] = /^system:serviceaccount:([^:]+):[^:]+$/.exec(username) ?? [];
  return namespace === undefined ? [] : ["system:serviceaccounts", `system:serviceaccounts:${namespace}`];
};
