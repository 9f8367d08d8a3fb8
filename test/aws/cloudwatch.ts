import { type Alarms, type MetricSelection, openAlarms, toSelection } from "./alarms.ts";
import { AwsError, type AwsRequest, type AwsService, refuseInJson } from "./aws-service.ts";
import { type Dashboards, openDashboards } from "./dashboards.ts";
import type { TimeSeries } from "./metric-math.ts";

// A stand-in for CloudWatch. It has the metrics that functions log in the embedded metric format, the metrics of Lambda
// and API Gateway, and alarms on these metrics.

export interface MetricDatum {
  namespace: string;
  metric: string;
  dimensions: Record<string, string>;
  value: number;
  /** Milliseconds since 1970. */
  time: number;
}

export interface CloudWatch extends AwsService {
  /** Milliseconds until a recorded metric can be read; up to three minutes in AWS. */
  delayMilliseconds: number;
  record(datum: MetricDatum): void;
  /** Records the metrics in a line of a function's log; other lines are ignored. */
  recordLine(line: string): void;
  /** Records a metric if a log line matches a metric filter. `filter` has the form of AWS::Logs::MetricFilter. */
  recordByFilter(line: string, filter: Record<string, unknown>): void;
  alarms: Alarms;
  dashboards: Dashboards;
  /** Milliseconds by which CloudWatch's clock is ahead of this machine's clock, for metrics and alarms. */
  clockOffset: number;
  clear(): void;
}

/** In seconds. */
const minute = 60;

export const openCloudWatch = (region = "eu-west-1"): CloudWatch => {
  /** The recorded values by metric, with the second from which a value can be read. */
  const pointsByMetric = new Map<string, { second: number; value: number; visibleFrom: number }[]>();
  const readClock = () => Date.now() + standIn.clockOffset;
  const record = ({ namespace, metric, dimensions, value, time }: MetricDatum) => {
    const key = buildKey(namespace, metric, dimensions);
    const points = pointsByMetric.get(key) ?? [];
    pointsByMetric.set(key, points);
    // CloudWatch stores metrics of standard resolution by the minute.
    const second = Math.floor((time + standIn.clockOffset) / 1000 / minute) * minute;
    points.push({ second, value, visibleFrom: readClock() + standIn.delayMilliseconds });
  };

  const recordLine = (line: string) => {
    const fields = Object(parseLine(line));
    const { Timestamp, CloudWatchMetrics } = Object(fields._aws);
    if (typeof Timestamp !== "number") return;
    for (const { Namespace, Dimensions, Metrics } of listIn(CloudWatchMetrics))
      for (const { Name } of listIn(Metrics))
        for (const names of Array.isArray(Dimensions) ? Dimensions : [[]]) {
          const dimensions = Object.fromEntries([...names].map((name: string) => [name, fields[name]]));
          // CloudWatch ignores a set of dimensions if the line lacks the value of a dimension.
          if (Object.values(dimensions).some((value) => typeof value !== "string")) continue;
          for (const value of [fields[String(Name)]].flat())
            if (typeof value === "number")
              record({ namespace: String(Namespace), metric: String(Name), dimensions, value, time: Timestamp });
        }
  };

  const recordByFilter = (line: string, { FilterPattern, MetricTransformations }: Record<string, unknown>) => {
    const event = parseLine(line);
    if (!matchesPattern(String(FilterPattern), event)) return;
    for (const { MetricNamespace, MetricName, MetricValue, Dimensions } of listIn(MetricTransformations)) {
      const dimensions = listIn(Dimensions).map(({ Key, Value }) => [
        String(Key),
        String(readField(event, String(Value)) ?? ""),
      ]);
      const [namespace, metric] = [String(MetricNamespace), String(MetricName)];
      const value = Number(MetricValue);
      record({ namespace, metric, dimensions: Object.fromEntries(dimensions), value, time: Date.now() });
    }
  };

  const readMetric = (
    { namespace, metric, dimensions, stat, period }: MetricSelection,
    from: number,
    to: number,
  ): TimeSeries => {
    const points = pointsByMetric.get(buildKey(namespace, metric, dimensions)) ?? [];
    const periods = Map.groupBy(
      points.filter(({ second, visibleFrom }) => second >= from && second < to && visibleFrom <= readClock()),
      ({ second }) => Math.floor(second / period) * period,
    );
    const compute = (periodPoints: { value: number }[]) =>
      computeStatistic(
        stat,
        periodPoints.map(({ value }) => value),
      );
    return new Map([...periods].map(([second, periodPoints]) => [second, compute(periodPoints)]));
  };

  const getMetricData = (input: Record<string, unknown>) => {
    const queries = listIn(input.MetricDataQueries);
    if (queries.length === 0 || queries.length > 500)
      throw new AwsError(400, "ValidationError", "MetricDataQueries takes from 1 to 500 queries");
    const ids = queries.map(({ Id }) => String(Id));
    if (new Set(ids).size < ids.length || ids.some((id) => !/^[a-z][a-zA-Z0-9_]*$/.test(id)))
      throw new AwsError(400, "ValidationError", "The ids must differ, and begin with a small letter");
    const [start, end] = [Number(input.StartTime), Number(input.EndTime)];
    if (!(start < end)) throw new AwsError(400, "ValidationError", "StartTime must be less than EndTime");
    const isLatestFirst = input.ScanBy !== "TimestampAscending";
    const results = queries.map(({ Id, Label, MetricStat, Expression }) => {
      if (Expression !== undefined)
        throw new AwsError(400, "ValidationError", "the stand-in of CloudWatch computes no expressions");
      const { Metric, Period, Stat } = Object(MetricStat);
      if (!(Period >= minute && Period % minute === 0))
        throw new AwsError(400, "ValidationError", `the period of ${Id} must be whole minutes`);
      // Callers state the end by their own clock, not by CloudWatch's clock.
      const until = end + standIn.clockOffset / 1000;
      const values = readMetric(toSelection(Object(Metric), Stat, Period), Math.floor(start / Period) * Period, until);
      const found = [...values].sort(([left], [right]) => (isLatestFirst ? right - left : left - right));
      return {
        Id,
        Label: Label ?? Object(Metric).MetricName,
        Timestamps: found.map(([second]) => second),
        Values: found.map(([, value]) => value),
        StatusCode: "Complete",
      };
    });
    const returned = results.filter((_, index) => queries[index]?.ReturnData !== false);
    return { MetricDataResults: returned, Messages: [] };
  };

  const actions: Record<string, (input: Record<string, unknown>) => object> = {
    GetMetricData: getMetricData,
    ListDashboards: (input) => standIn.dashboards.list(input),
    DescribeAlarms: (input) => standIn.alarms.describe(input),
  };
  const standIn: CloudWatch = {
    delayMilliseconds: 0,
    record,
    recordLine,
    recordByFilter,
    clockOffset: 0,
    alarms: openAlarms(readMetric, () => readClock() / 1000, `arn:aws:cloudwatch:${region}:123456789012:alarm:`),
    dashboards: openDashboards(readMetric, () => [...pointsByMetric.keys()].map(parseKey)),
    clear: () => pointsByMetric.clear(),
    identify: (request) => ({ action: `cloudwatch:${readAction(request)}`, name: "" }),
    answer: async (request) => {
      const act = actions[readAction(request)];
      if (act === undefined)
        throw new AwsError(400, "UnknownOperationException", `the stand-in knows no ${readAction(request)}`);
      const body = JSON.stringify(act(JSON.parse(String(request.body))));
      return { status: 200, headers: { "content-type": "application/x-amz-json-1.0" }, body };
    },
    refuse: refuseInJson,
  };
  return standIn;
};

