import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { runNodeAndParseOutput } from "./processes/processes.ts";

/** Milliseconds of reviews by event-rate-limit, which all take a token from the same token bucket in the ledger. */
export interface LedgerTime {
  /** What is measured: "a change in memory" or "a change in DynamoDB Local". */
  what: string;
  p50: number;
  p99: number;
}

/** The numbers of reviews by their answers. */
export type AnswerCounts = Record<"admitted" | "refused" | "failed", number>;

/** The answers to events that were sent at one rate, all to one bucket that gets `qps` tokens a second. */
export interface EventRate extends AnswerCounts {
  /** The number of events a second. */
  rate: number;
  qps: number;
  /** From the first event to the last answer. */
  seconds: number;
  /** Calls of DynamoDB a second. */
  reads: number;
  writes: number;
  /** All calls that DynamoDB refused because an item used more units than allowed. */
  throttled: number;
  /** Milliseconds from an event's arrival to its answer. */
  p50: number;
  p99: number;
}

export type LedgerMeasurement = { times: LedgerTime[]; rates: EventRate[] } | { missing: string };

/** The program that starts DynamoDB Local and measures. */
const program = fileURLToPath(new URL("../aws/event-rate-process.ts", import.meta.url));

/** Measures event-rate-limit with its ledger in DynamoDB Local. Each rate of events is measured for `seconds`. */
export const measureLedger = async (seconds: number): Promise<LedgerMeasurement> => {
  if (!existsSync(program))
    return { missing: "DynamoDB Local is started by test/aws, which is not part of this checkout" };
  return (await runNodeAndParseOutput(program, { args: [`${seconds}`] })) as LedgerMeasurement;
};
