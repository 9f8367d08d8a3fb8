import type { Stage } from "../aws/stage.ts";
import type { Part } from "./package.ts";

export interface Use {
  door: "http" | "url";
  memoryMegabytes: number;
  milliseconds: number;
  /** A rule that asks a cluster takes longer to start. */
  asks: boolean;
}

/** US dollars in us-east-1 on arm64. This is an estimate: prices change and reviews differ. */
const price = {
  /** A million calls of an HTTP API, up to 512 KB each. */
  gateway: 1,
  requests: 0.2,
  /** A million gigabyte-seconds. */
  compute: 13.3334,
  /** A gigabyte of logs; a review writes about one kilobyte. */
  logs: 0.5,
};

/** The estimated share of calls with a cold start. */
const coldShare = 0.01;

export const costOfMillion = ({ door, memoryMegabytes, milliseconds, asks }: Use): number => {
  const gigabytes = memoryMegabytes / 1024;
  const start = asks ? 0.3 : 0.15;
  return (
    (door === "http" ? price.gateway : 0) +
    price.requests +
    price.compute * gigabytes * (milliseconds / 1000 + coldShare * start) +
    price.logs
  );
};

export interface Cost {
  rule: string;
  /** Dollars for a million reviews. */
  million: number;
  reviews: number;
  month: number;
}

const days = 30;

export const planCosts = async (
  { functions, metrics }: Pick<Stage, "functions" | "metrics">,
  door: "http" | "url",
  parts: Part[],
  now = new Date(),
): Promise<Cost[]> => {
  const about = (name: string, metric: string) => ({
    ...{ namespace: "AWS/Lambda" as const, metric, stat: "Sum" as const },
    dimensions: { FunctionName: functions.nameOf(name) },
  });
  const questions = Object.fromEntries(
    parts.flatMap(({ name }) => [
      [`${name}/calls`, about(name, "Invocations")],
      [`${name}/time`, about(name, "Duration")],
    ]),
  );
  const since = new Date(now.getTime() - days * 24 * 3_600_000);
  // A failed estimate must not prevent a deployment.
  const answers = await metrics.ask(questions, since, now).catch((): Record<string, number> => ({}));
  return parts.map(({ name, asks, wanted }) => {
    const reviews = answers[`${name}/calls`] ?? 0;
    const usual = asks ? 30 : 5;
    const milliseconds = reviews > 0 ? (answers[`${name}/time`] ?? 0) / reviews : usual;
    const million = costOfMillion({ door, memoryMegabytes: wanted.memorySize, milliseconds, asks });
    return { rule: name, million, reviews, month: (million * reviews) / 1e6 };
  });
};
