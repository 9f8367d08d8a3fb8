import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import type { sendRequest } from "#lib/cluster/https-request.ts";
import { createListPage } from "#lib/cluster/list-page.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger, type Ledger } from "#lib/ledger.ts";
import type { MetricCount } from "#lib/metrics.ts";
import type { Capabilities } from "#lib/needs.ts";
import { requireQuantity } from "#lib/objects/quantity.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { AdmissionRequest, Operation } from "#lib/review.ts";
import {
  type Amounts,
  getPartKey,
  getQuotaKey,
  type Kept,
  locate,
  partCount,
  type Reservation,
} from "../functions/workload-quota/reservations.ts";
import { openRule } from "../infra/testing/rule-test.ts";

const { decide, reconcile } = await openRule(join(import.meta.dirname, "..", "functions", "workload-quota"));

const clusters = ["east", "west"];
/** The CPUs that the quota allows. */
const hard = 20;
/**
 * The most CPUs that forged reviews of one cluster may reserve. It is the part of a quota for objects that the rule
 * hasn't yet read from the cluster: half of the quota, unless the quota's setting `unseen` states another part, such as
 * 100%.
 */
const mostForged = hard / 2;

type Deployment = ReturnType<typeof buildDeployment>;
const buildDeployment = (name: string, replicas: number) => {
  const containers = [{ name: "c", image: "c", resources: { requests: { cpu: "1" } } }];
  const spec = { replicas, template: { spec: { containers } } };
  return { apiVersion: "apps/v1", kind: "Deployment", metadata: { name, namespace: "a" }, spec };
};

/** A write that the rule has admitted. The API server may store it until the time `until`. */
interface PendingWrite {
  cluster: string;
  name: string;
  /** The object that was stored at the review. The API server stores the write only if this is still stored. */
  base: Deployment | undefined;
  object: Deployment | undefined;
  until: number;
}

type Step =
  /** A client of the cluster writes or deletes the Deployment with this name. */
  | { write: string; cluster: string; replicas: number; isDry: boolean }
  | { delete: string; cluster: string }
  /**
   * A holder of the key of the cluster east sends a forged review, for which there is no request. It deletes the
   * Deployment if `replicas` is undefined.
   */
  | { forge: string; replicas: number | undefined; isUpdate: boolean }
  /** An API server stores the pending write with this index (`commit`), or never stores it (`fail`). */
  | { commit: number }
  | { fail: number }
  /** The rule recounts the objects of the cluster. With `isExpired`, the token for the next page expires. */
  | { recount: string; isComplete: boolean; isExpired: boolean }
  /** A Deployment is written without a review, or deleted if `replicas` is undefined. */
  | { force: string; cluster: string; replicas: number | undefined }
  /** This number of seconds passes. */
  | { pass: number };

/**
 * Creates a model of clusters whose API servers send the rule reviews, and store an admitted write some time later or
 * not at all. The scheduler decides in which order concurrent reviews change the ledger and read their clusters.
 * `unseen` is the setting of the quota with this name.
 */
