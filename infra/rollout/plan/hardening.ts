import type { StageFunctions } from "../../aws/lambda-functions.ts";
import { getAccessLogGroup, getFunctionsLogGroup, type LogQueryRow } from "../../aws/log-queries.ts";
import type { CloudWatchMetricQuery } from "../../aws/metrics.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { buildRoute, logRetentionOutputName, lostReviewsMetricOutputName } from "../../build/deployment.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import type { ClusterConfig } from "../../config/config.ts";
import { getRuleNameOfEntry, type WebhookEntry } from "../../webhooks/configurations.ts";
import { buildClusterManifests, listEntries, type RuleEndpoints } from "../clusters/cluster-manifests.ts";
import type { DeploymentTargets } from "../targets.ts";
import type { Release, ReleasedCluster } from "../versions/releases.ts";

/**
 * Returns the rules whose entries get failurePolicy Fail: rules that have it already, in the newest release or in the
 * cluster, and rules that answered at least `harden` reviews without a failure. If `harden` is true, returns all rules
 * that may have it, and if it is false, only those that have it already. Rules in `soften` are never returned.
 */
export const chooseFailClosedRules = async (
  { catalogue, harden, soften = [] }: Pick<DeploymentTargets, "catalogue" | "harden" | "soften">,
  [name, cluster]: [string, ClusterConfig],
  { newest, entries, outputs, readCounts }: StageRecord & PresentEntries,
  endpoints: RuleEndpoints,
): Promise<{ hardened: string[]; notes: string[] }> => {
  const hardenable = findHardenable(catalogue, cluster, endpoints);
  const candidates = [...hardenable.keys()].filter((rule) => !soften.includes(rule));
  if (harden === true) return { hardened: candidates, notes: [] };
  const before = newest?.clusters[name];
  const failing = entries.flatMap((entry) => (entry.failurePolicy === "Fail" ? [entry.name] : []));
  const already = candidates.filter(
    (rule) => before?.hardened.includes(rule) || hardenable.get(rule)?.some((entry) => failing.includes(entry)),
  );
  if (harden === false) return { hardened: already, notes: [] };
  const failOpen = candidates.filter((rule) => !already.includes(rule));
  // The stack of an older Postern has a gateway (BaseUrl), but no metric of the requests that don't reach a function.
  // Failures may then be missing in `reviews`, so no review counts as clean.
  const lacksLossCount = outputs.BaseUrl !== undefined && outputs[lostReviewsMetricOutputName] === undefined;
  const reviews = await readReviews(readCounts, [name, cluster], failOpen, before);
  const counts = failOpen.map((rule) => {
    const { count, losses } = reviews.get(rule) ?? { count: 0, losses: [] };
    const reasons = lacksLossCount
      ? ["the stack doesn't count yet the requests that its gateway loses", ...losses]
      : losses;
    return { rule, clean: reasons.length > 0 ? 0 : count, reasons };
  });
  const ready = new Set(counts.filter(({ clean }) => clean >= harden).map(({ rule }) => rule));
  const keptDays = Number.parseInt(outputs[logRetentionOutputName] ?? "", 10); // The output is for instance "7 days".
  const span = keptDays < lookBackDays ? ` in the ${keptDays} days that logs are kept` : "";
  const notes = counts
    .filter(({ rule }) => !ready.has(rule))
    .map(({ rule, clean, reasons }) => {
      const why = reasons.length > 0 ? ` (${reasons.join(", ")})` : "";
      return `${rule} still fails open: ${clean} of ${harden} reviews without a failure${span}${why}`;
    });
  return { hardened: candidates.filter((rule) => already.includes(rule) || ready.has(rule)), notes };
};

/** A stage's newest release, the outputs of its stack, and what CloudWatch counts. */
export interface StageRecord {
  newest: Release | undefined;
  outputs: Record<string, string>;
  readCounts: StageCountsReader;
}

/** The webhook entries in a cluster. The list is empty if they can't be read. */
export interface PresentEntries {
  entries: readonly Pick<WebhookEntry, "name" | "failurePolicy">[];
}

const [minute, day] = [60_000, 24 * 3_600_000];
const lookBackDays = 7;

/** What CloudWatch has counted for a stage since a time. */
interface StageCounts {
  /** The number of reviews and of failed reviews, by cluster, rule and mode. */
  reviews: LogQueryRow[];
  /** The number of requests that the gateway answered without a function, by route. */
  gatewayErrors: LogQueryRow[];
  /** The values of Lambda's metrics, by rule and metric. */
  functionMetrics: Record<string, number>;
}

export type StageCountsReader = (from: Date) => Promise<StageCounts>;

/**
 * Returns a function that counts the reviews of all clusters since a time. It keeps each answer by the minute, and so
 * reads once for clusters whose entries were applied in the same minute. CloudWatch charges for what a query reads.
 */
