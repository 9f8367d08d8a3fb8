import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, it } from "node:test";
import { createDynamoDbLedger, openDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { openRuleLedger } from "#lib/ledger.ts";
import { testLedger } from "../ledger-suite.ts";
import { needs } from "../parts.ts";
import { createLedgerTable, startDynamoDb, useDynamoDb } from "./dynamodb.ts";

const table = "postern-test";

describe("a ledger in DynamoDB", await needs("DynamoDB Local"), () => {
  let dynamoDb: Awaited<ReturnType<typeof startDynamoDb>>;
  before(async () => {
    dynamoDb = await startDynamoDb();
    useDynamoDb(dynamoDb.url);
    await createLedgerTable(dynamoDb.url, table);
  });
  after(() => dynamoDb?.stop());

  // The random name of a rule separates the entries of each test.
  const open = (readTime?: () => number) =>
    openRuleLedger(createDynamoDbLedger(table, Date.now() + 30_000, readTime), randomUUID());

  testLedger(open, 5);

  it("of a function is in the table that POSTERN_LEDGER names", async () => {
    process.env.POSTERN_LEDGER = table;
    const deadline = Date.now() + 30_000;
    const key = randomUUID();
    await openDynamoDbLedger(deadline).change([key], () => ["kept"]);
    assert.deepEqual(await createDynamoDbLedger(table, deadline).change([key], (kept) => kept), ["kept"]);
  });
});
