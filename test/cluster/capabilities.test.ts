import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { ApiServerConnection } from "#lib/cluster/api-server.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { Failure } from "#lib/failure.ts";
import type { Capabilities } from "#lib/needs.ts";
import { toPlural } from "#lib/recording/recorded-answers.ts";
import { apiServerOwnObjects } from "../../infra/apiserver/initial-objects.ts";
import { listServedResources } from "../../infra/apiserver/kinds/served.ts";
import { buildObject, namespaces, objects, testAnswers, testDefaults, testObjects } from "../capabilities.ts";
import { newestMinor, requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";

describe("the capabilities of a real API server", await needs("API server"), () => {
  let cluster: TestCluster;
  let open: (milliseconds?: number) => Capabilities;
  const rbac = "rbac.authorization.k8s.io";
  const buildRoleAndBinding = (name: string, namespace: string) => [
    {
      ...buildObject("Role", name, namespace, {}, `${rbac}/v1`),
      rules: [{ apiGroups: [""], resources: ["limitranges"], verbs: ["get"] }],
    },
    {
      ...buildObject("RoleBinding", name, namespace, {}, `${rbac}/v1`),
      roleRef: { apiGroup: rbac, kind: "Role", name },
      subjects: [{ apiGroup: rbac, kind: "User", name: "jane" }],
    },
  ];

  before(async () => {
    const binaries = await requireBinaries();
    cluster = await bootCluster(binaries, { rbac: true });
    for (const body of [...objects, ...buildRoleAndBinding("reads", "a")]) {
      const { code, body: answer } = await cluster.admin({ method: "POST", path: getCollectionPath(body), body });
      assert.equal(code, 201, String(answer.message));
    }
    const { server, ca } = cluster;
    const connection: ApiServerConnection = { server, ca, credentials: { token: cluster.getToken("admin") } };
    const connect = createLiveCapabilities({ prod: connection });
    open = (milliseconds = 5000) => connect("prod", milliseconds);
  });
  after(() => cluster?.stop());

  testObjects(() => open());
  testAnswers(() => open());
  testDefaults(() => open());

  it("an API server serves all kinds that check assumes if it knows only manifests and no cluster", async () => {
    for (const [version, served] of Object.entries(listServedResources([], newestMinor))) {
      const found = (await open().discover(version))?.filter(({ resource }) => !resource.includes("/"));
      const sortByKind = (all: typeof served) => all.toSorted((left, right) => (left.kind < right.kind ? -1 : 1));
      assert.deepEqual(sortByKind(found ?? []), sortByKind(served), version);
    }
  });

  it("an API server has all objects that check assumes if it knows only manifests and no cluster", async () => {
    for (const { metadata, kind, apiVersion, ...wanted } of apiServerOwnObjects) {
      const resource = { group: apiVersion?.split("/").at(-2) ?? "", resource: toPlural(kind ?? "") };
      const found: Record<string, unknown> = { ...(await open().get(resource, metadata.name)) };
      assert.deepEqual(Object(found.metadata).labels, metadata.labels, metadata.name);
      for (const [key, value] of Object.entries(wanted)) assert.deepEqual(found[key], value, `${metadata.name} ${key}`);
    }
  });

  it("the capability to create fails if the user may not create the object, or its kind is not served", async () => {
    const credentials = { token: cluster.getToken("jane") };
    const connect = createLiveCapabilities({ prod: { server: cluster.server, ca: cluster.ca, credentials } });
    const [widget, namespace] = [buildObject("Widget", "w"), buildObject("Namespace", "newer")];
    await assert.rejects(connect("prod", 5000).create(namespaces, namespace), Failure);
    await assert.rejects(open().create({ group: "example.com", resource: "widgets" }, widget), Failure);
  });

  it("the capabilities of a cluster fail for an unknown cluster", async () => {
    const failure = await createLiveCapabilities({})("prod", 1000)
      .get(namespaces, "a")
      .catch((error) => error);
    assert.ok(failure instanceof Failure);
    assert.equal(failure.code, 503);
  });
});
