import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { createDynamoDbLedger } from "#lib/cluster/dynamodb-ledger.ts";
import { openRuleLedger } from "#lib/ledger.ts";
import type { Capabilities } from "#lib/needs.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import { createDynamoDbClient } from "../../infra/aws/dynamodb.ts";
import { openLedgerTable } from "../../infra/aws/ledger-table.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { formatQuotas, readQuotas } from "../../infra/rollout/stage/quota-status.ts";
import { openRule } from "../../infra/testing/rule-test.ts";
import { openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { openAccount } from "./account.ts";
import { createLedgerTable, startDynamoDb, useDynamoDb } from "./dynamodb.ts";

// Tests the output of `postern status` about the quotas that workload-quota keeps in the ledger of a stage.
describe("the quotas of a stage", await needs("DynamoDB Local"), () => {
  const table = "postern-test";
  let dynamoDb: Awaited<ReturnType<typeof startDynamoDb>>;
  before(async () => {
    dynamoDb = await startDynamoDb();
    useDynamoDb(dynamoDb.url);
    await createLedgerTable(dynamoDb.url, table);
  });
  after(() => dynamoDb?.stop());

  const quotas = [
    { name: "all", hard: { pods: 100, "requests.cpu": "20", "requests.memory": "1Ti" } },
    { name: "east-alone", clusters: ["east"], hard: { "count/deployments.apps": 1000 } },
    { name: "unused", clusters: ["west"], hard: { pods: 5 } },
  ];
  const buildDeployment = (name: string, replicas: number) => {
    const containers = [{ name: "c", image: "c", resources: { requests: { cpu: "500m" } } }];
    const metadata = { name, namespace: "a" };
    const spec = { replicas, template: { spec: { containers } } };
    return { apiVersion: "apps/v1", kind: "Deployment", metadata, spec };
  };
  const openCapabilities = (cluster: string, existing: object[] = []): Capabilities => ({
    ...createRecordedCapabilities({ cluster }),
    ledger: () => openRuleLedger(createDynamoDbLedger(table, Date.now() + 20_000), "workload-quota"),
    listPage: async ({ resource }) => {
      return { items: resource === "deployments" ? existing : [], version: "v1", next: "" };
    },
  });

  it("the use of quotas by cluster is read from the values that reviews and recounts wrote to the ledger", async () => {
    const { decide, reconcile } = await openRule(join(import.meta.dirname, "..", "..", "functions", "workload-quota"));
    const now = Date.parse("2026-01-01T00:00:00Z");
    const names = Array.from({ length: 150 }, (_, index) => `d${String(index).padStart(3, "0")}`);
    const existing = names.map((name) => buildDeployment(name, 0));
    const deployments = [...existing, buildDeployment("web", 8)];
    await reconcile(openCapabilities("east", deployments), { quotas }, () => now, Number.POSITIVE_INFINITY);
    const create = async (cluster: string, name: string, replicas: number) => {
      const request = {
        uid: "u",
        operation: "CREATE" as const,
        userInfo: { username: "jane" },
        namespace: "a",
        name,
        kind: { group: "apps", version: "v1", kind: "Deployment" },
        resource: { group: "apps", version: "v1", resource: "deployments" },
        object: buildDeployment(name, replicas),
      };
      const capabilities = openCapabilities(cluster);
      const { outcome } = await decide("validate", request, { settings: { quotas }, now: new Date(), capabilities });
      assert.ok(outcome.allowed, outcome.status?.message);
    };
    await create("east", "new", 3);
    await create("west", "new", 2);
    // postern.yaml doesn't name this cluster. Its reservation counts only in the totals.
    await create("removed", "old", 1);
    const yaml = JSON.stringify({
      rules: { "workload-quota": { settings: { quotas } } },
      clusters: { east: {}, west: {}, lab: { rules: { "workload-quota": { mode: "off" } } } },
    });
    const config = parseConfig(yaml, await readCatalogue());
    const identity = { accessKeyId: "account", secretAccessKey: "secret" };
    const client = createDynamoDbClient(
      async () => identity,
      async () => "eu-west-1",
      { check: async () => {} },
    );
    const ledger = openLedgerTable("test", client);
    const usage = (await readQuotas({ ledger }, config, Date.now())) ?? assert.fail();
    assert.equal(
      formatQuotas(usage),
      `
QUOTA       RESOURCE                CLUSTER  USED  RESERVED  HARD
all         pods                             8     6         100
                                    east     8     3
                                    west     0     2
all         requests.cpu                     4     3         20
                                    east     4     1500m
                                    west     0     1
all         requests.memory                  0     0         1Ti
east-alone  count/deployments.apps           151   1         1000
                                    east     151   1
unused      pods                             0     2         5
                                    west     0     2
recount of east: complete at 2026-01-01T00:00:00.000Z
recount of west: never complete
`,
    );
    assert.deepEqual(usage.quotas[2], {
      quota: "unused",
      hard: { pods: "5" },
      used: {},
      reserved: { pods: "2" },
      clusters: { west: { used: {}, reserved: { pods: "2" } } },
    });
    assert.equal(await readQuotas({ ledger }, parseConfig("rules: {}", []), 0), undefined);
  });
});

describe("the status of a stage with quotas", await needs("moto", "runtime client"), () => {
  it("status shows the used amounts of quotas, or says that the ledger can't be read", async () => {
    const [account, checkout] = await Promise.all([openAccount("eu-west-1"), openCheckout(["workload-quota"])]);
    try {
      account.clusters.set("shop", { server: "https://127.0.0.1:9", ca: account.ca });
      await checkout.write("ca.pem", account.ca);
      const rules = "{ workload-quota: { settings: { quotas: [{ name: team-a, hard: { requests.cpu: 200 } }] } } }";
      const shop = "{ connect: { eks: shop, region: eu-west-1 } }";
      await checkout.write("postern.yaml", `rules: ${rules}\nclusters: { east: ${shop}, west: ${shop} }\n`);
      const run = (...words: string[]) => checkout.postern(account.env, ...words, "--stage", "test");
      const deployed = await run("deploy", "--ca", join(checkout.folder, "ca.pem"), "--write", "entries");
      assert.equal(deployed.code, 0, deployed.stderr);
      const web = { used: { "requests.cpu": "120" }, phase: "seen", at: 1, version: "v1" };
      // As reviews and a recount store them: a quota's sum (120 of `web`, 6 reserved), part 8 with `web`, a recount.
      const values = {
        "quota/team-a": { used: { "requests.cpu": "126" } },
        "part/team-a/8/east": { objects: { "apps/deployments/a/web": web } },
        "recount/east": { completed: Date.parse("2026-11-24T04:10:00Z"), last: { faults: ["pods: not today"] } },
      };
      for (const [key, value] of Object.entries(values)) {
        const Item = { key: { S: `workload-quota//${key}` }, version: { S: "1" }, value: { S: JSON.stringify(value) } };
        assert.equal((await account.callTable("tester", "PutItem", { TableName: "postern-test", Item })).status, 200);
      }
      const lines = [
        "QUOTA   RESOURCE      CLUSTER  USED  RESERVED  HARD",
        "team-a  requests.cpu           120   6         200",
        "                      east     120   0",
        "recount of east: complete at 2026-11-24T04:10:00.000Z; pods: not today",
        "recount of west: never complete",
      ];
      assert.ok((await run("status")).stdout.includes(`\n\n${lines.join("\n")}\n\n`));
      const { quotas, recounts } = JSON.parse((await run("status", "-o", "json")).stdout);
      assert.deepEqual(
        [quotas[0].used, quotas[0].reserved, recounts[1]],
        [{ "requests.cpu": "120" }, { "requests.cpu": "6" }, { cluster: "west", completed: null, faults: [] }],
      );
      account.allow = ({ action }) => action !== "dynamodb:BatchGetItem";
      const { code, stderr } = await run("status");
      assert.equal(code, 3);
      assert.match(stderr, /^the quotas can't be read: .*not authorized to perform: dynamodb:BatchGetItem/m);
    } finally {
      await account.stop();
      await checkout.remove();
    }
  });
});
