// Changes entries of the ledger in a process of its own, which the tests kill: node change-process.ts RULE KEY…
import { openDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { openRuleLedger } from "#lib/ledger.ts";

const [rule = "", ...keys] = process.argv.slice(2);
await openRuleLedger(openDynamoDbLedger(Date.now() + 30_000), rule).change(keys, () => keys.map(() => "new"));
