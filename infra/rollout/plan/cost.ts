import type { CloudWatchMetricQuery } from "../../aws/metrics.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { buildLedgerTableName } from "../../catalogue/rule-names.ts";
import type { PackagedRule } from "../versions/package.ts";

// Estimates of what a stage costs. Prices change, and reviews differ in size and time.

type EndpointType = "http" | "url";

/** What the cost of a rule's function depends on. */
export interface RuleCostFactors {
  memoryMegabytes: number;
  milliseconds: number;
  /** Whether the rule reads from its cluster. The function of such a rule takes longer to start. */
  readsCluster: boolean;
  /** The number of calls of the function for one write: one for each phase. */
  phases: number;
  /** The number of environments that are kept warm. */
  warmEnvironments: number;
  /** The dollars of the ledger for a million calls; 0 without a ledger. */
  ledgerDollars: number;
}

/** Prices in US dollars for arm64, from AWS's price pages. Free tiers are not counted. */
export const prices = {
  region: "us-east-1",
  date: "November 2026",
  /** For a million requests to Lambda. */
  requests: 0.2,
  /** For a million gigabyte-seconds. */
  compute: 13.3334,
  /** For a million gigabyte-seconds of environments that are kept warm. */
  warm: 3.3334,
  /** For a million calls of an HTTP API of up to 512 KB each: in the first 300 million of a month, and after them. */
  gateway: [1, 0.9],
  /** For a gigabyte that is written to CloudWatch Logs. */
  logs: 0.5,
  /** For a million units of DynamoDB on demand: a strongly consistent read of 4 KB, and a write of 1 KB. */
  ledger: { read: 0.125, write: 0.625 },
  /** For a custom metric, a month. */
  metric: 0.3,
  /** For each metric that an alarm watches, a month. */
  alarm: 0.1,
  /** A month. */
  dashboard: 3,
  /**
   * In one zone: an hour of a NAT gateway, of its public address and of an interface endpoint; and a gigabyte through
   * each.
   */
  vpc: { natHour: 0.045, addressHour: 0.005, natGigabyte: 0.045, endpointHour: 0.01, endpointGigabyte: 0.01 },
} as const;

/** What a review uses of the ledger, in units of DynamoDB. */
interface LedgerUse {
  /** The kind of review, for instance "a refusal". */
  review: string;
  read: number;
  write: number;
}

/**
 * The read and write units of DynamoDB that a review uses, by rule and by kind of review, if the rule has one limit or
 * quota and values of up to 1 KB: tests count them. The estimate of a month assumes that all reviews of a rule are of
 * its first kind. docs/background/ledger.md explains words such as charge.
 */
export const ledgerUses: Record<string, [LedgerUse, ...LedgerUse[]]> = {
  "deletion-guard": [
    { review: "the first refusal for a pod", read: 2, write: 2 },
    { review: "another refusal", read: 1, write: 0 },
  ],
  "event-rate-limit": [
    { review: "an event", read: 1, write: 1 },
    { review: "an event beyond the limit", read: 1, write: 0 },
  ],
  "workload-quota": [
    { review: "a charge", read: 2, write: 4 },
    { review: "a release", read: 1, write: 1 },
    { review: "a refusal", read: 70, write: 0 },
    { review: "a refusal that replaces 10 reservations", read: 82, write: 24 },
  ],
};

/** What a review of a rule from another catalogue is assumed to use of the ledger. */
const otherLedgerUses: [LedgerUse] = [{ review: "a change of one value", read: 1, write: 1 }];

export const computeLedgerDollars = ({ read, write }: Omit<LedgerUse, "review">): number =>
  read * prices.ledger.read + write * prices.ledger.write;

/** The estimated share of calls with a cold start. */
const coldShare = 0.01;
/** The estimated seconds of a cold start. */
const coldStartSeconds = { usual: 0.15, readsCluster: 0.3 };
/** The estimated milliseconds of a review, if Lambda has no metrics of the function. */
const reviewMilliseconds = { usual: 5, readsCluster: 30 };
/** The gigabytes of a million log lines: the function's for each review, and the gateway's for each call. */
const logGigabytes = { review: 0.75, access: 0.25 };
/** The millions of calls in a month that have the first, higher price of `prices.gateway`. */
const firstGatewayMillions = 300;
const secondsInPeriod = 30 * 24 * 3600;

/** The dollars of a NAT gateway with its address for thirty days, in one zone. */
export const natDollars = ((prices.vpc.natHour + prices.vpc.addressHour) * secondsInPeriod) / 3600;

const sum = (numbers: number[]) => numbers.reduce((all, number) => all + number, 0);

