import type { CloudWatchMetricQuery } from "../aws/metrics.ts";
import type { AwsStage } from "../aws/stage.ts";
import { buildRoute, lostReviewsMetric, lostReviewsMetricOutputName } from "../build/deployment.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig } from "../config/config.ts";
import { getRuleNameOfEntry } from "../webhooks/configurations.ts";
import { buildClusterManifests, listEntries, type RuleEndpoints } from "./cluster-manifests.ts";
import type { Release, ReleasedCluster } from "./releases.ts";
import type { DeploymentTargets } from "./targets.ts";

/** Returns the rules to make fail closed: those that already do, and those with enough reviews without an error. */
export const chooseFailClosedRules = async (
  targets: Pick<DeploymentTargets, "stage" | "catalogue" | "harden">,
  [name, cluster]: [string, ClusterConfig],
  newest: Release | undefined,
  endpoints: RuleEndpoints,
  outputs: Record<string, string>,
): Promise<{ hardened: string[]; notes: string[] }> => {
  const { stage, catalogue, harden } = targets;
  const candidates = findHardenable(catalogue, [name, cluster], endpoints);
  if (harden === true) return { hardened: candidates, notes: [] };
  const before = newest?.clusters[name];
  const already = candidates.filter((rule) => before?.hardened.includes(rule));
  if (harden === false) return { hardened: already, notes: [] };
  const others = candidates.filter((rule) => !already.includes(rule));
  // The stack of an older version of Postern doesn't count the reviews that its gateway loses.
  const isUncounted = outputs.BaseUrl !== undefined && outputs[lostReviewsMetricOutputName] === undefined;
  const reviews = await readReviews(stage, name, cluster, others, before);
  const counts = others.map((rule) => {
    const { count, losses } = reviews.get(rule) ?? { count: 0, losses: [] };
    const reasons = isUncounted
      ? ["the stack doesn't count yet the requests that its gateway loses", ...losses]
      : losses;
    return { rule, clean: reasons.length > 0 ? 0 : count, reasons };
  });
  const ready = new Set(counts.filter(({ clean }) => clean >= harden).map(({ rule }) => rule));
  const notes = counts
    .filter(({ rule }) => !ready.has(rule))
    .map(({ rule, clean, reasons }) => {
      const why = reasons.length > 0 ? ` (${reasons.join(", ")})` : "";
      return `${rule} still fails open: ${clean} of ${harden} reviews without a failure${why}`;
    });
  return { hardened: candidates.filter((rule) => already.includes(rule) || ready.has(rule)), notes };
};

const week = 7 * 24 * 3_600_000;

interface ReviewCount {
  /** The number of reviews that a rule answered for API servers, without Postern's own probes. */
  count: number;
  losses: string[];
}

/**
 * Reads from CloudWatch how many reviews each rule got and how many failed, since a cluster's entries were applied or
 * in the last seven days. The functions' own metrics count by cluster.
 * AWS's metrics (crashes, timeouts, throttling, gateway errors) don't, so they count for every cluster.
 */
const readReviews = async (
  { metrics, functions, name: stageName }: AwsStage,
  name: string,
  cluster: ClusterConfig,
  rules: string[],
  before: ReleasedCluster | undefined,
): Promise<Map<string, ReviewCount>> => {
  const there = rules.filter((rule) => before?.since[rule] !== undefined);
  if (before === undefined || there.length === 0) return new Map();
  const found = new Map<string, ReviewCount>();
  for (const [since, some] of Map.groupBy(there, (rule) => before.since[rule] ?? "")) {
    const from = new Date(Math.max(Date.parse(since), Date.now() - week));
    const questions: Record<string, CloudWatchMetricQuery> = {};
    for (const rule of some) {
      const mode = cluster.rules.get(rule)?.mode ?? "enforce";
      for (const phase of ["mutate", "validate"]) {
        const dimensions = { Rule: rule, Phase: phase, Cluster: name, Mode: mode };
        questions[`${rule} reviews ${phase}`] = { namespace: "Postern", metric: "Reviews", dimensions, stat: "Sum" };
        questions[`${rule} failed ${phase}`] = { namespace: "Postern", metric: "Errors", dimensions, stat: "Sum" };
      }
      const buildLambdaQuestion = (metric: string): CloudWatchMetricQuery => {
        return {
          namespace: "AWS/Lambda",
          metric,
          dimensions: { FunctionName: functions.getFunctionName(rule) },
          stat: "Sum",
        };
      };
      questions[`${rule} crashed`] = buildLambdaQuestion("Errors");
      questions[`${rule} throttled`] = buildLambdaQuestion("Throttles");
      questions[`${rule} url`] = buildLambdaQuestion("Url5xxCount");
      // The metric counts a request that API Gateway refuses before its route is known under the route "-".
      for (const Route of [buildRoute(rule), "-"]) {
        const dimensions = { Stage: stageName, Route };
        questions[`${rule} gateway ${Route}`] = { ...lostReviewsMetric, dimensions, stat: "Sum" };
      }
    }
    const sums: Record<string, number> = await metrics.ask(questions, from, new Date());
    for (const rule of some) {
      const sum = (what: string) =>
        Object.entries(sums).reduce((all, [id, value]) => (id.startsWith(`${rule} ${what}`) ? all + value : all), 0);
      const losses = causes.flatMap(([what, words]) => (sum(what) > 0 ? [`${sum(what)} ${words}`] : []));
      found.set(rule, { count: Math.max(0, sum("reviews") - (before.probed?.[rule] ?? 0)), losses });
    }
  }
  return found;
};

const causes = [
  ["failed", "failed"],
  ["crashed", "ended by a crash or a timeout"],
  ["throttled", "throttled by Lambda"],
  ["gateway", "answered 429 or 5xx by the gateway"],
  ["url", "answered 5xx at the function's URL"],
] as const;

/** Returns the rules and groups whose failurePolicy hardening changes from Ignore to Fail. */
const findHardenable = (
  catalogue: CatalogueRule[],
  cluster: [string, ClusterConfig],
  endpoints: RuleEndpoints,
): string[] => {
  const names = catalogue.map(({ name }) => name).concat(cluster[1].groups.map(({ name }) => name));
  const readPolicies = (hardened: string[]) =>
    new Map(
      listEntries(buildClusterManifests(catalogue, cluster, endpoints, new Set(hardened))).map((entry) => [
        entry.name,
        entry,
      ]),
    );
  const [before, after] = [readPolicies([]), readPolicies(names)];
  const softened = [...after.values()].filter(
    ({ name, failurePolicy }) => failurePolicy === "Fail" && before.get(name)?.failurePolicy === "Ignore",
  );
  return [...new Set(softened.flatMap((entry) => getRuleNameOfEntry(entry) ?? []))];
};
