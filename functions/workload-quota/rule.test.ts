import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createRecordedCapabilities, openRule } from "postern/test";
import type { Recounts } from "./recount.ts";
import { getQuotaKey, type Kept, locate, type Reservation } from "./reservations.ts";
import { findSettingsFault } from "./settings.ts";

const { reconcile } = await openRule(import.meta.dirname);

const template = { spec: { containers: [{ name: "c", resources: { requests: { cpu: "1" } } }] } };
const buildObject = (kind: string, name: string, spec: object, rest: object = {}, metadata: object = {}) => {
  const apiVersion = kind === "Pod" ? "v1" : "apps/v1";
  return { apiVersion, kind, metadata: { name, namespace: "a", ...metadata }, spec, ...rest };
};
const buildDeployment = (name: string, replicas: unknown = 2, metadata: object = {}) =>
  buildObject("Deployment", name, { replicas, template }, {}, metadata);
const buildNamespace = (name: string, labels: Record<string, string>) => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name, labels },
});
const ownerReferences = [{ apiVersion: "apps/v1", kind: "Deployment", name: "web", controller: true }];
const hard = { "requests.cpu": 3 };

type Objects = NonNullable<Parameters<typeof createRecordedCapabilities>[0]["objects"]>;
const start = 1_800_000_000_000;
const minute = 60_000;

/** Makes a cluster with objects and a ledger, in which recounts can be run one after the other. */
const openCluster = (objects: Objects, ledger: Record<string, unknown> = {}) => {
  const capabilities = createRecordedCapabilities({ cluster: "east", objects, ledger });
  const counted: string[] = [];
  const limits: number[] = [];
  let isReversed = false;
  let failing = (_resource: string, _limit: number): boolean => false;
  const listPage: NonNullable<typeof capabilities.listPage> = async ({ group, resource }, limit, next) => {
    if (resource === "deployments") limits.push(limit);
    if (failing(resource, limit)) throw new Error(`no ${resource}`);
    const listed = await capabilities.list({ group, resource });
    const ordered = isReversed ? listed.toReversed() : listed;
    const [from, to] = [Number(next), Number(next) + limit];
    return { items: ordered.slice(from, to), version: "v1", next: to < ordered.length ? String(to) : "" };
  };
  const count = (counts: readonly { metric: string }[]) => counted.push(...counts.map(({ metric }) => metric));
  const readStored = async <T>(key: string) => (await capabilities.ledger("").change<T>([key], (values) => values))[0];
  return {
    counted,
    limits,
    recount: (settings: object, time = start, until = Number.POSITIVE_INFINITY) =>
      reconcile({ ...capabilities, listPage, count }, settings, () => time, until),
    reverse: () => {
      isReversed = true;
    },
    fail: (when: typeof failing) => {
      failing = when;
    },
    readUsed: async () => (await readStored<Kept>(getQuotaKey("q")))?.used ?? {},
    readRecounts: () => readStored<Recounts>("recount/east"),
  };
};

/**
 * Returns the values of a ledger in which one object has a reservation of 9 cpu: `key` has the quota's sum,
 * and `part` has the object's reservation. Its phase "seen" says that the object was found in the cluster.
 */
const reserve = (object: string, reservation: Partial<Reservation>, cluster = "east") => {
  const { key, part } = locate("q", cluster, object);
  const used = { "requests.cpu": "9" };
  const stored = { used, at: start - 10 * minute, phase: "seen", version: "v1", ...reservation };
  return { [key]: { used }, [part]: { objects: { [object]: stored } } };
};
const web = "apps/deployments/a/web";
const owned = buildDeployment("web", 2, { ownerReferences });
const buildOwner = (kind: string, name: string, uid = name) => ({
  apiVersion: "apps/v1",
  kind,
  name,
  uid,
  controller: true,
});
const buildReplicaSets = (name: string, replicas: number) => [
  buildObject(
    "ReplicaSet",
    name,
    { replicas, template },
    {},
    { uid: name, ownerReferences: [buildOwner("Deployment", "web")] },
  ),
];
/** A Deployment and its ReplicaSet. */
const owners = [buildDeployment("web", 2, { uid: "web" }), ...buildReplicaSets("web-5d", 2)];
const pod = (name: string, kind: string, owner: string, metadata: object = {}) =>
  buildObject("Pod", name, template.spec, {}, { ownerReferences: [buildOwner(kind, owner)], ...metadata });

it("workload-quota refuses a quota with an unknown cluster, unless postern.yaml has no clusters", () => {
  const settings = {
    quotas: [{ name: "q", clusters: ["east", "eats"], hard }],
    kinds: [],
    controllers: { users: [], groups: [] },
  };
  const sentence = 'must name clusters of postern.yaml in quotas[0].clusters, not "eats"';
  assert.equal(findSettingsFault(settings, ["east", "west"]), sentence);
  assert.equal(findSettingsFault(settings, ["east", "eats"]), undefined);
  assert.equal(findSettingsFault(settings), undefined);
});

