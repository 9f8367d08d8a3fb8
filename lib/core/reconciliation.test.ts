import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import { toMap } from "../json.ts";
import { createLambdaHandler } from "../lambda/handler.ts";
import { reconcileEvent } from "../lambda/schedule.ts";
import { createMemoryLedger, openRuleLedger } from "../ledger.ts";
import { sharedLedger } from "../needs.ts";
import { createRecordedCapabilities } from "../recording/recorded-answers.ts";
import { rule } from "../rule.ts";
import type { EndpointConfig } from "./endpoint.ts";
import { reconcileClusters } from "./reconciliation.ts";

describe("reconciling clusters", () => {
  const setup = (settings: object, mode: "enforce" | "off" = "enforce") => ({ keyVersions: [1], mode, settings });
  const config: EndpointConfig = {
    rule: "reportingCluster",
    usual: setup({ fails: false }),
    clusters: { broken: setup({ fails: true }), quiet: setup({ fails: false }, "off") },
  };
  const ledger = createMemoryLedger();
  const openCapabilities = (cluster: string) => ({
    ...createRecordedCapabilities({ cluster }),
    ledger: (name: string) => openRuleLedger(ledger, name),
  });
  const turns: string[] = [];
  const reportingCluster = rule({
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

  it("reconcileClusters calls the rule for each cluster where it is on, even after a failure", async () => {
    const reports: string[] = [];
    const clusters = ["broken", "quiet", "east", "west"];
    await reconcileClusters(
      reportingCluster,
      config,
      clusters,
      openCapabilities,
      Date.now() + 10_000,
      (cluster, result) => {
        reports.push(`${cluster}: ${typeof result === "string" ? result : result.message}`);
      },
    );
    assert.deepEqual(turns.splice(0).sort(), ["broken", "east", "west"]);
    const failure = "broken: the rule failed: Error: this cluster can't be read";
    assert.deepEqual(reports.sort(), [failure, "west: worked in west"]);
  });

  it("reconcileClusters begins with another cluster each minute, and with none at the end", async (test) => {
    const clusters = ["a", "b", "c"];
    const run = (milliseconds: number) =>
      reconcileClusters(reportingCluster, config, clusters, openCapabilities, Date.now() + milliseconds, () => {});
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

  it("an endpoint reconciles only for the event of a schedule, and takes other events for reviews", async () => {
    const readConnections = () => ({ east: { server: "https://east", credentials: { token: "t" } } });
    const reports: number[] = [];
    const host = {
      publicKeys: "",
      openCapabilities,
      writeLogLine: ({ code }: { code: number }) => void reports.push(code),
    };
    const handler = createLambdaHandler({ rules: { reportingCluster }, config, readConnections }, host);
    // The cast is safe: the handler uses no other fields of Lambda's context.
    const context = { functionName: "f", functionVersion: "1", getRemainingTimeInMillis: () => 10_000 } as Context;
    assert.deepEqual(await handler(reconcileEvent, context), {});
    assert.deepEqual([turns.splice(0), reports], [["east"], []]);
    const others = [{ body: '{"reconcile":true}' }, { reconcile: "true" }, null, [reconcileEvent]];
    for (const event of others) assert.equal(toMap(await handler(event, context)).code, 400);
    assert.deepEqual([turns, reports], [[], others.map(() => 400)]);
  });
});
