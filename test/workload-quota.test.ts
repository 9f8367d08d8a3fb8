import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { sendRequest } from "#lib/cluster/https-request.ts";
import { createListPage } from "#lib/cluster/list-page.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger, type Ledger } from "#lib/ledger.ts";
import type { MetricCount } from "#lib/metrics.ts";
import type { Capabilities } from "#lib/needs.ts";
import { requireQuantity } from "#lib/objects/quantity.ts";
import { createRecordedCapabilities } from "#lib/recorded-answers.ts";
import type { AdmissionRequest, Operation } from "#lib/review.ts";
import { getPartKey, getScopeKey, type Kept, partCount } from "../functions/workload-quota/reservations.ts";
import { openRule } from "../infra/testing/rule-test.ts";

const { decide, reconcile } = await openRule(join(import.meta.dirname, "..", "functions", "workload-quota"));

const clusters = ["east", "west"];
const hard = 20;

type Deployment = ReturnType<typeof buildDeployment>;
const buildDeployment = (name: string, replicas: number) => {
  const containers = [{ name: "c", image: "c", resources: { requests: { cpu: "1" } } }];
  const metadata = { name, namespace: "a" };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata,
    spec: { replicas, template: { spec: { containers } } },
  };
};

/** A write that the rule has admitted. The API server stores it, or not, until its time is over. */
interface PendingWrite {
  cluster: string;
  name: string;
  /** What the API server must still have stored when it stores the write. */
  base: Deployment | undefined;
  object: Deployment | undefined;
  until: number;
}

type Step =
  | { write: string; cluster: string; replicas: number; isDry: boolean }
  | { delete: string; cluster: string }
  | { commit: number }
  | { fail: number }
  | { recount: string; isWhole: boolean; isExpired: boolean }
  | { force: string; cluster: string; replicas: number | undefined }
  | { pass: number };

/**
 * Clusters whose API servers ask the rule, and store what it admits some time later or not at all. The scheduler decides
 * in which order concurrent reviews change the ledger and read their clusters.
 */
