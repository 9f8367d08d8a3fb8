import "../features.ts";
import { formatError } from "../masking/masked-error.ts";
import type { AdmissionRequest } from "../review.ts";
import type { Phase } from "../rule.ts";
import type { EnforcementMode, GroupMemberDecision, RuleDecision } from "./evaluation.ts";

/** How much log lines contain: everything by default; `minimal` leaves out the user and the message of a denial. */
export type LogDetail = "full" | "minimal";

/** The user of the reviews by which Postern's commands probe endpoints. All of them are dry runs. */
export const probeUser = "postern:probe";

/** The facts of one answered review. */
export interface AnsweredReviewFacts extends Omit<RuleDecision, "outcome" | "members"> {
  rule: string;
  phase?: Phase | undefined;
  variant?: string | undefined;
  cluster?: string | undefined;
  key?: string | undefined;
  mode?: EnforcementMode | undefined;
  request?: AdmissionRequest | undefined;
  code: number;
  logs?: LogDetail | undefined;
  /** The results of a group's members, but only of those that refused, warned, changed the object or failed. */
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

/** The most characters of a user's name and of a message in a line. The name of a service account has at most 339. */
const longestUser = 500;
const longestMessage = 4000;

const describeDenial = ({ message = "", request }: AnsweredReviewFacts) => {
  return { user: shorten(request?.userInfo.username ?? "", longestUser), message: shorten(message, longestMessage) };
};

/** Returns the beginning of a text, without characters that could harm a terminal: control characters and the like. */
const shorten = (text: string, longest: number): string =>
  (text.length > longest ? `${text.slice(0, longest)}…` : text).replace(/[^\P{C}\n]/gu, "?");

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
  const { code, request } = report;
  const { operation, resource, subResource, namespace, name, uid, dryRun }: Partial<AdmissionRequest> = request ?? {};
  const isForged = code >= 400 && code < 500;
  const isProbe = dryRun === true && request?.userInfo.username === probeUser;
  // A group's log line counts the review, and a member's line counts the denial.
  const isDenial = report.refused && !report.members && !isProbe;
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
    Reviews: report.group || isForged ? 0 : 1,
    Denials: isDenial ? 1 : 0,
    Errors: code === 200 || isForged ? 0 : 1,
    Latency,
    ColdStart: startMilliseconds ? Latency : undefined,
    // Always there, so that a query can subtract it.
    Init: startMilliseconds,
    verdict: getVerdictForLog(report),
    code,
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
    ...(POSTERN_EXCEPTIONS && !isProbe && { exception: report.exception }),
    ...(isDenial && report.logs !== "minimal" && describeDenial(report)),
    error: report.error && formatError(report.error, report, code >= 500),
  });
  if (!report.cluster || !report.mode || isForged) return entry;
  // Each metric with each value of its dimensions costs money, so there are few. A stage's reviews are those with
  // `Latency`; those with `ColdStart` waited for a start. A group's line has the latency, so its members' lines don't.
  const latency = report.group ? "" : `,{"Name":"Latency"}${startMilliseconds ? ',{"Name":"ColdStart"}' : ""}`;
  // The number of values of `Denials` is the number of a rule's reviews, from which its cost is estimated: without probes.
  const denials = isProbe
    ? ""
    : ',{"Namespace":"Postern","Dimensions":[["Stage","Rule"]],"Metrics":[{"Name":"Denials"}]}';
  return `{"_aws":{"Timestamp":${time},"CloudWatchMetrics":[{"Namespace":"Postern","Dimensions":[["Stage"]],"Metrics":[{"Name":"Errors"}${latency}]}${denials}]},${entry.slice(1)}`;
};
