import type { EndpointHost } from "#lib/core/endpoint.ts";
import type { EvaluateRequest } from "#lib/core/evaluation.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { type AnsweredReviewFacts, getVerdictForLog } from "#lib/core/log-line.ts";
import { exactJson } from "#lib/exact-json.ts";
import { formatError } from "#lib/masking/masked-error.ts";
import { createRecorder, type RecordedReview } from "#lib/recording/recorder.ts";
import { createRedactor } from "#lib/recording/redaction.ts";
import { getObjectName } from "#lib/refusals.ts";
import { toSentence } from "../cli/complaint.ts";
import { truncateText } from "../cli/terminal.ts";
import type { ReviewRow } from "./messages.ts";

/** An answered review in the console's memory, with an evaluation of each rule that was called: several for a group. */
export interface KeptReview {
  row: ReviewRow;
  evaluations: RecordedReview[];
  failure?: string;
  bytes: number;
}

/** The reviews that the console has kept, and new ones: those of endpoints that use this `host` and `evaluate`. */
export interface ReviewFeed {
  host: EndpointHost;
  evaluate: EvaluateRequest;
  /**
   * Sends the kept reviews that came after the review `lastId`, or all if it isn't kept. Then sends new reviews until
   * the returned function is called.
   */
  subscribe(lastId: string, send: (rows: ReviewRow[]) => void): () => void;
  find(id: string): KeptReview | undefined;
}

const defaultLimits = {
  /** The memory that the kept reviews may use. `estimateBytes` estimates the memory of a review. */
  bytes: 128 * 1024 * 1024,
  reviews: 10_000,
  /** Milliseconds for which reviews are kept after the last page was closed. A reload of a page takes less time. */
  keep: 10_000,
};

/** New reviews are collected for this time, and then sent together. */
const collectMilliseconds = 100;

/**
 * Wraps the host and the evaluation of all endpoints, so that pages can show their reviews. While no page is open, the
 * only cost of a review is the check of one variable.
 */
export const createReviewFeed = (host: EndpointHost, limits = defaultLimits): ReviewFeed => {
  let isWatched = false;
  const session = Date.now().toString(36);
  const kept = new Map<string, KeptReview>();
  const subscribers = new Set<(rows: ReviewRow[]) => void>();
  let count = 0;
  let bytes = 0;
  const unsent: ReviewRow[] = [];
  let sendTimer: NodeJS.Timeout | undefined;
  let forgetTimer: NodeJS.Timeout | undefined;

  const recorded: RecordedReview[] = [];
  const recorder = createRecorder({ ...host, writeLogLine: () => {} }, (review) => recorded.push(review));

  const keepReview = (report: AnsweredReviewFacts, sentence = report.error && formatError(report.error, report)) => {
    // The members of a group are in the row of their group. A request without a valid key gets no row, because any
    // program can send it.
    if (report.group !== undefined || report.cluster === undefined) return;
    recorder.host.writeLogLine(report);
    const evaluations = recorded.splice(0);
    const members = report.members && { members: listMembers(report, evaluations) };
    const failure = sentence && truncateText(toSentence(sentence), 1000);
    const row = { id: `${session}-${++count}`, ...describeFacts(report, failure), ...members };
    const review: KeptReview = { row, evaluations, ...(failure !== undefined && { failure }), bytes: 0 };
    review.bytes = estimateBytes(review);
    kept.set(row.id, review);
    bytes += review.bytes;
    for (const [id, oldest] of kept) {
      if (bytes <= limits.bytes && kept.size <= limits.reviews) break;
      kept.delete(id);
      bytes -= oldest.bytes;
    }
    unsent.push(row);
    sendTimer ??= setTimeout(flush, collectMilliseconds).unref();
  };

  const flush = () => {
    clearTimeout(sendTimer);
    sendTimer = undefined;
    const rows = unsent.splice(0);
    if (rows.length > 0) for (const send of subscribers) send(rows);
  };

  const forget = () => {
    isWatched = false;
    flush();
    kept.clear();
    bytes = 0;
  };
  return {
    host: {
      ...host,
      writeLogLine: (report) => {
        host.writeLogLine(report);
        if (!isWatched) return;
        try {
          keepReview(report);
        } catch {
          // `recorded` is empty now, so this keeps the review without the evaluations that caused the error.
          keepReview(report, "The review can't be shown: its object is nested too deep.");
        }
      },
    },
    evaluate: (rule, phase, request, context) =>
      (isWatched ? recorder.evaluate : evaluateRule)(rule, phase, request, context),
    subscribe: (lastId, send) => {
      isWatched = true;
      clearTimeout(forgetTimer);
      flush();
      const rows = [...kept.values()].map(({ row }) => row);
      send(rows.slice(rows.findIndex(({ id }) => id === lastId) + 1));
      subscribers.add(send);
      return () => {
        subscribers.delete(send);
        clearTimeout(forgetTimer);
        if (subscribers.size === 0) forgetTimer = setTimeout(forget, limits.keep).unref();
      };
    },
    find: (id) => kept.get(id),
  };
};

