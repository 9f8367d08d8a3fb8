import type { MetricSelection, ReadMetric } from "./alarms.ts";
import { AwsError } from "./aws-service.ts";
import { computeExpression, listIds, type TimeSeries } from "./metric-math.ts";

// A stand-in for CloudWatch's dashboards. PutDashboard refuses bodies as AWS does, and also fields that Postern's
// dashboard doesn't use. Tests can read the lines of each widget from the metrics of the stand-in for CloudWatch.

type Properties = Record<string, unknown>;

/** A metric of which CloudWatch has values. */
export interface KnownMetric {
  namespace: string;
  metric: string;
  dimensions: Record<string, string>;
}

/** A line of a widget: the time series of a metric, or those that an expression returns. */
export interface WidgetLine {
  title: string;
  /** The metric or the expression. */
  source: string;
  /** The time series by their labels. */
  series: Record<string, TimeSeries>;
}

export interface Dashboards {
  put(name: string, body: string): void;
  delete(name: string): void;
  clear(): void;
  list(input: Properties): { DashboardEntries: { DashboardName: string }[] };
  /** Reads the lines of a dashboard's widgets between two times, in seconds. */
  readLines(name: string, from: number, to: number): WidgetLine[];
  /** Returns the ARNs of the alarms that a dashboard shows. */
  listAlarms(name: string): string[];
}

interface Widget {
  type: string;
  properties: Properties;
}

/** A metric or expression of a widget. A dashboard's body has `[namespace, metric, dimension, value, …, options]`. */
interface Line extends KnownMetric {
  options: Properties;
}

const createInvalid = (message: string) =>
  new AwsError(400, "InvalidParameterInput", `The dashboard's body is invalid: ${message}`);

const requireThat = (condition: boolean, message: string) => {
  if (!condition) throw createInvalid(message);
};

export const openDashboards = (readMetric: ReadMetric, listMetrics: () => KnownMetric[]): Dashboards => {
  const dashboards = new Map<string, Widget[]>();

  const readWidget = ({ properties }: Widget, from: number, to: number): WidgetLine[] => {
    const { title, metrics, stat = "Average", period = 300 } = properties;
    const lines = listIn(metrics).map(parseLine);
    const count = Math.floor((to - from) / Number(period));
    const starts = Array.from({ length: count }, (_, index) => from + index * Number(period));
    const read = (line: KnownMetric, options: Properties) => {
      const selection = { ...line, stat: String(options.stat ?? stat), period: Number(options.period ?? period) };
      return readMetric(selection, from, to);
    };
    const compute = ({ options, ...metric }: Line): Record<string, TimeSeries> => {
      const { expression, id } = options;
      if (expression === undefined) return { [metric.metric]: read(metric, options) };
      if (String(expression).startsWith("SEARCH("))
        return Object.fromEntries(
          findMetrics(String(expression), listMetrics()).map((found) => [
            Object.values(found.dimensions).join(" "),
            readMetric(found, from, to),
          ]),
        );
      const readId = (wanted: string) => {
        const line = lines.find(({ options: { id: lineId } }) => lineId === wanted);
        return (line && Object.values(compute(line))[0]) ?? new Map();
      };
      return { [String(id)]: computeExpression(String(expression), readId, starts) };
    };
    return lines
      .filter(({ options }) => options.visible !== false)
      .map((line) => {
        const source = String(line.options.expression ?? `${line.namespace} ${line.metric}`);
        return { title: String(title), source, series: compute(line) };
      });
  };
  const getWidgets = (name: string) => dashboards.get(name) ?? [];

  return {
    put: (name, body) => {
      requireThat(/^[\w-]{1,255}$/.test(name), `${name} is no name of a dashboard`);
      dashboards.set(name, parseBody(body));
    },
    delete: (name) => {
      dashboards.delete(name);
    },
    clear: () => dashboards.clear(),
    list: ({ DashboardNamePrefix = "" }) => {
      const names = [...dashboards.keys()].filter((name) => name.startsWith(String(DashboardNamePrefix)));
      return { DashboardEntries: names.map((DashboardName) => ({ DashboardName })) };
    },
    readLines: (name, from, to) =>
      getWidgets(name).flatMap((widget) => (widget.type === "metric" ? readWidget(widget, from, to) : [])),
    listAlarms: (name) =>
      getWidgets(name).flatMap(({ properties }) => [properties.alarms ?? []].flat().map((arn) => String(arn))),
  };
};

const parseBody = (body: string): Widget[] => {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    throw createInvalid("it is no JSON");
  }
  const widgets = listIn(Object(parsed).widgets);
  requireKnownFields(Object(parsed), ["widgets"]);
  requireThat(widgets.length > 0 && widgets.length <= 500, "it has from 1 to 500 widgets");
  for (const widget of widgets) {
    requireKnownFields(widget, ["type", "width", "height", "properties"]);
    requireThat(isWithin(widget.width ?? 6, 1, 24), "a widget's width is from 1 to 24");
    requireThat(isWithin(widget.height ?? 6, 1, 1000), "a widget's height is from 1 to 1000");
    const properties = Object(widget.properties);
    if (widget.type === "alarm") requireValidAlarmWidget(properties);
    else {
      requireThat(widget.type === "metric", `the stand-in knows no widget ${widget.type}`);
      requireValidMetricWidget(properties);
    }
  }
  return widgets.map(({ type, properties }) => ({ type: String(type), properties: Object(properties) }));
};