/** Returns the dollars for a million calls of a rule's function, for instance `{ requests: 0.2, compute: 0.1, … }`. */
const estimateMillionCalls = (
  { memoryMegabytes, milliseconds, readsCluster, ledgerDollars }: RuleCostFactors,
  endpointType: EndpointType,
) => {
  const gigabytes = memoryMegabytes / 1024;
  const isHttp = endpointType === "http";
  return {
    requests: prices.requests,
    compute: (prices.compute * gigabytes * milliseconds) / 1000,
    init:
      prices.compute * gigabytes * coldShare * (readsCluster ? coldStartSeconds.readsCluster : coldStartSeconds.usual),
    gateway: isHttp ? prices.gateway[0] : 0,
    logs: prices.logs * (logGigabytes.review + (isHttp ? logGigabytes.access : 0)),
    ledger: ledgerDollars,
  };
};

export const estimateDollarsPerMillionCalls = (rule: RuleCostFactors, endpointType: EndpointType): number =>
  sum(Object.values(estimateMillionCalls(rule, endpointType)));

/**
 * Returns the number of custom metrics of a stage: Errors, Latency, ColdStart, for an HTTP API also Lost, and the
 * Denials of each rule.
 */
const countMetrics = (rules: number, endpointType: EndpointType) => (endpointType === "http" ? 4 : 3) + rules;

/** Returns the number of metrics that a stage's alarms watch. Alarms for schedules are not counted. */
export const countAlarmMetrics = (rules: number, endpointType: EndpointType): number =>
  (endpointType === "http" ? 4 : 2) + 2 * rules;

/** Returns the dollars of a month with so many writes, if every rule reviews every write in all its phases. */
const estimateStageCost = (
  rules: RuleCostFactors[],
  endpointType: EndpointType,
  writes: number,
): Record<string, number> => {
  const millions = writes / 1e6;
  const calls = rules.map((rule) => [rule.phases * millions, estimateMillionCalls(rule, endpointType)] as const);
  const addUp = (part: keyof ReturnType<typeof estimateMillionCalls>) =>
    sum(calls.map(([count, cost]) => count * cost[part]));
  const cheaperMillions = Math.max(0, sum(calls.map(([count]) => count)) - firstGatewayMillions);
  const [price, lowerPrice] = prices.gateway;
  return {
    requests: addUp("requests"),
    compute: addUp("compute"),
    "cold starts": addUp("init"),
    gateway: endpointType === "http" ? addUp("gateway") - cheaperMillions * (price - lowerPrice) : 0,
    logs: addUp("logs"),
    ledger: addUp("ledger"),
    metrics: prices.metric * countMetrics(rules.length, endpointType),
    alarms: prices.alarm * countAlarmMetrics(rules.length, endpointType),
    dashboard: prices.dashboard,
    "warm environments": sum(
      rules.map(
        ({ warmEnvironments, memoryMegabytes }) =>
          (prices.warm * warmEnvironments * (memoryMegabytes / 1024) * secondsInPeriod) / 1e6,
      ),
    ),
  };
};

/** The estimated cost of a month. */
export interface MonthlyCost {
  writes: number; // the number of write requests to API servers in the month, as the estimate assumes
  endpointType: EndpointType;
  /** US dollars by what they pay for, for instance `{ requests: 0.2, compute: 0.1, … }`. */
  dollars: Record<string, number>;
}

/** Estimates months with a million and with a hundred million writes, for both endpoint types. */
export const estimateMonths = (rules: RuleCostFactors[]): MonthlyCost[] =>
  [1e6, 100e6].flatMap((writes) =>
    (["http", "url"] as const).map((endpointType) => {
      return { writes, endpointType, dollars: estimateStageCost(rules, endpointType, writes) };
    }),
  );

/** Returns a table with a column for each month, a row for each part that costs something, and a row for the total. */
export const buildCostTable = (months: MonthlyCost[]): string[][] => {
  const parts = Object.keys(months[0]?.dollars ?? {}).filter((part) => months.some(({ dollars }) => dollars[part]));
  const formatRow = (name: string, pick: (dollars: Record<string, number>) => number) => [
    name,
    ...months.map(({ dollars }) => pick(dollars).toFixed(2)),
  ];
  return [
    ["A MONTH", ...months.map(({ writes, endpointType }) => `${writes / 1e6} M writes, ${endpointType}`)],
    ...parts.map((part) => formatRow(part, (dollars) => dollars[part] ?? 0)),
    formatRow("total", (dollars) => sum(Object.values(dollars))),
  ];
};

