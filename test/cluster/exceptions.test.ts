import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import type { TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { applyConfigurations, extendWebhookTimeoutsForTests, serveTestRules } from "../parity/rule-server.ts";
import { openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { needs } from "../parts.ts";

// Tests on a real API server that an exception lets an object through, and that it ends without a change of the webhook
// entries and of the endpoint.

const names = ["allowed-registries", "always-pull-images", "default-toleration-seconds"];
const catalogue = (await readCatalogue()).filter(({ name }) => names.includes(name));

/** Returns a postern.yaml with an exception that ends at the given time. */
const buildConfig = (until: string): string => {
  const exceptions = [{ namespaces: ["legacy"], until, owner: "team-billing", reason: "old base image, OPS-231" }];
  const rules = {
    "allowed-registries": { settings: { registries: ["registry.example.com"] }, exempt: { exceptions } },
    "always-pull-images": { exempt: { exceptions } },
    "default-toleration-seconds": {},
  };
  const groups = { mutators: ["always-pull-images", "default-toleration-seconds"] };
  return JSON.stringify({ rules, groups });
};

describe("an exception on a real API server", await needs("API server"), () => {
  let folder: string;
  let cluster: TestCluster;
  let endpoints: Awaited<ReturnType<typeof openScriptedWebhookEndpoints>>;
  let postern: Awaited<ReturnType<typeof serveTestRules>>;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-exceptions-"));
    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    endpoints = await openScriptedWebhookEndpoints(certificate);
    cluster = await bootCluster(await requireBinaries(), {
      audit: true,
      disable: ["ServiceAccount", "DefaultTolerationSeconds"],
    });
    for (const name of ["legacy", "shop"]) {
      const body = { apiVersion: "v1", kind: "Namespace", metadata: { name } };
      assert.equal((await cluster.admin({ method: "POST", path: "/api/v1/namespaces", body })).code, 201);
    }
    postern = await serveTestRules(catalogue, buildConfig("2999-12-31"), { certificate });
    await applyConfigurations(cluster.admin, extendWebhookTimeoutsForTests(postern.manifests()), endpoints.detector);
  });
  after(async () => {
    await Promise.all([cluster?.stop(), endpoints?.stop(), postern?.stop()]);
    await rm(folder, { recursive: true, force: true });
  });

  const createPod = (name: string, namespace: string) => {
    const spec = { containers: [{ name: "a", image: "docker.io/old:1" }] };
    const body = { apiVersion: "v1", kind: "Pod", metadata: { name }, spec };
    return cluster.admin({ method: "POST", path: `/api/v1/namespaces/${namespace}/pods`, body });
  };
  const readExceptions = async ({ auditId = "" }: TestClusterResponse) => {
    const annotations = (await cluster.readAuditAnnotations([auditId])).get(auditId) ?? {};
    return Object.fromEntries(Object.entries(annotations).filter(([key]) => key.endsWith("exception")));
  };
  const assertDenied = async (answer: TestClusterResponse) => {
    assert.equal(answer.code, 403);
    assert.match(
      String(answer.body.message),
      /^admission webhook "allowed-registries\.postern\.dev" denied the request: /,
    );
    assert.deepEqual(await readExceptions(answer), {});
  };
  const getSpec = ({ body }: TestClusterResponse) => Object(body).spec;

  it("an exception does not appear in the webhook entries", () => {
    const entries = postern.manifests().flatMap(({ webhooks }) => webhooks);
    assert.equal(entries.length, 3);
    for (const entry of entries) assert.doesNotMatch(JSON.stringify(entry), /legacy|billing/);
  });

  it("an exception allows an object unchanged, is in the audit log, and ends without a deployment", async () => {
    const manifestsBefore = postern.manifests();
    const end = Math.ceil(Date.now() / 1000) * 1000 + 10_000;
    const until = new Date(end).toISOString().replace(".000", "");
    const text = `until ${until} (team-billing): old base image, OPS-231`;
    postern.serve(buildConfig(until));
    const answer = await createPod("before", "legacy");
    assert.ok(Date.now() < end, "the machine was too slow to ask before the end");
    assert.equal(answer.code, 201, String(answer.body.message));
    assert.deepEqual(answer.warnings, []);
    assert.deepEqual(await readExceptions(answer), {
      "allowed-registries.postern.dev/exception": text,
      "always-pull-images.postern.dev/exception": text,
      "mutators.postern.dev/always-pull-images.exception": text,
    });
    // Only the other member of the group has changed the pod. IfNotPresent is the default policy of an image with a
    // tag.
    const { tolerations, containers } = getSpec(answer);
    assert.deepEqual([tolerations.length, containers[0].imagePullPolicy], [2, "IfNotPresent"]);
    await assertDenied(await createPod("before", "shop"));

    await wait(Math.max(0, end - Date.now()));
    await assertDenied(await createPod("after", "legacy"));
    assert.deepEqual(postern.manifests(), manifestsBefore);
    const logged = postern.reports.filter(({ exception }) => exception);
    assert.deepEqual(logged.map(({ rule, group, exception }) => [rule, group, exception]).toSorted(), [
      ["allowed-registries", undefined, text],
      ["always-pull-images", undefined, text],
      ["always-pull-images", "mutators", text],
    ]);
  });
});
