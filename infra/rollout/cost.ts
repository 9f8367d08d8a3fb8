import type { AwsStage } from "../aws/stage.ts";
import type { PackagedRule } from "./package.ts";

export interface RuleCostFactors {
  endpointType: "http" | "url";
  memoryMegabytes: number;
  milliseconds: number;
  /** Whether the rule asks its cluster, so that its function takes longer to start. */
  asks: boolean;
}

/** US dollars in us-east-1 on arm64. This is an estimate: prices change and reviews differ. */
const price = {
  /** Dollars for a million calls of an API Gateway HTTP API, up to 512 KB each. */
  gateway: 1,
  requests: 0.2,
  /** Dollars for a million gigabyte-seconds. */
  compute: 13.3334,
  /** Dollars for a gigabyte of logs; a review writes about one kilobyte. */
  logs: 0.5,
};

/** The estimated share of calls with a cold start. */
const coldShare = 0.01;

export const estimateDollarsPerMillionCalls = ({
  endpointType,
  memoryMegabytes,
  milliseconds,
  asks,
}: RuleCostFactors): number => {
  const gigabytes = memoryMegabytes / 1024;
  const start = asks ? 0.3 : 0.15;
  return (
    (endpointType === "http" ? price.gateway : 0) +
    price.requests +
    price.compute * gigabytes * (milliseconds / 1000 + coldShare * start) +
    price.logs
  );
};

/** The estimated cost of a rule's function in dollars: for a million reviews, and for the reviews of a month. */
export interface RuleCost {
  rule: string;
  /** The estimated AWS cost of a million reviews of this rule, in US dollars. */
  million: number;
  reviews: number;
  month: number;
}

const periodDays = 30;

export const estimateRuleCosts = async (
  { functions, metrics }: Pick<AwsStage, "functions" | "metrics">,
  endpointType: "http" | "url",
  parts: PackagedRule[],
  now = new Date(),
): Promise<RuleCost[]> => {
  const buildQuestion = (name: string, metric: string) => ({
    ...{ namespace: "AWS/Lambda" as const, metric, stat: "Sum" as const },
    dimensions: { FunctionName: functions.getFunctionName(name) },
  });
  const questions = Object.fromEntries(
    parts.flatMap(({ name }) => [
      [`${name}/calls`, buildQuestion(name, "Invocations")],
      [`${name}/time`, buildQuestion(name, "Duration")],
    ]),
  );
  const since = new Date(now.getTime() - periodDays * 24 * 3_600_000);
  // A deployment goes on without metrics of calls if they can't be read: the cost is only an estimate.
  const answers = await metrics.ask(questions, since, now).catch((): Record<string, number> => ({}));
  return parts.map(({ name, asks, wanted }) => {
    const reviews = answers[`${name}/calls`] ?? 0;
    const usual = asks ? 30 : 5;
    const milliseconds = reviews > 0 ? (answers[`${name}/time`] ?? 0) / reviews : usual;
    const million = estimateDollarsPerMillionCalls({
      endpointType,
      memoryMegabytes: wanted.memorySize,
      milliseconds,
      asks,
    });
    return { rule: name, million, reviews, month: (million * reviews) / 1e6 };
  });
};
