// What the ledger in DynamoDB costs event-rate-limit, for `postern bench --only ledger`. It writes its measurements as
// JSON to its fourth file descriptor. Its argument is the number of seconds of each.
import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Context } from "aws-lambda";
import { openDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createEndpointForAnyRule } from "#lib/complete-endpoint.ts";
import { createMemoryLedger, type Ledger } from "#lib/ledger.ts";
import { benchCluster, buildBenchEndpointConfig } from "../../infra/bench/handlers.ts";
import type { EventRate, LedgerMeasurement, LedgerTime } from "../../infra/bench/ledger.ts";
import { computeQuantiles } from "../../infra/bench/ratios.ts";
import { buildHttpApiEvent } from "../../infra/bench/reviews.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { functionsFolder } from "../../infra/catalogue/sources.ts";
import { createTestSigner } from "../../infra/parity/test-key.ts";
import { createLedgerTable, startDynamoDb, useDynamoDb } from "./dynamodb.ts";
import { type ChooseFault, startFaultyDynamoDb } from "./faulty-dynamodb.ts";
import { findDynamoDb } from "./tools.ts";

const name = "event-rate-limit";
const table = "postern-bench";
/** Lambda starts as many functions as reviews come at the same time. */
const functions = 32;
/** The milliseconds that a call of DynamoDB takes in these measurements, and what an item allows in a second. */
const [delay, mostReads, mostWrites] = [4, 3000, 1000];

type Answer = "admitted" | "refused" | "failed";

const { publicKey, segment } = createTestSigner(1);
const listed = await readRule(join(functionsFolder, name), name);

/** Returns a function of the rule in an environment of its own, with one limit for all events. */
const createFunction = (qps: number, burst: number, openLedger: (deadline: number) => Ledger) => {
  const config = buildBenchEndpointConfig(listed, { limits: [{ type: "Server", qps, burst }] });
  const handler = createEndpointForAnyRule(listed.rule, config, {
    publicKeys: publicKey,
    openCapabilities: createLiveCapabilities({}, undefined, openLedger),
    writeLogLine: () => {},
  });
  // The cast is safe: endpoints use no other fields of Lambda's context.
  const context = { functionName: name, functionVersion: "1", getRemainingTimeInMillis: () => 10_000 } as Context;
  return async (): Promise<Answer> => {
    const event = buildHttpApiEvent(`/${segment(benchCluster)}/${name}/validate`, buildEventReview());
    const { statusCode, body } = Object(await handler(event, context));
    if (statusCode !== 200) return "failed";
    return JSON.parse(body).response.allowed ? "admitted" : "refused";
  };
};

const buildEventReview = () => {
  const metadata = { name: "event", namespace: "shop" };
  const request = {
    uid: randomUUID(),
    kind: { group: "", version: "v1", kind: "Event" },
    resource: { group: "", version: "v1", resource: "events" },
    namespace: "shop",
    operation: "CREATE",
    userInfo: { username: "operator" },
    object: { apiVersion: "v1", kind: "Event", metadata, reason: "Failed", message: "It failed again." },
  };
  return JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request });
};

/** Measures single events one after the other, each of which changes its bucket. */
const measureLatency = async (what: string, openLedger: (deadline: number) => Ledger, count: number) => {
  const send = createFunction(50, 1_000_000, openLedger);
  const times: number[] = [];
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    if ((await send()) !== "admitted") throw new Error(`${what}: no answer to measure`);
    // The first events are slow, because V8 compiles the code.
    if (index >= count / 5) times.push(performance.now() - start);
  }
  const [p50 = 0, p99 = 0] = computeQuantiles(times, [0.5, 0.99]);
  return { what, p50, p99 } satisfies LedgerTime;
};

/** Returns a function that lets no item be read or written more often than DynamoDB allows, and delays each answer. */
const createItemLimits = (): ChooseFault => {
  const counts = { second: 0, reads: 0, writes: 0 };
  return (operation) => {
    const second = Math.floor(Date.now() / 1000);
    if (second > counts.second) Object.assign(counts, { second, reads: 0, writes: 0 });
    const isTooMuch = operation === "GetItem" ? ++counts.reads > mostReads : ++counts.writes > mostWrites;
    return isTooMuch ? { refusal: throttled } : { delay };
  };
};
const throttled = "ProvisionedThroughputExceededException";

/** Sends so many events a second to the functions, each of which answers one at a time. */
const measureRate = async (
  proxy: Awaited<ReturnType<typeof startFaultyDynamoDb>>,
  { rate, qps }: Pick<EventRate, "rate" | "qps">,
  seconds: number,
): Promise<EventRate> => {
  const limit = createItemLimits();
  let throttledCalls = 0;
  proxy.setFaults(async (operation, index) => {
    const fault = await limit(operation, index);
    if (typeof fault === "object" && "refusal" in fault) throttledCalls++;
    return fault;
  });
  const idle = Array.from({ length: functions }, () => createFunction(qps, qps, openDynamoDbLedger));
  const waiting: number[] = [];
  const answers: Record<Answer, number> = { admitted: 0, refused: 0, failed: 0 };
  const times: number[] = [];
  const work = async (send: () => Promise<Answer>) => {
    for (let sent = waiting.shift(); sent !== undefined; sent = waiting.shift()) {
      answers[await send()]++;
      times.push(performance.now() - sent);
    }
    // The function that answered last gets the next event.
    idle.push(send);
  };
  const running: Promise<void>[] = [];
  const start = performance.now();
  for (let sent = 0; sent < rate * seconds; ) {
    const due = Math.min(rate * seconds, Math.floor(((performance.now() - start) * rate) / 1000));
    for (; sent < due; sent++) {
      waiting.push(performance.now());
      const send = idle.pop();
      if (send) running.push(work(send));
    }
    await wait(1);
  }
  await Promise.all(running);
  const taken = (performance.now() - start) / 1000;
  const reads = proxy.operations.filter((operation) => operation === "GetItem").length;
  const [p50 = 0, p99 = 0] = computeQuantiles(times, [0.5, 0.99]);
  const calls = { reads: reads / taken, writes: (proxy.operations.length - reads) / taken, throttled: throttledCalls };
  return { rate, qps, seconds: taken, ...answers, ...calls, p50, p99 };
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
    const times = [
      await measureLatency("a change in memory", () => memory, seconds * 200),
      await measureLatency("a change in DynamoDB Local", openDynamoDbLedger, seconds * 200),
    ];
    useDynamoDb(proxy.url);
    const rates: EventRate[] = [];
    for (const rate of [100, 1000, 5000])
      for (const qps of [10, rate]) {
        // Each measurement begins with a full bucket.
        process.env.POSTERN_LEDGER = `${table}-${rate}-${qps}`;
        await createLedgerTable(dynamoDb.url, process.env.POSTERN_LEDGER);
        rates.push(await measureRate(proxy, { rate, qps }, seconds));
      }
    return { times, rates };
  } finally {
    await proxy.stop();
    await dynamoDb.stop();
  }
};

writeFileSync(3, JSON.stringify(await measure(Number(process.argv[2]))));
