import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { runNodeAndParseOutput } from "./processes/processes.ts";

/** Milliseconds of a review of event-rate-limit that changes one bucket. */
export interface LedgerTime {
  what: string;
  p50: number;
  p99: number;
}

/** The numbers of reviews by their answers. */
export type AnswerCounts = Record<"admitted" | "refused" | "failed", number>;

/** What became of events that came at this rate, all to one bucket that gets `qps` tokens a second. */
export interface EventRate extends AnswerCounts {
  rate: number;
  qps: number;
  /** From the first event to the last answer. */
  seconds: number;
  /** Calls of DynamoDB a second. */
  reads: number;
  writes: number;
  throttled: number;
  /** Milliseconds from an event's arrival to its answer. */
  p50: number;
  p99: number;
}

export type LedgerMeasurement = { times: LedgerTime[]; rates: EventRate[] } | { missing: string };

/** DynamoDB Local is started by a program of the tests, because infra imports nothing of test. */
const program = fileURLToPath(new URL("../aws/event-rate-process.ts", import.meta.url));

/** Measures event-rate-limit with its ledger in DynamoDB Local, each rate of events for so many seconds. */
export const measureLedger = async (seconds: number): Promise<LedgerMeasurement> => {
  if (!existsSync(program))
    return { missing: "DynamoDB Local is started by test/aws, which is not part of this checkout" };
  return (await runNodeAndParseOutput(program, { args: [`${seconds}`] })) as LedgerMeasurement;
};