const requireValidAlarmWidget = (properties: Properties) => {
  requireKnownFields(properties, ["title", "alarms"]);
  const alarms = [properties.alarms ?? []].flat();
  requireThat(alarms.length > 0 && alarms.length <= 100, "an alarm widget has from 1 to 100 alarms");
  for (const arn of alarms) requireThat(/^arn:aws:cloudwatch:.*:alarm:/.test(String(arn)), `${arn} is no alarm's ARN`);
};

const requireValidMetricWidget = (properties: Properties) => {
  requireKnownFields(properties, ["title", "region", "period", "stat", "metrics"]);
  const { title, region, period = 300, metrics } = properties;
  requireThat(/^[a-z]{2}-[a-z]+-\d$/.test(String(region)), `the region of "${title}" is ${region}`);
  requireThat(Number(period) % 60 === 0, `the period of "${title}" must be whole minutes`);
  const lines = listIn(metrics).map(parseLine);
  requireThat(lines.length > 0 && lines.length <= 500, `"${title}" has from 1 to 500 metrics`);
  const ids = lines.flatMap(({ options: { id } }) => (id === undefined ? [] : [String(id)]));
  requireThat(
    new Set(ids).size === ids.length && ids.every((id) => /^[a-z]\w*$/.test(id)),
    `the ids of "${title}" must differ, and begin with a small letter`,
  );
  for (const { options } of lines) {
    requireKnownFields(options, ["expression", "id", "label", "stat", "visible", "yAxis"]);
    const expression = String(options.expression ?? "");
    if (expression.startsWith("SEARCH(")) parseSearch(expression);
    else for (const id of listIds(expression)) requireThat(ids.includes(id), `${expression} refers to ${id}`);
  }
};

const parseLine = (entry: unknown): Line => {
  const parts: unknown[] = Array.isArray(entry) ? [...entry] : [];
  const options: Properties = typeof parts.at(-1) === "object" ? Object(parts.pop()) : {};
  if (options.expression !== undefined) {
    requireThat(parts.length === 0, `the expression ${options.expression} has a metric`);
    return { namespace: "", metric: "", dimensions: {}, options };
  }
  requireThat(parts.length >= 2 && parts.length % 2 === 0, `${JSON.stringify(entry)} is no metric`);
  requireThat(
    parts.every((part) => typeof part === "string" && part !== ""),
    `${JSON.stringify(entry)} has an empty part`,
  );
  const [namespace = "", metric = "", ...rest] = parts.map(String);
  // The dimensions are a flat list: name, value, name, value.
  const names = rest.filter((_, index) => index % 2 === 0);
  const dimensions = Object.fromEntries(names.map((name, index) => [name, rest[2 * index + 1] ?? ""]));
  return { namespace, metric, dimensions, options };
};

/** Reads `SEARCH('{Namespace,Dimension,…} Name="exact" Name=partial', 'Statistic', seconds)`. */
const parseSearch = (expression: string) => {
  const [, schema = "", terms = "", stat = "", period = ""] =
    /^SEARCH\('\{([^}]+)\} ([^']+)', '(\w+)', (\d+)\)$/.exec(expression) ?? [];
  requireThat(stat !== "", `the stand-in doesn't know the search ${expression}`);
  requireThat(expression.length <= 1024, "a search expression has at most 1024 characters");
  const [namespace = "", ...names] = schema.split(",");
  const conditions = terms.split(" ").map((term) => {
    const [, name = "", exact, partial] = /^(\w+)=(?:"([^"]+)"|([\w-]+))$/.exec(term) ?? [];
    requireThat(name === "MetricName" || names.includes(name), `the stand-in doesn't know ${term} in ${expression}`);
    return { name, exact, partial };
  });
  return { namespace, names, conditions, stat, period: Number(period) };
};

const findMetrics = (expression: string, metrics: KnownMetric[]): MetricSelection[] => {
  const { namespace, names, conditions, stat, period } = parseSearch(expression);
  const schema = names.toSorted().join();
  const found = metrics.filter((metric) => {
    if (metric.namespace !== namespace || Object.keys(metric.dimensions).sort().join() !== schema) return false;
    return conditions.every(({ name, exact, partial = "" }) => {
      const value = (name === "MetricName" ? metric.metric : metric.dimensions[name]) ?? "";
      return exact === undefined ? matchesTokens(partial, value) : exact === value;
    });
  });
  return found.map((metric) => ({ ...metric, stat, period }));
};

/**
 * Reports whether a value contains the tokens of a search term one after the other. For example, `ColdStart` has the
 * tokens Cold and Start.
 */
const matchesTokens = (term: string, value: string): boolean => {
  const split = (text: string) => text.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+/g) ?? [];
  return ` ${split(value).join(" ")} `.includes(` ${split(term).join(" ")} `);
};

const requireKnownFields = (value: Properties, names: string[]) => {
  for (const name of Object.keys(value))
    requireThat(names.includes(name), `the stand-in doesn't know the field ${name}`);
};
const isWithin = (value: unknown, least: number, most: number) =>
  Number.isInteger(value) && Number(value) >= least && Number(value) <= most;
const listIn = (value: unknown): Properties[] => (Array.isArray(value) ? value.map(Object) : []);
