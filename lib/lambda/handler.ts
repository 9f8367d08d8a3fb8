import middy, { type MiddyfiedHandler } from "@middy/core";
import type { ApiServerConnection } from "../cluster/api-server.ts";
import { openDynamoDbLedger } from "../cluster/dynamodb-ledger.ts";
import { createListPage } from "../cluster/list-page.ts";
import { createLiveCapabilities } from "../cluster/live-capabilities.ts";
import { createUnconnectedCapabilities } from "../core/capabilities.ts";
import { createEndpoint, type EndpointConfig, type EndpointHost } from "../core/endpoint.ts";
import { createGroupEndpoint, type GroupConfig } from "../core/group.ts";
import "../features.ts";
import { formatLogLine } from "../core/log-line.ts";
import type { OpenCapabilities } from "../needs.ts";
import { printSync } from "../print.ts";
import type { Rule } from "../rule.ts";
import { createStartMeter } from "./cold-start.ts";
import { httpEvent, type LambdaRequest } from "./http-event.ts";
import { createRecording, type putObject, type RecordingBucketSettingsByRule } from "./recording.ts";
import { schedule } from "./schedule.ts";
import { warmUp } from "./warm-up.ts";

/** What the entry module of a function's bundle brings. */
export interface LambdaFunction {
  /** The rule, or the members of a group, by name. */
  rules: Record<string, Rule>;
  /** The function's part of postern.yaml. */
  config: EndpointConfig | GroupConfig;
  /** Where reviews are recorded. */
  places?: RecordingBucketSettingsByRule;
  /** Reads how the clusters are reached; called when a cluster is first asked. */
  readConnections?(): Record<string, ApiServerConnection>;
  /** Writes a recording; default: to S3. */
  put?: typeof putObject;
}

/** Returns the handler of a function, and what to call before its first event. */
export const createLambdaFunction = (parts: LambdaFunction) => {
  const { rules, config, readConnections = () => ({}) } = parts;
  const host = createLambdaHost(POSTERN_NEEDS ? createCapabilities(readConnections) : undefined);
  return {
    handler: createLambdaHandler(parts, host),
    warmUp: async (): Promise<void> => {
      const silent = createLambdaHandler(parts, { ...host, writeLogLine: (report) => void formatLogLine(report, "", 0) });
      await warmUp(silent, rules, config, host.openCapabilities, POSTERN_ASKS ? Object.keys(readConnections()) : []);
      host.endStart();
    },
  };
};

/** Creates the handler of a function. */
export const createLambdaHandler = (
  { rules, config, places, readConnections = () => ({}), put }: LambdaFunction,
  lambda: EndpointHost,
): MiddyfiedHandler => {
  const recording = POSTERN_RECORDED && places ? createRecording(places, lambda, put) : undefined;
  const { host, evaluate } = recording ?? { host: lambda, evaluate: undefined };
  // The cast is safe: a function has at least one rule.
  const [rule] = Object.values(rules) as [Rule, ...Rule[]];
  const endpoint =
    POSTERN_GROUP && "alone" in config
      ? createGroupEndpoint(rules, config, host, evaluate)
      : createEndpoint(rule, config, host, evaluate);

  const handler = middy({ timeoutEarlyInMillis: 0 });
  if (POSTERN_RECONCILES && rule.reconcile) handler.use(schedule(rule, config, host.openCapabilities, readConnections));
  handler.use(httpEvent(endpoint));
  if (recording) handler.use(recording.middleware);
  // The cast is safe: httpEvent has replaced the event.
  return handler.handler((event) => {
    const request = event as LambdaRequest;
    return "review" in request ? endpoint.evaluateReview(request) : endpoint.answerRequest(request);
  });
};

const createCapabilities = (readConnections: () => Record<string, ApiServerConnection>): OpenCapabilities => {
  const openLedger = POSTERN_LEDGER ? openDynamoDbLedger : undefined;
  const createPages = POSTERN_RECONCILES ? createListPage : undefined;
  return POSTERN_ASKS
    ? createLiveCapabilities(readConnections, { openLedger, createPages })
    : createUnconnectedCapabilities;
};

/** Returns what an endpoint gets from Lambda: what the environment says, and a log line for each review. */
const createLambdaHost = (openCapabilities?: OpenCapabilities): EndpointHost & { endStart(): void } => {
  const {
    POSTERN_STAGE: stage = "local",
    POSTERN_KEYS: publicKeys = "",
    AWS_LAMBDA_INITIALIZATION_TYPE,
    AWS_LAMBDA_FUNCTION_NAME: functionName,
    AWS_LAMBDA_FUNCTION_VERSION: functionVersion,
  } = process.env;
  let readStart = createStartMeter(AWS_LAMBDA_INITIALIZATION_TYPE);
  return {
    publicKeys,
    functionName,
    functionVersion,
    openCapabilities,
    writeLogLine: (report) =>
      printSync(`${formatLogLine(report, stage, Date.now(), readStart(report.milliseconds))}\n`),
    endStart: () => {
      readStart = createStartMeter(AWS_LAMBDA_INITIALIZATION_TYPE);
    },
  };
};
