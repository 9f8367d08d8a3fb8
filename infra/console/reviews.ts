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

/** An answered review, as long as the console keeps it. */
export interface KeptReview {
  row: ReviewRow;
  evaluations: RecordedReview[];
  failure?: string;
  bytes: number;
}

export interface ReviewFeed {
  host: EndpointHost;
  evaluate: EvaluateRequest;
  /** Sends the kept reviews after this id, and then new ones, until the returned function is called. */
  subscribe(after: string, send: (rows: ReviewRow[]) => void): () => void;
  find(id: string): KeptReview | undefined;
}

const usualLimits = {
  /** How many bytes of memory the kept reviews may take, estimated by `measure`. */
  bytes: 128 * 1024 * 1024,
  reviews: 10_000,
  /** Milliseconds for which reviews are kept after the last page was closed: a reload takes less. */
  keep: 10_000,
};

/** Milliseconds for which new reviews are collected before they are sent. */
const collecting = 100;

/**
 * Wraps the host and the evaluation of all endpoints, so that pages can watch their reviews. While no page is open, one
 * variable is checked for each review and nothing else happens.
 */
export const createReviewFeed = (host: EndpointHost, limits = usualLimits): ReviewFeed => {
  let isWatched = false;
  const session = Date.now().toString(36);
  const kept = new Map<string, KeptReview>();
  const subscribers = new Set<(rows: ReviewRow[]) => void>();
  let count = 0;
  let bytes = 0;
  const unsent: ReviewRow[] = [];
  let sending: NodeJS.Timeout | undefined;
  let forgetting: NodeJS.Timeout | undefined;

  const recorded: RecordedReview[] = [];
  const recorder = createRecorder({ ...host, writeLogLine: () => {} }, (review) => recorded.push(review));

  const takeReview = (report: AnsweredReviewFacts, sentence = report.error && formatError(report.error, report)) => {
    // A group's member has no row of its own; nor has a request without a valid key, which any program can send.
    if (report.group !== undefined || report.cluster === undefined) return;
    recorder.host.writeLogLine(report);
    const evaluations = recorded.splice(0);
    const members = report.members && { members: listMembers(report, evaluations) };
    const failure = sentence && truncateText(toSentence(sentence), 1000);
    const row = { id: `${session}-${++count}`, ...describeFacts(report, failure), ...members };
    const review: KeptReview = { row, evaluations, ...(failure !== undefined && { failure }), bytes: 0 };
    review.bytes = measure(review);
    kept.set(row.id, review);
    bytes += review.bytes;
    for (const [id, oldest] of kept) {
      if (bytes <= limits.bytes && kept.size <= limits.reviews) break;
      kept.delete(id);
      bytes -= oldest.bytes;
    }
    unsent.push(row);
    sending ??= setTimeout(flush, collecting).unref();
  };

  const flush = () => {
    clearTimeout(sending);
    sending = undefined;
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
          takeReview(report);
        } catch {
          // Its evaluations, which can't be measured, are dropped by now.
          takeReview(report, "The review can't be shown: its object is nested too deep.");
        }
      },
    },
    evaluate: (rule, phase, request, context) =>
      (isWatched ? recorder.evaluate : evaluateRule)(rule, phase, request, context),
    subscribe: (after, send) => {
      isWatched = true;
      clearTimeout(forgetting);
      flush();
      const rows = [...kept.values()].map(({ row }) => row);
      send(rows.slice(rows.findIndex(({ id }) => id === after) + 1));
      subscribers.add(send);
      return () => {
        subscribers.delete(send);
        clearTimeout(forgetting);
        if (subscribers.size === 0) forgetting = setTimeout(forget, limits.keep).unref();
      };
    },
    find: (id) => kept.get(id),
  };
};

/** Returns an upper estimate of a review's memory: a character takes up to 2 bytes, an object or a member up to 80. */
const measure = ({ row, failure, evaluations }: KeptReview): number => {
  const json = exactJson.stringify([row, failure, evaluations.map(({ request, needs }) => [request, needs])]);
  return 2 * json.length + 80 * json.replace(/[^[{,]+/g, "").length;
};

/** Returns the verdicts of a group's members. The report leaves out those that allowed the object as it was, without a warning. */
const listMembers = (report: AnsweredReviewFacts, evaluations: readonly RecordedReview[]) => {
  const verdicts = Object.fromEntries(evaluations.map(({ origin }) => [origin.rule, "allowed"]));
  for (const { error, ...member } of report.members ?? [])
    verdicts[member.rule] = getVerdictForLog({ ...report, ...member, code: error?.code ?? 200 });
  return verdicts;
};

/** Returns the beginning of a text, which is short also when escaped in JSON. */
const cut = (text: unknown, most = 300) => truncateText(String(text ?? "").replace(/[\p{Cc}\p{Cs}]/gu, "\ufffd"), most);

/** Returns the refusal or the warnings of a review, or the exception that let it through; of a group, those of its members. */
const getSentence = ({ message, exception, members = [] }: Partial<AnsweredReviewFacts>): string =>
  message ??
  (exception && `exempt ${exception}`) ??
  members
    .flatMap(({ rule, ...own }) => {
      const sentence = getSentence(own);
      return sentence ? `${rule}: ${sentence}` : [];
    })
    .join("; ");

/** Returns what a row shows of a review; names are redacted as in recordings. */
const describeFacts = (report: AnsweredReviewFacts, failure = getSentence(report)): Omit<ReviewRow, "id"> => {
  const { request, cluster = "", rule, phase = "", code, milliseconds } = report;
  const verdict = code === 200 ? getVerdictForLog(report) : `failed: ${code}`;
  const sentence = cut(failure.replace(/\s+/g, " "), 500);
  const facts = { at: Date.now(), cluster, rule, phase, verdict, milliseconds, sentence };
  if (request === undefined) return { ...facts, operation: "", object: "", user: "" };
  const { user, metadata } = createRedactor()({
    user: { username: cut(request.userInfo.username) },
    metadata: { namespace: cut(request.namespace), name: cut(getObjectName(request)) },
  });
  const kind = cut([request.kind.kind, request.subResource].filter(Boolean).join("/"));
  const name = [metadata.namespace, metadata.name].filter(Boolean).join("/");
  return { ...facts, operation: cut(request.operation), object: `${kind} ${name}`, user: user.username };
};
