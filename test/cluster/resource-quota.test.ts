import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import type { Pod, ResourceQuota } from "#lib/kubernetes/core/v1.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildFunctionRbacObjects, buildKubernetesGroupName } from "../../infra/webhooks/rbac.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { createTokenClient, getCollectionPath } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import {
  createTestWebhookConfigurations,
  extendWebhookTimeoutsForTests,
  serveCatalogueForTests,
  waitUntil,
  waitUntilWebhooksCalled,
} from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

/**
 * The seconds for which clients create pods. Each round fills the quota of another namespace. The seconds must be
 * fewer than 300: every 300 seconds, the quota controller counts all quotas again, and may overwrite a charge.
 */
const { POSTERN_QUOTA_SECONDS } = process.env;
const seconds = Number(POSTERN_QUOTA_SECONDS ?? 2);
/** A short run has few clients: with more clients of one quota, a review on a slow machine would not end in time. */
const clients = POSTERN_QUOTA_SECONDS === undefined ? 8 : 32;

// The API server's own plugin is off, and kube-controller-manager runs the quota controller. The rule has only the
// rights that its ClusterRole gives.
describe("quotas on a real API server that doesn't enforce them itself", await needs("API server"), () => {
  let cluster: TestCluster;
  const stops: (() => unknown)[] = [];
  const creators: ReturnType<typeof createTokenClient>["client"][] = [];

  before(async () => {
    cluster = await bootCluster(await requireBinaries(), {
      disable: ["ResourceQuota"],
      controllers: ["resourcequota-controller"],
      rbac: true,
      users: { function: [buildKubernetesGroupName("postern", "resource-quota")] },
    });
    stops.push(cluster.stop);
    const { server, ca, getToken, admin } = cluster;
    for (let index = 0; index < clients; index++) {
      const { client, close } = createTokenClient(server, ca, getToken("admin"));
      creators.push(client);
      stops.push(close);
    }
    const exempt = { namespaces: ["kube-system"] };
    const section = { failurePolicy: "Fail", exempt, settings: { charges: true } };
    const rules = JSON.stringify({ rules: { "resource-quota": section } });
    const catalogue = await readCatalogue();
    const [local] = parseConfig(rules, catalogue).clusters.values();
    for (const body of local ? buildFunctionRbacObjects(catalogue, local, "postern") : []) {
      const { code, body: answer } = await admin({ method: "POST", path: getCollectionPath(body), body });
      assert.equal(code, 201, String(answer.message));
    }
    const connections = { local: { server, ca, credentials: { token: getToken("function") } } };
    const postern = await serveCatalogueForTests(rules, createLiveCapabilities(connections));
    stops.push(postern.stop);
    await createTestWebhookConfigurations(admin, extendWebhookTimeoutsForTests(postern.manifests()));
    const body = { metadata: { name: "probe" } };
    await waitUntilWebhooksCalled(
      () => admin({ method: "POST", path: "/api/v1/namespaces/default/configmaps?dryRun=All", body }),
      () => postern.reports.length > 0,
    );
  });
  after(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  const readQuota = async (namespacePath: string): Promise<ResourceQuota> =>
    (await cluster.admin({ method: "GET", path: `${namespacePath}/resourcequotas/q` })).body;
  const listRequests = async (namespacePath: string): Promise<number[]> => {
    const { body } = await cluster.admin({ method: "GET", path: `${namespacePath}/pods` });
    const pods = body.items as Pod[];
    return pods.map(({ spec }) => parseCpu(spec?.containers[0]?.resources?.requests?.cpu));
  };

  /** Creates a namespace with a quota, and waits for the quota controller. Returns the namespace's path. */
  const openNamespace = async (name: string, hard: Record<string, string>): Promise<string> => {
    const namespacePath = `/api/v1/namespaces/${name}`;
    await cluster.admin({ method: "POST", path: "/api/v1/namespaces", body: { metadata: { name } } });
    const body = { metadata: { name: "q" }, spec: { hard } };
    await cluster.admin({ method: "POST", path: `${namespacePath}/resourcequotas`, body });
    await waitUntil(
      "the quota controller doesn't count",
      async () => (await readQuota(namespacePath)).status?.used !== undefined,
    );
    return namespacePath;
  };
  const createPod = async (namespacePath: string, create = cluster.admin, cpu = "100m") => {
    const body = {
      metadata: { generateName: "p-" },
      spec: { containers: [{ name: "c", image: "i", resources: { requests: { cpu } } }] },
    };
    return create({ method: "POST", path: `${namespacePath}/pods`, body });
  };

  it(`quotas are never exceeded while ${clients} clients create pods for ${seconds} seconds`, async (context) => {
    const counts = { created: 0, refused: 0, conflicts: 0 };
    const end = Date.now() + seconds * 1000;
    for (let round = 0; round === 0 || Date.now() < end; round++) {
      const namespacePath = await openNamespace(`crowd-${round}`, { "requests.cpu": "12", pods: "60" });
      /** Creates pods with 50m to 349m CPU until the quota refuses one. */
      const fill = async (create: typeof cluster.admin, clientIndex: number) => {
        for (let count = 0; ; count++) {
          const cpu = `${50 + ((clientIndex * 37 + count * 101) % 300)}m`;
          const { code, body } = await createPod(namespacePath, create, cpu);
          if (code === 201) counts.created += 1;
          else if (code === 409) counts.conflicts += 1;
          else {
            assert.match(`${code} ${body.message}`, /^403 .* exceeded quota: q, requested: /);
            counts.refused += 1;
            return;
          }
        }
      };
      await Promise.all(creators.map(fill));
      const requests = await listRequests(namespacePath);
      const sum = requests.reduce((left, right) => left + right, 0);
      assert.ok(sum <= 12_000 && requests.length <= 60, `${sum} of 12000, ${requests.length} of 60`);
      // No other plugin refused a pod after its charge, so the charged amount is the stored amount.
      const { used = {} } = (await readQuota(namespacePath)).status ?? {};
      assert.deepEqual([parseCpu(used["requests.cpu"]), Number(used.pods)], [sum, requests.length]);
    }
    context.diagnostic(JSON.stringify(counts));
  });

  // A Secret is deleted by one write, and the controller counts once. A pod is deleted by two writes. The second count
  // may come after the next pod is charged and before the controller sees that pod, and would then overwrite the
  // charge.
  it("a quota allows a new Secret after another Secret is deleted, because the controller counts again", async () => {
    const namespacePath = await openNamespace("recounted", { secrets: "2" });
    const path = `${namespacePath}/secrets`;
    const createSecret = (name: string) => cluster.admin({ method: "POST", path, body: { metadata: { name } } });
    assert.equal((await createSecret("a")).code, 201);
    assert.equal((await createSecret("b")).code, 201);
    const { body } = await createSecret("c");
    assert.match(String(body.message), /exceeded quota: q, requested: secrets=1, used: secrets=2/);
    await cluster.admin({ method: "DELETE", path: `${path}/a` });
    await waitUntil("the quota controller doesn't count the deletion", async () => {
      return (await readQuota(namespacePath)).status?.used?.secrets === "1";
    });
    assert.equal((await createSecret("c")).code, 201);
    assert.equal((await createSecret("d")).code, 403);
  });
});

/** Returns an amount of CPU in thousandths. */
const parseCpu = (amount = "0"): number => (amount.endsWith("m") ? Number(amount.slice(0, -1)) : Number(amount) * 1000);
