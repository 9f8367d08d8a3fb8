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
import type { StartingFunction } from "./warm-up.ts";

/** The parts of a function that the entry module of its bundle provides. */
export interface LambdaFunction {
  /** The rule, or the members of a group, by name. */
  rules: Record<string, Rule>;
  /** The function's part of postern.yaml. */
  config: EndpointConfig | GroupConfig;
  /** The buckets in S3 where reviews are recorded; absent if they aren't. */
  buckets?: RecordingBucketSettingsByRule;
  /** Returns the connections to clusters, by cluster. It is called when a cluster is first asked. */
  readConnections?(): Record<string, ApiServerConnection>;
  /** Writes a recording; default: to S3. */
  put?: typeof putObject;
}

/**
 * Returns the exports of a function's bundle: the handler, and the parts that a warm-up needs. The build sets
 * POSTERN_NEEDS to true if a rule of the function has needs, which are questions to a cluster or to other services.
 */
export const createLambdaFunction = (parts: LambdaFunction): StartingFunction => {
  const host = createLambdaHost(POSTERN_NEEDS ? createCapabilities(parts) : undefined);
  return { ...parts, host, handler: createLambdaHandler(parts, host) };
};

/**
 * Creates the handler of a function. If reviews are recorded (`put` writes them to `buckets` in S3), the recording
 * wraps the host. Only the config of a group of rules has the member `alone`, by which a group is recognized here. The
 * build sets the constants POSTERN_…, which features.ts describes, to false for code that the function doesn't need.
 */
export const createLambdaHandler = (parts: LambdaFunction, lambdaHost: EndpointHost): MiddyfiedHandler => {
  const recording =
    POSTERN_RECORDED && parts.buckets ? createRecording(parts.buckets, lambdaHost, parts.put) : undefined;
  const host = POSTERN_RECORDED && recording ? recording.host : lambdaHost;
  const evaluate = POSTERN_RECORDED ? recording?.evaluate : undefined;
  // The cast is safe: a function has at least one rule.
  const [rule] = Object.values(parts.rules) as [Rule, ...Rule[]];
  const endpoint =
    POSTERN_GROUP && "alone" in parts.config
      ? createGroupEndpoint(parts.rules, parts.config, host, evaluate)
      : createEndpoint(rule, parts.config, host, evaluate);
  const handler = middy({ timeoutEarlyInMillis: 0 });
  if (POSTERN_RECONCILES && rule.reconcile) {
    const { config, readConnections = () => ({}) } = parts;
    handler.use(schedule(rule, config, host.openCapabilities, readConnections));
  }
  handler.use(httpEvent(endpoint));
  if (POSTERN_RECORDED && recording) handler.use(recording.middleware);
  // The cast is safe: httpEvent has replaced the event.
  const answer = (request: LambdaRequest) =>
    "review" in request ? endpoint.evaluateReview(request) : endpoint.answerRequest(request);
  return handler.handler(answer as (event: unknown) => Promise<unknown>);
};

/**
 * Returns a function that opens the capabilities through which rules ask. The build sets the constants: POSTERN_LEDGER,
 * if a rule uses the ledger; POSTERN_RECONCILES, if a schedule calls the function, which then lists objects in pages;
 * and POSTERN_ASKS, if rules ask clusters or services under the settings of any cluster.
 */
const createCapabilities = ({ readConnections = () => ({}) }: LambdaFunction): OpenCapabilities => {
  const openLedger = POSTERN_LEDGER ? openDynamoDbLedger : undefined;
  const createPages = POSTERN_RECONCILES ? createListPage : undefined;
  return POSTERN_ASKS
    ? createLiveCapabilities(readConnections, { openLedger, createPages })
    : createUnconnectedCapabilities;
};

/** Returns what Lambda gives an endpoint: keys and names from the environment, and a function that logs each review. */
const createLambdaHost = (openCapabilities?: OpenCapabilities): StartingFunction["host"] => {
  const {
    POSTERN_STAGE: stage = "local",
    POSTERN_KEYS: publicKeys = "",
    AWS_LAMBDA_INITIALIZATION_TYPE,
    AWS_LAMBDA_FUNCTION_NAME: functionName,
    AWS_LAMBDA_FUNCTION_VERSION: functionVersion,
  } = process.env;
  // Returns for how many milliseconds a review waited for the function's start: 0 for each review but the first. The
  // initialization type says whether Lambda started the function ahead of time.
  const measureWaitForStart = createStartMeter(AWS_LAMBDA_INITIALIZATION_TYPE);
  return {
    publicKeys,
    functionName,
    functionVersion,
    openCapabilities,
    formatLogLine,
    writeLogLine: (report) =>
      printSync(`${formatLogLine(report, stage, Date.now(), measureWaitForStart(report.milliseconds))}\n`),
  };
};
