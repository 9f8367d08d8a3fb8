import { Failure } from "../failure.ts";

/** Milliseconds reserved to send the answer. */
const margin = 300;
/** The longest time in milliseconds that an API server waits for a webhook. */
const longest = 30_000;

/** How long a caller waits for the answer to a request, in milliseconds. */
export interface WaitingCaller {
  /** The time that the request says. */
  timeout?: number | undefined;
  /** The time when the request began, since 1970. */
  since?: number | undefined;
}

/**
 * Returns the time by which an answer must be ready, in milliseconds since 1970: before the caller, which began earlier, or
 * the process itself, which has `remaining` milliseconds, stops waiting.
 */
export const computeDeadline = ({ timeout = longest, since }: WaitingCaller, remaining = longest): number => {
  const now = Date.now();
  const gone = now - (since ?? now);
  // Clocks may differ: an elapsed time below 0 or beyond the timeout is ignored.
  const waits = timeout - (gone > 0 && gone < timeout ? gone : 0);
  return now + Math.min(waits, remaining) - margin;
};

/** Parses a timeout such as `10s`, the only form that the API server writes, to milliseconds; else undefined. */
export const parseTimeout = (value: string): number | undefined => {
  const [, number] = /^(\d{1,5})s$/.exec(value) ?? [];
  return number === undefined ? undefined : Number(number) * 1000;
};

const createLateFailure = () => new Failure(504, "the rule did not answer in time");

/** Resolves to `answer`, or rejects if that takes longer than `milliseconds`: the API server waits no longer. */
export const rejectWhenLate = async <T>(
  answer: Promise<T>,
  milliseconds: number,
  createFailure: () => Error = createLateFailure,
): Promise<T> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(createFailure()), Math.max(0, milliseconds));
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
};

/** Evaluates, and rejects an asynchronous evaluation that takes longer than `milliseconds`. */
export const evaluateInTime = <T>(milliseconds: number, evaluate: (milliseconds: number) => T | Promise<T>) => {
  const decision = evaluate(milliseconds);
  return decision instanceof Promise ? rejectWhenLate(decision, milliseconds) : decision;
};
