import { CloudWatch, type MetricDataQuery, paginateGetMetricData } from "#aws/client-cloudwatch";

import { openAwsClient } from "./client.ts";

/** A query for one CloudWatch metric. */
export interface CloudWatchMetricQuery {
  namespace: "AWS/Lambda" | "AWS/DynamoDB" | "Postern";
  metric: string;
  dimensions: Record<string, string>;
  /** "Sum" adds the values of the metric, and "SampleCount" counts them. */
  stat: "Sum" | "SampleCount";
}

/** The metrics of a stage in CloudWatch, where a call appears after a minute or two. */
export interface StageMetricsReader {
  /** Returns one number for each query; 0 if CloudWatch has no data. */
  ask<K extends string>(queries: Record<K, CloudWatchMetricQuery>, from: Date, to: Date): Promise<Record<K, number>>;
}

const minute = 60_000;
/** The most queries in one GetMetricData call of CloudWatch. */
const maxQueries = 500;

/** Reads sums of metrics over a time span from CloudWatch. */
export const createStageMetricsReader = (
  client = openAwsClient(CloudWatch, { maxAttempts: 5 }),
): StageMetricsReader => ({
  ask: async (queries, from, to) => {
    const [start, end] = [Math.floor(from.getTime() / minute) * minute, Math.ceil(to.getTime() / minute) * minute];
    const names = Object.keys(queries) as (keyof typeof queries)[];
    const answers = new Map<string, number>(names.map((name) => [name, 0]));
    const Period = choosePeriod(start, end);
    for (let first = 0; first < names.length; first += maxQueries) {
      const namesOfCall = names.slice(first, first + maxQueries);
      const MetricDataQueries = namesOfCall.map((name, index) => buildQuery(queries[name], `q${index}`, Period));
      const span = { StartTime: new Date(start), EndTime: new Date(Math.max(end, start + minute)) };
      for await (const { MetricDataResults = [] } of paginateGetMetricData({ client }, { ...span, MetricDataQueries }))
        for (const { Id = "", Values = [] } of MetricDataResults) {
          const name = namesOfCall[Number(Id.slice(1))];
          if (name === undefined) continue;
          answers.set(
            name,
            Values.reduce((sum, value) => sum + value, answers.get(name) ?? 0),
          );
        }
    }
    return Object.fromEntries(answers) as Record<(typeof names)[number], number>;
  },
});

/** Returns a query as GetMetricData takes it; `Period` is in seconds. */
const buildQuery = (
  { namespace, metric, dimensions, stat }: CloudWatchMetricQuery,
  Id: string,
  Period: number,
): MetricDataQuery => {
  const Dimensions = Object.entries(dimensions).map(([Name, Value]) => ({ Name, Value }));
  return { Id, MetricStat: { Metric: { Namespace: namespace, MetricName: metric, Dimensions }, Period, Stat: stat } };
};

/** Returns the period of a query in seconds: a minute, or an hour if the time is long or older than one-minute data. */
const choosePeriod = (start: number, end: number): number => {
  const [hour, day] = [60 * minute, 24 * 60 * minute];
  // CloudWatch deletes one-minute data after 15 days.
  return end - start > 3 * hour || Date.now() - start > 15 * day ? 3600 : 60;
};
