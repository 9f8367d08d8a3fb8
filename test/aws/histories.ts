import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createRandom } from "../../infra/testing/random.ts";
import type { Operation } from "../linearizability.ts";
import type { ChooseFault } from "./faulty-dynamodb.ts";

/** The task of a process whose clients change values of a ledger. */
export interface HistoryTask {
  rule: string;
  /** The beginning of the values that this process writes. */
  name: string;
  clients: number;
  /** The number of changes of each client. */
  changes: number;
  seed: number;
  /** The milliseconds after which a change is given up. */
  changeTimeLimit: number;
}

const program = fileURLToPath(new URL("history-process.ts", import.meta.url));
/** In JSON, null stands for a value that is absent from the ledger. */
const convertNullToUndefined = (values: unknown[]) => values.map((value) => value ?? undefined);

/** Runs a process whose clients change values of a ledger, and returns all their operations. */
export const recordHistory = async (task: HistoryTask): Promise<Operation[]> => {
  const options = { maxBuffer: 256 * 1024 * 1024 };
  const { stdout } = await promisify(execFile)(process.execPath, [program, JSON.stringify(task)], options);
  const operations = stdout.trim().split("\n");
  return operations.map((line) => {
    const { read, wrote, ...operation } = JSON.parse(line);
    return { ...operation, read: convertNullToUndefined(read), wrote: convertNullToUndefined(wrote) };
  });
};

/** Returns a function that chooses faults at random, for about a fifth of the requests. `Fault` describes them. */
export const createRandomFaults = (seed: number): ChooseFault => {
  const random = createRandom(seed);
  return (operation) => {
    const isTransaction = operation.startsWith("Transact");
    // A number from 0 to 100: 3 % of the requests are throttled, the next 3 % have a conflict.
    const number = random.draw() * 100;
    if (number < 3) return { refusal: "ThrottlingException" };
    if (number < 6 && isTransaction)
      return { refusal: "TransactionCanceledException", reasons: ["TransactionConflict"] };
    if (number < 6) return { refusal: "TransactionConflictException" };
    if (number < 8) return "reset";
    if (number < 11) return "lost answer";
    if (number < 12) return "half an answer";
    if (number < 13) return "internal error";
    if (number < 13.5) return "no answer";
    if (number < 16) return { carryOutAfter: random.drawBelow(300) };
    if (number < 20) return { answerDelay: random.drawBelow(50) };
    return undefined;
  };
};