describe("a recount", () => {
  const table: [
    sentence: string,
    { objects: Objects; quota?: object; ledger?: object; used: object; metrics?: string[] },
  ][] = [
    [
      "charges existing objects, even if they exceed hard",
      {
        objects: [buildDeployment("a"), buildDeployment("b")],
        used: { "requests.cpu": "4" },
        metrics: ["drift_charged", "drift_charged"],
      },
    ],
    [
      "charges the amounts of all names in hard",
      {
        objects: [buildDeployment("a"), buildObject("Pod", "b", template.spec)],
        quota: { hard: { pods: 1, "count/deployments.apps": 9, "requests.memory": 1 } },
        used: { pods: "3", "count/deployments.apps": "1" },
        metrics: ["drift_charged", "drift_charged"],
      },
    ],
    [
      "doesn't charge objects that a counted object controls",
      {
        objects: [...owners, pod("web-1", "ReplicaSet", "web-5d")],
        used: { "requests.cpu": "2" },
        metrics: ["drift_charged"],
      },
    ],
    [
      "charges Pods that terminate, and Pods whose owner was deleted, is being deleted or was replaced",
      {
        objects: [
          ...owners,
          pod("p1", "ReplicaSet", "web-5d", { deletionTimestamp: "2026-01-01T00:00:00Z" }),
          pod("p2", "ReplicaSet", "gone"),
          pod("p3", "ReplicaSet", "web-5d", { ownerReferences: [buildOwner("ReplicaSet", "web-5d", "other")] }),
          pod("p4", "StatefulSet", "leaving"),
          buildObject(
            "StatefulSet",
            "leaving",
            { replicas: 5, template },
            {},
            { uid: "leaving", deletionTimestamp: "2026-01-01T00:00:00Z" },
          ),
        ],
        used: { "requests.cpu": "6" },
        metrics: Array(5).fill("drift_charged"),
      },
    ],
    [
      "charges a Pod whose owner reference has an invalid version",
      {
        objects: [
          ...owners,
          pod("p1", "ReplicaSet", "web-5d", {
            ownerReferences: [{ ...buildOwner("ReplicaSet", "web-5d"), apiVersion: "apps/v1 \n%" }],
          }),
        ],
        used: { "requests.cpu": "3" },
        metrics: ["drift_charged", "drift_charged"],
      },
    ],
    [
      "charges a ReplicaSet whose Deployment is gone, and not its Pods",
      {
        objects: [pod("p1", "ReplicaSet", "web-5d"), ...owners.slice(1), ...buildReplicaSets("old", 0)],
        used: { "requests.cpu": "2" },
        metrics: ["drift_charged"],
      },
    ],
    [
      "charges a quota with users for Pods that are left over from an object with a reservation",
      {
        objects: [pod("web-5d-a", "ReplicaSet", "web-5d"), pod("other-5d-a", "ReplicaSet", "other-5d")],
        quota: { hard, users: ["jane"] },
        ledger: reserve(web, { phase: "released" }),
        used: { "requests.cpu": "1" },
        metrics: ["drift_charged"],
      },
    ],
    [
      "corrects the reservation of a controlled object if a review has counted this object",
      {
        objects: [owned],
        ledger: reserve(web, { isOwned: true }),
        used: { "requests.cpu": "2" },
        metrics: ["drift_credited"],
      },
    ],
    [
      "removes the reservation of an object that a counted object now controls",
      { objects: [owned], ledger: reserve(web, {}), used: {}, metrics: ["drift_credited"] },
    ],
    [
      "charges no new objects to a quota with users, but corrects its reservations",
      {
        objects: [buildDeployment("web"), buildDeployment("other")],
        quota: { hard, users: ["jane"] },
        ledger: reserve(web, {}),
        used: { "requests.cpu": "2" },
        metrics: ["drift_credited"],
      },
    ],
    [
      "doesn't change the reservation of an object that can't be counted",
      { objects: [buildDeployment("web", "many")], ledger: reserve(web, {}), used: { "requests.cpu": "9" } },
    ],
    [
      "counts only namespaces with the quota's labels, and removes reservations in namespaces that lost the labels",
      {
        objects: [
          buildNamespace("a", {}),
          buildNamespace("b", { team: "b" }),
          buildDeployment("web"),
          buildDeployment("web", 1, { namespace: "b" }),
        ],
        quota: { hard, namespaceLabels: { team: "b" } },
        ledger: reserve(web, {}),
        used: { "requests.cpu": "1" },
        metrics: ["drift_charged", "drift_credited"],
      },
    ],
    [
      "removes the reservations of a cluster that the quota no longer covers",
      {
        objects: [buildDeployment("web")],
        quota: { hard, clusters: ["west"] },
        ledger: reserve(web, {}),
        used: {},
        metrics: ["drift_credited"],
      },
    ],
    [
      "doesn't change the reservations of other clusters",
      { objects: [], ledger: reserve(web, {}, "west"), used: { "requests.cpu": "9" } },
    ],
    [
      "removes the reservations of a kind that is no longer counted",
      { objects: [], ledger: reserve("example.com/trainers/a/b", {}), used: {}, metrics: ["drift_credited"] },
    ],
    [
      "doesn't change a reservation that changed less than 70 seconds ago",
      { objects: [], ledger: reserve(web, { at: start - minute, phase: "charged" }), used: { "requests.cpu": "9" } },
    ],
    [
      "removes the reservation of a write that was never stored, and counts it in the metric unseen_reservations",
      { objects: [], ledger: reserve(web, { phase: "charged" }), used: {}, metrics: ["unseen_reservations"] },
    ],
    [
      "counts no drift for a deletion that was reviewed",
      { objects: [], ledger: reserve(web, { phase: "released" }), used: {} },
    ],
  ];
  for (const [sentence, { objects, quota = { hard }, ledger = {}, used, metrics = [] }] of table)
    it(sentence, async () => {
      const cluster = openCluster(objects, { ...ledger });
      await cluster.recount({ quotas: [{ name: "q", ...quota }] });
      assert.deepEqual(await cluster.readUsed(), used);
      assert.deepEqual(cluster.counted.sort(), metrics);
      const { completed, place, last } = (await cluster.readRecounts()) ?? {};
      assert.deepEqual([completed, place, last?.faults], [start, undefined, []]);
    });

  it("a recount begins every ten minutes, and at once if `hard` of a quota has a new name", async () => {
    const cluster = openCluster([buildDeployment("web")]);
    const cpu = { quotas: [{ name: "q", hard }] };
    assert.match((await cluster.recount(cpu)) ?? "", /^read 1 objects, charged 1 /);
    assert.equal(await cluster.recount(cpu, start + 10 * minute - 1), undefined);
    assert.match((await cluster.recount(cpu, start + 10 * minute)) ?? "", /^read 1 objects, charged 0 /);
    const raisedSettings = { quotas: [{ name: "q", hard: { ...hard, pods: 9 } }] };
    assert.match((await cluster.recount(raisedSettings, start + 12 * minute)) ?? "", /charged 1 /);
    assert.deepEqual(await cluster.readUsed(), { pods: "2", "requests.cpu": "2" });
    assert.equal(cluster.counted.length, 2);
  });

  it("a recount is continued by the next call, and by only one of two concurrent calls", async () => {
    const objects = Array.from({ length: 1200 }, (_, index) => buildDeployment(String(index).padStart(4, "0"), 1));
    const cluster = openCluster(objects);
    const settings = { quotas: [{ name: "q", hard: { "count/deployments.apps": 1 } }] };
    const results = new Set<string>();
    for (let calls = 0; results.size === 0; calls++) {
      assert.ok(calls < 30);
      // Each call reads one page.
      const bothResults = await Promise.all([cluster.recount(settings, start, 0), cluster.recount(settings, start, 0)]);
      for (const result of bothResults) if (result !== undefined) results.add(result);
    }
    assert.match([...results].join(), /^read 1200 objects, /);
    assert.deepEqual(await cluster.readUsed(), { "count/deployments.apps": "1200" });
  });

  it("a recount reads a failed page with fewer objects, and skips the kind if a page of 10 fails", async () => {
    const cluster = openCluster([buildDeployment("web"), buildObject("Pod", "b", template.spec)], reserve(web, {}));
    const settings = { quotas: [{ name: "q", hard }] };
    cluster.fail((resource, limit) => resource === "deployments" && limit > 100);
    assert.match((await cluster.recount(settings)) ?? "", /^read 2 objects, /);
    assert.deepEqual(cluster.limits, [500, 250, 125, 62]);
    assert.deepEqual(await cluster.readUsed(), { "requests.cpu": "3" });

    cluster.fail((resource) => resource === "deployments");
    const later = start + 20 * minute;
    await assert.rejects(cluster.recount(settings, later), /no deployments/);
    assert.deepEqual(cluster.limits.slice(4), [500, 250, 125, 62, 31, 15, 10]);
    assert.match((await cluster.recount(settings, later)) ?? "", /^read 1 objects, .*; no deployments$/);
    assert.deepEqual(await cluster.readUsed(), { "requests.cpu": "3" }, "nothing is credited that was not read");
    const { completed, last } = (await cluster.readRecounts()) ?? {};
    assert.deepEqual([completed, last?.began, last?.faults], [start, later, ["no deployments"]]);
  });

  it("a recount corrects nothing by a list in another order, which it needs to find deleted objects", async () => {
    const cluster = openCluster([buildDeployment("a"), buildDeployment("b")], reserve(web, {}));
    cluster.reverse();
    const sentence = /^Error: the API server lists deployments in another order than by namespace and name$/;
    const settings = { quotas: [{ name: "q", hard }] };
    await assert.rejects(cluster.recount(settings), sentence);
    await cluster.recount(settings);
    assert.deepEqual(await cluster.readUsed(), { "requests.cpu": "9" });
    assert.equal((await cluster.readRecounts())?.completed, undefined);
  });
});
