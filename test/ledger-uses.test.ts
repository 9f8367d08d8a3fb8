import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { type Ledger, openRuleLedger } from "#lib/ledger.ts";
import type { Capabilities, LedgerReach } from "#lib/needs.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { getFunctionsFolder } from "../infra/catalogue/sources.ts";
import { ledgerUses } from "../infra/rollout/plan/cost.ts";
import { createRecordedCapabilities, openRule } from "../infra/testing/rule-test.ts";

// test/aws/quota-rates.test.ts counts the units of the rule workload-quota, on DynamoDB Local.

/** Returns capabilities with a ledger that counts its reads and writes in the units that DynamoDB would charge. */
const countUnits = (capabilities: Capabilities) => {
  const units = { read: 0, write: 0 };
  const { change } = capabilities.ledger("any");
  const counting: Ledger = {
    change: (keys, makeValues, seconds) => {
      assert.equal(keys.length, 1);
      const count: typeof makeValues = (kept) => {
        const values = makeValues(kept);
        units.read++;
        if (values[0] !== kept[0]) units.write++;
        return values;
      };
      return change(keys, count, seconds);
    },
  };
  // A ledger in the memory of a process costs nothing, so its reads and writes aren't counted.
  const inProcess = openRuleLedger({ change }, "process");
  const ledger = (_: string, reach?: LedgerReach) => (reach === "process" ? inProcess : counting);
  return { capabilities: { ...capabilities, ledger }, units };
};

const pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "a", namespace: "shop", uid: "u1", labels: { "deletion-guard.postern.dev/cleans-up": "" } },
  spec: { nodeName: "n", containers: [] },
  status: { phase: "Running", podIP: "127.0.0.1" },
};
const deletion: AdmissionRequest = {
  uid: "review",
  kind: { group: "", version: "v1", kind: "Pod" },
  resource: { group: "", version: "v1", resource: "pods" },
  name: "a",
  namespace: "shop",
  operation: "DELETE",
  userInfo: { username: "jane" },
  oldObject: pod,
};
const event: AdmissionRequest = {
  uid: "review",
  kind: { group: "", version: "v1", kind: "Event" },
  resource: { group: "", version: "v1", resource: "events" },
  namespace: "shop",
  operation: "CREATE",
  userInfo: { username: "jane" },
  object: { metadata: { name: "a" } },
};
const objects = [pod, { apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } }];

describe("the cost estimate assumes as many units of the ledger as two successive reviews use", () => {
  const table: [rule: string, AdmissionRequest, settings: object][] = [
    ["deletion-guard", deletion, { cleanUp: "http://{ip}/{name}", addresses: ["127.0.0.1"] }],
    ["event-rate-limit", event, { limits: [{ type: "Server", qps: 1, burst: 1 }] }],
  ];
  for (const [rule, request, settings] of table)
    it(`two successive reviews use the ledger's units that the cost estimate assumes: ${rule}`, async () => {
      const { decide } = await openRule(join(getFunctionsFolder(), rule));
      const { capabilities, units } = countUnits({
        ...createRecordedCapabilities({ objects }),
        http: async () => ({ status: 202, body: "" }),
      });
      const used: { read: number; write: number }[] = [];
      for (let review = 0; review < 2; review++) {
        Object.assign(units, { read: 0, write: 0 });
        await decide("validate", request, { settings, now: new Date(1_800_000_000_000), capabilities });
        used.push({ ...units });
      }
      assert.deepEqual(
        used,
        ledgerUses[rule]?.map(({ read, write }) => ({ read, write })),
      );
    });
});
