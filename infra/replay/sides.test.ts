import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { buildPodReview } from "../../test/requests.ts";
import { readRows } from "../../test/rows.ts";
import { createReplaySideOfVersion, findRuleModeAndSettings, findServingFunctionName } from "./sides.ts";

interface Row {
  name: string;
  /** The name of the function's configuration in the YAML file. Without it, `ownConfig` is the configuration. */
  configName?: "config" | "group";
  ownConfig?: object;
  cluster?: string;
  variant?: string;
  expected: object;
}
const rows = readRows<{ config: object; group: object; found: Row[] }>(import.meta.filename);
const { config, group } = rows;

describe("the configuration of a rule in a version", () => {
  for (const { name, configName, ownConfig = null, cluster, variant, expected } of rows.found)
    it(`is ${name}`, () => {
      const functionConfig = configName === undefined ? ownConfig : rows[configName];
      assert.deepEqual(findRuleModeAndSettings(functionConfig, "notes", cluster, variant), expected);
    });

  it("the configuration of a rule is absent if only this member of its group is off", () =>
    assert.deepEqual(findRuleModeAndSettings(group, "others", "prod", undefined), { absent: "has it off in prod" }));

  it("findServingFunctionName finds the function of a rule's group only for the phase mutate", () => {
    const configs = new Map<string, unknown>([
      ...["notes", "toString"].map((name) => [name, config] as const),
      ["all", group],
    ]);
    const names = ["notes", "toString", "all", "others", "gone"];
    const found = names.map((name) => [name, findServingFunctionName(configs, name, "mutate")]);
    // The group `all` has the members notes and others. toString is no member, though each object inherits this name.
    const expected = { notes: "all", toString: "toString", all: "all", others: "all", gone: undefined };
    assert.deepEqual(Object.fromEntries(found), expected);
    assert.equal(findServingFunctionName(configs, "notes", "validate"), "notes");
  });
});

describe("a replay on a version with an exception", () => {
  const exceptions = [{ namespaces: ["legacy"], until: "2027-01-31", owner: "o", reason: "r" }];
  const config = {
    rule: "notes",
    usual: { keyVersions: [1], mode: "enforce", settings: {}, exceptions },
    clusters: {},
  };
  const side = createReplaySideOfVersion({
    name: "new",
    find: async () => ({ name: "notes", config }),
    invoke: async () => ({ fault: "it was asked" }),
  });
  const answer = (now: string, useRecordedSettings = false) => {
    const entry = { name: "n", validate: {}, refused: "the rule refuses it", code: 422, warnings: ["w"], now };
    const { request } = buildPodReview({ namespace: "legacy" });
    return side.answer({
      entry,
      rule: "notes",
      cluster: undefined,
      review: { version: "v1", request },
      useRecordedSettings,
    });
  };
  it("a replay admits what the exception covered at the time of the recording", async () =>
    assert.deepEqual(await answer("2027-01-31T23:59:59Z"), {
      made: { verdict: "allowed", warnings: [], audit: { exception: "until 2027-01-31 (o): r" } },
      mode: "enforce",
    }));
  it("a replay evaluates the rule if the recording is from after the end of the exception", async () =>
    assert.deepEqual(await answer("2027-02-01T00:00:00Z"), { fault: "it was asked" }));
  it("a replay evaluates the rule despite the exception if it uses the recorded settings", async () =>
    assert.deepEqual(await answer("2027-01-31T00:00:00Z", true), { fault: "it was asked" }));
});
