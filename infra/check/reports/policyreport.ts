import { truncateText } from "../../cli/terminal.ts";
import { getReportedObject, type ObjectCheckResult } from "../evaluation/object-evaluation.ts";
import { type CheckResultReportWriter, createJsonListFormatter, formatDenial } from "./check-report.ts";

/** An element of a PolicyReport's `results`. */
interface Result {
  source: "postern";
  policy: string;
  result: Verdict;
  message?: string;
  resources: object[];
  timestamp: { seconds: number; nanos: number };
}

const verdicts = ["pass", "fail", "warn", "error", "skip"] as const;
type Verdict = (typeof verdicts)[number];

/** The most bytes of results in a report, well below the 256 KiB of the annotation to which kubectl apply copies it. */
const maxReportBytes = 150_000;
/** The limit for one text in a PolicyReport, in characters; other report formats give the whole text. */
const maxTextCharacters = 4096;
/** The limit for results in memory that aren't yet in a written PolicyReport, in bytes. */
const maxBytesInMemory = 8 * 1024 * 1024;

/** The results of one namespace that aren't yet in a written PolicyReport. */
interface UnwrittenReport {
  /** Undefined for cluster-scoped objects. */
  namespace: string | undefined;
  results: Result[];
  bytes: number;
  counts: Record<Verdict, number>;
  /** The number of PolicyReports that this run has already written for the namespace. */
  writtenReports: number;
}

/** The API group and version in which policy reports are written. Reports of both groups have the same members. */
export type PolicyReportVersion = "openreports.io/v1alpha1" | "wgpolicyk8s.io/v1alpha2";

/** The kind of a report on one namespace, and the kind of a report on cluster-scoped objects. */
const kinds: Record<PolicyReportVersion, [string, string]> = {
  "openreports.io/v1alpha1": ["Report", "ClusterReport"],
  "wgpolicyk8s.io/v1alpha2": ["PolicyReport", "ClusterPolicyReport"],
};

/** Returns the newest API version of PolicyReports that a cluster serves; undefined if it serves none. */
export const findPolicyReportVersion = (
  served: readonly { kind: { group: string; version: string; kind: string } }[],
): PolicyReportVersion | undefined => {
  const versions = Object.keys(kinds) as PolicyReportVersion[];
  const isServed = (apiVersion: PolicyReportVersion, word: string) =>
    served.some(({ kind }) => `${kind.group}/${kind.version}` === apiVersion && kind.kind === word);
  return versions.find((apiVersion) => kinds[apiVersion].every((word) => isServed(apiVersion, word)));
};

interface PolicyReportOptions {
  apiVersion?: PolicyReportVersion | undefined;
  /** True to list results that passed unchanged, false to count them only: a cluster stores all listed results. */
  listsPasses: boolean;
  /**
   * The limit for results in memory, in bytes. Results are kept until their namespace's PolicyReport is complete; above
   * the limit, the largest incomplete report is written, and further results of its namespace get another report.
   */
  maxBytes?: number;
}

/**
 * Writes the findings in a List: as PolicyReports of namespaces and ClusterPolicyReports, or as Reports and
 * ClusterReports of `openreports.io`, the successor of the working group's `wgpolicyk8s.io`.
 */
