import { randomUUID } from "node:crypto";
import { AwsError, type AwsRequest, type AwsService, refuseInJson } from "./aws-service.ts";
import { type CloudWatch, matchesPattern } from "./cloudwatch.ts";
import { evaluateQuery, type LogEvent } from "./insights.ts";

// A stand-in for CloudWatch Logs: log groups, and queries of Logs Insights. It records the embedded metrics of log
// lines in the stand-in for CloudWatch. Another service, `fallback`, answers all other actions.

export interface Logs extends AwsService {
  /** The log groups that exist. Lines for other log groups are lost: functions have no right to create log groups. */
  groups: Map<string, LogEvent[]>;
  /**
   * The days for which log groups keep their lines. A log group that isn't in the map keeps its lines without a limit.
   */
  retention: Map<string, number>;
  /** The saved queries by id, as the properties of AWS::Logs::QueryDefinition. */
  saved: Map<string, { Name: string; QueryString: string; LogGroupNames: string[] }>;
  /** Saves a query; throws if AWS would refuse it. */
  save(id: string, properties: Record<string, unknown>): void;
  /** Creates a subscription filter, which also sends matching lines to a destination; throws if AWS would refuse it. */
  subscribe(id: string, properties: Record<string, unknown>): void;
  unsubscribe(id: string): void;
  /** The lines that subscription filters sent, by the ARN of the destination. */
  sent: Map<string, string[]>;
  /** Adds a line to a log group, and sends it to the destinations of matching subscription filters. */
  write(group: string, stream: string, line: string): void;
  /** Removes all lines and queries, and keeps the log groups. */
  clear(): void;
  /** Milliseconds until queries find a line. */
  ingestionMilliseconds: number;
  /** Milliseconds until a query is complete. */
  queryMilliseconds: number;
  /** The number of queries that an account may start in a second. */
  startsPerSecond: number;
}

interface Query {
  id: string;
  /** These times are in milliseconds since 1970. */
  startedAt: number;
  completeAt: number;
  results: { field: string; value: string }[][];
}

/** The maximum number of queries that an account may run at the same time. */
const maxRunning = 30;

/** The maximum number of saved queries in an account and region. */
const maxSaved = 1000;