const createModel = (scheduler: fc.Scheduler) => {
  const { change } = createMemoryLedger();
  const stored = new Map(clusters.map((cluster) => [cluster, new Map<string, Deployment>()]));
  const at = (cluster: string) => stored.get(cluster) ?? new Map<string, Deployment>();
  let pending: PendingWrite[] = [];
  let time = 1_800_000_000_000;
  let isConcurrent = true;

  const wait = async () => {
    if (isConcurrent) await scheduler.schedule(Promise.resolve());
  };
  const ledger: Ledger = {
    change: async (keys, ...rest) => {
      // The many parts that are read one by one before a refusal don't wait: their order matters little.
      if (keys.length > 1) await wait();
      return change(keys, ...rest);
    },
  };

  const ask = async (
    cluster: string,
    name: string,
    object: Deployment | undefined,
    isDry = false,
  ): Promise<boolean> => {
    const started = time;
    const base = at(cluster).get(name);
    const operation: Operation = object === undefined ? "DELETE" : base === undefined ? "CREATE" : "UPDATE";
    const request: AdmissionRequest = {
      uid: "u",
      kind: { group: "apps", version: "v1", kind: "Deployment" },
      resource: { group: "apps", version: "v1", resource: "deployments" },
      name,
      namespace: "a",
      operation,
      userInfo: { username: "jane" },
      ...(object && { object }),
      ...(base && { oldObject: base }),
      dryRun: isDry,
    };
    const capabilities: Capabilities = {
      ...createRecordedCapabilities({ cluster }),
      ledger: () => ledger,
      get: async (_, deployment) => {
        await wait();
        return at(cluster).get(deployment);
      },
    };
    const { outcome } = await decide("validate", request, { settings, now: new Date(started), capabilities });
    if (outcome.allowed && !isDry) pending.push({ cluster, name, base, object, until: started + 60_000 });
    return outcome.allowed;
  };
  const settings = { quotas: [{ name: "q", hard: { "requests.cpu": hard } }] };
  /** Reads pages of at most two objects of one moment; a token may expire, and then the list goes on at another moment. */
  const createPageReader = (cluster: string, isExpired: boolean): NonNullable<Capabilities["listPage"]> => {
    return async ({ resource }, _, next) => {
      await wait();
      if (resource !== "deployments") return { items: [], version: "v1", next: "" };
      const token: { snapshot: number; after: string } = next ? JSON.parse(next) : { snapshot: -1, after: "" };
      const isStale = next !== "" && isExpired && token.snapshot < snapshots.length - 1;
      if (token.snapshot < 0 || isStale) token.snapshot = snapshots.push([...at(cluster).values()]) - 1;
      if (isStale) return { items: [], version: "v1", next: JSON.stringify(token) };
      const rest = (snapshots[token.snapshot] ?? []).filter(({ metadata: { name } }) => name > token.after);
      const items = rest.sort((left, right) => (left.metadata.name < right.metadata.name ? -1 : 1)).slice(0, 2);
      const after = items.at(-1)?.metadata.name ?? "";
      return { items, version: "v1", next: rest.length > 2 ? JSON.stringify({ ...token, after }) : "" };
    };
  };
  const snapshots: Deployment[][] = [];
  const recount = (cluster: string, isWhole: boolean, isExpired = false) => {
    const listPage = createPageReader(cluster, isExpired);
    const capabilities = { ...createRecordedCapabilities({ cluster }), ledger: () => ledger, listPage };
    return reconcile(capabilities, settings, () => time, isWhole ? Number.POSITIVE_INFINITY : 0);
  };
  const takePending = (index: number) => pending.splice(index % Math.max(1, pending.length), 1)[0];

  return {
    run: async (step: Step): Promise<void> => {
      if ("write" in step) await ask(step.cluster, step.write, buildDeployment(step.write, step.replicas), step.isDry);
      else if ("delete" in step) {
        if (at(step.cluster).has(step.delete)) await ask(step.cluster, step.delete, undefined);
      } else if ("commit" in step) {
        const { cluster, name, base, object, until } = takePending(step.commit) ?? { cluster: "", name: "", until: 0 };
        if (time > until || at(cluster).get(name) !== base) return;
        if (object) at(cluster).set(name, object);
        else at(cluster).delete(name);
      } else if ("fail" in step) takePending(step.fail);
      else if ("recount" in step) await recount(step.recount, step.isWhole, step.isExpired);
      else if ("force" in step) {
        if (step.replicas === undefined) at(step.cluster).delete(step.force);
        else at(step.cluster).set(step.force, buildDeployment(step.force, step.replicas));
      } else time += step.pass * 1000;
    },
    /** Has requests refused in each cluster, until there is nothing left to settle. */
    settleAll: async (): Promise<void> => {
      isConcurrent = false;
      time += 3_601_000;
      pending = [];
      for (const cluster of clusters)
        for (const isLast of [false, false, true])
          assert.equal(await ask(cluster, "large", buildDeployment("large", 99), isLast), false);
    },
    /** Recounts each cluster once, when nothing changes any more. */
    recountAll: async (): Promise<void> => {
      isConcurrent = false;
      pending = [];
      for (const cluster of clusters) await recount(cluster, true);
      time += 601_000;
      for (const cluster of clusters) assert.match((await recount(cluster, true)) ?? "", /^read/);
    },
    listStored: () =>
      clusters.flatMap((cluster) =>
        [...at(cluster).values()].flatMap(({ metadata: { name }, spec: { replicas } }) =>
          replicas > 0 ? [`${cluster} ${name} ${replicas}`] : [],
        ),
      ),
    listReserved: async () => {
      const found: string[] = [];
      for (const cluster of clusters)
        for (let part = 0; part < partCount; part++) {
          const [kept] = await change<Kept>([getPartKey("q", cluster, part)], (values) => values);
          for (const [object, { used }] of Object.entries(kept?.objects ?? {}))
            if (used["requests.cpu"]) found.push(`${cluster} ${object.split("/").at(-1)} ${used["requests.cpu"]}`);
        }
      return found;
    },
    sumStored: (): number =>
      [...stored.values()]
        .flatMap((objects) => [...objects.values()])
        .reduce((sum, { spec }) => sum + spec.replicas, 0),
    readLedger: async (): Promise<{ used: number; reserved: number }> => {
      const toCpus = (amount = "0") => Number(requireQuantity(amount).nanos / 10n ** 9n);
      const [scope] = await change<Kept>([getScopeKey("q")], (kept) => kept);
      const keys = clusters.flatMap((cluster) =>
        Array.from({ length: partCount }, (_, part) => getPartKey("q", cluster, part)),
      );
      const parts = await change<Kept>(keys, (kept) => kept);
      const reservations = parts.flatMap((part) => Object.values(part?.objects ?? {}));
      const reserved = reservations.reduce((sum, { used }) => sum + toCpus(used["requests.cpu"]), 0);
      return { used: toCpus(scope?.used?.["requests.cpu"]), reserved };
    },
  };
};

