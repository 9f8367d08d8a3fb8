import { Failure } from "./failure.ts";
import type { Capabilities, Needs, OpenCapabilities } from "./needs.ts";

/** Milliseconds reserved to send the answer. */
const margin = 300;
const longest = 30_000;

/** Returns the milliseconds until the API server, which began earlier, or Lambda stops waiting. */
export const computeMillisecondsLeft = (
  call: { timeout: number | undefined; since: number | undefined } | undefined,
  context: { getRemainingTimeInMillis?(): number },
): number => {
  const { timeout = longest, since = Date.now() } = call ?? {};
  const gone = Date.now() - since;
  // Clocks may differ: an elapsed time below 0 or beyond the timeout is ignored.
  const waits = timeout - (gone > 0 && gone < timeout ? gone : 0);
  return Math.min(waits, context.getRemainingTimeInMillis?.() ?? longest) - margin;
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

/**
 * Evaluates a rule with needs until its time is up, with the given capabilities of a direct invocation or else those of
 * its cluster.
 */
export const evaluateInTime = <T>(
  { needs }: { needs?: Needs },
  { call, capabilities, cluster = "" }: TimedReview,
  host: { openCapabilities?: OpenCapabilities | undefined },
  context: Parameters<typeof computeMillisecondsLeft>[1],
  evaluate: (capabilities?: Capabilities) => T | Promise<T>,
): T | Promise<T> => {
  const left = computeMillisecondsLeft(call, context);
  const decision = evaluate(needs && (capabilities ?? host.openCapabilities?.(cluster, left)));
  return decision instanceof Promise ? rejectWhenLate(decision, left) : decision;
};

interface TimedReview {
  call?: Parameters<typeof computeMillisecondsLeft>[0];
  capabilities?: Capabilities | undefined;
  cluster?: string | undefined;
}