export const openLogs = (metrics: CloudWatch, fallback: AwsService): Logs => {
  const queries = new Map<string, Query>();
  const subscriptions = new Map<string, { group: string; pattern: string; destination: string }>();

  const startQuery = ({ logGroupName, queryString, startTime, endTime, limit = 1000 }: Record<string, unknown>) => {
    const now = Date.now();
    const started = [...queries.values()];
    if (started.filter(({ startedAt }) => startedAt > now - 1000).length >= standIn.startsPerSecond)
      throw new AwsError(400, "ThrottlingException", "Rate exceeded");
    if (started.filter(({ completeAt }) => completeAt > now).length >= maxRunning)
      throw new AwsError(400, "LimitExceededException", "Account maximum query concurrency limit reached");
    const events = standIn.groups.get(String(logGroupName));
    if (events === undefined)
      throw new AwsError(400, "ResourceNotFoundException", `Log group '${logGroupName}' does not exist`);
    const [start, end] = [Number(startTime), Number(endTime)];
    // The API expects seconds. A number of milliseconds, which is above 1e11, is refused.
    if (!(Number.isInteger(start) && Number.isInteger(end) && start <= end && end < 1e11))
      throw new AwsError(400, "InvalidParameterException", "startTime and endTime must be seconds, in this order");
    if (!(Number(limit) >= 1 && Number(limit) <= 10_000))
      throw new AwsError(400, "InvalidParameterException", "limit must be from 1 to 10000");
    const visible = events.filter(
      ({ time }) => time >= start * 1000 && time <= end * 1000 && time + standIn.ingestionMilliseconds <= now,
    );
    const results = runQuery(String(queryString), visible).slice(0, Number(limit));
    const id = randomUUID();
    queries.set(id, { id, startedAt: now, completeAt: now + standIn.queryMilliseconds, results });
    return { queryId: id };
  };

  const getQueryResults = ({ queryId }: Record<string, unknown>) => {
    const query = queries.get(String(queryId));
    if (query === undefined) throw new AwsError(400, "ResourceNotFoundException", "Query does not exist");
    // While a query runs, it has only a part of its results.
    return query.completeAt > Date.now()
      ? { status: "Running", results: query.results.slice(0, 1) }
      : { status: "Complete", results: query.results };
  };

  const describeLogGroups = ({ logGroupNamePrefix = "" }: Record<string, unknown>) => {
    const names = [...standIn.groups.keys()].filter((name) => name.startsWith(String(logGroupNamePrefix)));
    return {
      logGroups: names.sort().map((logGroupName) => {
        return { logGroupName, retentionInDays: standIn.retention.get(logGroupName) };
      }),
    };
  };

  const describeLogStreams = ({ logGroupName, limit }: Record<string, unknown>) => {
    const events = standIn.groups.get(String(logGroupName));
    if (events === undefined)
      throw new AwsError(400, "ResourceNotFoundException", "The specified log group does not exist.");
    const streams = [...new Set(events.map(({ stream }) => stream))].slice(0, Number(limit ?? 50));
    return { logStreams: streams.map((logStreamName) => ({ logStreamName })) };
  };

  const deleteLogGroup = ({ logGroupName }: Record<string, unknown>) => {
    if (!standIn.groups.delete(String(logGroupName)))
      throw new AwsError(400, "ResourceNotFoundException", `Log group '${logGroupName}' does not exist`);
    return {};
  };

  const actions: Record<string, (input: Record<string, unknown>) => object> = {
    DescribeLogGroups: describeLogGroups,
    DescribeLogStreams: describeLogStreams,
    DeleteLogGroup: deleteLogGroup,
    CreateLogGroup: ({ logGroupName }) => {
      standIn.groups.set(String(logGroupName), []);
      return {};
    },
    PutRetentionPolicy: ({ logGroupName, retentionInDays }) => {
      standIn.retention.set(String(logGroupName), Number(retentionInDays));
      return {};
    },
    DescribeQueryDefinitions: ({ queryDefinitionNamePrefix = "" }) => ({
      queryDefinitions: [...standIn.saved].flatMap(([queryDefinitionId, { Name: name, QueryString: queryString }]) =>
        name.startsWith(String(queryDefinitionNamePrefix)) ? [{ queryDefinitionId, name, queryString }] : [],
      ),
    }),
    StartQuery: startQuery,
    GetQueryResults: getQueryResults,
  };
  const standIn: Logs = {
    groups: new Map(),
    retention: new Map(),
    saved: new Map(),
    save: (id, { Name, QueryString, LogGroupNames }) => {
      const [name, query, groups] = [String(Name), String(QueryString), [LogGroupNames ?? []].flat().map(String)];
      const isValid = /^([^:*/]+\/?)*[^:*/]+$/.test(name) && name.length <= 255 && query.length <= 10_000;
      if (!isValid) throw new AwsError(400, "InvalidParameterException", `the query ${name} can't be saved`);
      for (const group of groups)
        if (!standIn.groups.has(group))
          throw new AwsError(400, "ResourceNotFoundException", `Log group '${group}' does not exist`);
      // Throws if the query is invalid. AWS would save it nevertheless.
      runQuery(query, []);
      if (!standIn.saved.has(id) && standIn.saved.size >= maxSaved)
        throw new AwsError(400, "LimitExceededException", "Resource limit exceeded.");
      standIn.saved.set(id, { Name: name, QueryString: query, LogGroupNames: groups });
    },
    sent: new Map(),
    subscribe: (id, { LogGroupName, FilterPattern, DestinationArn, RoleArn }) => {
      const [group, pattern, destination] = [String(LogGroupName), String(FilterPattern), String(DestinationArn)];
      const otherSubscriptions = [...subscriptions].filter(
        ([otherId, other]) => otherId !== id && other.group === group,
      );
      if (!standIn.groups.has(group))
        throw new AwsError(400, "ResourceNotFoundException", `Log group '${group}' does not exist`);
      if (otherSubscriptions.length >= 2) throw new AwsError(400, "LimitExceededException", "Resource limit exceeded.");
      if (!/^arn:aws:(firehose|kinesis):/.test(destination) || !/^arn:aws:iam::/.test(String(RoleArn)))
        throw new AwsError(400, "InvalidParameterException", "Could not deliver test message to the destination");
      if (pattern !== "") matchesPattern(pattern, {});
      subscriptions.set(id, { group, pattern, destination });
    },
    unsubscribe: (id) => void subscriptions.delete(id),
    ingestionMilliseconds: 0,
    queryMilliseconds: 50,
    startsPerSecond: 5,
    write: (group, stream, line) => {
      const events = standIn.groups.get(group);
      if (events === undefined) return;
      events.push({ time: Date.now(), line, stream });
      metrics.recordLine(line);
      for (const subscription of subscriptions.values()) {
        const { pattern, destination } = subscription;
        if (subscription.group !== group) continue;
        const matches = pattern === "" || (line.startsWith("{") && matchesPattern(pattern, JSON.parse(line)));
        if (matches) standIn.sent.set(destination, [...(standIn.sent.get(destination) ?? []), line]);
      }
    },
    clear: () => {
      queries.clear();
      for (const events of standIn.groups.values()) events.length = 0;
    },
    identify: (request) => {
      const action = readAction(request);
      if (actions[action] === undefined) return fallback.identify(request);
      return { action: `logs:${action}`, name: String(readInput(request).logGroupName ?? "") };
    },
    answer: async (request) => {
      const act = actions[readAction(request)];
      if (act === undefined) return fallback.answer(request);
      const body = JSON.stringify(act(readInput(request)));
      return { status: 200, headers: { "content-type": "application/x-amz-json-1.1" }, body };
    },
    refuse: refuseInJson,
  };
  return standIn;
};

const runQuery = (query: string, events: LogEvent[]): Query["results"] => {
  try {
    return evaluateQuery(query, events).map((row) => Object.entries(row).map(([field, value]) => ({ field, value })));
  } catch (error) {
    throw new AwsError(400, "MalformedQueryException", String(error instanceof Error ? error.message : error));
  }
};

const readAction = ({ headers }: AwsRequest) => String(headers["x-amz-target"] ?? "").replace(/^.*\./, "");

const readInput = ({ body }: AwsRequest): Record<string, unknown> => Object(JSON.parse(String(body)));
