import { printSync } from "./print.ts";

/** One event that adds 1 to a metric with these labels. */
export interface MetricCount {
  metric: string;
  labels: Readonly<Record<string, string>>;
}

/** Returns a line of JSON for each set of labels, in CloudWatch's embedded metric format. */
export const formatMetricLines = (
  cluster: string,
  counts: readonly MetricCount[],
  timeMilliseconds: number,
): string[] => {
  const countsByLabels = Map.groupBy(counts, ({ labels }) => JSON.stringify(labels)).values();
  return [...countsByLabels].map((group) => {
    const labels = { cluster, ...group[0]?.labels };
    const byMetric = Map.groupBy(group, ({ metric }) => metric);
    const sums = [...byMetric].map(([metric, events]) => [metric, events.length] as const);
    const Metrics = sums.map(([Name]) => ({ Name, Unit: "Count" }));
    const directive = { Namespace: "Postern", Dimensions: [Object.keys(labels)], Metrics };
    return JSON.stringify({
      _aws: { Timestamp: timeMilliseconds, CloudWatchMetrics: [directive] },
      ...labels,
      ...Object.fromEntries(sums),
    });
  });
};

/** Prints a cluster's counts to standard output as CloudWatch embedded metrics, one line each. */
export const printMetrics = (cluster: string, counts: readonly MetricCount[]): void => {
  for (const line of formatMetricLines(cluster, counts, Date.now())) printSync(`${line}\n`);
};
