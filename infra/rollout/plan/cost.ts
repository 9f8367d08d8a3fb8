import type { AwsStage } from "../../aws/stage.ts";
import type { PackagedRule } from "../versions/package.ts";

// Estimates of what a stage costs. Prices change, and reviews differ in size and time.

type EndpointType = "http" | "url";

/** What the cost of a rule's function depends on. */
export interface RuleCostFactors {
  memoryMegabytes: number;
  milliseconds: number;
  /** Whether the rule asks its cluster, so that its function takes longer to start. */
  asks: boolean;
  /** The number of calls of the function for one write: one for each phase. */
  phases: number;
  /** The number of environments that are kept warm. */
  warm: number;
  /** Whether the rule keeps a ledger: each review then reads and writes a value, at most. */
  ledger: boolean;
}

/** US dollars in us-east-1 on arm64, without free tiers, from AWS's price pages. */
export const prices = {
  date: "November 2026",
  /** For a million requests to Lambda. */
  requests: 0.2,
  /** For a million gigabyte-seconds. */
  compute: 13.3334,
  /** For a million gigabyte-seconds of environments that are kept warm. */
  warm: 3.3334,
  /** For a million calls of an HTTP API of up to 512 KB: the first 300 million of a month, and the others. */
  gateway: [1, 0.9],
  /** For a gigabyte that CloudWatch Logs takes in. */
  logs: 0.5,
  /** For a million units of DynamoDB on demand: a strongly consistent read of 4 KB, and a write of 1 KB. */
  ledger: { read: 0.125, write: 0.625 },
  /** For a custom metric, a month. */
  metric: 0.3,
  /** For each metric that an alarm watches, a month. */
  alarm: 0.1,
  /** A month. */
  dashboard: 3,
} as const;

/** The estimated share of calls with a cold start. */
const coldShare = 0.01;
/** The gigabytes of a million log lines: the function's for each review, and the gateway's for each call. */
const logGigabytes = { review: 0.75, access: 0.25 };
const firstGatewayMillions = 300;
const secondsInPeriod = 30 * 24 * 3600;

const sum = (numbers: number[]) => numbers.reduce((all, number) => all + number, 0);

/** Returns the dollars for a million calls of a rule's function, by what they pay for. */
const estimateMillionCalls = (
  { memoryMegabytes, milliseconds, asks, ledger }: RuleCostFactors,
  endpointType: EndpointType,
) => {
  const gigabytes = memoryMegabytes / 1024;
  const isHttp = endpointType === "http";
  return {
    requests: prices.requests,
    compute: (prices.compute * gigabytes * milliseconds) / 1000,
    init: prices.compute * gigabytes * coldShare * (asks ? 0.3 : 0.15),
    gateway: isHttp ? prices.gateway[0] : 0,
    logs: prices.logs * (logGigabytes.review + (isHttp ? logGigabytes.access : 0)),
    ledger: ledger ? prices.ledger.read + prices.ledger.write : 0,
  };
};

export const estimateDollarsPerMillionCalls = (rule: RuleCostFactors, endpointType: EndpointType): number =>
  sum(Object.values(estimateMillionCalls(rule, endpointType)));

/** Returns the number of metrics that a stage writes itself: Errors, Latency, ColdStart, Lost, and each rule's Denials. */
const countMetrics = (rules: number, endpointType: EndpointType) => (endpointType === "http" ? 4 : 3) + rules;

/** Returns the number of metrics that a stage's alarms watch. */
export const countAlarmMetrics = (rules: number, endpointType: EndpointType): number =>
  endpointType === "http" ? 4 : 2 + 2 * rules;

