import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, it } from "node:test";
import { createAnswerCache } from "#lib/cluster/answer-cache.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterRequest } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { listen } from "../listen.ts";
import {
  createTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  serveCatalogueForTests,
  waitUntil,
  waitUntilWebhooksCalled,
} from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

// Tests sequences of deletions with a real API server, which cases of single requests can't express.
describe("pods that have to clean up, on a real API server", await needs("API server"), () => {
  const calls: string[] = [];
  const workload = createServer(({ method, url }, response) => {
    calls.push(`${method} ${url}`);
    response.writeHead(202).end();
  });
  let cluster: TestCluster;
  const stops: (() => Promise<unknown>)[] = [];
  const send = async (call: TestClusterRequest) => {
    const { code, body } = await cluster.admin(call);
    return { code, body };
  };
  const getPodsPath = (namespace: string) => `/api/v1/namespaces/${namespace}/pods`;
  const pods = getPodsPath("default");
  const contentType = "application/merge-patch+json";
  const createPod = async (name: string, labels: object, namespace = "default", ownerReferences: object[] = []) => {
    const path = getPodsPath(namespace);
    const spec = { nodeName: "n1", containers: [{ name: "c", image: "c" }] };
    const { code, body } = await send({
      method: "POST",
      path,
      body: { metadata: { name, labels, ownerReferences }, spec },
    });
    assert.equal(code, 201, String(body.message));
    const status = { phase: "Running", podIP: "127.0.0.1", podIPs: [{ ip: "127.0.0.1" }] };
    await send({ method: "PATCH", path: `${path}/${name}/status`, body: { status }, contentType });
  };
  const deletePod = async (name: string, query = "", path = pods) =>
    (await send({ method: "DELETE", path: `${path}/${name}${query}` })).code;
  const evict = async (name: string) => {
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: "default" } };
    return (await send({ method: "POST", path: `${pods}/${name}/eviction`, body })).code;
  };
  const readPod = async (name: string) => send({ method: "GET", path: `${pods}/${name}` });
  const guarded = { "deletion-guard.postern.dev/cleans-up": "" };

  before(async () => {
    const binaries = await requireBinaries();
    const port = await listen(workload);
    stops.push(async () => workload.close());
    cluster = await bootCluster(binaries, { controllers: ["garbage-collector-controller"] });
    stops.push(cluster.stop);
    const { server, ca, getToken } = cluster;
    const connections = { local: { server, ca, credentials: { token: getToken("admin") } } };
    const settings = { cleanUp: `http://{ip}:${port}/{namespace}/{name}`, addresses: ["127.0.0.1"] };
    const rules = { "deletion-guard": { failurePolicy: "Fail", exempt: { namespaces: [] }, settings } };
    const ledger = createMemoryLedger();
    const openCapabilities = createLiveCapabilities(connections, {
      memory: createAnswerCache({ entries: 0, bytes: 0 }),
      openLedger: () => ledger,
    });
    const postern = await serveCatalogueForTests(JSON.stringify({ rules }), openCapabilities);
    stops.push(postern.stop);
    await createTestWebhookConfigurations(cluster.admin, extendWebhookTimeoutsForTests(postern.manifests()));
    await createPod("probe", guarded);
    await waitUntilWebhooksCalled(
      () => deletePod("probe", "?dryRun=All"),
      () => postern.reports.length > 0,
    );
    assert.deepEqual(calls, []);
  });
  after(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  it("are not deleted until they have finished, and are notified once", async () => {
    await createPod("a", guarded);
    assert.equal(await deletePod("a"), 403);
    assert.equal(await deletePod("a", "?gracePeriodSeconds=0"), 403);
    assert.equal(await evict("a"), 429);
    assert.deepEqual(calls.splice(0), ["POST /default/a"]);
    assert.equal(Object((await readPod("a")).body.metadata).deletionTimestamp, undefined);
    const metadata = { annotations: { "deletion-guard.postern.dev/finished": "true" } };
    await send({ method: "PATCH", path: `${pods}/a`, body: { metadata }, contentType });
    assert.equal(await evict("a"), 201);
    // The kubelet deletes the pod at once when its containers have ended.
    assert.equal(await deletePod("a", "?gracePeriodSeconds=0"), 200);
    assert.equal((await readPod("a")).code, 404);
  });
  it("are not deleted with a collection", async () => {
    await createPod("b", { app: "x", ...guarded });
    const { code } = await send({ method: "DELETE", path: `${pods}?labelSelector=app%3Dx` });
    assert.equal(code, 403);
    assert.deepEqual(calls.splice(0), ["POST /default/b"]);
    assert.equal((await readPod("b")).code, 200);
  });
  it("are deleted by the garbage collector after their owner, once they have finished", async () => {
    const path = "/apis/apps/v1/namespaces/default/replicasets";
    const labels = { app: "owned" };
    const template = { metadata: { labels }, spec: { containers: [{ name: "c", image: "c" }] } };
    const body = { metadata: { name: "owner" }, spec: { replicas: 1, selector: { matchLabels: labels }, template } };
    const owner = await send({ method: "POST", path, body });
    const { uid } = Object(owner.body.metadata);
    const reference = { apiVersion: "apps/v1", kind: "ReplicaSet", name: "owner", uid };
    await createPod("owned", { ...labels, ...guarded }, "default", [reference]);
    await send({ method: "DELETE", path: `${path}/owner?propagationPolicy=Background` });
    await waitUntil("the garbage collector's deletion is not refused", async () => calls.length > 0);
    assert.deepEqual(calls.splice(0), ["POST /default/owned"]);
    assert.equal(Object((await readPod("owned")).body.metadata).deletionTimestamp, undefined);
    const metadata = { annotations: { "deletion-guard.postern.dev/finished": "true" } };
    await send({ method: "PATCH", path: `${pods}/owned`, body: { metadata }, contentType });
    await waitUntil("the garbage collector does not delete the pod", async () => {
      const { body } = await readPod("owned");
      return Object(body.metadata).deletionTimestamp !== undefined;
    });
  });
  it("are deleted with their namespace", async () => {
    await send({ method: "POST", path: "/api/v1/namespaces", body: { metadata: { name: "shop" } } });
    await createPod("c", guarded, "shop");
    assert.equal(await deletePod("c", "", getPodsPath("shop")), 403);
    await send({ method: "DELETE", path: "/api/v1/namespaces/shop" });
    assert.equal(await deletePod("c", "", getPodsPath("shop")), 200);
  });
});
