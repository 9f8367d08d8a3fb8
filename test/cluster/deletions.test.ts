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

// Tests sequences of deletions with a real API server. Cases can't contain sequences, because a case is a single
// request.
describe("pods that have to clean up before their deletion, on a real API server", await needs("API server"), () => {
  /** The requests to clean up that the rule has sent to pods. All pods have the address of this server. */
  const cleanUpRequests: string[] = [];
  const podServer = createServer(({ method, url }, response) => {
    cleanUpRequests.push(`${method} ${url}`);
    response.writeHead(202).end();
  });
  let cluster: TestCluster;
  const stops: (() => Promise<unknown>)[] = [];
  const sendRequest = (request: TestClusterRequest) => cluster.admin(request);
  const getPodsPath = (namespace: string) => `/api/v1/namespaces/${namespace}/pods`;
  const podsPath = getPodsPath("default");
  const contentType = "application/merge-patch+json";
  const createPod = async (name: string, labels: object, namespace = "default", ownerReferences: object[] = []) => {
    const path = getPodsPath(namespace);
    const spec = { nodeName: "n1", containers: [{ name: "c", image: "c" }] };
    const pod = { metadata: { name, labels, ownerReferences }, spec };
    const { code, body } = await sendRequest({ method: "POST", path, body: pod });
    assert.equal(code, 201, String(body.message));
    const status = { phase: "Running", podIP: "127.0.0.1", podIPs: [{ ip: "127.0.0.1" }] };
    await sendRequest({ method: "PATCH", path: `${path}/${name}/status`, body: { status }, contentType });
  };
  const deletePod = async (name: string, query = "", path = podsPath) =>
    (await sendRequest({ method: "DELETE", path: `${path}/${name}${query}` })).code;
  const evict = async (name: string) => {
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: "default" } };
    return (await sendRequest({ method: "POST", path: `${podsPath}/${name}/eviction`, body })).code;
  };
  const readPod = async (name: string) => sendRequest({ method: "GET", path: `${podsPath}/${name}` });
  const guardedLabels = { "deletion-guard.postern.dev/cleans-up": "" };

  before(async () => {
    const binaries = await requireBinaries();
    const port = await listen(podServer);
    stops.push(async () => podServer.close());
    cluster = await bootCluster(binaries, { controllers: ["garbage-collector-controller"] });
    stops.push(cluster.stop);
    const { server, ca, getToken } = cluster;
    const connections = { local: { server, ca, credentials: { token: getToken("admin") } } };
    const settings = { cleanUp: `http://{ip}:${port}/{namespace}/{name}`, addresses: ["127.0.0.1"] };
    const rules = { "deletion-guard": { failurePolicy: "Fail", exempt: { namespaces: [] }, settings } };
    const ledger = createMemoryLedger();
    const openCapabilities = createLiveCapabilities(connections, {
      cache: createAnswerCache({ entries: 0, bytes: 0 }),
      openLedger: () => ledger,
    });
    const postern = await serveCatalogueForTests(JSON.stringify({ rules }), openCapabilities);
    stops.push(postern.stop);
    await createTestWebhookConfigurations(cluster.admin, extendWebhookTimeoutsForTests(postern.manifests()));
    await createPod("probe", guardedLabels);
    await waitUntilWebhooksCalled(
      () => deletePod("probe", "?dryRun=All"),
      () => postern.reports.length > 0,
    );
    assert.deepEqual(cleanUpRequests, []);
  });
  after(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  it("pods that have to clean up are deleted when they have finished, after one request to clean up", async () => {
    await createPod("a", guardedLabels);
    assert.equal(await deletePod("a"), 403);
    assert.equal(await deletePod("a", "?gracePeriodSeconds=0"), 403);
    assert.equal(await evict("a"), 429);
    assert.deepEqual(cleanUpRequests.splice(0), ["POST /default/a"]);
    assert.equal(Object((await readPod("a")).body.metadata).deletionTimestamp, undefined);
    const metadata = { annotations: { "deletion-guard.postern.dev/finished": "true" } };
    await sendRequest({ method: "PATCH", path: `${podsPath}/a`, body: { metadata }, contentType });
    assert.equal(await evict("a"), 201);
    // This is the deletion that the kubelet sends after the containers have ended.
    assert.equal(await deletePod("a", "?gracePeriodSeconds=0"), 200);
    assert.equal((await readPod("a")).code, 404);
  });
  it("pods that have to clean up survive the deletion of a collection of pods until they have finished", async () => {
    await createPod("b", { app: "x", ...guardedLabels });
    const { code } = await sendRequest({ method: "DELETE", path: `${podsPath}?labelSelector=app%3Dx` });
    assert.equal(code, 403);
    assert.deepEqual(cleanUpRequests.splice(0), ["POST /default/b"]);
    assert.equal((await readPod("b")).code, 200);
  });
  it("pods that have to clean up are deleted by the garbage collector after their owner, when finished", async () => {
    const path = "/apis/apps/v1/namespaces/default/replicasets";
    const labels = { app: "owned" };
    const template = { metadata: { labels }, spec: { containers: [{ name: "c", image: "c" }] } };
    const body = { metadata: { name: "owner" }, spec: { replicas: 1, selector: { matchLabels: labels }, template } };
    const owner = await sendRequest({ method: "POST", path, body });
    const { uid } = Object(owner.body.metadata);
    const reference = { apiVersion: "apps/v1", kind: "ReplicaSet", name: "owner", uid };
    await createPod("owned", { ...labels, ...guardedLabels }, "default", [reference]);
    await sendRequest({ method: "DELETE", path: `${path}/owner?propagationPolicy=Background` });
    await waitUntil("the garbage collector's deletion is not refused", async () => cleanUpRequests.length > 0);
    assert.deepEqual(cleanUpRequests.splice(0), ["POST /default/owned"]);
    assert.equal(Object((await readPod("owned")).body.metadata).deletionTimestamp, undefined);
    const metadata = { annotations: { "deletion-guard.postern.dev/finished": "true" } };
    await sendRequest({ method: "PATCH", path: `${podsPath}/owned`, body: { metadata }, contentType });
    await waitUntil("the garbage collector does not delete the pod", async () => {
      const { body } = await readPod("owned");
      return Object(body.metadata).deletionTimestamp !== undefined;
    });
  });
  it("pods that have to clean up are deleted without cleaning up if their namespace is being deleted", async () => {
    await sendRequest({ method: "POST", path: "/api/v1/namespaces", body: { metadata: { name: "shop" } } });
    await createPod("c", guardedLabels, "shop");
    assert.equal(await deletePod("c", "", getPodsPath("shop")), 403);
    await sendRequest({ method: "DELETE", path: "/api/v1/namespaces/shop" });
    assert.equal(await deletePod("c", "", getPodsPath("shop")), 200);
  });
});
