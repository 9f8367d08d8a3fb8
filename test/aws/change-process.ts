// Changes entries of the ledger: `node change-process.ts RULE KEY…`. Tests kill this process during the change.
import { openDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { openRuleLedger } from "#lib/ledger.ts";

const [rule = "", ...keys] = process.argv.slice(2);
await openRuleLedger(openDynamoDbLedger(Date.now() + 30_000), rule).change(keys, () => keys.map(() => "new"));
