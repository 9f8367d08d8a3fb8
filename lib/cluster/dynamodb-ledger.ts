import { randomUUID } from "node:crypto";
import { unavailableLedger } from "../core/capabilities.ts";
import { freezeDeep, toList, toMap } from "../json.ts";
import { checkChange, type Ledger } from "../ledger.ts";
import { createTableClient, type TableClient } from "./dynamodb-table.ts";

/** An item of the table: an entry of the ledger, or for some time the item of a deleted entry. */
interface Item {
  key: { S: string };
  /** A text that is unique to the write that made the item. A later write has the condition that it is still there. */
  version: { S: string };
  /** The value as JSON; absent in a deleted entry. */
  value?: { S: string };
  /** When the entry ends, in milliseconds since 1970; absent if it doesn't end. */
  until?: { N: string };
  /** The table's TTL attribute: some time after it, DynamoDB deletes the item. In seconds since 1970. */
  expires?: { N: string };
}

/** One key of a change: the item that was read, and the item to write; without one, the entry isn't changed. */
interface Write {
  key: string;
  old: Item | undefined;
  item?: Item;
}

/** Items that were read. */
interface FoundItems {
  items: (Item | undefined)[];
  /** Whether it is known that all these items were in the table at the same moment. */
  isSnapshot: boolean;
}

/** The outcome of a write. If another change came first, it is the items that are there now, or "overtaken". */
type Outcome = "written" | "overtaken" | FoundItems;

/**
 * For how many seconds the item of a deleted entry is kept. Without that item, a delayed retry of the request that
 * created the entry would find no item, and create the entry again.
 */
const deletedSeconds = 3600;

/**
 * The longest pause after another change came first, in milliseconds. It is short, because a change that pauses for
 * long is overtaken again and again.
 */
const maxConflictPause = 100;

/** Returns the ledger in the table that the variable POSTERN_LEDGER names, for a review until `deadline`. */
export const openDynamoDbLedger = (deadline: number): Ledger => {
  const { POSTERN_LEDGER: table } = process.env;
  return table ? createDynamoDbLedger(table, deadline) : unavailableLedger;
};

/**
 * Returns the ledger in a table of DynamoDB. A change reads items, and then writes new items on the condition that the
 * table still has the versions that were read. If it hasn't, the change starts again. If it isn't known at the deadline
 * whether the change was made, it throws a Failure.
 */
export const createDynamoDbLedger = (table: string, deadline: number, readTime = Date.now): Ledger => ({
  change: async <T>(
    keys: readonly string[],
    change: (kept: readonly (T | undefined)[]) => readonly (T | undefined)[],
    seconds?: number,
  ) => {
    const checkedChange = checkChange(keys, change);
    const client = createTableClient(table, deadline);
    for (let found = await readItems(client, table, keys); ; ) {
      const { items, isSnapshot } = found;
      const now = readTime();
      const kept = items.map((item) => readValue<T>(item, now));
      const newValues = checkedChange(kept);
      if (newValues.every((value, index) => value === kept[index])) {
        // Nothing is written, so no condition of a write tests that the items were there at the same moment.
        if (isSnapshot) return newValues;
        found = await readSnapshot(client, table, keys);
        continue;
      }
      const version = randomUUID();
      const writes = keys.map((key, index): Write => {
        const old = items[index];
        const value = newValues[index];
        return value === kept[index] ? { key, old } : { key, old, item: buildItem(key, version, value, now, seconds) };
      });
      const write = writes.length === 1 ? writeOne : writeAll;
      const outcome = await write(client, table, writes, version);
      if (outcome === "written") return newValues;
      await client.pause("other changes of the same entries came first", maxConflictPause);
      // A refused write of one item returns the item that is there now. After a refused transaction, it is read again.
      found = outcome === "overtaken" ? await readItems(client, table, keys) : outcome;
    }
  },
});

/**
 * Reads each item by itself. A transaction that reads all of them would fail while another transaction writes one of
 * them. The items may come from different moments; a write later has the condition that none has changed.
 */
