import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createListPage } from "#lib/cluster/list-page.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { createMemoryLedger } from "#lib/ledger.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { Kept } from "../../functions/workload-quota/reservations.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { openRule } from "../../infra/testing/rule-test.ts";
import { buildFunctionRbacObjects, buildKubernetesGroupName } from "../../infra/webhooks/rbac.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";

const rule = "workload-quota";
const settings = {
  quotas: [{ name: "q", namespaceLabels: { team: "a" }, hard: { "requests.cpu": 4, "count/deployments.apps": 10 } }],
};
const containers = [{ name: "c", image: "c", resources: { requests: { cpu: "500m" } } }];
const labels = { app: "web" };
const spec = {
  replicas: 2,
  selector: { matchLabels: labels },
  template: { metadata: { labels }, spec: { containers } },
};

// The rule has only the rights of its ClusterRole. Its webhook isn't registered, so it gets no reviews.
describe("a recount of a real API server", await needs("API server"), () => {
  let cluster: TestCluster;
  before(async () => {
    cluster = await bootCluster(await requireBinaries(), {
      rbac: true,
      users: { function: [buildKubernetesGroupName("postern", rule)] },
    });
    const catalogue = await readCatalogue();
    const [local] = parseConfig(JSON.stringify({ rules: { [rule]: { settings } } }), catalogue).clusters.values();
    for (const body of local ? buildFunctionRbacObjects(catalogue, local, "postern") : []) await create(body);
    // The quota is for the namespaces of team a.
    for (const [name, team] of Object.entries({ a: "a", "a-b": "a", b: "b" }))
      await create({ apiVersion: "v1", kind: "Namespace", metadata: { name, labels: { team } } });
    for (const namespace of ["a", "a-b", "b"])
      for (let index = 0; index < 12; index++) await createWorkload("Deployment", namespace, `web-${index}`);
    const path = "/apis/apps/v1/namespaces/a/deployments/web-0";
    const { uid } = Object((await cluster.admin({ method: "GET", path })).body.metadata);
    const owner = { apiVersion: "apps/v1", kind: "Deployment", name: "web-0", uid, controller: true };
    await createWorkload("ReplicaSet", "a", "owned", [owner]);
    await createWorkload("ReplicaSet", "a", "alone");
  });
  after(() => cluster?.stop());

  const create = async (body: KubernetesObject) => {
    const { code, body: answer } = await cluster.admin({ method: "POST", path: getCollectionPath(body), body });
    assert.equal(code, 201, String(answer.message));
  };
  const createWorkload = (kind: string, namespace: string, name: string, ownerReferences: object[] = []) => {
    const metadata = { name, namespace, ownerReferences };
    const workload = { apiVersion: "apps/v1", kind, metadata, spec };
    return create(workload);
  };

  it("a recount counts existing objects, page by page, and notices deleted objects", async () => {
    const { reconcile } = await openRule(join(import.meta.dirname, "../../functions", rule));
    const ledger = createMemoryLedger();
    const { server, ca, getToken } = cluster;
    const connection = { server, ca, credentials: { token: getToken("function") } };
    const options = { openLedger: () => ledger, print: () => {}, createPages: createListPage };
    const openLive = createLiveCapabilities({ east: connection }, options);
    let pages = 0;
    const recount = async (time: number) => {
      const live = openLive("east", 30_000);
      // Pages of 7 objects, so that 36 Deployments need 6 pages.
      const listPage: typeof live.listPage = (kind, _, next) => {
        if (kind.resource === "deployments") pages++;
        return live.listPage?.(kind, 7, next) ?? assert.fail("a cluster can be listed");
      };
      return reconcile({ ...live, listPage }, settings, () => time, time + 1);
    };
    const readUsed = async () => (await ledger.change<Kept>([`${rule}//quota/q`], (values) => values))[0]?.used;
    // 36 Deployments and 2 ReplicaSets. Of the 26 objects of team a, the quota doesn't charge the owned ReplicaSet.
    // Each uses 2 replicas of 500m.
    assert.match(
      (await recount(Date.now())) ?? "",
      /^read 38 objects, charged 25 that weren't counted, and credited 0 .*review$/,
    );
    assert.deepEqual([await readUsed(), pages], [{ "count/deployments.apps": "24", "requests.cpu": "25" }, 6]);

    for (const name of ["web-3", "web-11"])
      await cluster.admin({ method: "DELETE", path: `/apis/apps/v1/namespaces/a-b/deployments/${name}` });
    assert.match((await recount(Date.now() + 3600_000)) ?? "", /^read 36 objects, charged 0 .* credited 2 /);
    assert.deepEqual(await readUsed(), { "count/deployments.apps": "22", "requests.cpu": "23" });
  });
});