/** Returns the dollars of a month in which each of so many writes is reviewed by all rules in all their phases. */
const estimateStageCost = (
  rules: RuleCostFactors[],
  endpointType: EndpointType,
  writes: number,
): Record<string, number> => {
  const millions = writes / 1e6;
  const calls = rules.map((rule) => [rule.phases * millions, estimateMillionCalls(rule, endpointType)] as const);
  const add = (part: keyof ReturnType<typeof estimateMillionCalls>) =>
    sum(calls.map(([count, cost]) => count * cost[part]));
  const cheaper = Math.max(0, sum(calls.map(([count]) => count)) - firstGatewayMillions);
  const [price, lowerPrice] = prices.gateway;
  return {
    requests: add("requests"),
    compute: add("compute"),
    "cold starts": add("init"),
    gateway: endpointType === "http" ? add("gateway") - cheaper * (price - lowerPrice) : 0,
    logs: add("logs"),
    ledger: add("ledger"),
    metrics: prices.metric * countMetrics(rules.length, endpointType),
    alarms: prices.alarm * countAlarmMetrics(rules.length, endpointType),
    dashboard: prices.dashboard,
    "warm environments": sum(
      rules.map(({ warm, memoryMegabytes }) => (prices.warm * warm * (memoryMegabytes / 1024) * secondsInPeriod) / 1e6),
    ),
  };
};

/** The estimated cost of a month with so many writes, by what it pays for, in US dollars. */
export interface MonthlyCost {
  writes: number;
  endpointType: EndpointType;
  dollars: Record<string, number>;
}

/** Estimates months with a million and with a hundred million writes, for both endpoint types. */
export const estimateMonths = (rules: RuleCostFactors[]): MonthlyCost[] =>
  [1e6, 100e6].flatMap((writes) =>
    (["http", "url"] as const).map((endpointType) => {
      return { writes, endpointType, dollars: estimateStageCost(rules, endpointType, writes) };
    }),
  );

/** Returns a table of monthly costs: a row for each part that costs something, and for the total. */
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

/** The estimated cost of a rule's function in dollars: for a million reviews, and for the reviews of a month. */
export interface RuleCost {
  rule: string;
  /** The estimated AWS cost of a million reviews of this rule, in US dollars. */
  million: number;
  reviews: number;
  month: number;
}

/** What a plan says of a stage's costs. */
export interface StageCosts {
  rules: RuleCost[];
  months: MonthlyCost[];
}

/** Estimates the cost of each rule and of the stage from the calls and times of the last thirty days. */
export const estimateStageCosts = async (
  { functions, metrics }: Pick<AwsStage, "functions" | "metrics">,
  endpointType: EndpointType,
  parts: PackagedRule[],
  now = new Date(),
): Promise<StageCosts> => {
  const buildQuestion = (name: string, metric: string) => ({
    namespace: "AWS/Lambda" as const,
    metric,
    stat: "Sum" as const,
    dimensions: { FunctionName: functions.getFunctionName(name) },
  });
  const questions = Object.fromEntries(
    parts.flatMap(({ name }) => [
      [`${name}/calls`, buildQuestion(name, "Invocations")],
      [`${name}/time`, buildQuestion(name, "Duration")],
    ]),
  );
  const since = new Date(now.getTime() - secondsInPeriod * 1000);
  // A deployment goes on without metrics of calls if they can't be read: the cost is only an estimate.
  const answers = await metrics.ask(questions, since, now).catch((): Record<string, number> => ({}));
  const all = parts.map(({ name, asks, wanted, listed, warm }) => {
    const reviews = answers[`${name}/calls`] ?? 0;
    const milliseconds = reviews > 0 ? (answers[`${name}/time`] ?? 0) / reviews : asks ? 30 : 5;
    return {
      name,
      reviews,
      milliseconds,
      asks,
      memoryMegabytes: wanted.memorySize,
      phases: listed.phases.length,
      warm: warm ?? 0,
      ledger: wanted.environment.POSTERN_LEDGER !== undefined,
    };
  });
  return {
    rules: all.map(({ name, reviews, ...rule }) => {
      const million = estimateDollarsPerMillionCalls(rule, endpointType);
      return { rule: name, million, reviews, month: (million * reviews) / 1e6 };
    }),
    months: estimateMonths(all),
  };
};
