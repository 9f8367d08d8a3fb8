import { setTimeout as wait } from "node:timers/promises";
import { Failure, getErrorMessage } from "../failure.ts";
import { isMap, type JsonMap, parseJson, toList, toMap } from "../json.ts";
import { callAwsJsonApi } from "./credentials.ts";
import { UnansweredError } from "./https-request.ts";

/** The result of an operation on a table. */
interface Result {
  /** False if a condition failed, or if another transaction was writing the same items. */
  isDone: boolean;
  content: JsonMap;
  /** True if an earlier attempt got no answer. That attempt may have been carried out. */
  mayBeDone: boolean;
}

/** Sends operations to a table of DynamoDB during one review. */
export interface TableClient {
  /** Sends an operation, and again after temporary errors. Throws a Failure at the deadline or for other errors. */
  ask(operation: string, parameters: object): Promise<Result>;
  /**
   * Waits for a random time. Its upper limit doubles with each call, but is at most `longest` milliseconds. Throws a
   * Failure with the reason if the review has less time left.
   */
  pause(reason: string, longest?: number): Promise<void>;
  createFailure(why: string, cause?: unknown): Failure;
}

/** The client stops these milliseconds before the review's deadline, so that the answer can name the table. */
const margin = 100;
/** The longest pause between two attempts, in milliseconds. */
const maxPause = 1000;
/** By how many milliseconds this machine's clock, which decides when entries end, may differ from DynamoDB's. */
const maxSkew = 5000;

/** Returns a client that calls DynamoDB, with retries up to the deadline. */
export const createTableClient = (table: string, deadline: number): TableClient => {
  const end = deadline - margin;
  let pauseLimit = 10;
  const createFailure = (why: string, cause?: unknown) =>
    new Failure(503, `the ledger in the table ${table} could not be used: ${why}`, { cause });
  const pause = async (reason: string, longest = maxPause) => {
    const milliseconds = Math.random() * Math.min(longest, pauseLimit);
    if (Date.now() + milliseconds >= end) throw createFailure(`the time is up: ${reason}`);
    pauseLimit = Math.min(maxPause, 2 * pauseLimit);
    await wait(milliseconds);
  };
  const ask = async (operation: string, parameters: object): Promise<Result> => {
    // True after an attempt without an answer, which may have been carried out.
    for (let mayBeDone = false; ; ) {
      const answer = await askOnce(operation, parameters, end).catch((error) => {
        if (error instanceof UnansweredError) return error;
        throw createFailure(getErrorMessage(error), error);
      });
      const isLost = answer instanceof UnansweredError;
      const [fault, content] = isLost ? [answer.message, {}] : answer;
      // Another transaction writes the same items: the caller must read them again. But after a lost answer, it may be
      // our own earlier attempt: then this loop sends the same request again.
      const mustReadAgain = operation === "TransactWriteItems" && fault === "TransactionConflict" && !mayBeDone;
      if (fault === undefined || fault === conditionFailed || mustReadAgain)
        return { isDone: fault === undefined, content, mayBeDone };
      if (!isLost && !temporaryErrors.has(fault)) {
        const remedy = Object.hasOwn(remedies, fault) ? `${remedies[fault]} (${fault})` : `DynamoDB answers ${fault}`;
        throw createFailure(remedy, new Error(String(content.message ?? content.Message)));
      }
      mayBeDone ||= isLost;
      await pause(isLost ? fault : `DynamoDB answers ${fault}`);
    }
  };
  return { ask, pause, createFailure };
};

const conditionFailed = "ConditionalCheckFailed";

/** The errors after which the same request may succeed. With these errors, the request was not carried out. */
const temporaryErrors = new Set([
  "ProvisionedThroughputExceeded",
  "ProvisionedThroughputExceededException",
  "RequestLimitExceeded",
  "ThrottlingError",
  "ThrottlingException",
  "TransactionConflict",
  "TransactionConflictException",
  "TransactionInProgressException",
]);

const invalidCredentials = "AWS doesn't accept this function's credentials";
const invalid = "DynamoDB refuses the change; an entry may have at most 400 KB, and a change 100 entries";
/** Sentences for users, by the name of AWS's error. */
const remedies: Record<string, string> = {
  AccessDeniedException: "this function's role has no right to it; deploy the stage again",
  ResourceNotFoundException: "there is no such table in this region; deploy the stage, which creates it",
  ValidationError: invalid,
  ValidationException: invalid,
  ExpiredTokenException: invalidCredentials,
  InvalidSignatureException: invalidCredentials,
  MissingAuthenticationTokenException: invalidCredentials,
  UnrecognizedClientException: invalidCredentials,
};

/**
 * Sends an operation once. Returns the name of AWS's error, if there is one, and the answer. The request may take at
 * most a third of the time that is left, so that it can be repeated.
 */
const askOnce = async (
  operation: string,
  body: object,
  end: number,
): Promise<[fault: string | undefined, content: JsonMap]> => {
  const { AWS_REGION: region = "" } = process.env;
  const target = `DynamoDB_20120810.${operation}`;
  const sent = Date.now();
  const call = { service: "dynamodb", region, target, protocol: "1.0", body } as const;
  const { status, headers, body: text } = await callAwsJsonApi(call, sent + (end - sent) / 3);
  const date = Date.parse(headers?.date?.[0] ?? "");
  // The header Date has whole seconds, so the server's clock may be up to a second ahead of it.
  const skew = Math.max(sent - date - 1000, date - Date.now());
  if (skew > maxSkew)
    throw new Error(`this machine's clock differs from DynamoDB's by ${Math.round(skew / 1000)} seconds`);
  const content = parseJson(text);
  if (status >= 500 || !isMap(content)) throw new UnansweredError(`DynamoDB answers ${status}`);
  return [status === 200 ? undefined : findFault(content), content];
};

/**
 * Returns the name of AWS's error. If a transaction failed for several reasons, returns a lasting one if there is one,
 * else a failed condition, else a temporary one.
 */
const findFault = (content: JsonMap): string => {
  const name = String(content.__type).replace(/.*#/, "");
  if (name === "ConditionalCheckFailedException") return conditionFailed;
  if (name !== "TransactionCanceledException") return name;
  const codes = toList(content.CancellationReasons).map((reason) => String(toMap(reason).Code));
  const reasons = codes.filter((code) => code !== "None");
  const lasting = reasons.find((code) => !temporaryErrors.has(code) && code !== conditionFailed);
  return lasting ?? reasons.find((code) => code === conditionFailed) ?? reasons[0] ?? name;
};
