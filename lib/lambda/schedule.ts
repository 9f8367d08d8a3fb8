import type { MiddlewareObj } from "@middy/core";
import type { Context } from "aws-lambda";
import { createUnconnectedCapabilities } from "../core/capabilities.ts";
import type { EndpointConfig } from "../core/endpoint.ts";
import { reconcileClusters } from "../core/reconciliation.ts";
import { isMap } from "../json.ts";
import { formatError } from "../masking/masked-error.ts";
import type { OpenCapabilities } from "../needs.ts";
import { printSync } from "../print.ts";
import type { Rule } from "../rule.ts";

/** The event with which a schedule calls a function. Events of HTTP requests have no member `reconcile`. */
export const reconcileEvent = { reconcile: true };

/**
 * A middleware that reconciles all clusters with a connection if the event comes from a schedule. Other events are left
 * to the next middleware. A failure is written to the log, where CloudWatch reads it as a metric. It isn't thrown,
 * because Lambda would then call the function again.
 */
export const schedule = (
  rule: Rule,
  config: EndpointConfig,
  openCapabilities: OpenCapabilities = createUnconnectedCapabilities,
  readConnections: () => object,
): MiddlewareObj => ({
  before: async ({ event, context }) => {
    if (!isMap(event) || event.reconcile !== reconcileEvent.reconcile) return undefined;
    const end = Date.now() + context.getRemainingTimeInMillis() - 1000;
    const clusters = Object.keys(readConnections());
    await reconcileClusters(rule, config, clusters, openCapabilities, end, (cluster, result) =>
      printSync(`${JSON.stringify(describeResult(config.rule, cluster, result, context))}\n`),
    );
    return {};
  },
});

/** Returns the log line of a scheduled run of a rule. */
const describeResult = (
  rule: string,
  cluster: string,
  result: string | Error,
  { functionName, functionVersion }: Context,
) => {
  const outcome =
    typeof result === "string"
      ? { verdict: "reconciled", done: result }
      : { verdict: "failed", error: formatError(result, { rule, cluster }), ScheduleErrors: 1, _aws: describeMetric() };
  return {
    Rule: rule,
    Cluster: cluster,
    Function: functionName,
    Version: functionVersion,
    Stage: process.env.POSTERN_STAGE,
    ...outcome,
  };
};

/** Returns the metric in a failure's log line (embedded metric format). Without failures, the metric costs nothing. */
const describeMetric = () => {
  const Metrics = [{ Name: "ScheduleErrors" }];
  return {
    Timestamp: Date.now(),
    CloudWatchMetrics: [{ Namespace: "Postern", Dimensions: [["Stage", "Rule"]], Metrics }],
  };
};
