import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { AnswerCounts } from "./ledger.ts";
import { runNodeAndParseOutput } from "./processes/processes.ts";

/** The answers to reviews that were sent at one rate. Each review charges one quota with the amounts of an object. */
export interface ChargeRate extends AnswerCounts {
  /** The number of reviews a second. */
  rate: number;
  /** The number of quotas. The reviews charge them in turn. */
  quotas: number;
  /** From the first review to the last answer. */
  seconds: number;
  /** Milliseconds from a review's arrival to its answer. */
  p50: number;
  p99: number;
  /** Calls of DynamoDB for each review. */
  calls: number;
  /** The calls that DynamoDB cancelled because another transaction changed the same item. */
  conflicts: number;
  /** The calls that DynamoDB refused because an item used more units than allowed. */
  throttled: number;
}

/** The units of DynamoDB that a review consumes. */
export interface ReviewUnits {
  what: string; // The kind of review, for instance "a charge of two quotas".
  read: number;
  write: number;
  /** For a million reviews. */
  dollars: number;
}

export type QuotaMeasurement = { rates: ChargeRate[]; units: ReviewUnits[] } | { missing: string };

/** The program that starts DynamoDB Local and measures. */
const program = fileURLToPath(new URL("../aws/quota-rate-process.ts", import.meta.url));

/** Measures workload-quota with its ledger in DynamoDB Local by reviews that fill quotas, `seconds` at each rate. */
export const measureQuotas = async (seconds: number): Promise<QuotaMeasurement> => {
  if (!existsSync(program))
    return { missing: "DynamoDB Local is started by test/aws, which is not part of this checkout" };
  return (await runNodeAndParseOutput(program, { args: [`${seconds}`] })) as QuotaMeasurement;
};
