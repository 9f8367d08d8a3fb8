import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../test/rows.ts";
import type { StageFunctions, WarmVersion } from "../../aws/lambda-functions.ts";
import type { RuleChangePlan } from "../plan/plan.ts";
import type { Release } from "./releases.ts";
import { describeColdVersion, planWarmEnvironments, startAndAwaitWarm } from "./warm.ts";

interface Row {
  name: string;
  wanted?: number; // the number of warm environments in postern.yaml
  live?: string; // the live version, if the rule has a function
  /** What a new version of the rule changes. If nothing, the live version stays. */
  versionChanges?: string[];
  existing?: WarmVersion[]; // what Lambda has
  /** True if the newest release records that the rule may have warm environments. */
  recorded?: boolean;
  isOff?: boolean;
  expectedPlan: string[];
}
const rows = readRows<Row[]>(import.meta.filename);

/** Creates functions that only list warm environments: each call returns the next list, and at the end the last one. */
const createFunctions = (...lists: WarmVersion[][]) => {
  const requests: string[] = [];
  const refuseCall = () => assert.fail("only warm environments are read and requested");
  const functions = new Proxy({} as StageFunctions, {
    get: (_, method) => {
      if (method === "listWarmVersions") return async () => (lists.length > 1 ? lists.shift() : lists[0]);
      if (method === "requestWarmEnvironments")
        return async (rule: string, version: string, count: number) => {
          requests.push(`${count} of version ${version} of ${rule}`);
        };
      return refuseCall;
    },
  });
  return { functions, requests };
};

describe("the plan of a rule's warm environments", () => {
  for (const { name, wanted, live, versionChanges = [], existing = [], recorded, isOff, expectedPlan } of rows)
    it(name, async () => {
      // The plan reads only these parts of a rule.
      const change = {
        part: { name: "a", ...(wanted !== undefined && { warm: wanted }) },
        known: live === undefined ? undefined : { ruleVersion: { version: live } },
        changes: versionChanges,
      } as RuleChangePlan;
      const newest = { warm: recorded ? ["a"] : [] } as Partial<Release> as Release;
      const [plan] = await planWarmEnvironments(createFunctions(existing).functions, isOff ? [] : [change], newest);
      assert.deepEqual(plan?.changes ?? [], expectedPlan);
    });
});

describe("warm environments", () => {
  const buildWarm = (status: WarmVersion["status"], count = 2): WarmVersion[] => [{ version: "5", count, status }];
  const waitFor = (functions: StageFunctions, requireMayContinue = async () => {}, maxMilliseconds?: number) =>
    startAndAwaitWarm(functions, { rule: "a", version: "5", wanted: 2 }, requireMayContinue, maxMilliseconds);

  it("warm environments are requested once, and awaited", async () => {
    const { functions, requests } = createFunctions([], buildWarm("IN_PROGRESS"), buildWarm("READY"));
    await waitFor(functions);
    assert.deepEqual(requests, ["2 of version 5 of a"]);
  });

  it("warm environments are not requested again if an earlier deployment has requested them", async () => {
    const { functions, requests } = createFunctions(buildWarm("IN_PROGRESS"), buildWarm("READY"));
    await waitFor(functions);
    assert.deepEqual(requests, []);
  });

  it("warm environments are requested again if their number differs or they have failed before", async () => {
    for (const before of [buildWarm("READY", 1), buildWarm("FAILED")]) {
      const { functions, requests } = createFunctions(before, buildWarm("READY"));
      await waitFor(functions);
      assert.deepEqual(requests, ["2 of version 5 of a"]);
    }
  });

  it("startAndAwaitWarm reports why Lambda can't start warm environments", async () => {
    const failed = [{ version: "5", count: 2, status: "FAILED" as const, reason: "FUNCTION_ERROR_INIT_FAILURE" }];
    await assert.rejects(
      waitFor(createFunctions([], failed).functions),
      /^Error: nothing was moved, because Lambda could not start 2 warm environments of version 5 of a: FUNCTION_ERROR_INIT_FAILURE$/,
    );
  });

  it("startAndAwaitWarm waits only for a time, and not after an interrupt", async () => {
    const { functions } = createFunctions(buildWarm("IN_PROGRESS"));
    await assert.rejects(waitFor(functions, undefined, 0), /has not started 2 warm environments of version 5 of a/);
    const interrupt = () => Promise.reject(new Error("interrupted"));
    await assert.rejects(waitFor(functions, interrupt), /^Error: interrupted$/);
  });

  it("a version without warm environments is reported if another version has some", async () => {
    const { functions } = createFunctions(buildWarm("READY"));
    const sentence = "version 4 of a has no warm environments, so its first reviews take longer";
    assert.equal(await describeColdVersion(functions, "a", "4"), sentence);
    assert.equal(await describeColdVersion(functions, "a", "5"), undefined);
    assert.equal(await describeColdVersion(createFunctions([]).functions, "a", "4"), undefined);
  });
});