const createModel = ({ scheduler, unseen }: { scheduler?: fc.Scheduler; unseen?: string | undefined } = {}) => {
  const { change } = createMemoryLedger();
  const stored = new Map(clusters.map((cluster) => [cluster, new Map<string, Deployment>()]));
  const getStored = (cluster: string) => stored.get(cluster) ?? new Map<string, Deployment>();
  let pending: PendingWrite[] = [];
  /** For each object of the cluster east, the most replicas that a real request had. */
  const largest = new Map<string, number>();
  let time = 1_800_000_000_000;
  let message = "";
  let isConcurrent = scheduler !== undefined;

  const wait = async () => {
    if (isConcurrent) await scheduler?.schedule(Promise.resolve());
  };
  const ledger: Ledger = {
    change: async (keys, ...rest) => {
      // Before a refusal, many parts are read one by one. These reads don't wait, because their order matters little.
      if (keys.length > 1) await wait();
      return change(keys, ...rest);
    },
  };

  /** Sends the rule a review of a write, or of a deletion if there is no object. No write follows a `forged` review. */
  const sendReview = async (
    cluster: string,
    name: string,
    object: Deployment | undefined,
    isDry = false,
    forged?: { base: Deployment | undefined },
  ): Promise<boolean> => {
    const started = time;
    const { base } = forged ?? { base: getStored(cluster).get(name) };
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
        return getStored(cluster).get(deployment);
      },
    };
    const replicas = object?.spec.replicas ?? 0;
    // `largest` must be set before the API server stores the write and the rule replaces its reservation.
    if (cluster === "east" && !forged && !isDry) largest.set(name, Math.max(largest.get(name) ?? 0, replicas));
    const { outcome } = await decide("validate", request, { settings, now: new Date(started), capabilities });
    message = outcome.status?.message ?? "";
    if (outcome.allowed && !isDry && !forged) pending.push({ cluster, name, base, object, until: started + 60_000 });
    return outcome.allowed;
  };
  const settings = { quotas: [{ name: "q", hard: { "requests.cpu": hard }, ...(unseen && { unseen }) }] };
  /**
   * Lists a cluster in pages of one object. All pages show the cluster at one moment, unless `isExpired`: then the
   * token of a page expires, and the list continues with the objects of a later moment.
   */
  const createPageReader = (cluster: string, isExpired: boolean): NonNullable<Capabilities["listPage"]> => {
    return async ({ resource }, _, next) => {
      await wait();
      if (resource !== "deployments") return { items: [], version: "v1", next: "" };
      const token: { snapshot: number; after: string } = next ? JSON.parse(next) : { snapshot: -1, after: "" };
      const hasExpired = next !== "" && isExpired && token.snapshot < snapshots.length - 1;
      if (token.snapshot < 0 || hasExpired) token.snapshot = snapshots.push([...getStored(cluster).values()]) - 1;
      if (hasExpired) return { items: [], version: "v1", next: JSON.stringify(token) };
      const rest = (snapshots[token.snapshot] ?? []).filter(({ metadata: { name } }) => name > token.after);
      const items = rest.sort((left, right) => (left.metadata.name < right.metadata.name ? -1 : 1)).slice(0, 1);
      const after = items.at(-1)?.metadata.name ?? "";
      return { items, version: "v1", next: rest.length > 1 ? JSON.stringify({ ...token, after }) : "" };
    };
  };
  const snapshots: Deployment[][] = [];
  /** Recounts a cluster completely, or only until one page of Deployments has been read. */
  const recount = (cluster: string, isComplete: boolean, isExpired = false) => {
    const readPage = createPageReader(cluster, isExpired);
    const endTime = time + 1;
    let hasTimePassed = false;
    const listPage: typeof readPage = async (kind, ...rest) => {
      const page = await readPage(kind, ...rest);
      if (kind.resource === "deployments" && !isComplete) hasTimePassed = true;
      return page;
    };
    const get: Capabilities["get"] = async (_, deployment) => {
      await wait();
      return getStored(cluster).get(deployment);
    };
    const capabilities = { ...createRecordedCapabilities({ cluster }), ledger: () => ledger, get, listPage };
    return reconcile(capabilities, settings, () => time + (hasTimePassed ? 1 : 0), endTime);
  };
  /** Recounts a cluster that can't be reached, with a quota that covers the clusters `covered`, or all clusters. */
  const recountDeletedCluster = (cluster: string, covered: string[] | undefined) => {
    const listPage = async () => {
      throw new Error("no route");
    };
    const capabilities = { ...createRecordedCapabilities({ cluster }), ledger: () => ledger, listPage };
    const quotas = settings.quotas.map((quota) => ({ ...quota, ...(covered && { clusters: covered }) }));
    return reconcile(capabilities, { quotas }, () => time, time + 1);
  };
  const takePending = (index: number) => pending.splice(index % Math.max(1, pending.length), 1)[0];

  return {
    run: async (step: Step): Promise<void> => {
      if ("write" in step)
        await sendReview(step.cluster, step.write, buildDeployment(step.write, step.replicas), step.isDry);
      else if ("delete" in step) {
        if (getStored(step.cluster).has(step.delete)) await sendReview(step.cluster, step.delete, undefined);
      } else if ("forge" in step) {
        const { forge, replicas, isUpdate } = step;
        const base = isUpdate || replicas === undefined ? buildDeployment(forge, 0) : undefined;
        const object = replicas === undefined ? undefined : buildDeployment(forge, replicas);
        const isDry = false;
        await sendReview("east", forge, object, isDry, { base });
      } else if ("commit" in step) {
        const { cluster, name, base, object, until } = takePending(step.commit) ?? { cluster: "", name: "", until: 0 };
        if (time > until || getStored(cluster).get(name) !== base) return;
        if (object) getStored(cluster).set(name, object);
        else getStored(cluster).delete(name);
      } else if ("fail" in step) takePending(step.fail);
      else if ("recount" in step) await recount(step.recount, step.isComplete, step.isExpired);
      else if ("force" in step) {
        if (step.replicas === undefined) getStored(step.cluster).delete(step.force);
        else getStored(step.cluster).set(step.force, buildDeployment(step.force, step.replicas));
      } else time += step.pass * 1000;
    },
    recountDeletedCluster,
    /** Returns the message of the last review; empty if it was admitted. */
    readMessage: () => message,
    readPart: async (key: string) => (await change<Kept>([key], (kept) => kept))[0],
    /** Lets all reservations lapse, and sends refused requests, by which the rule replaces the reservations. */
    replaceLapsed: async (): Promise<void> => {
      isConcurrent = false;
      time += 3_601_000;
      pending = [];
      for (const cluster of clusters)
        for (const isDry of [false, false, true])
          assert.equal(await sendReview(cluster, "large", buildDeployment("large", 99), isDry), false);
    },
    /** Recounts each cluster completely, while no writes are pending. */
    recountAll: async (): Promise<void> => {
      isConcurrent = false;
      pending = [];
      for (const cluster of clusters) await recount(cluster, true);
      time += 601_000;
      for (const cluster of clusters) assert.match((await recount(cluster, true)) ?? "", /^read/);
    },
    listStored: () =>
      clusters.flatMap((cluster) =>
        [...getStored(cluster).values()].flatMap(({ metadata: { name }, spec: { replicas } }) =>
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
    readLedger: async () => {
      const toCpus = ({ "requests.cpu": amount = "0" }: Amounts = {}) =>
        Number(requireQuantity(amount).nanos / 10n ** 9n);
      const [scope] = await change<Kept>([getQuotaKey("q")], (kept) => kept);
      const readReservations = async (cluster: string) => {
        const keys = Array.from({ length: partCount }, (_, part) => getPartKey("q", cluster, part));
        return (await change<Kept>(keys, (kept) => kept)).flatMap((part) => Object.entries(part?.objects ?? {}));
      };
      const [east, west] = [await readReservations("east"), await readReservations("west")];
      const sumCpus = (reservations: typeof east, getAmounts: (one: Reservation) => Amounts | undefined) =>
        reservations.reduce((sum, [, reservation]) => sum + toCpus(getAmounts(reservation)), 0);
      return {
        used: toCpus(scope?.used),
        reserved: sumCpus([...east, ...west], ({ used }) => used),
        unseen: clusters.map((cluster) => toCpus(scope?.clusters?.[cluster]?.unseen)),
        reservedUnseen: [east, west].map((reservations) => sumCpus(reservations, ({ unseen }) => unseen)),
        /** What is reserved beyond the largest real request for each object of the cluster east. */
        forged: east
          .map(([path, { used }]) => toCpus(used) - (largest.get(path.split("/").at(-1) ?? "") ?? 0))
          .reduce((sum, excess) => sum + Math.max(0, excess), 0),
      };
    },
  };
};

const names = fc.constantFrom("a", "b", "c", "d");
const cluster = fc.constantFrom(...clusters);
/**
 * Generates steps. `forge`: an attacker sends a forged review of this Deployment. `commit`: an API server stores the
 * pending write with this index; `fail`: never. `pass`: this number of seconds passes. `recount`: the rule reads the
 * cluster's objects, or only some if `isComplete` is false; with `isExpired`, the token for the next page expires.
 */
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
  {
    weight: 2,
    arbitrary: fc.record({
      forge: fc.constantFrom("a", "b", "x", "y", "z"),
      replicas: fc.option(fc.integer({ min: 0, max: 12 }), { nil: undefined, freq: 4 }),
      isUpdate: fc.boolean(),
    }),
  },
  { weight: 4, arbitrary: fc.record({ commit: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ fail: fc.nat(9) }) },
  { weight: 2, arbitrary: fc.record({ pass: fc.constantFrom(1, 30, 71, 400) }) },
  { weight: 2, arbitrary: fc.record({ recount: cluster, isComplete: fc.boolean(), isExpired: fc.boolean() }) },
);
/** Generates sequences of groups of steps. The steps of a group run at the same time. */
const makeSequences = (steps: fc.Arbitrary<Step>) =>
  fc.array(fc.array(steps, { minLength: 1, maxLength: 4 }), { minLength: 10, maxLength: 40 });
