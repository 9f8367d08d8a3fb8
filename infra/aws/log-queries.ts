import { setTimeout as wait } from "node:timers/promises";
import { CloudWatchLogs } from "#aws/client-cloudwatch-logs";
import { Complaint } from "../cli/complaint.ts";
import { openAwsClient } from "./client.ts";
import { createFallbackForErrorNamed } from "./errors.ts";

/** A row in the result of a query: the values by field. Fields without a value are absent. */
export type LogQueryRow = Partial<Record<string, string>>;

/** The logs of a stage in CloudWatch, where a review usually appears within seconds. */
export interface StageLogReader {
  /** Runs a query of CloudWatch Logs Insights. Returns no rows if the log group doesn't exist. */
  query(logGroup: string, query: string, from: Date, to: Date): Promise<LogQueryRow[]>;
  /**
   * Returns for how many days a log group keeps lines; undefined days if it keeps them without an end. Returns
   * undefined if the log group doesn't exist.
   */
  readGroup(logGroup: string): Promise<{ days: number | undefined } | undefined>;
}

/** Finds and deletes the log groups of a stage. They stay when the stack is deleted. */
export interface StageLogGroups {
  exists(logGroup: string): Promise<boolean>;
  /** Deletes a log group with all its lines. */
  remove(logGroup: string): Promise<void>;
}

/** Returns the log group of all functions of a stage. */
export const getFunctionsLogGroup = (stage: string) => `/aws/lambda/postern-${stage}`;

/** Returns the log group of the requests that a stage's HTTP API received. */
export const getAccessLogGroup = (stage: string) => `/aws/vendedlogs/postern-${stage}`;

/** The most rows that CloudWatch Logs returns in one answer. */
const maxRows = 10_000;

/** The milliseconds after which a query counts as failed. */
const patience = 120_000;
/** The milliseconds between two requests for the result of a query: at first, and at most. */
const [firstWait, longestWait] = [200, 3_000];

/** Finds and deletes log groups. */
export const openLogGroups = (client: CloudWatchLogs): StageLogGroups => {
  const ignoreMissing = createFallbackForErrorNamed("ResourceNotFoundException", undefined);
  return {
    // DescribeLogGroups would need a right for all groups of the region. DescribeLogStreams needs one for this group.
    exists: async (logGroupName) =>
      (await client.describeLogStreams({ logGroupName, limit: 1 }).catch(ignoreMissing)) !== undefined,
    remove: async (logGroupName) => void (await client.deleteLogGroup({ logGroupName }).catch(ignoreMissing)),
  };
};

/** Queries the logs of a stage with CloudWatch Logs Insights. */
export const createStageLogReader = (client = openAwsClient(CloudWatchLogs, { maxAttempts: 8 })): StageLogReader => ({
  query: async (logGroupName, queryString, from, to) => {
    const startTime = Math.floor(from.getTime() / 1000);
    const endTime = Math.max(startTime, Math.ceil(to.getTime() / 1000));
    const started = await client
      .startQuery({ logGroupName, queryString, startTime, endTime, limit: maxRows })
      .catch(createFallbackForErrorNamed("ResourceNotFoundException", undefined));
    return started === undefined ? [] : awaitRows(client, logGroupName, started.queryId);
  },
  readGroup: async (name) => {
    const { logGroups = [] } = await client.describeLogGroups({ logGroupNamePrefix: name });
    // The prefix also matches other groups, but the group with this name comes first.
    const found = logGroups.find(({ logGroupName }) => logGroupName === name);
    return found && { days: found.retentionInDays };
  },
});

/** Waits for the end of a query and returns its rows. A query that takes too long is a Complaint. */
const awaitRows = async (
  client: CloudWatchLogs,
  logGroup: string,
  queryId: string | undefined,
): Promise<LogQueryRow[]> => {
  const end = Date.now() + patience;
  for (let pause = firstWait; ; pause = Math.min(2 * pause, longestWait)) {
    await wait(pause);
    const { status, results = [] } = await client.getQueryResults({ queryId });
    if (status === "Complete") {
      if (results.length >= maxRows)
        throw new Complaint(
          `a query of the log group ${logGroup} found ${maxRows} rows, and CloudWatch cuts off more`,
          3,
        );
      return results.map((row) => Object.fromEntries(row.map(({ field = "", value }) => [field, value])));
    }
    if (status !== "Scheduled" && status !== "Running")
      throw new Complaint(`a query of the log group ${logGroup} ended with the status ${status}`, 3);
    if (Date.now() > end)
      throw new Complaint(`a query of the log group ${logGroup} took more than ${patience / 1000} seconds`, 3);
  }
};
