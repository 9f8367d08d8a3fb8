// Measures the cost of the ledger in DynamoDB for event-rate-limit, for `npm run bench -- --only ledger`. The program
// writes its measurements as JSON to file descriptor 3. Its argument is the number of seconds of each measurement.
import { writeFileSync } from "node:fs";
import { openDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger, type Ledger } from "#lib/ledger.ts";
import type { EventRate, LedgerMeasurement, LedgerTime } from "../bench/ledger.ts";
import { computeQuantiles } from "../bench/ratios.ts";
import { createLedgerTable, startDynamoDb, useDynamoDb } from "./dynamodb.ts";
import { type FaultyDynamoDb, startFaultyDynamoDb } from "./faulty-dynamodb.ts";
import { createItemLimits } from "./item-limits.ts";
import { openRuleForRates, type SendReview, sendAtRate } from "./review-rates.ts";
import { slowClocks } from "./slow-clock.ts";
import { findDynamoDb } from "./tools.ts";

const table = "postern-bench";
const functionCount = 32;

const createRuleFunction = await openRuleForRates("event-rate-limit");

/** Returns a function of the rule with one limit for all events. */
const createFunction = (limit: { qps: number; burst: number }, openLedger: (deadline: number) => Ledger): SendReview =>
  createRuleFunction({ limits: [{ type: "Server", ...limit }] }, createLiveCapabilities({}, { openLedger }));

const buildEvent = () => {
  const metadata = { name: "event", namespace: "shop" };
  const object = { apiVersion: "v1", kind: "Event", metadata, reason: "Failed", message: "It failed again." };
  return {
    kind: { group: "", version: "v1", kind: "Event" },
    resource: { group: "", version: "v1", resource: "events" },
    namespace: "shop",
    operation: "CREATE" as const,
    userInfo: { username: "operator" },
    object,
  };
};

/** Measures the time of each event, sent one after the other. Each event changes the limit's bucket. */
const measureLatency = async (what: string, openLedger: (deadline: number) => Ledger, count: number) => {
  const send = createFunction({ qps: 50, burst: 1_000_000 }, openLedger);
  const times: number[] = [];
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    if ((await send(buildEvent())) !== "admitted") throw new Error(`${what}: no answer to measure`);
    // The first events are slow, because V8 compiles the code.
    if (index >= count / 5) times.push(performance.now() - start);
  }
  const [p50 = 0, p99 = 0] = computeQuantiles(times, [0.5, 0.99]);
  return { what, p50, p99 } satisfies LedgerTime;
};

/**
 * Sends `rate` events a second to the functions, which share a limit of `qps` events a second. `readClockDelay` returns
 * the milliseconds by which this process's clock is behind the real time.
 */
const measureRate = async (
  proxy: FaultyDynamoDb,
  { rate, qps }: Pick<EventRate, "rate" | "qps">,
  seconds: number,
  readClockDelay: () => number,
): Promise<EventRate> => {
  const { chooseFault: refuseBeyondLimits, counts } = createItemLimits();
  // DynamoDB's clock becomes as late as this process's clock, because the ledger requires equal clocks.
  const delayDynamoDbClock = () => ({ clockSkew: -readClockDelay() });
  proxy.setFaults(async (...request) => (await refuseBeyondLimits(...request)) ?? delayDynamoDbClock());
  const senders = Array.from({ length: functionCount }, () => createFunction({ qps, burst: qps }, openDynamoDbLedger));
  const measured = await sendAtRate(rate, seconds, senders, buildEvent);
  const reads = proxy.operations.filter((operation) => operation === "GetItem").length;
  const writes = proxy.operations.length - reads;
  const perSecond = { reads: reads / measured.seconds, writes: writes / measured.seconds };
  return { rate, qps, ...measured, ...perSecond, throttled: counts.throttled };
};

const measure = async (seconds: number): Promise<LedgerMeasurement> => {
  const tool = findDynamoDb();
  if ("missing" in tool) return { missing: tool.missing };
  const dynamoDb = await startDynamoDb();
  const proxy = await startFaultyDynamoDb(dynamoDb.url);
  try {
    process.env.POSTERN_LEDGER = table;
    await createLedgerTable(dynamoDb.url, table);
    useDynamoDb(dynamoDb.url);
    const memory = createMemoryLedger();
    const count = seconds * 200;
    const times = [
      await measureLatency("a change in memory", () => memory, count),
      await measureLatency("a change in DynamoDB Local", openDynamoDbLedger, count),
    ];
    useDynamoDb(proxy.url);
    // With this process's clocks slowed down, 5000 events a second are 1000 in real time: a busy machine can send them.
    // The proxy sets the time of DynamoDB's answers back by the same delay, because the ledger requires equal clocks.
    const readClockDelay = slowClocks(/* factor */ 5);
    const rates: EventRate[] = [];
    for (const rate of [100, 1000, 5000])
      for (const qps of [10, rate]) {
        // Each measurement begins with a full bucket.
        process.env.POSTERN_LEDGER = `${table}-${rate}-${qps}`;
        await createLedgerTable(dynamoDb.url, process.env.POSTERN_LEDGER);
        rates.push(await measureRate(proxy, { rate, qps }, seconds, readClockDelay));
      }
    return { times, rates };
  } finally {
    await proxy.stop();
    await dynamoDb.stop();
  }
};

writeFileSync(3, JSON.stringify(await measure(Number(process.argv[2]))));