export const createPolicyReport = (
  { listsPasses, apiVersion = "wgpolicyk8s.io/v1alpha2", maxBytes = maxBytesInMemory }: PolicyReportOptions,
  now = new Date(),
): CheckResultReportWriter => {
  const timestamp = { seconds: Math.floor(now.getTime() / 1000), nanos: 0 };
  const parts = new Map<string | undefined, UnwrittenReport>();
  const items = createJsonListFormatter(2);
  let head = `{\n  "apiVersion": "v1",\n  "kind": "List",\n  "items": `;
  /** The size of all results in memory. */
  let bytesInMemory = 0;
  const closePart = (part: UnwrittenReport): string => {
    const text = `${head}${items.add(buildReport(part, apiVersion))}`;
    head = "";
    bytesInMemory -= part.bytes;
    parts.set(part.namespace, { ...startReport(part.namespace), writtenReports: part.writtenReports + 1 });
    return text;
  };
  const put = (checkResult: ObjectCheckResult): string => {
    let text = "";
    let part = parts.get(checkResult.namespace) ?? startReport(checkResult.namespace);
    // A namespace without findings gets a PolicyReport, too: it replaces the report of an earlier check.
    parts.set(checkResult.namespace, part);
    for (const result of listResults(checkResult, timestamp)) {
      const length = Buffer.byteLength(JSON.stringify(result));
      if (part.results.length > 0 && part.bytes + length > maxReportBytes) {
        text += closePart(part);
        part = parts.get(checkResult.namespace) ?? part;
      }
      part.counts[result.result]++;
      if (result.result === "pass" && result.message === undefined && !listsPasses) continue;
      part.results.push(result);
      part.bytes += length;
      bytesInMemory += length;
    }
    while (bytesInMemory > maxBytes) text += closePart(findLargest(parts.values()));
    return text;
  };
  return {
    add: ({ checked }) => put(checked),
    end: function* ({ unreadableInputs }) {
      for (const { checked } of unreadableInputs) yield put(checked);
      for (const part of [...parts.values()]) if (part.writtenReports === 0 || !isEmpty(part)) yield closePart(part);
      yield `${head}${items.end()}\n}\n`;
    },
  };
};

/** Starts a report of a namespace. Before `bytes` gets too large, the report is written, and another one starts. */
const startReport = (namespace: string | undefined): UnwrittenReport => {
  return {
    namespace,
    results: [],
    bytes: 0,
    counts: { pass: 0, fail: 0, warn: 0, error: 0, skip: 0 },
    writtenReports: 0,
  };
};

const isEmpty = ({ counts }: UnwrittenReport): boolean => verdicts.every((verdict) => counts[verdict] === 0);

const findLargest = (parts: Iterable<UnwrittenReport>): UnwrittenReport =>
  [...parts].reduce((left, right) => (right.bytes > left.bytes ? right : left));

/** Returns the results of a checked object for a PolicyReport. */
const listResults = (result: ObjectCheckResult, timestamp: Result["timestamp"]): Result[] => {
  const { namespace } = result;
  const { uid, ...target } = getReportedObject(result);
  const [apiVersion, kind, name] = [target.apiVersion, target.kind, target.name].map(shortenText);
  const resources = [{ apiVersion, kind, ...(namespace !== undefined && { namespace }), name, ...(uid && { uid }) }];
  const createResult = (policy: string, result: Verdict, message?: string): Result => {
    const text = message !== undefined && { message: shortenText(message) };
    return { source: "postern", policy, result, ...text, resources, timestamp };
  };
  const changing = new Set(result.changes.map(({ rule }) => rule));
  return [
    ...result.denials.map((denial) => createResult(denial.rule, "fail", formatDenial(denial))),
    ...result.warnings.map(({ rule, text }) => createResult(rule, "warn", text)),
    ...result.undecided.map((sentence) => createResult("postern", "error", sentence)),
    ...(result.exempt ?? []).map(({ rule, text }) => createResult(rule, "skip", `exempt ${text}`)),
    ...[...changing].map((rule) => createResult(rule, "pass", "would change it")),
    ...result.passed.filter((rule) => !changing.has(rule)).map((rule) => createResult(rule, "pass")),
  ];
};

const shortenText = (text: string): string => truncateText(text.toWellFormed(), maxTextCharacters);

/** Returns a PolicyReport of a namespace, or a ClusterPolicyReport without a namespace. */
const buildReport = (
  { namespace, results, counts, writtenReports }: UnwrittenReport,
  apiVersion: PolicyReportVersion,
): object => ({
  apiVersion,
  kind: kinds[apiVersion][namespace === undefined ? 1 : 0],
  metadata: {
    name: writtenReports === 0 ? "postern" : `postern-${writtenReports + 1}`,
    ...(namespace !== undefined && { namespace }),
    labels: { "app.kubernetes.io/managed-by": "postern" },
  },
  summary: counts,
  results,
});
