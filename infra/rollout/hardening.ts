import type { StageFunctions } from "../aws/lambda-functions.ts";
import { getAccessLogGroup, getFunctionsLogGroup, type LogQueryRow } from "../aws/log-queries.ts";
import type { CloudWatchMetricQuery } from "../aws/metrics.ts";
import type { AwsStage } from "../aws/stage.ts";
import { buildRoute, logRetentionOutputName, lostReviewsMetricOutputName } from "../build/deployment.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig } from "../config/config.ts";
import { getRuleNameOfEntry } from "../webhooks/configurations.ts";
import { buildClusterManifests, listEntries, type RuleEndpoints } from "./cluster-manifests.ts";
import type { Release, ReleasedCluster } from "./releases.ts";
import type { DeploymentTargets } from "./targets.ts";

/** The parts of a stage from which its reviews are counted. */
type CountedStage = Pick<AwsStage, "name" | "logs" | "metrics"> & {
  functions: Pick<StageFunctions, "getFunctionName">;
};

/** Returns the rules to make fail closed: those that already do, and those with enough reviews without an error. */
export const chooseFailClosedRules = async (
  targets: Pick<DeploymentTargets, "catalogue" | "harden"> & { stage: CountedStage },
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
  const hasGateway = outputs.BaseUrl !== undefined;
  // The access log of an older version of Postern doesn't show which reviews its gateway loses.
  const isUncounted = hasGateway && outputs[lostReviewsMetricOutputName] === undefined;
  const reviews = await readReviews(stage, name, cluster, others, before, hasGateway);
  const counts = others.map((rule) => {
    const { count, losses } = reviews.get(rule) ?? { count: 0, losses: [] };
    const reasons = isUncounted
      ? ["the stack doesn't count yet the requests that its gateway loses", ...losses]
      : losses;
    return { rule, clean: reasons.length > 0 ? 0 : count, reasons };
  });
  const ready = new Set(counts.filter(({ clean }) => clean >= harden).map(({ rule }) => rule));
  const keptDays = Number.parseInt(outputs[logRetentionOutputName] ?? "", 10);
  const span = keptDays < lookBackDays ? ` in the ${keptDays} days that logs are kept` : "";
  const notes = counts
    .filter(({ rule }) => !ready.has(rule))
    .map(({ rule, clean, reasons }) => {
      const why = reasons.length > 0 ? ` (${reasons.join(", ")})` : "";
      return `${rule} still fails open: ${clean} of ${harden} reviews without a failure${span}${why}`;
    });
  return { hardened: candidates.filter((rule) => already.includes(rule) || ready.has(rule)), notes };
};

const day = 24 * 3_600_000;
const lookBackDays = 7;

interface ReviewCount {
  /** The number of reviews that a rule answered for API servers, without Postern's own probes. */
  count: number;
  losses: string[];
}

/**
 * Reads from CloudWatch how many reviews each rule got and how many failed, since a cluster's entries were applied or
 * in the last seven days. The functions' log has the cluster of each review.
 * AWS's metrics (crashes, timeouts, throttling) and the gateway's log don't, so they count for every cluster.
 */
const readReviews = async (
  stage: CountedStage,
  name: string,
  cluster: ClusterConfig,
  rules: string[],
  before: ReleasedCluster | undefined,
  hasGateway: boolean,
): Promise<Map<string, ReviewCount>> => {
  const there = rules.filter((rule) => before?.since[rule] !== undefined);
  if (before === undefined || there.length === 0) return new Map();
  const found = new Map<string, ReviewCount>();
  for (const [since, some] of Map.groupBy(there, (rule) => before.since[rule] ?? "")) {
    const [from, to] = [new Date(Math.max(Date.parse(since), Date.now() - lookBackDays * day)), new Date()];
    const [answered, lost, sums] = await Promise.all([
      stage.logs.query(getFunctionsLogGroup(stage.name), buildReviewQuery(name), from, to),
      hasGateway ? stage.logs.query(getAccessLogGroup(stage.name), lossesByRoute, from, to) : [],
      stage.metrics.ask(buildLambdaQuestions(stage, some), from, to),
    ]);
    for (const rule of some) {
      const mode = cluster.rules.get(rule)?.mode ?? "enforce";
      const own = answered.filter((row) => row.Rule === rule && row.Mode === mode);
      // A request that API Gateway refuses before its route is known has the route "-".
      const ofRoute = lost.filter(({ routeKey = "-" }) => [buildRoute(rule), "-"].includes(routeKey));
      const losses = Object.entries({
        failed: sumField(own, "failed"),
        "ended by a crash or a timeout": sums[`${rule} Errors`] ?? 0,
        "throttled by Lambda": sums[`${rule} Throttles`] ?? 0,
        "answered 429 or 5xx by the gateway": sumField(ofRoute, "lost"),
        "answered 5xx at the function's URL": sums[`${rule} Url5xxCount`] ?? 0,
      }).flatMap(([words, count]) => (count > 0 ? [`${count} ${words}`] : []));
      found.set(rule, { count: Math.max(0, sumField(own, "reviews") - (before.probed?.[rule] ?? 0)), losses });
    }
  }
  return found;
};

/** Builds a query of the functions' log for one cluster; a cluster's name has only letters, digits and hyphens. */
const buildReviewQuery = (cluster: string) =>
  `filter Cluster = "${cluster}" | stats sum(Reviews) as reviews, sum(Errors) as failed by Rule, Mode`;

/** Counts requests that the gateway answered itself: `function` is the function's status, or "-" if it returned none. */
const lossesByRoute =
  "filter status like /^(429|5..)$/ and function not like /^5/ | stats count(*) as lost by routeKey";

const buildLambdaQuestions = ({ functions }: CountedStage, rules: string[]): Record<string, CloudWatchMetricQuery> => {
  const questions = rules.flatMap((rule) =>
    ["Errors", "Throttles", "Url5xxCount"].map((metric): [string, CloudWatchMetricQuery] => {
      const dimensions = { FunctionName: functions.getFunctionName(rule) };
      return [`${rule} ${metric}`, { namespace: "AWS/Lambda", metric, dimensions, stat: "Sum" }];
    }),
  );
  return Object.fromEntries(questions);
};

const sumField = (rows: LogQueryRow[], field: string) => rows.reduce((sum, row) => sum + Number(row[field] ?? 0), 0);

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
