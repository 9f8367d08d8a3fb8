import { randomUUID } from "node:crypto";
import { unavailableLedger } from "../core/capabilities.ts";
import { freezeDeep, toList, toMap } from "../json.ts";
import { checkChange, type Ledger } from "../ledger.ts";
import { createTableClient, type TableClient } from "./dynamodb-table.ts";

/** An item of the table: an entry, or what stays of a deleted one for a while. */
interface Item {
  key: { S: string };
  /** A text that no other write sets: a write states as its condition which version it replaces. */
  version: { S: string };
  /** The value as JSON; absent in a deleted entry. */
  value?: { S: string };
  /** The end of the entry in milliseconds since 1970; absent if it has none. */
  until?: { N: string };
  /** The seconds since 1970 after which DynamoDB deletes the item, some time later: the table's TTL attribute. */
  expires?: { N: string };
}

/** An entry of a change: the item that was read, and the one to write, unless the entry stays. */
interface Write {
  key: string;
  old: Item | undefined;
  item?: Item;
}

/** Items that were read. */
interface FoundItems {
  items: (Item | undefined)[];
  /** Whether all were there at one moment. */
  isMoment: boolean;
}

/** A write was done, or another change came first; then the items that are there now, if they are known. */
type Outcome = "written" | { found?: FoundItems };

/**
 * How long the item of a deleted entry stays. If it were deleted at once, a delayed second request to create the entry
 * would find none, and create it again.
 */
const deletedSeconds = 3600;

/**
 * The milliseconds of the longest pause after another change came first. It is short: with long pauses, a change could
 * wait for ever while new ones overtake it.
 */
const longestConflictPause = 100;

/** Opens the table that the environment variable POSTERN_LEDGER names, for a review that ends at the deadline. */
export const openDynamoDbLedger = (deadline: number): Ledger => {
  const { POSTERN_LEDGER: table } = process.env;
  return table ? createDynamoDbLedger(table, deadline) : unavailableLedger;
};

/**
 * Returns the ledger in a table of DynamoDB. Each change reads its entries, and writes new ones on the condition that
 * the read versions are still there; otherwise it starts again. Whatever is unknown at the deadline is a Failure.
 */
export const createDynamoDbLedger = (table: string, deadline: number, readTime = Date.now): Ledger => ({
  change: async <T>(
    keys: readonly string[],
    change: (kept: readonly (T | undefined)[]) => readonly (T | undefined)[],
    seconds?: number,
  ) => {
    const makeValues = checkChange(keys, change);
    const client = createTableClient(table, deadline);
    for (let found = await readItems(client, table, keys); ; ) {
      const { items, isMoment } = found;
      const now = readTime();
      const kept = items.map((item) => readValue<T>(item, now));
      const newValues = makeValues(kept);
      if (newValues.every((value, index) => value === kept[index])) {
        if (isMoment) return newValues;
        found = await readMoment(client, table, keys);
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
      await client.pause("other changes of the same entries came first", longestConflictPause);
      found = outcome.found ?? (await readItems(client, table, keys));
    }
  },
});

/**
 * Reads items one by one, because a transaction that reads fails while another one writes one of them. A write has the
 * condition that they were all there at one moment.
 */
const readItems = async ({ ask }: TableClient, table: string, keys: readonly string[]): Promise<FoundItems> => {
  const answers = await Promise.all(
    keys.map((key) => ask("GetItem", { TableName: table, Key: { key: { S: key } }, ConsistentRead: true })),
  );
  return { items: answers.map(({ content }) => content.Item as Item | undefined), isMoment: keys.length === 1 };
};

/** Reads items as they are at one moment. */
const readMoment = async ({ ask }: TableClient, table: string, keys: readonly string[]): Promise<FoundItems> => {
  const TransactItems = keys.map((key) => ({ Get: { TableName: table, Key: { key: { S: key } } } }));
  const { content } = await ask("TransactGetItems", { TransactItems });
  const items = keys.map((_, index) => toMap(toList(content.Responses)[index]).Item as Item | undefined);
  return { items, isMoment: true };
};

/** Returns the frozen value of an item; undefined if it is deleted or over. */
const readValue = <T>(item: Item | undefined, now: number): T | undefined => {
  if (item?.value === undefined || (item.until && Number(item.until.N) <= now)) return undefined;
  // The cast to T is safe: this key's values only come from `change` functions, which return a T.
  return freezeDeep(JSON.parse(item.value.S)) as T;
};

const buildItem = (key: string, version: string, value: unknown, now: number, seconds?: number): Item => {
  const stays = value === undefined ? deletedSeconds : seconds;
  const until = stays === undefined ? undefined : now + stays * 1000;
  return {
    key: { S: key },
    version: { S: version },
    ...(value !== undefined && { value: { S: JSON.stringify(value) } }),
    ...(until !== undefined && { until: { N: `${until}` }, expires: { N: `${Math.ceil(until / 1000)}` } }),
  };
};

/** Writes one item. After a lost answer, the version in the table shows whether the write was carried out. */
const writeOne = async (
  { ask, createFailure }: TableClient,
  table: string,
  [write]: Write[],
  version: string,
): Promise<Outcome> => {
  const { isDone, content, isRepeated } = await ask("PutItem", {
    ...buildCondition(write?.old),
    TableName: table,
    Item: write?.item,
    ReturnValuesOnConditionCheckFailure: "ALL_OLD",
  });
  const found = content.Item as Item | undefined;
  if (isDone || found?.version.S === version) return "written";
  if (isRepeated) throw createFailure("an answer was lost, and it is unknown whether the change was made");
  return { found: { items: [found], isMoment: true } };
};

/** Writes several items, all or none. DynamoDB carries out transactions with the same token once. */
const writeAll = async ({ ask }: TableClient, table: string, writes: Write[], version: string): Promise<Outcome> => {
  const TransactItems = writes.map(({ key, old, item }) => {
    const condition = { TableName: table, ...buildCondition(old) };
    return item
      ? { Put: { ...condition, Item: item } }
      : { ConditionCheck: { ...condition, Key: { key: { S: key } } } };
  });
  const { isDone } = await ask("TransactWriteItems", { ClientRequestToken: version, TransactItems });
  return isDone ? "written" : {};
};

/** Returns the condition that an item still has the version that was read, or is still absent. */
const buildCondition = (old: Item | undefined) => ({
  ConditionExpression: old ? "#version = :version" : "attribute_not_exists(#version)",
  ExpressionAttributeNames: { "#version": "version" },
  ...(old && { ExpressionAttributeValues: { ":version": old.version } }),
});
