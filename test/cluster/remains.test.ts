import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createListPage } from "#lib/cluster/list-page.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { toMap } from "#lib/json.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { openRule } from "../../infra/testing/rule-test.ts";
import { buildFunctionRbacObjects, buildKubernetesGroupName } from "../../infra/webhooks/rbac.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

// Tests a quota of three CPUs with a workload whose two Pods still run, because of finalizers, after the workload is
// gone.

const rule = "workload-quota";
const settings = { quotas: [{ name: "q", hard: { "requests.cpu": 3 } }] };
const keptFinalizer = "example.com/kept";
const labels = { app: "a" };
const podTemplateOfJob = {
  metadata: { labels, finalizers: [keptFinalizer] },
  spec: {
    restartPolicy: "Never",
    containers: [{ name: "c", image: "c", resources: { requests: { cpu: "1" } } }],
  },
};
const podTemplateOfReplicas = { ...podTemplateOfJob, spec: { ...podTemplateOfJob.spec, restartPolicy: "Always" } };
const kinds = {
  Deployment: { plural: "deployments", apiVersion: "apps/v1" },
  ReplicaSet: { plural: "replicasets", apiVersion: "apps/v1" },
  Job: { plural: "jobs", apiVersion: "batch/v1" },
} as const;

const buildWorkload = (kind: keyof typeof kinds, namespace: string, name: string) => {
  const spec =
    kind === "Job"
      ? { parallelism: 2, completions: 2, template: podTemplateOfJob }
      : { replicas: 2, selector: { matchLabels: labels }, template: podTemplateOfReplicas };
  return { apiVersion: kinds[kind].apiVersion, kind, metadata: { name, namespace }, spec };
};

/** Ways in which a workload ends although its Pods stay: a deletion, or a patch of the workload's spec. */
const ways: [sentence: string, kind: keyof typeof kinds, way: { spec: object } | "deleted" | "deleted before"][] = [
  ["a Deployment that is deleted", "Deployment", "deleted"],
  ["a Deployment that is scaled down", "Deployment", { spec: { replicas: 0 } }],
  ["a Deployment that is deleted before its ReplicaSet, which a finalizer keeps", "Deployment", "deleted before"],
  ["a ReplicaSet that is deleted", "ReplicaSet", "deleted"],
  ["a Job that is suspended", "Job", { spec: { suspend: true } }],
];

