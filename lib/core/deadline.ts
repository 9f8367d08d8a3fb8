import { Failure } from "../failure.ts";

/** Milliseconds reserved to send the answer. */
const sendMargin = 300;
/** The longest time in milliseconds that an API server waits for a webhook. */
const longestTimeout = 30_000;

/** How long a caller waits for the answer to a request, in milliseconds. */
export interface CallerTimeout {
  /** The timeout that the request names. */
  timeout?: number | undefined;
  /** The time when the request began, since 1970. */
  since?: number | undefined;
}

/**
 * Returns the time by which an answer must be ready, in milliseconds since 1970: shortly before the caller's timeout,
 * or before the process ends, which has `remaining` milliseconds, if that is earlier.
 */
export const computeDeadline = (
  { timeout = longestTimeout, since }: CallerTimeout,
  remaining = longestTimeout,
): number => {
  const now = Date.now();
  const elapsed = now - (since ?? now);
  // Clocks may differ: an elapsed time below 0 or beyond the timeout is ignored.
  const callerRemaining = timeout - (elapsed > 0 && elapsed < timeout ? elapsed : 0);
  return now + Math.min(callerRemaining, remaining) - sendMargin;
};

/** Parses a timeout such as `10s`, the only form that the API server writes, to milliseconds; else undefined. */
export const parseTimeout = (value: string): number | undefined => {
  const [, number] = /^(\d{1,5})s$/.exec(value) ?? [];
  return number === undefined ? undefined : Number(number) * 1000;
};

const createLateFailure = () => new Failure(504, "the rule did not answer in time");

/** Resolves to the value of `answer`, or rejects if that takes longer than `milliseconds`. */
export const rejectWhenLate = <T>(
  answer: Promise<T>,
  milliseconds: number,
  createFailure: () => Error = createLateFailure,
): Promise<T> =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(createFailure()), Math.max(0, milliseconds));
    answer.then(resolve, reject).then(() => clearTimeout(timer));
  });

/** Calls `evaluate`. If it returns a promise, this is rejected after `milliseconds`. */
export const evaluateInTime = <T>(milliseconds: number, evaluate: (milliseconds: number) => T | Promise<T>) => {
  const decision = evaluate(milliseconds);
  return decision instanceof Promise ? rejectWhenLate(decision, milliseconds) : decision;
};
