import { AwsError } from "./aws-service.ts";
import { computeExpression, listIds, type TimeSeries } from "./metric-math.ts";

// A stand-in for CloudWatch's alarms. PutMetricAlarm refuses alarms that AWS refuses. DescribeAlarms computes the state
// of each alarm from the metrics that the stand-in for CloudWatch has at that moment.

type Properties = Record<string, unknown>;

/** A metric, and the statistic that makes one value of all values in a period. */
export interface MetricSelection {
  namespace: string;
  metric: string;
  dimensions: Record<string, string>;
  stat: string;
  /** In seconds. */
  period: number;
}

/** Reads a metric's values in the periods that begin between two times, in seconds. */
export type ReadMetric = (selection: MetricSelection, from: number, to: number) => TimeSeries;

export interface Alarms {
  /** Creates or replaces an alarm; the properties are those of PutMetricAlarm and AWS::CloudWatch::Alarm. */
  put(name: string, properties: Properties): void;
  delete(name: string): void;
  clear(): void;
  describe(input: Properties): { MetricAlarms: Properties[]; NextToken?: string };
}

interface Alarm {
  properties: Properties;
  /** Seconds since 1970. */
  created: number;
}

const invalid = (message: string) => new AwsError(400, "ValidationError", message);
const requireThat = (condition: boolean, message: string) => {
  if (!condition) throw invalid(message);
};

// AWS has more operators and treatments of missing data. Postern's alarms use only the following ones.
const operators: Record<string, (value: number, threshold: number) => boolean> = {
  GreaterThanThreshold: (value, threshold) => value > threshold,
  LessThanThreshold: (value, threshold) => value < threshold,
};
const treatments = ["notBreaching", "missing"];

/** The most metrics of an alarm on a math expression. */
const maxMetrics = 10;
const maxActions = 5;
/** If values are missing in the evaluation periods, CloudWatch uses values of this many earlier periods. */
const extraPeriods = 2;

/** Creates the alarms of one region. `readClock` returns CloudWatch's time in seconds. */
export const openAlarms = (readMetric: ReadMetric, readClock: () => number, arnPrefix: string): Alarms => {
  const alarms = new Map<string, Alarm>();

  const computeState = ({ properties, created }: Alarm): string => {
    const period = readPeriod(properties);
    const [count, breachingNeeded] = [Number(properties.EvaluationPeriods), readDatapointsToAlarm(properties)];
    // The current period isn't evaluated, because it isn't over.
    const end = Math.floor(readClock() / period) * period;
    if (end <= created) return "INSUFFICIENT_DATA";
    // The beginnings of the periods in seconds, the latest first.
    const starts = Array.from({ length: count + extraPeriods }, (_, index) => end - (index + 1) * period);
    const read = (selection: MetricSelection) => readMetric(selection, end - starts.length * period, end);
    const series = readWatched(properties, read, starts);
    const presentValues = starts.flatMap((start) => series.get(start) ?? []).slice(0, count);
    if (presentValues.length === 0 && properties.TreatMissingData === "missing") return "INSUFFICIENT_DATA";
    const isBreaching = operators[String(properties.ComparisonOperator)] ?? (() => false);
    const breaching = presentValues.filter((value) => isBreaching(value, Number(properties.Threshold))).length;
    return breaching >= breachingNeeded ? "ALARM" : "OK";
  };

  return {
    put: (name, properties) => {
      requireValidAlarm(name, properties);
      alarms.set(name, { properties, created: alarms.get(name)?.created ?? readClock() });
    },
    delete: (name) => {
      alarms.delete(name);
    },
    clear: () => alarms.clear(),
    describe: ({ AlarmNamePrefix = "", AlarmNames, MaxRecords = 50, NextToken = "0" }) => {
      const isListed = (name: string) => !Array.isArray(AlarmNames) || AlarmNames.includes(name);
      const found = [...alarms].filter(([name]) => name.startsWith(String(AlarmNamePrefix)) && isListed(name));
      const [first, next] = [Number(NextToken), Number(NextToken) + Number(MaxRecords)];
      const MetricAlarms = found.slice(first, next).map(([AlarmName, alarm]) => {
        const { Tags: _, ...properties } = alarm.properties;
        return {
          ActionsEnabled: true,
          AlarmActions: [],
          OKActions: [],
          ...properties,
          AlarmName,
          AlarmArn: `${arnPrefix}${AlarmName}`,
          StateValue: computeState(alarm),
        };
      });
      return { MetricAlarms, ...(next < found.length && { NextToken: String(next) }) };
    },
  };
};

/** Reads the values of an alarm's metric, or of its expression with ReturnData, for the periods with these starts. */
const readWatched = (
  properties: Properties,
  read: (selection: MetricSelection) => TimeSeries,
  starts: number[],
): TimeSeries => {
  if (properties.Metrics === undefined)
    return read(toSelection(properties, properties.ExtendedStatistic ?? properties.Statistic, properties.Period));
  const queries = listIn(properties.Metrics);
  const compute = ({ MetricStat, Expression }: Properties): TimeSeries => {
    if (Expression !== undefined) return computeExpression(String(Expression), (id) => compute(getQuery(id)), starts);
    const { Metric, Stat, Period } = Object(MetricStat);
    return read(toSelection(Object(Metric), Stat, Period));
  };
  const getQuery = (id: string) => queries.find(({ Id }) => Id === id) ?? {};
  return compute(queries.find(({ ReturnData }) => ReturnData !== false) ?? {});
};

/** Converts a metric in the form of CloudWatch's API. */
export const toSelection = (
  { Namespace, MetricName, Dimensions }: Properties,
  stat: unknown,
  period: unknown,
): MetricSelection => ({
  namespace: String(Namespace),
  metric: String(MetricName),
  dimensions: Object.fromEntries(listIn(Dimensions).map(({ Name, Value }) => [String(Name), String(Value)])),
  stat: String(stat),
  period: Number(period),
});