const readItems = async ({ ask }: TableClient, table: string, keys: readonly string[]): Promise<FoundItems> => {
  const answers = await Promise.all(
    keys.map((key) => ask("GetItem", { TableName: table, Key: { key: { S: key } }, ConsistentRead: true })),
  );
  return { items: answers.map(({ content }) => content.Item as Item | undefined), isSnapshot: keys.length === 1 };
};

/** Reads items in a transaction, as they are at one moment. */
const readSnapshot = async ({ ask }: TableClient, table: string, keys: readonly string[]): Promise<FoundItems> => {
  const TransactItems = keys.map((key) => ({ Get: { TableName: table, Key: { key: { S: key } } } }));
  const { content } = await ask("TransactGetItems", { TransactItems });
  const items = keys.map((_, index) => toMap(toList(content.Responses)[index]).Item as Item | undefined);
  return { items, isSnapshot: true };
};

/** Returns the frozen value of an item; undefined if its entry is deleted or has ended. */
const readValue = <T>(item: Item | undefined, now: number): T | undefined => {
  if (item?.value === undefined || (item.until && Number(item.until.N) <= now)) return undefined;
  // The cast to T is safe: this key's values only come from `change` functions, which return a T.
  return freezeDeep(JSON.parse(item.value.S)) as T;
};

/** Returns a value of the ledger as a DynamoDB item, which DynamoDB deletes after `seconds`. */
const buildItem = (key: string, version: string, value: unknown, now: number, seconds?: number): Item => {
  const lifetime = value === undefined ? deletedSeconds : seconds;
  const until = lifetime === undefined ? undefined : now + lifetime * 1000;
  return {
    key: { S: key },
    version: { S: version },
    ...(value !== undefined && { value: { S: JSON.stringify(value) } }),
    ...(until !== undefined && { until: { N: `${until}` }, expires: { N: `${Math.ceil(until / 1000)}` } }),
  };
};

/**
 * Writes one item. `version` is the unique id of this write. If an answer was lost and the write repeated, the version
 * in the table says whether it was done.
 */
const writeOne = async (
  { ask, createFailure }: TableClient,
  table: string,
  [write]: Write[],
  version: string,
): Promise<Outcome> => {
  const { isDone, content, mayBeDone } = await ask("PutItem", {
    ...buildCondition(write?.old),
    TableName: table,
    Item: write?.item,
    ReturnValuesOnConditionCheckFailure: "ALL_OLD",
  });
  const found = content.Item as Item | undefined;
  if (isDone || found?.version.S === version) return "written";
  // The version is another one: the attempt without an answer may have been done, and then overwritten by a later
  // write.
  if (mayBeDone) throw createFailure("an answer was lost, and it is unknown whether the change was made");
  // Another change came first. A single item is always a snapshot: it was read at one moment.
  return { items: [found], isSnapshot: true };
};

/**
 * Writes several items in a transaction. `version` is the unique id of this write. It is also the request's token:
 * DynamoDB carries out requests with the same token only once, so the request can be repeated.
 */
const writeAll = async ({ ask }: TableClient, table: string, writes: Write[], version: string): Promise<Outcome> => {
  const TransactItems = writes.map(({ key, old, item }) => {
    const condition = { TableName: table, ...buildCondition(old) };
    return item
      ? { Put: { ...condition, Item: item } }
      : { ConditionCheck: { ...condition, Key: { key: { S: key } } } };
  });
  const { isDone } = await ask("TransactWriteItems", { ClientRequestToken: version, TransactItems });
  return isDone ? "written" : "overtaken";
};

/** Returns the condition that an item still has the version that was read, or is still absent. */
const buildCondition = (old: Item | undefined) => ({
  ConditionExpression: old ? "#version = :version" : "attribute_not_exists(#version)",
  ExpressionAttributeNames: { "#version": "version" },
  ...(old && { ExpressionAttributeValues: { ":version": old.version } }),
});