const names = fc.constantFrom("a", "b", "c", "d");
const cluster = fc.constantFrom(...clusters);
const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      write: names,
      cluster,
      replicas: fc.integer({ min: 0, max: 12 }),
      isDry: fc.constantFrom(false, false, false, true),
    }),
  },
  { weight: 1, arbitrary: fc.record({ delete: names, cluster }) },
  { weight: 4, arbitrary: fc.record({ commit: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ fail: fc.nat(9) }) },
  { weight: 2, arbitrary: fc.record({ pass: fc.constantFrom(1, 30, 71, 400) }) },
  { weight: 2, arbitrary: fc.record({ recount: cluster, isWhole: fc.boolean(), isExpired: fc.boolean() }) },
);
const makeSequences = (steps: fc.Arbitrary<Step>) =>
  fc.array(fc.array(steps, { minLength: 1, maxLength: 4 }), { minLength: 10, maxLength: 40 });
/** A write that no review has seen, because the rule could not be reached. */
const unseenWrites: fc.Arbitrary<Step> = fc.record({
  force: names,
  cluster,
  replicas: fc.option(fc.integer({ min: 0, max: 30 }), { nil: undefined }),
});

describe("workload-quota", () => {
  it("never lets clusters store more than a quota, and counts what they store once it has settled", async () => {
    let [highest, settled] = [0, 0];
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), makeSequences(steps), async (scheduler, sequence) => {
        const model = createModel(scheduler);
        for (const together of sequence) {
          await scheduler.waitFor(Promise.all(together.map(model.run)));
          const { used, reserved } = await model.readLedger();
          assert.equal(used, reserved, "the sum is the sum of all reservations");
          assert.ok(model.sumStored() <= used, `${model.sumStored()} are stored, and ${used} are reserved`);
          highest = Math.max(highest, model.sumStored());
        }
        const before = await model.readLedger();
        await model.settleAll();
        const { used } = await model.readLedger();
        if (used < before.used) settled++;
        assert.equal(used, model.sumStored());
      }),
      { numRuns: Number(process.env.POSTERN_RUNS ?? 100) },
    );
    assert.equal(highest, hard, "some sequence fills the quota, and none exceeds it");
    assert.ok(settled > 0);
  });

  it("agrees with clusters on every object after one recount, whatever reviews have missed", async () => {
    let [above, changed] = [0, 0];
    const withUnseen = makeSequences(fc.oneof({ weight: 4, arbitrary: steps }, { weight: 1, arbitrary: unseenWrites }));
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), withUnseen, async (scheduler, sequence) => {
        const model = createModel(scheduler);
        for (const together of sequence) await scheduler.waitFor(Promise.all(together.map(model.run)));
        const before = await model.readLedger();
        await model.recountAll();
        const after = await model.readLedger();
        assert.deepEqual((await model.listReserved()).sort(), model.listStored().sort());
        assert.deepEqual(after, { used: model.sumStored(), reserved: model.sumStored() });
        if (after.used > hard) above++;
        if (after.used !== before.used) changed++;
      }),
      { numRuns: Number(process.env.POSTERN_RUNS ?? 100) },
    );
    assert.ok(above > 0, "what exists is counted, also above the quota");
    assert.ok(changed > 0);
  });

  it("counts objects of any number in pages, call by call, with bounded memory", async (test) => {
    const { POSTERN_OBJECTS } = process.env;
    const total = Number(POSTERN_OBJECTS ?? 3000);
    // The shortest calls read one page each. With a given number of objects, one call is measured.
    const until = POSTERN_OBJECTS === undefined ? 0 : Number.POSITIVE_INFINITY;
    const clock = { now: 1_800_000_000_000 };
    const ledger = createMemoryLedger(undefined, () => clock.now);
    const paths: string[] = [];
    const send: typeof sendRequest = async (url) => {
      const { pathname, searchParams } = new URL(url);
      paths.push(pathname);
      const answer = (content: object, status = 200) => {
        return { status, body: JSON.stringify(content), retryAfter: undefined };
      };
      const name = pathname.split("/").at(-1) ?? "";
      if (pathname === "/apis/apps") return answer({ preferredVersion: { version: "v1" } });
      if (pathname === "/apis/apps/v1") return answer({ resources: [{ name: "deployments" }] });
      if (!["deployments", "pods"].includes(name)) return answer({}, 404);
      const from = Number(searchParams.get("continue") ?? 0);
      const to = Math.min(name === "pods" ? 0 : total, from + Number(searchParams.get("limit")));
      const items = Array.from({ length: Math.max(0, to - from) }, (_, index) => {
        const deployment = buildDeployment(String(from + index).padStart(7, "0"), 2);
        return { ...deployment, metadata: { ...deployment.metadata, annotations: { padding: "x".repeat(3000) } } };
      });
      const metadata = to < total && name === "deployments" ? { continue: String(to) } : {};
      return answer({ kind: "List", apiVersion: "v1", metadata, items });
    };
    const connection = { server: "https://east", credentials: { token: "t" } };
    let drift = 0;
    const countMetrics = (_: string, counts: readonly MetricCount[]) => {
      drift += counts.filter(({ metric }) => metric === "drift_charged").length;
    };
    const open = createLiveCapabilities(
      { east: connection },
      undefined,
      () => ledger,
      countMetrics,
      send,
      createListPage,
    );
    const started = performance.now();
    let [calls, most, done] = [0, 0, ""];
    while (done === "") {
      calls++;
      done =
        (await reconcile(
          open("east", 60_000),
          { quotas: [{ name: "q", hard: { pods: 1 } }] },
          () => clock.now,
          until,
        )) ?? "";
      most = Math.max(most, process.memoryUsage().heapUsed);
    }
    const [scope] = await ledger.change<Kept>(["workload-quota//quota/q"], (values) => values);
    test.diagnostic(
      `${total} objects: ${calls} calls, ${Math.round(performance.now() - started)} ms, at most ${Math.round(most / 2 ** 20)} MB`,
    );
    assert.deepEqual(
      [done.split(";")[0], scope?.used],
      [
        `read ${total} objects, charged ${total} that weren't counted, and credited 0 that were gone or smaller without a review`,
        { pods: `${(2 * total) / 1000}k` },
      ],
    );
    assert.equal(drift, total);
    assert.equal(paths.filter((path) => path.endsWith("/deployments")).length, Math.ceil(total / 500));
  });
});
