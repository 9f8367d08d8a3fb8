import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { AnswerCounts } from "./ledger.ts";
import { runNodeAndParseOutput } from "./processes/processes.ts";

/** What became of charges that came at this rate, in turn to so many quotas. */
export interface ChargeRate extends AnswerCounts {
  rate: number;
  quotas: number;
  /** From the first review to the last answer. */
  seconds: number;
  /** Milliseconds from a review's arrival to its answer. */
  p50: number;
  p99: number;
  /** Calls of DynamoDB for each review. */
  calls: number;
  /** The calls that DynamoDB cancelled because another transaction changed the same item, or the item took too much. */
  conflicts: number;
  throttled: number;
}

/** The units of DynamoDB that a review consumes. */
export interface ReviewUnits {
  what: string;
  read: number;
  write: number;
  /** For a million reviews. */
  dollars: number;
}

export type QuotaMeasurement = { rates: ChargeRate[]; units: ReviewUnits[] } | { missing: string };

/** DynamoDB Local is started by a program of the tests, because infra imports nothing of test. */
const program = fileURLToPath(new URL("../aws/quota-rate-process.ts", import.meta.url));

/** Measures workload-quota with its ledger in DynamoDB Local, each rate of charges for so many seconds. */
export const measureQuotas = async (seconds: number): Promise<QuotaMeasurement> => {
  if (!existsSync(program))
    return { missing: "DynamoDB Local is started by test/aws, which is not part of this checkout" };
  return (await runNodeAndParseOutput(program, { args: [`${seconds}`] })) as QuotaMeasurement;
};
