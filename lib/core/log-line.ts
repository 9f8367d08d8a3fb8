import { formatError } from "../masking/masked-error.ts";
import type { AdmissionRequest } from "../review.ts";
import type { Phase } from "../rule.ts";
import type { EnforcementMode, GroupMemberDecision } from "./evaluation.ts";

/** The facts of one answered review. They contain no part of the object but its name. */
export interface AnsweredReviewFacts {
  rule: string;
  phase?: Phase | undefined;
  variant?: string | undefined;
  cluster?: string | undefined;
  key?: string | undefined;
  mode?: EnforcementMode | undefined;
  request?: AdmissionRequest | undefined;
  code: number;
  refused: boolean;
  operations: number;
  /** The results of a group's members, but only of those that refused, changed the object or failed. */
  members?: GroupMemberDecision[] | undefined;
  group?: string;
  milliseconds: number;
  error?: Error | undefined;
  function: string;
  version: string;
}

/** Returns the verdict in the log: in modes warn and audit, `would be denied` instead of `denied`, for instance. */
export const getVerdictForLog = ({ code, mode, refused, operations }: AnsweredReviewFacts): string => {
  if (code !== 200) return "failed";
  const verdict = refused ? "denied" : operations > 0 ? "changed" : "allowed";
  return verdict === "allowed" || mode === "enforce" ? verdict : `would be ${verdict}`;
};

/**
 * Returns one line of JSON per review, which CloudWatch also reads as metrics (embedded metric format). A request
 * without a valid key is logged without metrics, so that a stranger can't raise an alarm. Nor can the holder of a key by
 * a request that no API server sends, which gets a 4xx: it counts neither as a review nor as an error. `startMilliseconds` is the
 * time for which the review waited for the function's start, if it did.
 */
export const formatLogLine = (
  report: AnsweredReviewFacts,
  stage: string,
  time: number,
  startMilliseconds = 0,
): string => {
  const { operation, resource, subResource, namespace, name, uid, dryRun }: Partial<AdmissionRequest> =
    report.request ?? {};
  const isForged = report.code >= 400 && report.code < 500;
  const Latency = report.milliseconds + startMilliseconds;
  const entry = JSON.stringify({
    Rule: report.rule,
    Phase: report.phase,
    Cluster: report.cluster,
    Mode: report.mode,
    Function: report.function,
    Version: report.version,
    Key: report.key,
    Stage: stage,
    // A group's log line counts the review, and a member's line counts the denial.
    Reviews: report.group || isForged ? 0 : 1,
    Denials: report.refused && !report.members ? 1 : 0,
    Errors: report.code === 200 || isForged ? 0 : 1,
    Latency,
    ColdStart: startMilliseconds ? Latency : undefined,
    // Always there, so that a query can subtract it.
    Init: startMilliseconds,
    verdict: getVerdictForLog(report),
    code: report.code,
    variant: report.variant,
    operations: report.operations,
    operation,
    group: resource?.group,
    resource: resource?.resource,
    subResource,
    namespace,
    name,
    uid,
    dryRun,
    error: report.error && formatError(report.error, report, report.code >= 500),
  });
  if (!report.cluster || !report.mode || isForged) return entry;
  // Each metric with each value of its dimensions costs money, so there are few. A stage's reviews are those with
  // `Latency`; those with `ColdStart` waited for a start. A group's line has the latency, so its members' lines don't.
  const latency = report.group ? "" : `,{"Name":"Latency"}${startMilliseconds ? ',{"Name":"ColdStart"}' : ""}`;
  return `{"_aws":{"Timestamp":${time},"CloudWatchMetrics":[{"Namespace":"Postern","Dimensions":[["Stage"]],"Metrics":[{"Name":"Errors"}${latency}]},{"Namespace":"Postern","Dimensions":[["Stage","Rule"]],"Metrics":[{"Name":"Denials"}]}]},${entry.slice(1)}`;
};