describe("Pods that still run after their workload has ended, in a real API server", await needs("API server"), () => {
  let cluster: TestCluster;
  before(async () => {
    cluster = await bootCluster(await requireBinaries(), {
      rbac: true,
      users: { function: [buildKubernetesGroupName("postern", rule)] },
      controllers: [
        "deployment-controller",
        "replicaset-controller",
        "job-controller",
        "garbage-collector-controller",
        "serviceaccount-controller",
      ],
    });
    const catalogue = await readCatalogue();
    const [local] = parseConfig(JSON.stringify({ rules: { [rule]: { settings } } }), catalogue).clusters.values();
    for (const body of local ? buildFunctionRbacObjects(catalogue, local, "postern") : []) await create(body);
  });
  after(() => cluster?.stop());

  const send = async (method: "GET" | "PATCH" | "DELETE", path: string, body?: object) => {
    const { code, body: answer } = await cluster.admin({
      method,
      path,
      ...(body && { body }),
      ...(method === "PATCH" && { contentType: "application/merge-patch+json" }),
    });
    assert.ok(code < 300, `${method} ${path}: ${answer.message}`);
    return answer;
  };
  const create = async (body: KubernetesObject) => {
    const { code, body: answer } = await cluster.admin({ method: "POST", path: getCollectionPath(body), body });
    assert.equal(code, 201, String(answer.message));
  };
  const listItems = async (path: string): Promise<KubernetesObject[]> => Object((await send("GET", path)).items);

  for (const [index, [sentence, kind, way]] of ways.entries())
    it(`Pods that still run count against the quota until they are gone: Pods of ${sentence}`, async () => {
      const namespace = `n${index}`;
      await create({ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
      await waitUntil("there is no service account", async () => {
        const accounts = await listItems(`/api/v1/namespaces/${namespace}/serviceaccounts`);
        return accounts.length > 0;
      });
      const { decide, reconcile } = await openRule(join(import.meta.dirname, "../../functions", rule));
      const ledger = createMemoryLedger();
      const { server, ca, getToken } = cluster;
      const connection = { server, ca, credentials: { token: getToken("function") } };
      const options = { openLedger: () => ledger, print: () => {}, createPages: createListPage };
      const openLive = createLiveCapabilities({ east: connection }, options);
      const quota = { quotas: [{ ...settings.quotas[0], namespaces: [namespace], unseen: "100%" }] };
      const start = Date.now();
      let time = start;
      /** Lets the rule evaluate a write, and returns the sentence of a refusal. */
      const evaluateWrite = async (
        operation: Operation,
        name: string,
        objects: { object?: object; oldObject?: object },
      ) => {
        const [group = "", version = ""] = kinds[kind].apiVersion.split("/");
        const resource = { group, version, resource: kinds[kind].plural };
        const type = { kind: { group, version, kind }, resource };
        const userInfo = { username: "jane" };
        const request = { uid: String(time), operation, name, namespace, userInfo, ...objects, ...type };
        const capabilities = openLive("east", 30_000);
        const { outcome } = await decide("validate", request, { settings: quota, now: new Date(time), capabilities });
        return outcome.status?.message;
      };
      const second = buildWorkload(kind, namespace, "second");
      const evaluateSecond = () => evaluateWrite("CREATE", "second", { object: second });
      const recount = () => reconcile(openLive("east", 30_000), quota, () => time, time + 1);

      const first = buildWorkload(kind, namespace, "first");
      assert.equal(await evaluateWrite("CREATE", "first", { object: first }), undefined);
      await create(first);
      const pods = `/api/v1/namespaces/${namespace}/pods`;
      await waitUntil("there are not two Pods", async () => (await listItems(pods)).length === 2);

      const path = `/apis/${kinds[kind].apiVersion}/namespaces/${namespace}/${kinds[kind].plural}/first`;
      const before = await send("GET", path);
      if (typeof way === "object") {
        const object = { ...before, spec: { ...toMap(before.spec), ...way.spec } };
        assert.equal(await evaluateWrite("UPDATE", "first", { object, oldObject: before }), undefined);
        await send("PATCH", path, way);
      } else {
        assert.equal(await evaluateWrite("DELETE", "first", { oldObject: before }), undefined);
        const replicaSets = `/apis/apps/v1/namespaces/${namespace}/replicasets`;
        if (way === "deleted before")
          for (const { metadata } of await listItems(replicaSets))
            await send("PATCH", `${replicaSets}/${metadata?.name}`, { metadata: { finalizers: [keptFinalizer] } });
        await send("DELETE", path, { propagationPolicy: "Background" });
      }
      await waitUntil("the workload still has its Pods", async () => {
        const { code } = await cluster.admin({ method: "GET", path });
        const deletedPods = (await listItems(pods)).filter((pod) => toMap(pod.metadata).deletionTimestamp);
        return way === "deleted before" ? code === 404 : deletedPods.length === 2;
      });

      // When a write is refused, the rule finds that Pods still run, and the recount counts these Pods. 80 seconds
      // after the writes, none of the writes can be stored any more.
      time = start + 80_000;
      assert.match(
        (await evaluateSecond()) ?? "",
        /used: requests\.cpu=2, .*; 1 objects .* may have Pods that still run/,
      );
      assert.match((await recount()) ?? "", /charged [12] that weren't counted/);
      assert.match((await evaluateSecond()) ?? "", /^exceeded quota: q, .* used: requests\.cpu=2, limited: [^;]*$/);

      const release = { metadata: { finalizers: null } };
      const replicaSets = await listItems(`/apis/apps/v1/namespaces/${namespace}/replicasets`);
      for (const { metadata } of replicaSets)
        if (way === "deleted before")
          await send("PATCH", `/apis/apps/v1/namespaces/${namespace}/replicasets/${metadata?.name}`, release);
      for (const { metadata } of await listItems(pods)) await send("PATCH", `${pods}/${metadata?.name}`, release);
      await waitUntil("the Pods are still there", async () => (await listItems(pods)).length === 0);
      time = start + 12 * 60_000;
      await recount();
      assert.equal(await evaluateSecond(), undefined);
    });
});
