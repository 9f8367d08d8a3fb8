import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../test/rows.ts";
import { findRuleModeAndSettings, findServingFunctionName } from "./sides.ts";

interface Row {
  name: string;
  of?: "config" | "group";
  given?: object;
  cluster?: string;
  variant?: string;
  expected: object;
}
const rows = readRows<{ config: object; group: object; found: Row[] }>(import.meta.filename);
const { config, group } = rows;

describe("the configuration of a rule in a version", () => {
  for (const { name, of, given = of && rows[of], cluster, variant, expected } of rows.found)
    it(`is ${name}`, () =>
      assert.deepEqual(findRuleModeAndSettings(given ?? null, "notes", cluster, variant), expected));

  it("is absent if only this member of its group is off", () =>
    assert.deepEqual(findRuleModeAndSettings(group, "others", "prod", undefined), { absent: "has it off in prod" }));

  it("is in the function of a group if the group has the rule and the phase is mutate", () => {
    const configs = new Map<string, unknown>([
      ...["notes", "toString"].map((name) => [name, config] as const),
      ["all", group],
    ]);
    assert.deepEqual(
      (["notes", "toString", "all", "others", "gone"] as const).map((name) =>
        findServingFunctionName(configs, name, "mutate"),
      ),
      ["all", "toString", "all", "all", undefined],
    );
    assert.equal(findServingFunctionName(configs, "notes", "validate"), "notes");
  });
});