/** The estimated cost of a rule's function in US dollars. */
export interface RuleCost {
  rule: string;
  /** For a million reviews, without the ledger. */
  million: number;
  /** The number of reviews of API servers in the last thirty days. */
  reviews: number;
  /** For the reviews of the last thirty days, without the ledger. */
  month: number;
  /** What the ledger adds for a million reviews of each kind. Absent if the rule keeps no ledger. */
  ledger?: { review: string; million: number }[];
}

/** What a plan says of a stage's costs. */
export interface StageCosts {
  rules: RuleCost[];
  months: MonthlyCost[];
  /** The dollars for the units of DynamoDB that the ledger used in the last thirty days; absent without a ledger. */
  ledgerMonth?: number;
  /** Whether functions are in a VPC. */
  isInVpc?: boolean;
}

/** Estimates the cost of each rule and of the stage from the reviews and times of the last thirty days. */
export const estimateStageCosts = async (
  { name: stage, functions, metrics }: Pick<AwsStage, "name" | "functions" | "metrics">,
  endpointType: EndpointType,
  packagedRules: PackagedRule[],
  now = new Date(),
): Promise<StageCosts> => {
  const buildLambdaQuery = (name: string, metric: string): CloudWatchMetricQuery => ({
    namespace: "AWS/Lambda",
    metric,
    stat: "Sum",
    dimensions: { FunctionName: functions.getFunctionName(name) },
  });
  const buildLedgerQuery = (metric: string): CloudWatchMetricQuery => ({
    namespace: "AWS/DynamoDB",
    metric,
    stat: "Sum",
    dimensions: { TableName: buildLedgerTableName(stage) },
  });
  const keepsLedger = ({ wanted }: PackagedRule) => wanted.environment.POSTERN_LEDGER !== undefined;
  const hasLedger = packagedRules.some(keepsLedger);
  const queries: Record<string, CloudWatchMetricQuery> = Object.fromEntries([
    ...packagedRules.flatMap(({ name }): [string, CloudWatchMetricQuery][] => [
      // Lambda also counts probes, cases and scheduled calls.
      [
        `${name}/reviews`,
        { namespace: "Postern", metric: "Denials", stat: "SampleCount", dimensions: { Stage: stage, Rule: name } },
      ],
      [`${name}/calls`, buildLambdaQuery(name, "Invocations")],
      [`${name}/time`, buildLambdaQuery(name, "Duration")],
    ]),
    ...(hasLedger
      ? [
          ["ledger/read", buildLedgerQuery("ConsumedReadCapacityUnits")] as const,
          ["ledger/write", buildLedgerQuery("ConsumedWriteCapacityUnits")] as const,
        ]
      : []),
  ]);
  const since = new Date(now.getTime() - secondsInPeriod * 1000);
  // If metrics can't be read, the deployment continues without them: the cost is only an estimate.
  const answers = await metrics.ask(queries, since, now).catch((): Record<string, number> => ({}));
  const factors = packagedRules.map((part) => {
    const { name, readsCluster, wanted, listed, warm } = part;
    const calls = answers[`${name}/calls`] ?? 0;
    const assumedMilliseconds = readsCluster ? reviewMilliseconds.readsCluster : reviewMilliseconds.usual;
    const uses = keepsLedger(part) ? (ledgerUses[name] ?? otherLedgerUses) : undefined;
    return {
      name,
      reviews: answers[`${name}/reviews`] ?? 0,
      milliseconds: calls > 0 ? (answers[`${name}/time`] ?? 0) / calls : assumedMilliseconds,
      readsCluster,
      memoryMegabytes: wanted.memorySize,
      phases: listed.phases.length,
      warmEnvironments: warm ?? 0,
      uses,
      // The months are estimated as if all reviews were of the first kind.
      ledgerDollars: uses ? computeLedgerDollars(uses[0]) : 0,
    };
  });
  const units = { read: answers["ledger/read"] ?? 0, write: answers["ledger/write"] ?? 0 };
  return {
    rules: factors.map(({ name, reviews, uses, ...rule }) => {
      const million = estimateDollarsPerMillionCalls({ ...rule, ledgerDollars: 0 }, endpointType);
      const ledger = uses?.map((use) => ({ review: use.review, million: computeLedgerDollars(use) }));
      return { rule: name, million, reviews, month: (million * reviews) / 1e6, ...(ledger && { ledger }) };
    }),
    months: estimateMonths(factors),
    ...(hasLedger && { ledgerMonth: computeLedgerDollars(units) / 1e6 }),
    isInVpc: packagedRules.some(({ wanted }) => (wanted.stackSettings.VpcConfig?.SubnetIds ?? []).length > 0),
  };
};
