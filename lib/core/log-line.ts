import "../features.ts";
import { formatError } from "../masking/masked-error.ts";
import type { AdmissionRequest } from "../review.ts";
import type { Phase } from "../rule.ts";
import type { EnforcementMode, GroupMemberDecision, RuleDecision } from "./evaluation.ts";

/** How much a log line contains. `full` is the default; `minimal` leaves out the user and the message of a denial. */
export type LogDetail = "full" | "minimal";

/** The user in the reviews that Postern's commands send to test endpoints. All these reviews are dry runs. */
export const probeUser = "postern:probe";

/** The facts about one answered review from which its log line is made. */
export interface AnsweredReviewFacts extends Omit<RuleDecision, "outcome" | "members"> {
  rule: string;
  phase?: Phase | undefined;
  /** The variant of the rule whose webhook entry received the request. */
  variant?: string | undefined;
  cluster?: string | undefined;
  /** The public key and the key version that verified the URL, or `direct` for a direct invocation of the function. */
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

/** Returns the verdict for the log, such as `denied` in mode enforce and `would be denied` in modes warn and audit. */
export const getVerdictForLog = ({ code, mode, refused, operations }: AnsweredReviewFacts): string => {
  if (code !== 200) return "failed";
  const verdict = refused ? "denied" : operations > 0 ? "changed" : "allowed";
  return verdict === "allowed" || mode === "enforce" ? verdict : `would be ${verdict}`;
};

/** The most characters of a user's name in a log line. The name of a service account has at most 339 characters. */
const maxUserLength = 500;
const maxMessageLength = 4000;

const describeDenial = ({ message = "", request }: AnsweredReviewFacts) => {
  const user = shorten(request?.userInfo.username ?? "", maxUserLength);
  return { user, message: shorten(message, maxMessageLength) };
};

/** Returns the beginning of a text. Control and other invisible characters, which could harm a terminal, become `?`. */
const shorten = (text: string, maxLength: number): string =>
  (text.length > maxLength ? `${text.slice(0, maxLength)}…` : text).replace(/[^\P{C}\n]/gu, "?");

/**
 * Returns one line of JSON per review, which CloudWatch also reads as metrics (embedded metric format). A request that
 * gets a client error (4xx) isn't from an API server, even if its key is valid. It is logged without metrics, and is
 * counted neither as a review nor as an error, so that it can't raise an alarm.
 * `startMilliseconds` is the time for which the review waited for the function's start, if it did.
 */
export const formatLogLine = (
  report: AnsweredReviewFacts,
  stage: string,
  time: number,
  startMilliseconds = 0,
): string => {
  const { code, request } = report;
  const { operation, resource, subResource, namespace, name, uid, dryRun }: Partial<AdmissionRequest> = request ?? {};
  const isClientError = code >= 400 && code < 500;
  const isProbe = dryRun === true && request?.userInfo.username === probeUser;
  // If a group's member denies, the denial counts in the member's line, and the review counts in the group's line.
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
    Reviews: report.group || isClientError ? 0 : 1,
    Denials: isDenial ? 1 : 0,
    Errors: code === 200 || isClientError ? 0 : 1,
    Latency,
    ColdStart: startMilliseconds ? Latency : undefined,
    // Present in each line, so that a query can subtract it from the latency.
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
  if (!report.cluster || !report.mode || isClientError) return entry;
  // Metrics are few, because each combination of a metric and its dimensions' values costs money. The number of values
  // of `Latency` is the number of a stage's reviews. The number of values of `ColdStart` is the number of reviews that
  // waited for a start. A member's line has no latency, because the group's line has it.
  const latency = report.group ? "" : `,{"Name":"Latency"}${startMilliseconds ? ',{"Name":"ColdStart"}' : ""}`;
  // Each review but a probe adds 0 or 1 to `Denials`. Its SampleCount, a rule's reviews, is used to estimate the cost.
  const denials = isProbe
    ? ""
    : ',{"Namespace":"Postern","Dimensions":[["Stage","Rule"]],"Metrics":[{"Name":"Denials"}]}';
  return `{"_aws":{"Timestamp":${time},"CloudWatchMetrics":[{"Namespace":"Postern","Dimensions":[["Stage"]],"Metrics":[{"Name":"Errors"}${latency}]}${denials}]},${entry.slice(1)}`;
};
