import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { reader } from "#lib/needs.ts";
import { type InspectedCluster, type Rule, rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { createTestFolder } from "../../test/folders.ts";
import type { PosternConfig } from "../config/config.ts";
import { listRulesAskingCluster } from "../config/connections.ts";
import { parseConfig, readConfig } from "../project/project.ts";
import { buildWebhookConfigurations } from "../webhooks/configurations.ts";
import { buildFunctionRbacObjects } from "../webhooks/rbac.ts";
import { createInspectedCluster } from "./inspected-cluster.ts";
import { inspectClusterForSettings } from "./inspection.ts";

const folder = await createTestFolder();

interface Settings {
  wanted: readonly { kind: string }[]; // for simplicity, the `kind` of each object is a resource to match: "pods"
  resources: readonly string[]; // the names of further resources to match
}
const settings: Settings = { wanted: [], resources: [] };
const group = { group: "example.io" };

/**
 * A rule whose entries and RBAC rights depend on objects. For an object { kind: "pods" } in its setting `wanted` (in
 * postern.yaml or in files), it matches the resource pods. It also matches those in its setting `resources`, to which
 * an inspection adds the names of all custom objects Wish in the cluster. A file with an object of kind odd is refused.
 */
const follower: Rule = rule({
  summary: "Matches the resources in its settings and in the cluster.",
  settings,
  reinvocationPolicy: "Never",
  manifests: {
    wanted: (documents) => ({
      objects: documents.filter((one): one is object => typeof one === "object" && one !== null),
      faults: documents.some((one) => Object(one).kind === "odd") ? ["the kind odd is not allowed"] : [],
    }),
  },
  match: ({ wanted, resources }) =>
    [...wanted.map(({ kind }) => kind), ...resources].map((resource) => {
      return { apiGroups: [""], apiVersions: ["v1"], resources: [resource], operations: ["CREATE" as const] };
    }),
  needs: { reader: reader(({ resources }: Settings) => resources.map((resource) => ({ ...group, resource }))) },
  async inspectForSettings({ wanted, resources }, { list }) {
    const found = (await list({ ...group, resource: "wishes" })).map(({ metadata }) => metadata?.name ?? "");
    return { settings: { wanted, resources: [...resources, ...found] }, notes: found.map((one) => `found ${one}`) };
  },
  mutate() {},
});
const catalogue = [toCatalogueRule("follower", follower)];
const registration = { name: "postern", address: () => "https://host", harden: false };
const getLocalCluster = ({ clusters }: PosternConfig) => {
  const cluster = clusters.get("local");
  assert.ok(cluster);
  return cluster;
};
const listResources = (cluster: ReturnType<typeof getLocalCluster>) =>
  buildWebhookConfigurations(catalogue, cluster, registration).flatMap(({ webhooks }) =>
    webhooks.flatMap(({ rules }) => rules.flatMap(({ resources }) => resources)),
  );
const resourceInCluster = "widgets";
const cluster: InspectedCluster = {
  list: async () => [{ apiVersion: "example.io/v1", kind: "Wish", metadata: { name: resourceInCluster } }],
};

describe("entries that depend on objects", () => {
  before(async () => {
    await mkdir(join(folder, "wishes"));
    await writeFile(
      join(folder, "wishes", "a.yaml"),
      "apiVersion: v1\nkind: pods\n---\n---\napiVersion: v1\nkind: services\n",
    );
    await writeFile(join(folder, "wishes", "b.json"), '{ "apiVersion": "v1", "kind": "nodes" }');
    await writeFile(join(folder, "one.yaml"), "apiVersion: v1\nkind: secrets\n");
    await writeFile(join(folder, "odd.yaml"), "apiVersion: v1\nkind: odd\n");
    await writeFile(join(folder, "broken.yaml"), "a: [\n");
  });
  /** Turns on the rule `follower`. For { kind: pods } in its setting `wanted`, it matches the resource pods. */
  const read = async (wanted: string) => {
    const file = join(folder, "postern.yaml");
    await writeFile(file, `rules:\n  follower:\n    settings:\n      wanted: ${wanted}\n`);
    return readConfig(file, catalogue);
  };

  it("entries that depend on objects may have the objects in a folder, in files, or in postern.yaml", async () => {
    assert.deepEqual(listResources(getLocalCluster(await read("wishes"))), ["pods", "services", "nodes"]);
    assert.deepEqual(listResources(getLocalCluster(await read("[one.yaml, { kind: jobs }]"))), ["secrets", "jobs"]);
  });

  it("the refusal of a faulty file names the file, and the line of postern.yaml that names the file", async () => {
    for (const [wanted, sentence] of [
      ["odd.yaml", /^postern\.yaml:4 rules\.follower\.settings\.wanted odd\.yaml: the kind odd is not allowed$/],
      ["[one.yaml, broken.yaml]", /^postern\.yaml:4 rules\.follower\.settings\.wanted\.1 broken\.yaml:\d+ is no YAML/],
      ["nowhere", /^postern\.yaml:4 .* there is no file, folder or match for .*nowhere$/],
      ["1", /wanted must be a list, not 1/],
    ] as const)
      await assert.rejects(read(wanted), { message: sentence });
  });

  it("entries that depend on objects have the reinvocationPolicy of the rule", async () => {
    const [entry] = buildWebhookConfigurations(
      catalogue,
      getLocalCluster(await read("one.yaml")),
      registration,
    ).flatMap((one) => one.webhooks);
    assert.equal(entry?.reinvocationPolicy, "Never");
  });

  it("entries that depend on objects don't exist if there are no objects", async () => {
    assert.deepEqual(listResources(getLocalCluster(parseConfig("rules: { follower: }", catalogue))), []);
  });

  it("entries and rights also cover the objects in the cluster that the rule reads", async () => {
    const resourceInSettings = "gadgets";
    const [withoutReads, withReads] = ["", `{ settings: { resources: [${resourceInSettings}] } }`].map((text) =>
      getLocalCluster(parseConfig(`rules: { follower: ${text} }`, catalogue)),
    );
    assert.ok(withoutReads && withReads);
    assert.deepEqual(listRulesAskingCluster(catalogue, withoutReads), []);
    const failIfCalled = () => assert.fail("the cluster is read");
    assert.equal((await inspectClusterForSettings(catalogue, withoutReads, failIfCalled)).cluster, withoutReads);
    const { cluster: found, notes } = await inspectClusterForSettings(catalogue, withReads, async () => cluster);
    assert.deepEqual(listResources(found), [resourceInSettings, resourceInCluster]);
    assert.deepEqual(listResources(withReads), [resourceInSettings]);
    assert.deepEqual(notes, [`follower: found ${resourceInCluster}`]);
    const [role] = buildFunctionRbacObjects(catalogue, found, "postern");
    assert.deepEqual(Object(role).rules, [
      { apiGroups: ["example.io"], resources: [resourceInSettings], verbs: ["get", "list"] },
      { apiGroups: ["example.io"], resources: [resourceInCluster], verbs: ["get", "list"] },
      { nonResourceURLs: ["/api/*", "/apis/*"], verbs: ["get"] },
    ]);
  });

  it("entries that depend on objects can't be in a group", () =>
    assert.throws(() => parseConfig("rules: { follower: }\ngroups: { g: [follower] }", catalogue), {
      message: /depends on objects in the cluster/,
    }));
});

describe("an inspection with the credentials of a deployment", () => {
  const pages: Record<string, unknown> = {
    "/apis/example.io/v1": { resources: [{ name: "wishes", kind: "Wish", namespaced: false, verbs: [] }] },
    "/apis/example.io/v1/wishes?limit=500": {
      apiVersion: "example.io/v1",
      kind: "WishList",
      items: [{}],
      metadata: { continue: "b" },
    },
    "/apis/example.io/v1/wishes?limit=500&continue=b": { apiVersion: "example.io/v1", kind: "WishList", items: null },
  };
  const { list, discover } = createInspectedCluster({ read: async (path) => pages[path] });

  it("an inspection with the credentials of a deployment reads lists to their end", async () =>
    assert.deepEqual(await list({ ...group, resource: "wishes" }), [{ apiVersion: "example.io/v1", kind: "Wish" }]));
  it("an inspection with the credentials of a deployment reports which kinds are served", async () => {
    assert.deepEqual(await discover("example.io/v1"), [{ resource: "wishes", kind: "Wish", namespaced: false }]);
    assert.equal(await discover("example.io/v2"), undefined);
    assert.equal(await discover("../x"), undefined);
  });
});