/** Generates writes that are stored without a review, as if the rule could not be reached. */
const unseenWrites: fc.Arbitrary<Step> = fc.record({
  force: names,
  cluster,
  replicas: fc.option(fc.integer({ min: 0, max: 30 }), { nil: undefined }),
});

/** Collects garbage, and returns the number of bytes of the heap that are then in use. */
const readHeap = (): number => {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  return process.memoryUsage().heapUsed;
};
const toMegabytes = (bytes: number) => Math.round(bytes / 2 ** 20);

/** How much of the quota may be reserved, but not yet seen in the cluster: by default a part, or all. */
const unseenShares = fc.constantFrom(undefined, "100%");
const numRuns = Number(process.env.POSTERN_RUNS ?? 100);
const buildWrite = (write: string, replicas: number, cluster = "east"): Step => {
  return { write, cluster, replicas, isDry: false };
};
/** The API server stores the first write that it has not stored yet. */
const storeWrite: Step = { commit: 0 };
/** Passes the 70 seconds after which the rule replaces a reservation by what the cluster has stored. */
const passReservationTime: Step = { pass: 71 };

describe("workload-quota", () => {
  it("workload-quota never lets clusters exceed a quota, and later counts exactly the stored objects", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), makeSequences(steps), unseenShares, async (scheduler, sequence, unseen) => {
        const model = createModel({ scheduler, unseen });
        for (const together of sequence) {
          await scheduler.waitFor(Promise.all(together.map(model.run)));
          const { used, reserved, forged, ...ledger } = await model.readLedger();
          assert.equal(used, reserved, "the stored sum is that of all reservations");
          assert.deepEqual(
            ledger.unseen,
            ledger.reservedUnseen,
            "the unseen sums are those of the clusters' reservations",
          );
          if (!unseen) assert.ok(forged <= mostForged, `forged reviews have reserved ${forged}`);
          assert.ok(used <= hard, `${used} are reserved`);
          assert.ok(model.sumStored() <= used, `${model.sumStored()} are stored, and ${used} are reserved`);
        }
        await model.replaceLapsed();
        // The rule may have read an object between two writes that made the object smaller, so a recount follows.
        await model.recountAll();
        const counted = await model.readLedger();
        assert.equal(counted.used, model.sumStored());
        assert.deepEqual(counted.unseen, [0, 0]);
      }),
      { numRuns },
    );
  });

  it("workload-quota lets clusters use a whole quota, and forged reviews reserve only their maximum", async () => {
    const model = createModel();
    for (const [name, replicas] of [
      ["a", 10],
      ["b", 10],
    ] as const)
      for (const step of [buildWrite(name, replicas), storeWrite]) await model.run(step);
    assert.equal(model.sumStored(), hard);
    await model.run(buildWrite("c", 1, "west"));
    assert.match(model.readMessage(), /^exceeded quota: q, /);

    for (const unseen of [undefined, "100%"]) {
      const forged = createModel({ unseen });
      for (const [forge, replicas] of [
        ["x", 11],
        ["y", 10],
        ["z", 1],
      ] as const)
        await forged.run({ forge, replicas, isUpdate: false });
      // Without a maximum, the quota of 20 has room for the reviews of 11 and 1, but not for that of 10.
      assert.equal((await forged.readLedger()).forged, unseen ? 12 : mostForged);
      await forged.replaceLapsed();
      assert.equal((await forged.readLedger()).used, 0);
    }
  });

  it("workload-quota lets forged reviews keep reservations of deleted objects only up to a maximum", async () => {
    const findReserved = async (unseen: string | undefined) => {
      const model = createModel({ unseen });
      for (const name of ["a", "b"]) for (const step of [buildWrite(name, 9), storeWrite]) await model.run(step);
      await model.run(passReservationTime);
      for (const name of ["a", "b"])
        for (const step of [{ delete: name, cluster: "east" }, storeWrite]) await model.run(step);
      for (let minute = 0; minute < 10; minute++) {
        await model.run({ pass: 60 });
        for (const forge of ["a", "b"])
          for (const replicas of [1, undefined]) await model.run({ forge, replicas, isUpdate: true });
        await model.run(buildWrite("large", 99));
      }
      return (await model.readLedger()).used;
    };
    assert.ok((await findReserved(undefined)) <= mostForged);
    assert.equal(await findReserved("100%"), 18, "without a maximum, forged reviews keep both reservations of 9");
  });

  it("workload-quota admits many objects stored at once, although only 10 % of the quota may be unseen", async () => {
    const model = createModel({ unseen: "10%" });
    for (let index = 0; index < 20; index++) {
      await model.run(buildWrite(`burst-${index}`, 1));
      assert.equal(model.readMessage(), "");
      await model.run(storeWrite);
    }
    assert.equal(model.sumStored(), 20);
    await model.run({ forge: "x", replicas: 1, isUpdate: false });
    assert.match(model.readMessage(), /^exceeded quota: q/);
  });

  it("workload-quota lets forged reviews with chosen names fill a ledger's value for at most a minute", async () => {
    const model = createModel();
    // The value of the ledger that has the reservation of the object "a".
    const { part } = locate("q", "east", "apps/deployments/a/a");
    await model.run(buildWrite("a", 1));
    await model.run(storeWrite);
    const names = Array.from({ length: 200_000 }, (_, index) => `${index}${"x".repeat(240)}`).filter(
      (name) => locate("q", "east", `apps/deployments/a/${name}`).part === part,
    );
    const [last = "", ...others] = names;
    const full = /^quota q has no room for this reservation, as the ledger's value for this name is full/;
    for (const forge of others) {
      await model.run({ forge, replicas: 0, isUpdate: false });
      if (full.test(model.readMessage())) break;
    }
    assert.match(model.readMessage(), full);
    await model.run(buildWrite("a", 2));
    assert.equal(model.readMessage(), "", "an object that has a reservation can grow");
    await model.run(buildWrite(last, 1));
    assert.match(model.readMessage(), full);
    assert.ok(JSON.stringify(await model.readPart(part)).length < 310_000);
    await model.run(passReservationTime);
    await model.run(buildWrite(last, 1));
    assert.equal(model.readMessage(), "");
  });

  it("workload-quota gives back no reservation of an object that was created after a recount had begun", async () => {
    const model = createModel();
    const recount: Step = { recount: "east", isComplete: true, isExpired: false };
    const create = async (write: string) => {
      await model.run(buildWrite(write, 3));
      await model.run(storeWrite);
      await model.run(passReservationTime);
    };
    for (const name of ["a", "c"]) await create(name);
    await model.run({ ...recount, isComplete: false });
    await create("b");
    await model.run(recount);
    assert.deepEqual((await model.listReserved()).sort(), ["east a 3", "east b 3", "east c 3"]);
  });

  it("workload-quota counts no object that was deleted after a recount had read its page", async () => {
    const model = createModel({ unseen: "100%" });
    for (const [name, replicas] of [
      ["a", 0],
      ["b", 1],
    ] as const)
      for (const step of [buildWrite(name, replicas, "west"), storeWrite]) await model.run(step);
    // An object that was stored without a review. Its reservation belongs to the same part of the ledger as that of b.
    const getPart = (name: string) => locate("q", "west", `apps/deployments/a/${name}`).part;
    const force = Array.from({ length: 1000 }, (_, index) => `c${index}`).find(
      (name) => getPart(name) === getPart("b"),
    );
    await model.run({ force: force ?? "", cluster: "west", replicas: 3 });
    const recount: Step = { recount: "west", isComplete: false, isExpired: false };
    await model.run(recount);
    for (const step of [{ delete: "b", cluster: "west" }, storeWrite, buildWrite("a", 9)]) await model.run(step);
    await model.run(passReservationTime);
    // The quota has room only if the reservation of the deleted object is removed.
    await model.run(buildWrite("a", 11, "west"));
    assert.equal(model.readMessage(), "");
    // The next pages are from the same list as the first page, so they still have the deleted object.
    for (let page = 0; page < 2; page++) await model.run(recount);
    assert.deepEqual((await model.listReserved()).sort(), ["east a 9", "west a 11", `west ${force} 3`]);
  });

  it("workload-quota gives back a deleted cluster's reservations once no quota covers the cluster", async () => {
    const model = createModel();
    for (const cluster of clusters) {
      await model.run(buildWrite("a", 3, cluster));
      await model.run(passReservationTime);
    }
    await assert.rejects(model.recountDeletedCluster("east", undefined), /no route/);
    assert.deepEqual(await model.listReserved(), ["east a 3", "west a 3"]);
    await assert.rejects(model.recountDeletedCluster("east", ["west"]), /no route/);
    assert.deepEqual([await model.listReserved(), (await model.readLedger()).used], [["west a 3"], 3]);
  });

  it("workload-quota counts each object as clusters store it after one recount, even without reviews", async () => {
    const withUnseen = makeSequences(fc.oneof({ weight: 4, arbitrary: steps }, { weight: 1, arbitrary: unseenWrites }));
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), withUnseen, unseenShares, async (scheduler, sequence, unseen) => {
        const model = createModel({ scheduler, unseen });
        for (const together of sequence) await scheduler.waitFor(Promise.all(together.map(model.run)));
        await model.recountAll();
        const after = await model.readLedger();
        assert.deepEqual((await model.listReserved()).sort(), model.listStored().sort());
        assert.deepEqual([after.used, after.reserved, after.unseen], [model.sumStored(), model.sumStored(), [0, 0]]);
      }),
      { numRuns },
    );
  });

  it("workload-quota counts all objects even if they exceed the quota, and then refuses requests", async () => {
    const model = createModel();
    await model.run({ force: "a", cluster: "west", replicas: 30 });
    await model.recountAll();
    assert.equal((await model.readLedger()).used, 30);
    await model.run(buildWrite("b", 1));
    assert.match(model.readMessage(), /^exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=30, /);
  });

  it("workload-quota counts any number of objects in pages over several calls, with limited memory", async (test) => {
    const { POSTERN_OBJECTS, POSTERN_OBJECT_BYTES } = process.env;
    const total = Number(POSTERN_OBJECTS ?? 3000);
    const padding = "x".repeat(Number(POSTERN_OBJECT_BYTES ?? 3000));
    // Without POSTERN_OBJECTS, each call has no time left after one page. With POSTERN_OBJECTS, a single call is
    // measured.
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
      if (paths.length % 10 === 0) largestHeap = Math.max(largestHeap, readHeap());
      const served = { name: "apps", preferredVersion: { version: "v1" } };
      if (pathname === "/apis") return answer({ kind: "APIGroupList", groups: [served] });
      if (pathname === "/apis/apps/v1")
        return answer({ kind: "APIResourceList", resources: [{ name: "deployments" }] });
      // The token of a page is the number of the objects before the page.
      const from = Number(searchParams.get("continue") ?? 0);
      const to = Math.min(name === "deployments" ? total : 0, from + Number(searchParams.get("limit")));
      const items = Array.from({ length: Math.max(0, to - from) }, (_, index) => {
        const deployment = buildDeployment(String(from + index).padStart(7, "0"), 2);
        return { ...deployment, metadata: { ...deployment.metadata, annotations: { padding } } };
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
      { openLedger: () => ledger, print: countMetrics, send, createPages: createListPage },
    );
    const heapBefore = readHeap();
    const [started, cpuBefore] = [performance.now(), process.cpuUsage()];
    let [calls, largestHeap, report] = [0, 0, ""];
    const quotaSettings = { quotas: [{ name: "q", hard: { pods: 1 } }] };
    // The call that completes the count returns a report.
    while (report === "") {
      calls++;
      report = (await reconcile(open("east", 60_000), quotaSettings, () => clock.now, until)) ?? "";
    }
    const { user, system } = process.cpuUsage(cpuBefore);
    const [scope] = await ledger.change<Kept>(["workload-quota//quota/q"], (values) => values);
    test.diagnostic(
      `${total} objects: ${calls} calls, ${Math.round(performance.now() - started)} ms, ${Math.round((user + system) / 1000)} ms of CPU time, at most ${toMegabytes(largestHeap - heapBefore)} MB more in use`,
    );
    assert.ok(toMegabytes(largestHeap - heapBefore) < 50);
    assert.deepEqual(
      [report.split(";")[0], scope?.used],
      [
        `read ${total} objects, charged ${total} that weren't counted, and credited 0 that were gone or smaller without a review`,
        { pods: `${(2 * total) / 1000}k` },
      ],
    );
    assert.equal(drift, total);
    assert.equal(paths.filter((path) => path.endsWith("/deployments")).length, Math.ceil(total / 500));
  });
});