export const createStageCountsReader = (
  targets: Pick<DeploymentTargets, "catalogue"> & {
    stage: Pick<AwsStage, "name" | "metrics"> & { logs: Pick<AwsStage["logs"], "query"> } & {
      functions: Pick<StageFunctions, "getFunctionName">;
    };
    config: Pick<DeploymentTargets["config"], "groups">;
  },
  outputs: Record<string, string>,
): StageCountsReader => {
  const { stage, catalogue, config } = targets;
  // Only guards (rules for security), and groups, which may contain guards, can get failurePolicy Fail.
  const hardenable = [...catalogue.filter(({ rule }) => rule.guards), ...config.groups].map(({ name }) => name);
  const countsByStart = new Map<number, Promise<StageCounts>>();
  const read = async (from: Date): Promise<StageCounts> => {
    const to = new Date();
    const [reviews, gatewayErrors, functionMetrics] = await Promise.all([
      stage.logs.query(getFunctionsLogGroup(stage.name), buildReviewQuery(hardenable), from, to),
      outputs.BaseUrl === undefined ? [] : stage.logs.query(getAccessLogGroup(stage.name), errorsByRoute, from, to),
      stage.metrics.ask(
        Object.fromEntries(hardenable.flatMap((name) => buildLambdaQuestions(name, stage.functions))),
        from,
        to,
      ),
    ]);
    return { reviews, gatewayErrors, functionMetrics };
  };
  return (from) => {
    const start = Math.floor(from.getTime() / minute) * minute;
    const counts = countsByStart.get(start) ?? read(new Date(start));
    countsByStart.set(start, counts);
    return counts;
  };
};

/** Builds a query of the functions' log. Names of rules need no quoting: they have only letters, digits and hyphens. */
const buildReviewQuery = (rules: string[]) =>
  `filter ispresent(Cluster) and Rule in [${rules.map((rule) => `"${rule}"`).join(", ")}]
| stats sum(Reviews) as reviews, sum(Errors) as failed by Cluster, Rule, Mode`;

/**
 * A query of the gateway's log: counts requests that the gateway answered with 429 or 5xx itself. The field `function`
 * is the status that the function returned, or "-" if it returned none.
 */
const errorsByRoute =
  "filter status like /^(429|5..)$/ and function not like /^5/ | stats count(*) as lost by routeKey";

const buildLambdaQuestions = (rule: string, { getFunctionName }: Pick<StageFunctions, "getFunctionName">) =>
  ["Errors", "Throttles", "Url5xxCount"].map((metric): [string, CloudWatchMetricQuery] => [
    `${rule} ${metric}`,
    { namespace: "AWS/Lambda", metric, dimensions: { FunctionName: getFunctionName(rule) }, stat: "Sum" },
  ]);

interface ReviewCount {
  /** The number of reviews that a rule answered for API servers, without Postern's own probes. */
  count: number;
  /** Why reviews failed, and how many, for instance "2 throttled by Lambda". */
  losses: string[];
}

/**
 * Counts, by rule, the reviews of one cluster in the rule's present mode, and their failures: since the rule's webhook
 * entries were first applied, but for at most seven days. The functions' log says a review's cluster. AWS's metrics
 * (crashes, timeouts, throttling) and the gateway's log don't, so failures that they show count for every cluster.
 */
const readReviews = async (
  readCounts: StageCountsReader,
  [name, cluster]: [string, ClusterConfig],
  rules: string[],
  before: ReleasedCluster | undefined,
): Promise<Map<string, ReviewCount>> => {
  const found = new Map<string, ReviewCount>();
  for (const rule of rules) {
    const since = before?.since[rule];
    if (since === undefined) continue;
    const from = new Date(Math.max(Date.parse(since), Date.now() - lookBackDays * day));
    const { reviews, gatewayErrors, functionMetrics } = await readCounts(from);
    // Reviews from before a change of the rule's mode don't show how the rule works in its present mode.
    const mode = cluster.rules.get(rule)?.mode ?? "enforce";
    const ofCluster = reviews.filter((row) => row.Cluster === name && row.Rule === rule && row.Mode === mode);
    // A request that API Gateway refuses before its route is known has the route "-".
    const ofRoute = gatewayErrors.filter(({ routeKey = "-" }) => [buildRoute(rule), "-"].includes(routeKey));
    const causes = Object.entries({
      failed: sumField(ofCluster, "failed"),
      "ended by a crash or a timeout": functionMetrics[`${rule} Errors`] ?? 0,
      "throttled by Lambda": functionMetrics[`${rule} Throttles`] ?? 0,
      "answered 429 or 5xx by the gateway": sumField(ofRoute, "lost"),
      "answered 5xx at the function's URL": functionMetrics[`${rule} Url5xxCount`] ?? 0,
    });
    const probesByPostern = before?.probed?.[rule] ?? 0;
    found.set(rule, {
      count: Math.max(0, sumField(ofCluster, "reviews") - probesByPostern),
      losses: causes.flatMap(([words, count]) => (count > 0 ? [`${count} ${words}`] : [])),
    });
  }
  return found;
};

const sumField = (rows: LogQueryRow[], field: string) => rows.reduce((sum, row) => sum + Number(row[field] ?? 0), 0);

/**
 * Returns, by rule or group, the names of the entries whose failurePolicy is Ignore, and would be Fail if the rule were
 * hardened.
 */
const findHardenable = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  endpoints: RuleEndpoints,
): Map<string, string[]> => {
  const names = catalogue.map(({ name }) => name).concat(cluster.groups.map(({ name }) => name));
  const buildEntries = (hardened: string[]) => {
    const manifests = buildClusterManifests(catalogue, cluster, endpoints, new Set(hardened));
    return new Map(listEntries(manifests).map((entry) => [entry.name, entry]));
  };
  const [before, after] = [buildEntries([]), buildEntries(names)];
  const changing = [...after.values()].filter(
    ({ name, failurePolicy }) => failurePolicy === "Fail" && before.get(name)?.failurePolicy === "Ignore",
  );
  const byRule = Map.groupBy(changing, (entry) => getRuleNameOfEntry(entry) ?? "");
  return new Map([...byRule].map(([rule, entries]) => [rule, entries.map((entry) => entry.name)]));
};