const requireValidAlarm = (name: string, properties: Properties) => {
  const { AlarmDescription = "", EvaluationPeriods, Threshold, ComparisonOperator, TreatMissingData } = properties;
  requireThat(/^[\x20-\x7e]{1,255}$/.test(name), `${name} is no name of an alarm`);
  requireThat(String(AlarmDescription).length <= 1024, `the description of ${name} has more than 1024 characters`);
  for (const kind of ["AlarmActions", "OKActions", "InsufficientDataActions"]) {
    const actions = [properties[kind] ?? []].flat();
    requireThat(actions.length <= maxActions, `${name} has more than ${maxActions} ${kind}`);
    for (const action of actions) requireThat(/^arn:/.test(String(action)), `${action} is no ARN of an action`);
  }
  requireThat(Number.isInteger(EvaluationPeriods) && Number(EvaluationPeriods) > 0, "EvaluationPeriods is required");
  requireThat(typeof Threshold === "number", `${name} has no Threshold`);
  const breachingNeeded = readDatapointsToAlarm(properties);
  requireThat(breachingNeeded <= Number(EvaluationPeriods), "DatapointsToAlarm must not exceed EvaluationPeriods");
  requireThat(
    String(ComparisonOperator) in operators,
    `the stand-in doesn't support ComparisonOperator: ${ComparisonOperator}`,
  );
  const isKnownTreatment = treatments.includes(String(TreatMissingData));
  requireThat(isKnownTreatment, `the stand-in doesn't support TreatMissingData: ${TreatMissingData}`);
  if (properties.Metrics === undefined) requireValidMetric(properties);
  else requireValidQueries(properties);
  const period = readPeriod(properties);
  requireThat(period >= 60 && period % 60 === 0, `the period of ${name} must be whole minutes`);
  requireThat(period * Number(EvaluationPeriods) <= 86_400, "EvaluationPeriods times the period is at most one day");
};

const requireValidMetric = ({ Namespace, MetricName, Dimensions, Statistic, ExtendedStatistic }: Properties) => {
  requireThat(
    typeof Namespace === "string" && typeof MetricName === "string",
    "a metric has a Namespace and a MetricName",
  );
  requireValidDimensions(Dimensions);
  requireThat((Statistic === undefined) !== (ExtendedStatistic === undefined), "an alarm has one statistic");
  const form = Statistic === undefined ? percentile : plainStatistic;
  const statistic = String(Statistic ?? ExtendedStatistic);
  requireThat(form.test(statistic), `${statistic} is no statistic of an alarm`);
};

const plainStatistic = /^(SampleCount|Average|Sum|Minimum|Maximum)$/;
const percentile = /^p(\d{1,2}(\.\d{1,2})?|100)$/;

const requireValidQueries = (properties: Properties) => {
  for (const other of ["Namespace", "MetricName", "Dimensions", "Period", "Unit", "Statistic", "ExtendedStatistic"])
    requireThat(properties[other] === undefined, `an alarm with Metrics must not have ${other}`);
  const queries = listIn(properties.Metrics);
  const ids = queries.map(({ Id }) => String(Id));
  const areIdsValid = new Set(ids).size === ids.length && ids.every((id) => /^[a-z][a-zA-Z0-9_]*$/.test(id));
  requireThat(areIdsValid, "The ids must differ, and begin with a small letter");
  const returned = queries.filter(({ ReturnData }) => ReturnData !== false);
  requireThat(returned.length === 1, "one of the Metrics has ReturnData");
  const metrics = queries.filter(({ MetricStat }) => MetricStat !== undefined);
  requireThat(
    metrics.length >= 1 && metrics.length <= maxMetrics,
    `an alarm on an expression has from 1 to ${maxMetrics} metrics, not ${metrics.length}`,
  );
  for (const { MetricStat } of metrics) {
    const { Metric, Stat } = Object(MetricStat);
    requireValidMetric({ ...Metric, [percentile.test(Stat) ? "ExtendedStatistic" : "Statistic"]: Stat });
  }
  requireThat(new Set(metrics.map(readQueryPeriod)).size === 1, "all metrics of an alarm have the same period");
  for (const { Expression, MetricStat } of queries) {
    requireThat((Expression === undefined) !== (MetricStat === undefined), "a query is a metric or an expression");
    if (Expression === undefined) continue;
    const unknown = listIds(String(Expression)).filter((id) => !ids.includes(id));
    requireThat(unknown.length === 0, `${Expression} refers to ${unknown}, which isn't among the Metrics`);
    // Throws now if the stand-in can't compute the expression, and not first when the alarm is evaluated.
    computeExpression(String(Expression), () => new Map(), []);
  }
};

const requireValidDimensions = (dimensions: unknown) => {
  for (const { Name, Value } of listIn(dimensions))
    requireThat(Boolean(Name) && typeof Value === "string" && Value !== "", `the dimension ${Name} has no value`);
};

const readQueryPeriod = ({ MetricStat }: Properties) => Number(Object(MetricStat).Period);

const readPeriod = ({ Period, Metrics }: Properties): number =>
  Metrics === undefined ? Number(Period) : Math.max(...listIn(Metrics).map(readQueryPeriod).filter(Number.isFinite));

const readDatapointsToAlarm = ({ DatapointsToAlarm, EvaluationPeriods }: Properties) =>
  Number(DatapointsToAlarm ?? EvaluationPeriods);

const listIn = (value: unknown): Properties[] => (Array.isArray(value) ? value.map(Object) : []);
