import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import type { EndpointConfig } from "./endpoint.ts";
import { createMemoryLedger, openRuleLedger } from "./ledger.ts";
import { sharedLedger } from "./needs.ts";
import { createReconcileHandler, reconcileClusters, reconcileEvent } from "./reconcile.ts";
import { createRecordedCapabilities } from "./recorded-answers.ts";
import { rule } from "./rule.ts";

describe("reconciling clusters", () => {
  const setup = (settings: object, mode: "enforce" | "off" = "enforce") => ({ keyVersions: [1], mode, settings });
  const config: EndpointConfig = {
    rule: "telling",
    usual: setup({ fails: false }),
    clusters: { broken: setup({ fails: true }), quiet: setup({ fails: false }, "off") },
  };
  const ledger = createMemoryLedger();
  const openCapabilities = (cluster: string) => ({
    ...createRecordedCapabilities({ cluster }),
    ledger: (name: string) => openRuleLedger(ledger, name),
  });
  const turns: string[] = [];
  const telling = rule({
    summary: "Tells in which cluster it works.",
    match: [],
    settings: { fails: false },
    needs: { ledger: sharedLedger() },
    validate: () => {},
    reconcile: async ({ ledger: { cluster }, settings, readTime, until }) => {
      turns.push(cluster);
      assert.ok(readTime() < until);
      if (settings.fails) throw new Error("this cluster can't be read");
      return cluster === "east" ? undefined : `worked in ${cluster}`;
    },
  });

  it("calls the rule once for each cluster where it is on, also after a failure, and reports", async () => {
    const reports: string[] = [];
    const clusters = ["broken", "quiet", "east", "west"];
    await reconcileClusters(telling, config, clusters, openCapabilities, Date.now() + 10_000, (cluster, result) => {
      reports.push(`${cluster}: ${typeof result === "string" ? result : result.message}`);
    });
    assert.deepEqual(turns.splice(0).sort(), ["broken", "east", "west"]);
    const failure = "broken: the rule failed: Error: this cluster can't be read";
    assert.deepEqual(reports.sort(), [failure, "west: worked in west"]);
  });

  it("begins with another cluster each minute, and begins nothing in the last quarter of its time", async (test) => {
    const clusters = ["a", "b", "c"];
    const run = (milliseconds: number) =>
      reconcileClusters(telling, config, clusters, openCapabilities, Date.now() + milliseconds, () => {});
    for (const [now, expected] of [
      [0, "abc"],
      [60_000, "bca"],
      [120_000, "cab"],
    ] as const) {
      test.mock.timers.enable({ apis: ["Date"], now });
      await run(10_000);
      test.mock.timers.reset();
      assert.equal(turns.splice(0).join(""), expected);
    }
    await run(0);
    assert.deepEqual(turns, []);
  });

  it("leaves all events but a schedule's to the handler of reviews", async () => {
    const handled: unknown[] = [];
    const handle = async (event: unknown) => handled.push(event);
    const context = { functionName: "f", functionVersion: "1", getRemainingTimeInMillis: () => 10_000 };
    const handler = createReconcileHandler(telling, config, openCapabilities, () => ({ east: {} }), handle);
    // The cast is safe: the handler uses no other fields of Lambda's context.
    const call = (event: unknown) => handler(event, context as Context);
    assert.deepEqual(await call(reconcileEvent), {});
    assert.deepEqual([turns.splice(0), handled], [["east"], []]);
    const others = [{ body: '{"reconcile":true}' }, { reconcile: "true" }, null, [reconcileEvent]];
    for (const event of others) await call(event);
    assert.deepEqual([turns, handled], [[], others]);
  });
});
