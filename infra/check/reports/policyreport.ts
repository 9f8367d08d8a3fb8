import type { Checked } from "../checked.ts";
import { sayingOf } from "./places.ts";

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

/** In characters, of the results in one report: kubectl keeps all of an object in an annotation of at most 256 KiB. */
const most = 150_000;

/**
 * The findings as PolicyReport objects, those of a namespace in it, and as ClusterPolicyReports, in a List. They are of
 * the working group's `wgpolicyk8s.io/v1alpha2`, which dashboards read.
 */
export const policyReport = (all: Iterable<Checked>, now = new Date()): string => {
  const timestamp = { seconds: Math.floor(now.getTime() / 1000), nanos: 0 };
  const byNamespace = new Map<string | undefined, Result[]>();
  for (const one of all) {
    const results = byNamespace.get(one.namespace) ?? [];
    byNamespace.set(one.namespace, results);
    const { apiVersion, kind, namespace, name } = one;
    const resources = [{ apiVersion, kind, ...(namespace !== undefined && { namespace }), name: name.toWellFormed() }];
    const add = (policy: string, result: Verdict, message?: string) => {
      const said = message === undefined ? {} : { message: message.toWellFormed() };
      results.push({ source: "postern", policy, result, ...said, resources, timestamp });
    };
    for (const denial of one.denials) add(denial.rule, "fail", sayingOf(denial));
    for (const { rule, text } of one.warnings) add(rule, "warn", text);
    for (const sentence of one.undecided) add("postern", "error", sentence);
    const changing = new Set(one.changes.map(({ rule }) => rule));
    for (const rule of changing) add(rule, "pass", "would change it");
    for (const rule of one.passed) if (!changing.has(rule)) add(rule, "pass");
  }
  const items = [...byNamespace].flatMap(([namespace, results]) =>
    inParts(results).map((part, index) => reportOf(namespace, part, index)),
  );
  return `${JSON.stringify({ apiVersion: "v1", kind: "List", items }, null, 2)}\n`;
};

/** As many in one as fit. */
const inParts = (results: Result[]): Result[][] => {
  const parts: Result[][] = [];
  let size = most;
  for (const result of results) {
    const length = Buffer.byteLength(JSON.stringify(result));
    if (size + length > most) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1)?.push(result);
    size += length;
  }
  return parts;
};

const reportOf = (namespace: string | undefined, results: Result[], index: number): object => {
  const count = (verdict: Verdict) => results.filter(({ result }) => result === verdict).length;
  return {
    apiVersion: "wgpolicyk8s.io/v1alpha2",
    kind: namespace === undefined ? "ClusterPolicyReport" : "PolicyReport",
    metadata: {
      name: index === 0 ? "postern" : `postern-${index + 1}`,
      ...(namespace !== undefined && { namespace }),
      labels: { "app.kubernetes.io/managed-by": "postern" },
    },
    summary: Object.fromEntries(verdicts.map((verdict) => [verdict, count(verdict)])),
    results,
  };
};
