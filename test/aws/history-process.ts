// A process with clients that change shared entries of the ledger at random. It prints each operation as a line of
// JSON, in which null stands for an absent value.
import { openDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { Failure } from "#lib/failure.ts";
import { openRuleLedger } from "#lib/ledger.ts";
import { createRandom } from "../../infra/testing/random.ts";
import type { HistoryTask } from "./histories.ts";

const { rule, name, clients, changes, seed, changeTimeLimit }: HistoryTask = JSON.parse(process.argv[2] ?? "");

/** Returns the nanoseconds of a clock that is the same for all processes. */
const readClock = () => Number(process.hrtime.bigint());

/** The sets of keys that a change may have, such as ["xa", "xb"]. */
const keySets = ["x", "y"].flatMap((group) =>
  [["a"], ["b"], ["c"], ["a", "b"], ["b", "c"], ["c", "a"]].map((keys) => keys.map((key) => `${group}${key}`)),
);

const runClient = async (client: number) => {
  const random = createRandom(seed * 1000 + client);
  for (let number = 0; number < changes; number++) {
    const keys = random.pick(keySets);
    const value = random.decide(0.15) ? undefined : `${name}-${client}-${number}`;
    const isWritten = random.decide(0.2) ? keys.map(() => false) : keys.map(() => random.decide(0.7));
    let read: readonly (string | undefined)[] = [];
    let wrote: readonly (string | undefined)[] = [];
    const ledger = openRuleLedger(openDynamoDbLedger(Date.now() + changeTimeLimit), rule);
    const start = readClock();
    const change = ledger.change<string>(keys, (stored) => {
      read = stored;
      wrote = stored.map((old, index) => (isWritten[index] ? value : old));
      return wrote;
    });
    const end = await change.then(readClock, (error) => {
      if (error instanceof Failure && error.code === 503) return undefined;
      throw error;
    });
    // A change that read nothing can't have written anything, so it isn't reported.
    if (read.length > 0) process.stdout.write(`${JSON.stringify({ keys, read, wrote, start, end })}\n`);
  }
};

await Promise.all(Array.from({ length: clients }, (_, client) => runClient(client)));