/** Estimates the memory of a review from above: up to 2 bytes for a character, 80 for an object, a list or a member. */
const estimateBytes = ({ row, failure, evaluations }: KeptReview): number => {
  const json = exactJson.stringify([row, failure, evaluations.map(({ request, needs }) => [request, needs])]);
  return 2 * json.length + 80 * json.replace(/[^[{,]+/g, "").length;
};

/**
 * Returns the verdicts of the members of a group that were called. The report doesn't contain members that allowed the
 * unchanged object without a warning.
 */
const listMembers = (report: AnsweredReviewFacts, evaluations: readonly RecordedReview[]) => {
  const verdicts = Object.fromEntries(evaluations.map(({ origin }) => [origin.rule, "allowed"]));
  for (const { error, ...member } of report.members ?? [])
    verdicts[member.rule] = getVerdictForLog({ ...report, ...member, code: error?.code ?? 200 });
  return verdicts;
};

/** Returns the beginning of a text. Replaces characters that JSON would escape with six characters, such as \u0000. */
const shorten = (text: unknown, maxLength = 300) =>
  truncateText(String(text ?? "").replace(/[\p{Cc}\p{Cs}]/gu, "\ufffd"), maxLength);

/**
 * Returns the refusal or the warnings of a review, or the exception that applied to it. For a group, returns the
 * sentences of its members.
 */
const getSentence = ({ message, exception, members = [] }: Partial<AnsweredReviewFacts>): string =>
  message ??
  (exception && `exempt ${exception}`) ??
  members
    .flatMap(({ rule, ...own }) => {
      const sentence = getSentence(own);
      return sentence ? `${rule}: ${sentence}` : [];
    })
    .join("; ");

/**
 * Returns what the console's list shows of a review. Names are redacted as in recordings. If an error prevented the
 * answer, the caller gives its message as `fullSentence`.
 */
const describeFacts = (report: AnsweredReviewFacts, fullSentence = getSentence(report)): Omit<ReviewRow, "id"> => {
  const { request, cluster = "", rule, phase = "", code, milliseconds } = report;
  const verdict = code === 200 ? getVerdictForLog(report) : `failed: ${code}`;
  const sentence = shorten(fullSentence.replace(/\s+/g, " "), 500);
  const facts = { at: Date.now(), cluster, rule, phase, verdict, milliseconds, sentence };
  if (request === undefined) return { ...facts, operation: "", object: "", user: "" };
  const { user, metadata } = createRedactor()({
    user: { username: shorten(request.userInfo.username) },
    metadata: { namespace: shorten(request.namespace), name: shorten(getObjectName(request)) },
  });
  const kind = shorten([request.kind.kind, request.subResource].filter(Boolean).join("/"));
  const name = [metadata.namespace, metadata.name].filter(Boolean).join("/");
  return { ...facts, operation: shorten(request.operation), object: `${kind} ${name}`, user: user.username };
};
