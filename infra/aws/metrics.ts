import { CloudWatch, type MetricDataQuery, paginateGetMetricData } from "#aws/client-cloudwatch";

/** A query for one CloudWatch metric. */
export interface CloudWatchMetricQuery {
  namespace: "AWS/Lambda" | "AWS/DynamoDB" | "Postern";
  metric: string;
  dimensions: Record<string, string>;
  /** "SampleCount" is the number of values. */
  stat: "Sum" | "SampleCount";
}

/** The metrics of a stage in CloudWatch, where a call appears after a minute or two. */
export interface StageMetricsReader {
  /** Asks CloudWatch for one number per question; the number is 0 if CloudWatch has no data for it. */
  ask<K extends string>(questions: Record<K, CloudWatchMetricQuery>, from: Date, to: Date): Promise<Record<K, number>>;
}

const minute = 60_000;
/** The most queries in one GetMetricData call of CloudWatch. */
const maxQuestions = 500;

export const createStageMetricsReader = (client = new CloudWatch({ maxAttempts: 5 })): StageMetricsReader => ({
  ask: async (questions, from, to) => {
    const [start, end] = [Math.floor(from.getTime() / minute) * minute, Math.ceil(to.getTime() / minute) * minute];
    const names = Object.keys(questions) as (keyof typeof questions)[];
    const answers = new Map<string, number>(names.map((name) => [name, 0]));
    const Period = choosePeriod(start, end);
    for (let first = 0; first < names.length; first += maxQuestions) {
      const some = names.slice(first, first + maxQuestions);
      const MetricDataQueries = some.map((name, index) => buildQuery(questions[name], `q${index}`, Period));
      const span = { StartTime: new Date(start), EndTime: new Date(Math.max(end, start + minute)) };
      for await (const { MetricDataResults = [] } of paginateGetMetricData({ client }, { ...span, MetricDataQueries }))
        for (const { Id = "", Values = [] } of MetricDataResults) {
          const name = some[Number(Id.slice(1))];
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

const buildQuery = (
  { namespace, metric, dimensions, stat }: CloudWatchMetricQuery,
  Id: string,
  Period: number,
): MetricDataQuery => {
  const Dimensions = Object.entries(dimensions).map(([Name, Value]) => ({ Name, Value }));
  return { Id, MetricStat: { Metric: { Namespace: namespace, MetricName: metric, Dimensions }, Period, Stat: stat } };
};

/** Returns the period of a metric query in seconds: CloudWatch deletes one-minute data after 15 days. */
const choosePeriod = (start: number, end: number): number => {
  const [hour, day] = [60 * minute, 24 * 60 * minute];
  return end - start > 3 * hour || Date.now() - start > 15 * day ? 3600 : 60;
};
