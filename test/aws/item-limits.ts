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
  begun: number;
  /** The number of writes that have no answer yet. */
  writing: number;
  /** The number of transactions that write and have no answer yet. */
  transacting: number;
}

const unused: ItemUse = { read: 0, write: 0, second: 0, begun: 0, writing: 0, transacting: 0 };

type Refusal = "throttled" | "conflicts";
const refusals = { throttled: "ProvisionedThroughputExceededException", conflicts: "TransactionConflictException" };
const reasons = { throttled: "ThrottlingError", conflicts: "TransactionConflict" };

/**
 * Adds to DynamoDB Local three properties of DynamoDB: the time of a call, a limit of units for an item, and conflicts.
 * From its arrival to its answer, a transaction that writes or checks items conflicts with other writes of these items.
 * Any write conflicts with transactions that read its items. Of two requests in conflict, the one that arrived later is
 * cancelled. However, if a write arrives while a transaction reads its items, the transaction is cancelled:
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
    const begunBefore = itemUses.map((use) => use.begun);

    const isThrottled = itemUses.some((use) => use[kind] > mostUnits[kind]);
    // A write conflicts with an earlier transaction that writes; the read of a transaction conflicts with any write.
    const isLocked = itemUses.some(({ writing, transacting }) =>
      kind === "write" ? transacting > 0 : isTransaction && writing > 0,
    );
    const addWrite = (number: 1 | -1) => {
      for (const use of itemUses) {
        use.writing += number;
        use.transacting += isTransaction ? number : 0;
      }
    };
    if (kind === "write" && !isThrottled && !isLocked) {
      for (const use of itemUses) use.begun++;
      addWrite(1);
      answered.then(() => addWrite(-1));
    }
    const { single, shortestTransaction, longestTransaction } = callTimes;
    const transactionTime = shortestTransaction + Math.random() * (longestTransaction - shortestTransaction);
    await wait(isTransaction ? transactionTime : single);
    // A write began while the transaction read.
    const isOvertaken =
      kind === "read" && isTransaction && itemUses.some((use, index) => use.begun > Number(begunBefore[index]));
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
