import { setTimeout as wait } from "node:timers/promises";
import { CloudWatchLogs } from "#aws/client-cloudwatch-logs";
import { Complaint } from "../cli/complaint.ts";
import { createFallbackForErrorNamed } from "./errors.ts";

/** A row of a query's result: the values by field. Fields without a value are absent. */
export type LogQueryRow = Partial<Record<string, string>>;

/** The logs of a stage in CloudWatch, where a review usually appears within seconds. */
export interface StageLogReader {
  /** Runs a query of CloudWatch Logs Insights; a log group that doesn't exist has no rows. */
  query(logGroup: string, query: string, from: Date, to: Date): Promise<LogQueryRow[]>;
  /** Returns how many days a log group keeps lines, or no number if it keeps them; undefined if it doesn't exist. */
  readGroup(logGroup: string): Promise<{ days: number | undefined } | undefined>;
}

/** The log groups of a stage, which stay when its stack is deleted. */
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

/** Milliseconds: the time for one query, the first wait for its result, and the longest wait between two looks. */
const [patience, firstWait, longestWait] = [120_000, 200, 3_000];

export const openLogGroups = (client: CloudWatchLogs): StageLogGroups => {
  const ignoreMissing = createFallbackForErrorNamed("ResourceNotFoundException", undefined);
  return {
    // The right to describe log groups shows all of the region; this right is for one log group.
    exists: async (logGroupName) =>
      (await client.describeLogStreams({ logGroupName, limit: 1 }).catch(ignoreMissing)) !== undefined,
    remove: async (logGroupName) => void (await client.deleteLogGroup({ logGroupName }).catch(ignoreMissing)),
  };
};

export const createStageLogReader = (client = new CloudWatchLogs({ maxAttempts: 8 })): StageLogReader => ({
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
    // The group with the name itself comes first.
    const found = logGroups.find(({ logGroupName }) => logGroupName === name);
    return found && { days: found.retentionInDays };
  },
});

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
