import { setTimeout as wait } from "node:timers/promises";
import { type ChooseFault, countUnits, type Units } from "./faulty-dynamodb.ts";

/** The milliseconds that DynamoDB takes for a call of one item, and those that it takes for a transaction. */
const [single, leastTransaction, mostTransaction] = [4, 5, 15];
/** The most units that one item takes in a second. */
const most: Units = { read: 3000, write: 1000 };

/** What happens to an item. */
interface ItemUse extends Units {
  /** The second in which the item has taken so many units. */
  second: number;
  /** The number of writes that have begun, and of those and of transactions that write and have no answer yet. */
  begun: number;
  writing: number;
  transacting: number;
}

const unused: ItemUse = { read: 0, write: 0, second: 0, begun: 0, writing: 0, transacting: 0 };

type Refusal = "throttled" | "conflicts";
const refusals = { throttled: "ProvisionedThroughputExceededException", conflicts: "TransactionConflictException" };
const reasons = { throttled: "ThrottlingError", conflicts: "TransactionConflict" };

/**
 * Returns what DynamoDB Local lacks of DynamoDB: the time of a call, the units that an item takes in a second, and
 * conflicts. From its arrival to its answer, a transaction that writes or checks items conflicts with other writes of
 * these, and any write with transactions that read. The later one of two is cancelled, as AWS documents it:
 * https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling
 */
export const createItemLimits = (): { choose: ChooseFault; counts: Record<Refusal, number> } => {
  const uses = new Map<string, ItemUse>();
  const counts = { throttled: 0, conflicts: 0 };

  const choose: ChooseFault = async (operation, _, { items, answered }) => {
    const isTransaction = operation.startsWith("Transact");
    const kind = operation.includes("Get") ? "read" : "write";
    const second = Math.floor(Date.now() / 1000);
    const touched = items.map((item) => {
      const key = String(item.key?.S);
      const use = uses.get(key) ?? { ...unused };
      uses.set(key, use);
      if (second > use.second) Object.assign(use, { second, read: 0, write: 0 });
      use[kind] += countUnits(operation, item)[kind];
      return use;
    });
    const begun = touched.map((use) => use.begun);

    const isThrottled = touched.some((use) => use[kind] > most[kind]);
    const isLocked = touched.some(({ writing, transacting }) =>
      kind === "write" ? transacting > 0 : isTransaction && writing > 0,
    );
    const addWrite = (number: number) => {
      for (const use of touched) {
        use.writing += number;
        use.transacting += isTransaction ? number : 0;
      }
    };
    if (kind === "write" && !isThrottled && !isLocked) {
      for (const use of touched) use.begun++;
      addWrite(1);
      answered.then(() => addWrite(-1));
    }
    await wait(isTransaction ? leastTransaction + Math.random() * (mostTransaction - leastTransaction) : single);
    const isOvertaken =
      kind === "read" && isTransaction && touched.some((use, index) => use.begun > Number(begun[index]));
    const refusal = isThrottled ? "throttled" : isLocked || isOvertaken ? "conflicts" : undefined;
    if (!refusal) return undefined;
    counts[refusal]++;
    return isTransaction
      ? { refusal: "TransactionCanceledException", reasons: [reasons[refusal]] }
      : { refusal: refusals[refusal] };
  };
  return { choose, counts };
};
