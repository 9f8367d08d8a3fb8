// Measures what workload-quota costs, and how many reviews a second can charge a quota with the amounts of an object,
// for `npm run bench -- --only quotas`. Writes the measurements as JSON to file descriptor 3. The argument is for how
// many seconds the process sends reviews at each rate, such as 10 or 100 reviews a second.
import { writeFileSync } from "node:fs";
import { openDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { openRuleLedger } from "#lib/ledger.ts";
import { type Kept, locate } from "../../functions/workload-quota/reservations.ts";
import { computeLedgerDollars } from "../../infra/rollout/plan/cost.ts";
import { benchCluster } from "../bench/handlers.ts";
import type { ChargeRate, QuotaMeasurement, ReviewUnits } from "../bench/quotas.ts";
import { createLedgerTable, startDynamoDb, useDynamoDb } from "./dynamodb.ts";
import { type FaultyDynamoDb, startFaultyDynamoDb } from "./faulty-dynamodb.ts";
import { createItemLimits } from "./item-limits.ts";
import { openRuleForRates, type SendReview, sendAtRate } from "./review-rates.ts";
import { slowClocks } from "./slow-clock.ts";
import { findDynamoDb } from "./tools.ts";

/** Slows this process's clocks down, so that a busy machine can send the highest rates, too; returns their delay. */
const readClockDelay = slowClocks(/* factor */ 5);
/** Returns the fault that makes DynamoDB's clock as late as this process's clock. The ledger requires equal clocks. */
const delayDynamoDbClock = () => ({ clockSkew: -readClockDelay() });
/** The default quota of an account: 1000 functions may run at the same time. */
const mostFunctions = 1000;
const rule = "workload-quota";
const createRuleFunction = await openRuleForRates(rule);

/** Returns a function of the rule with these quotas, each for one namespace, in a cluster without objects. */
const createFunction = (namespaceByQuota: Record<string, string>, hard: { pods: number }): SendReview => {
  const openCapabilities = createLiveCapabilities({}, { openLedger: openDynamoDbLedger, print: () => {} });
  const quotas = Object.entries(namespaceByQuota).map(([name, namespace]) => ({ name, namespaces: [namespace], hard }));
  return createRuleFunction({ quotas }, (...review) => ({
    ...openCapabilities(...review),
    get: async () => undefined,
    list: async () => [],
  }));
};

const buildDeployment = (namespace: string, name: string, replicas: number) => {
  const containers = [{ name: "c", image: "c", resources: { requests: { cpu: "1" } } }];
  const spec = { replicas, template: { spec: { containers } } };
  return { apiVersion: "apps/v1", kind: "Deployment", metadata: { name, namespace }, spec };
};

/** The fields that all reviews have. */
const commonFields = {
  kind: { group: "apps", version: "v1", kind: "Deployment" },
  resource: { group: "apps", version: "v1", resource: "deployments" },
  userInfo: { username: "jane" },
};

const buildCreation = (namespace: string, name: string, replicas = 1) => {
  const object = buildDeployment(namespace, name, replicas);
  return { ...commonFields, namespace, name, operation: "CREATE" as const, object };
};

const buildUpdate = (namespace: string, name: string, before: number, after: number) => {
  const oldObject = buildDeployment(namespace, name, before);
  return { ...buildCreation(namespace, name, after), operation: "UPDATE" as const, oldObject };
};

/** The number of Deployments that were created so far. */
let created = 0;

/** Sends `rate` charges a second for some seconds, to the quotas in turn. Each quota is named like its namespace. */
const measureRate = async (
  proxy: FaultyDynamoDb,
  { rate, quotas }: Pick<ChargeRate, "rate" | "quotas">,
  seconds: number,
): Promise<ChargeRate> => {
  const { chooseFault: refuseBeyondLimits, counts } = createItemLimits();
  // This process's clock is slowed so that a busy machine can send the highest rates. If DynamoDB's limits don't refuse
  // a request, its answer has the time of this clock, because the ledger requires equal clocks.
  proxy.setFaults(async (...request) => (await refuseBeyondLimits(...request)) ?? delayDynamoDbClock());
  const namespaces = Array.from({ length: quotas }, (_, index) => `${rate}-of-${quotas}-${index}`);
  const namespaceByQuota = Object.fromEntries(namespaces.map((namespace) => [namespace, namespace]));
  const senders = Array.from({ length: Math.min(mostFunctions, rate * seconds) }, () =>
    createFunction(namespaceByQuota, { pods: 1_000_000 }),
  );
  const measured = await sendAtRate(rate, seconds, senders, () => {
    created++;
    return buildCreation(namespaces[created % quotas] ?? "", `web-${created}`);
  });
  const { conflicts, throttled } = counts;
  return { rate, quotas, ...measured, calls: proxy.operations.length / (rate * seconds), conflicts, throttled };
};

/** Counts the read and write units that a review of each sort costs in DynamoDB. */
const countUnits = async (proxy: FaultyDynamoDb): Promise<ReviewUnits[]> => {
  const namespace = "units";
  const namespaceByQuota = { [namespace]: namespace, "one of two": "pair", "two of two": "pair" };
  const send = createFunction(namespaceByQuota, { pods: 20 });
  proxy.setFaults(delayDynamoDbClock); // This process's clock is slowed, and the ledger requires equal clocks.
  const ledger = openRuleLedger(openDynamoDbLedger(Date.now() + 10_000), rule);
  /** Stores reservations of `count` deleted objects, one pod each, and adds these pods to the quota's sum. */
  const reserveForMissingObjects = async (count: number) => {
    const places = Array.from({ length: count }, (_, index) =>
      locate(namespace, benchCluster, `apps/deployments/${namespace}/gone-${index}`),
    );
    const amounts = { used: { pods: "1" }, at: 0, phase: "released" as const, version: "v1" };
    for (const { part, object } of places)
      await ledger.change<Kept>([part], ([kept]) => [{ objects: { ...kept?.objects, [object]: amounts } }]);
    // The sum still counts 10 pods for `web`, which has 9 now: a refusal subtracts releases only after 70 seconds.
    await ledger.change<Kept>([`quota/${namespace}`], ([kept]) => [{ ...kept, used: { pods: `${10 + count}` } }]);
  };
  const large = buildCreation(namespace, "large", 11);
  // The numbers are the replicas of a Deployment, before and after an update.
  const sorts: [string, Parameters<SendReview>[0], Awaited<ReturnType<SendReview>>, prepare?: () => Promise<void>][] = [
    ["a creation that no quota covers", buildCreation("other", "web"), "admitted"],
    // A review without a description isn't reported. This one creates the values in the ledger.
    ["", buildCreation(namespace, "web", 9), "admitted"],
    ["an update that changes no amount", buildUpdate(namespace, "web", 9, 9), "admitted"],
    ["a charge", buildUpdate(namespace, "web", 9, 10), "admitted"],
    ["a release", buildUpdate(namespace, "web", 10, 9), "admitted"],
    ["a refusal", large, "refused"],
    ["a refusal that replaces 10 reservations", large, "refused", () => reserveForMissingObjects(10)],
    ["", buildCreation("pair", "web", 9), "admitted"],
    ["a charge of two quotas", buildUpdate("pair", "web", 9, 10), "admitted"],
    ["a release of two quotas", buildUpdate("pair", "web", 10, 9), "admitted"],
  ];
  const units: ReviewUnits[] = [];
  for (const [what, request, expected, prepare] of sorts) {
    await prepare?.();
    // This also resets the counted units.
    proxy.setFaults(delayDynamoDbClock);
    const answer = await send(request);
    if (answer !== expected) throw new Error(`${what} was ${answer}`);
    const { read, write } = proxy.units;
    if (what) units.push({ what, read, write, dollars: computeLedgerDollars({ read, write }) });
  }
  return units;
};

/** Measures reviews' DynamoDB capacity units, and charging quotas at several rates, by a proxy with AWS's limits. */
const measure = async (seconds: number): Promise<QuotaMeasurement> => {
  const tool = findDynamoDb();
  if ("missing" in tool) return { missing: tool.missing };
  const dynamoDb = await startDynamoDb();
  const proxy = await startFaultyDynamoDb(dynamoDb.url);
  try {
    process.env.POSTERN_LEDGER = "postern-bench";
    await createLedgerTable(dynamoDb.url, process.env.POSTERN_LEDGER);
    useDynamoDb(proxy.url);
    const units = await countUnits(proxy);
    const rates: ChargeRate[] = [];
    for (const rate of [1, 10, 20, 40, 60, 80, 100]) rates.push(await measureRate(proxy, { rate, quotas: 1 }, seconds));
    rates.push(await measureRate(proxy, { rate: 100, quotas: 4 }, seconds));
    return { rates, units };
  } finally {
    await proxy.stop();
    await dynamoDb.stop();
  }
};

writeFileSync(3, JSON.stringify(await measure(Number(process.argv[2]))));
