import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { createDynamoDbLedger, openDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { openRuleLedger } from "#lib/ledger.ts";
import { testLedger } from "../ledger-suite.ts";
import { isLinearizable } from "../linearizability.ts";
import { needs } from "../parts.ts";
import { createLedgerTable, startDynamoDb, useDynamoDb } from "./dynamodb.ts";
import { type ChooseFault, type Fault, type FaultyDynamoDb, startFaultyDynamoDb } from "./faulty-dynamodb.ts";
import { createRandomFaults, recordHistory } from "./histories.ts";

const table = "postern-test";
/** The time that a change has in tests that don't wait for its end. */
const longMilliseconds = 30_000;

describe("a ledger in DynamoDB", await needs("DynamoDB Local"), () => {
  let dynamoDb: Awaited<ReturnType<typeof startDynamoDb>>;
  let proxy: FaultyDynamoDb;
  before(async () => {
    dynamoDb = await startDynamoDb();
    proxy = await startFaultyDynamoDb(dynamoDb.url);
    useDynamoDb(proxy.url);
    process.env.POSTERN_LEDGER = table;
    await createLedgerTable(dynamoDb.url, table);
  });
  after(async () => {
    await proxy?.stop();
    await dynamoDb?.stop();
  });

  // Each test opens the ledger of a rule with a random name, so that tests don't share entries.
  const openLedger = (readTime?: () => number) =>
    openRuleLedger(createDynamoDbLedger(table, Date.now() + longMilliseconds, readTime), randomUUID());

  testLedger(openLedger, 5);

  describe("faults of DynamoDB and of the connection", () => {
    let rule: string;
    /**
     * Adds 1 to the number under each key, in a review that must end after `milliseconds`. Returns the sentence of the
     * failure if the change fails.
     */
    const increment = async (keys: string[], milliseconds = longMilliseconds): Promise<string | undefined> => {
      const ledger = openRuleLedger(openDynamoDbLedger(Date.now() + milliseconds), rule);
      const counting = ledger.change<number>(keys, (kept) => kept.map((number = 0) => number + 1));
      return counting.then(
        () => undefined,
        (failure) => {
          assert.deepEqual([failure.constructor.name, failure.code], ["Failure", 503], failure.stack);
          return failure.message.replace(`the ledger in the table ${table} could not be used: `, "");
        },
      );
    };
    /**
     * Sets the numbers under keys to 1, and adds 1 under faults. Returns the failure's sentence, and the numbers
     * afterwards.
     */
    const countUnderFaults = async (keys: string[], chooseFault: ChooseFault, milliseconds?: number) => {
      proxy.setFaults(() => undefined);
      assert.equal(await increment(keys), undefined);
      proxy.setFaults(chooseFault);
      const failure = await increment(keys, milliseconds);
      // A write that the client has given up may still arrive.
      proxy.setFaults((...request) => (isWrite(request[0]) ? chooseFault(...request) : undefined));
      return {
        failure,
        numbers: await openRuleLedger(openDynamoDbLedger(Date.now() + longMilliseconds), rule).change(keys, keepValues),
      };
    };
    const keepValues = <T>(kept: readonly T[]) => kept;
    beforeEach(() => {
      rule = randomUUID();
      proxy.setFaults(() => undefined);
    });
    const [read, write] = ["read", "write"];
    /** Lets the first `times` reads, or the first `times` writes, have a fault. */
    const failFirst = (failingCall: string | undefined, fault: Fault, times = 1): ChooseFault => {
      let remaining = times;
      return (operation) => (isWrite(operation) === (failingCall === write) && remaining-- > 0 ? fault : undefined);
    };
    const keyLists = [["a"], ["a", "b"]];
    const everyTime = Number.POSITIVE_INFINITY;

    const temporaryFaults: [title: string, Fault | ((keys: string[]) => Fault)][] = [
      ["that is throttled", { refusal: "ThrottlingException" }],
      ["beyond the throughput", { refusal: "ProvisionedThroughputExceededException" }],
      [
        "that conflicts with a transaction",
        ({ length }) =>
          length === 1
            ? { refusal: "TransactionConflictException" }
            : { refusal: "TransactionCanceledException", reasons: ["None", "TransactionConflict"] },
      ],
      ["that meets an internal error", { refusal: "InternalServerError", status: 500 }],
      ["that finds the service unavailable", { refusal: "ServiceUnavailable", status: 503 }],
      ["whose connection breaks", "reset"],
      ["whose answer is lost", "lost answer"],
      ["whose answer breaks off", "half an answer"],
      ["that is carried out and answered with an error", "internal error"],
      ["whose answer comes late", { answerDelay: 50 }],
    ];
    for (const keys of keyLists)
      for (const call of [read, write])
        for (const [title, faultOrBuilder] of temporaryFaults)
          it(`a ledger changes the keys ${keys.join(" and ")} once after a ${call} ${title}`, async () => {
            const fault = typeof faultOrBuilder === "function" ? faultOrBuilder(keys) : faultOrBuilder;
            const { failure, numbers } = await countUnderFaults(keys, failFirst(call, fault, 2));
            assert.deepEqual([failure, numbers], [undefined, keys.map(() => 2)]);
          });

    it("a ledger makes a change once although DynamoDB doesn't answer the first write", async () => {
      for (const keys of keyLists) {
        rule = randomUUID();
        const { failure, numbers } = await countUnderFaults(keys, failFirst(write, "no answer"), 4_500);
        assert.deepEqual([failure, numbers], [undefined, keys.map(() => 2)]);
      }
    });

    const clockSentence = /^this machine's clock differs from DynamoDB's by 36\d\d seconds$/;
    const credentialsSentence =
      /^AWS doesn't accept this function's credentials \((ExpiredToken|InvalidSignature)Exception\)$/;
    const lastingFaults: [title: string, Fault, RegExp][] = [
      [
        "IAM denies the call",
        { refusal: "AccessDeniedException" },
        /^this function's role has no right to it; deploy the stage again \(AccessDeniedException\)$/,
      ],
      ["the credentials have expired", { refusal: "ExpiredTokenException" }, credentialsSentence],
      ["AWS refuses the time of the signature", { refusal: "InvalidSignatureException" }, credentialsSentence],
      ["DynamoDB's clock is an hour ahead", { clockSkew: 3_650_000 }, clockSentence],
      ["DynamoDB's clock is an hour behind", { clockSkew: -3_650_000 }, clockSentence],
    ];
    for (const [title, fault, sentence] of lastingFaults)
      it(`a change fails at once if ${title}`, async () => {
        for (const keys of keyLists)
          for (const call of [read, write]) {
            rule = randomUUID();
            const { failure, numbers } = await countUnderFaults(keys, failFirst(call, fault, everyTime));
            assert.match(failure ?? "", sentence);
            // If only the answer's time is wrong, the write was carried out.
            assert.deepEqual(
              numbers,
              keys.map(() => (call === write && sentence === clockSentence ? 2 : 1)),
            );
          }
      });

    it("a change fails at once if the table doesn't exist", async () => {
      const sentence = /there is no such table in this region; deploy the stage, which creates it/;
      for (const keys of keyLists)
        await assert.rejects(
          createDynamoDbLedger("other", Date.now() + longMilliseconds).change(keys, keepValues),
          sentence,
        );
    });

    it("a change fails at once if an entry is larger than 400 KB, and keeps the earlier entry", async () => {
      for (const keys of keyLists) {
        const ledger = openRuleLedger(openDynamoDbLedger(Date.now() + longMilliseconds), randomUUID());
        await ledger.change(keys, () => keys.map(() => "small"));
        const large = keys.map((key) => (key === "a" ? "x".repeat(400 * 1024) : key));
        await assert.rejects(
          ledger.change(keys, () => large),
          /an entry may have at most 400 KB, and a change 100 entries \(Validation/,
        );
        assert.deepEqual(
          await ledger.change(keys, keepValues),
          keys.map(() => "small"),
        );
      }
    });

    const throttled = { refusal: "ThrottlingException" };
    const persistentFaults: [title: string, string | undefined, Fault, milliseconds: number][] = [
      ["every read is throttled, and the change is not made", read, throttled, 500],
      ["every write is throttled, and the change is not made", write, throttled, 500],
      ["every connection of a read breaks, and the change is not made", read, "reset", 500],
      ["every write breaks before it arrives, and the change is not made", write, "reset", 500],
      ["no read is answered, and the change is not made", read, "no answer", 500],
      ["every answer to a write is lost, and the change is made once", write, "lost answer", 5_000],
      ["no write is answered, and the change is made once", write, "no answer", 5_000],
      ["every write is answered with an error, and the change is made once", write, "internal error", 5_000],
    ];
    for (const [title, call, fault, milliseconds] of persistentFaults)
      it(`a change fails before the end of its review if ${title}`, async () => {
        for (const keys of keyLists) {
          rule = randomUUID();
          const { failure, numbers } = await countUnderFaults(keys, failFirst(call, fault, everyTime), milliseconds);
          assert.match(failure ?? "", /^the time is up: /);
          const number = title.endsWith("not made") ? 1 : 2;
          assert.deepEqual(
            numbers,
            keys.map(() => number),
          );
        }
      });

    /** Lets the answer to the first write be lost. Calls `act` before that write is sent again. */
    const loseAnswerAndThen = (act: () => Promise<unknown>): ChooseFault => {
      let writes = 0;
      return async (operation) => {
        if (!isWrite(operation)) return undefined;
        writes++;
        if (writes === 1) return "lost answer";
        if (writes === 2) await act();
        return undefined;
      };
    };

    it("a change that writes nothing returns values that several entries had at one moment", async () => {
      const keys = ["a", "b"];
      const ledger = openRuleLedger(openDynamoDbLedger(Date.now() + longMilliseconds), rule);
      await increment(keys);
      let reads = 0;
      // Another change comes between the reads of the two entries.
      proxy.setFaults(async (operation) => {
        if (operation === "GetItem" && ++reads === 2) await increment(keys);
        return undefined;
      });
      assert.deepEqual(await ledger.change(keys, keepValues), [2, 2]);
      assert.ok(proxy.operations.includes("TransactGetItems"));
    });

    it("a change of one entry is reported as uncertain if another change followed a lost answer", async () => {
      const { failure, numbers } = await countUnderFaults(
        ["a"],
        loseAnswerAndThen(() => increment(["a"])),
      );
      assert.deepEqual([failure, numbers], ["an answer was lost, and it is unknown whether the change was made", [3]]);
    });

    it("a change of several entries is made once although another change followed a lost answer", async () => {
      const { failure, numbers } = await countUnderFaults(
        ["a", "b"],
        loseAnswerAndThen(() => increment(["a", "b"])),
      );
      assert.deepEqual([failure, numbers], [undefined, [3, 3]]);
    });

    it("a change doesn't create an entry again that another change deleted after a lost answer", async () => {
      for (const keys of keyLists) {
        rule = randomUUID();
        const ledger = openRuleLedger(openDynamoDbLedger(Date.now() + longMilliseconds), rule);
        proxy.setFaults(loseAnswerAndThen(() => ledger.change(keys, () => keys.map(() => undefined))));
        const failure = await increment(keys);
        assert.equal(failure === undefined, keys.length > 1, failure);
        assert.deepEqual(
          await ledger.change(keys, keepValues),
          keys.map(() => undefined),
        );
      }
    });
  });

  // With POSTERN_CHANGES=500, there are 32 processes with 500 changes each. Otherwise the clients share two processes,
  // which is a sufficient test: a client stores nothing between its changes, and the clients of a process also wait for
  // DynamoDB at the same time.
  it("under faults, some order of all changes explains the values that each change read", async (test) => {
    const { POSTERN_CHANGES, POSTERN_SEED } = process.env;
    const changes = Number(POSTERN_CHANGES ?? 30);
    const processes = POSTERN_CHANGES ? 32 : 2;
    const clients = POSTERN_CHANGES ? 1 : 4;
    const rule = randomUUID();
    proxy.setFaults(createRandomFaults(Number(POSTERN_SEED)));
    const tasks = Array.from({ length: processes }, (_, index) => {
      return { rule, name: `${index}`, clients, changes, seed: Number(POSTERN_SEED) + index, changeTimeLimit: 5_000 };
    });
    const history = (await Promise.all(tasks.map(recordHistory))).flat();
    const requests = proxy.operations.length;
    proxy.setFaults(() => undefined);
    const finishedChanges = history.filter(({ end }) => end !== undefined);
    assert.ok(
      finishedChanges.length > (processes * clients * changes) / 2,
      `${finishedChanges.length} changes had a result`,
    );
    if (!isLinearizable(history)) {
      const file = join(await mkdtemp(join(tmpdir(), "postern-history-")), "history.json");
      await writeFile(file, JSON.stringify(history));
      assert.fail(`no order explains the history in ${file}`);
    }
    test.diagnostic(
      `${history.length} changes, ${history.length - finishedChanges.length} of them without a known result, ${requests} requests`,
    );
  });

  describe("processes that are killed during a change", () => {
    const program = fileURLToPath(new URL("change-process.ts", import.meta.url));
    const keys = ["a", "b"];
    const conflict: Fault = { refusal: "TransactionCanceledException", reasons: ["TransactionConflict", "None"] };

    // The process reads both entries (calls 0 and 1). Its write (call 2) is refused. Then it reads and writes again.
    const calls = [0, 1, 2, 3, 4, 5];
    const isRefused = (call: number) => call === 2;
    const moments = calls.flatMap((call) => [`before call ${call + 1}`, `after call ${call + 1}`]);
    for (const [index, moment] of moments.entries())
      it(`a process that is killed ${moment} has made the whole change or nothing`, async () => {
        const rule = randomUUID();
        const ledger = openRuleLedger(openDynamoDbLedger(Date.now() + longMilliseconds), rule);
        const isKilledAfter = index % 2 === 1;
        proxy.setFaults(() => undefined);
        await ledger.change(keys, () => ["old", "old"]);
        proxy.setFaults((_, call) => {
          if (call === Math.floor(index / 2)) {
            if (isKilledAfter && !isRefused(call)) return { callAfterwards: kill };
            kill();
            return "reset";
          }
          return isRefused(call) ? conflict : undefined;
        });
        const child = spawn(process.execPath, [program, rule, ...keys], { stdio: "inherit" });
        const kill = () => child.kill("SIGKILL");
        assert.deepEqual(await once(child, "exit"), [null, "SIGKILL"]);
        proxy.setFaults(() => undefined);
        // Call 6 is the write that isn't refused.
        const value = moment === "after call 6" ? "new" : "old";
        assert.deepEqual(await ledger.change(keys, (kept) => kept), [value, value]);
      });
  });
});

const isWrite = (operation: string) => !operation.includes("Get");