/**
 * Reports whether a line of JSON matches a filter pattern, such as `{ $.status = "5*" && $.count != 3 }`. Patterns
 * compare a field by `=` or `!=` with a string, in which `*` matches anything, or with a whole number. They may also
 * have `&&`, `||` and brackets.
 */
export const matchesPattern = (pattern: string, event: unknown): boolean => {
  const tokens = pattern.match(/[{}()]|&&|\|\||!?=|\$[\w.]+|"[^"]*"|\d+|\S/g) ?? [];
  const take = () => tokens.shift() ?? "";
  const requireToken = (token: string) => {
    const found = take();
    if (found !== token) throw new Error(`${pattern} has "${found}" in the place of "${token}"`);
  };
  const parseComparison = (): boolean => {
    if (tokens[0] === "(") {
      take();
      const inner = parseOr();
      requireToken(")");
      return inner;
    }
    const [field, operator, text] = [take(), take(), take()];
    if (!field.startsWith("$.") || !/^!?=$/.test(operator) || !/^("[^"]*"|\d+)$/.test(text))
      throw new Error(`${pattern} has a comparison that the stand-in doesn't know: ${field} ${operator} ${text}`);
    const value = readField(event, field);
    if (/^\d/.test(text)) return (value === Number(text)) === (operator === "=");
    const parts = text.slice(1, -1).split("*");
    const form = new RegExp(`^${parts.map((part) => RegExp.escape(part)).join(".*")}$`);
    return (value !== undefined && form.test(String(value))) === (operator === "=");
  };
  const parseAnd = (): boolean => {
    let holds = parseComparison();
    for (; tokens[0] === "&&"; ) {
      take();
      holds = parseComparison() && holds;
    }
    return holds;
  };
  const parseOr = (): boolean => {
    let holds = parseAnd();
    for (; tokens[0] === "||"; ) {
      take();
      holds = parseAnd() || holds;
    }
    return holds;
  };
  requireToken("{");
  const holds = parseOr();
  requireToken("}");
  return holds;
};

/** Returns a field of a log line by its name in the form `$.field`. */
const readField = (event: unknown, name: string): unknown => Object(event)[name.replace("$.", "")];

const readAction = ({ headers }: AwsRequest) => String(headers["x-amz-target"] ?? "").replace(/^.*\./, "");

const buildKey = (namespace: string, metric: string, dimensions: Record<string, string>) =>
  JSON.stringify([namespace, metric, Object.entries(dimensions).sort()]);

const parseKey = (key: string) => {
  const [namespace, metric, dimensions]: [string, string, [string, string][]] = JSON.parse(key);
  return { namespace, metric, dimensions: Object.fromEntries(dimensions) };
};

const computeStatistic = (name: string, values: number[]): number => {
  const sum = values.reduce((total, value) => total + value, 0);
  if (name === "Sum") return sum;
  if (name === "SampleCount") return values.length;
  const [, percent] = /^p(\d{1,2}(?:\.\d+)?|100)$/.exec(name) ?? [];
  if (percent === undefined) throw new AwsError(400, "ValidationError", `${name} is no statistic`);
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.max(0, Math.ceil((Number(percent) / 100) * sorted.length) - 1)] ?? 0;
};

const listIn = (value: unknown): Record<string, unknown>[] => (Array.isArray(value) ? value.map(Object) : []);

const parseLine = (line: string): unknown => {
  try {
    return line.startsWith("{") ? JSON.parse(line) : undefined;
  } catch {
    return undefined;
  }
};
