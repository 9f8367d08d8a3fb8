import { setTimeout as wait } from "node:timers/promises";
import { type ChooseFault, countUnits, type Units } from "./faulty-dynamodb.ts";

/** How long calls take, in milliseconds: a call for one item, and the shortest and the longest transaction. */
const callTimes = { single: 4, shortestTransaction: 5, longestTransaction: 15 };
/** The largest number of units that DynamoDB allows for one item in a second. */
const mostUnits: Units = { read: 3000, write: 1000 };

/** The present use of an item. `read` and `write` are the units that it has used in `second`. */
interface ItemUse extends Units {
  second: number;
  /** The number of writes that have begun, also of those that have ended. */
  begunWrites: number;
  /** The number of writes that have no answer yet, also in transactions. */
  pendingWrites: number;
  /** The number of transactions that write and have no answer yet. */
  pendingWriteTransactions: number;
}

const unused: ItemUse = { read: 0, write: 0, second: 0, begunWrites: 0, pendingWrites: 0, pendingWriteTransactions: 0 };

type Refusal = "throttled" | "conflicts";
const refusals = { throttled: "ProvisionedThroughputExceededException", conflicts: "TransactionConflictException" };
const reasons = { throttled: "ThrottlingError", conflicts: "TransactionConflict" };

/**
 * Adds to DynamoDB Local three properties of DynamoDB: the time of a call, a limit of units for an item, and conflicts.
 * While a transaction writes or checks items, other writes of these items are cancelled. While a request writes items,
 * transactions that read them are cancelled, also those that were reading when the write arrived:
 * https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling
 */
export const createItemLimits = (): { chooseFault: ChooseFault; counts: Record<Refusal, number> } => {
  const uses = new Map<string, ItemUse>();
  const counts = { throttled: 0, conflicts: 0 };

  const chooseFault: ChooseFault = async (operation, _, { items, answered }) => {
    const isTransaction = operation.startsWith("Transact");
    const kind = operation.includes("Get") ? "read" : "write";
    const second = Math.floor(Date.now() / 1000);
    const itemUses = items.map((item) => {
      const key = String(item.key?.S);
      const use = uses.get(key) ?? { ...unused };
      uses.set(key, use);
      if (second > use.second) Object.assign(use, { second, read: 0, write: 0 });
      use[kind] += countUnits(operation, item)[kind];
      return use;
    });
    const begunBefore = itemUses.map((use) => use.begunWrites);

    const isThrottled = itemUses.some((use) => use[kind] > mostUnits[kind]);
    // Reads outside of transactions never conflict, and writes outside of transactions don't conflict with each other.
    const isLocked = itemUses.some(({ pendingWrites, pendingWriteTransactions }) =>
      kind === "write" ? pendingWriteTransactions > 0 : isTransaction && pendingWrites > 0,
    );
    const addWrite = (number: 1 | -1) => {
      for (const use of itemUses) {
        use.pendingWrites += number;
        use.pendingWriteTransactions += isTransaction ? number : 0;
      }
    };
    if (kind === "write" && !isThrottled && !isLocked) {
      for (const use of itemUses) use.begunWrites++;
      addWrite(1);
      answered.then(() => addWrite(-1));
    }
    const { single, shortestTransaction, longestTransaction } = callTimes;
    const transactionTime = shortestTransaction + Math.random() * (longestTransaction - shortestTransaction);
    await wait(isTransaction ? transactionTime : single);
    // A write began while the transaction read.
    const isOvertaken =
      kind === "read" && isTransaction && itemUses.some((use, index) => use.begunWrites > Number(begunBefore[index]));
    const hasConflict = isLocked || isOvertaken;
    if (!isThrottled && !hasConflict) return undefined;
    const refusal = isThrottled ? "throttled" : "conflicts";
    counts[refusal]++;
    return isTransaction
      ? { refusal: "TransactionCanceledException", reasons: [reasons[refusal]] }
      : { refusal: refusals[refusal] };
  };
  return { chooseFault, counts };
};
