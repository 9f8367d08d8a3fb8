import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { findConfiguredRule, findServingFunction } from "./sides.ts";

const config = {
  rule: "notes",
  variants: { strict: { level: 2 } },
  clusters: {
    prod: { keyVersions: [1], mode: "enforce", settings: { level: 1, names: ["a"] } },
    test: { keyVersions: [1], mode: "warn", settings: { level: 0, names: [] }, variants: { strict: { level: 3 } } },
    off: { keyVersions: [1], mode: "off", settings: { level: 1, names: [] } },
    more: { keyVersions: [1], mode: "audit", settings: {}, variants: { strict: { level: 2, more: true }, other: {} } },
    worn: { mode: "sometimes", settings: [] },
  },
};
const buildMember = (mode: string) => ({ mode, settings: { level: 1 } });
const group = {
  rule: "all",
  alone: { notes: buildMember("enforce"), others: buildMember("enforce") },
  clusters: {
    prod: { mode: "enforce", settings: { notes: buildMember("warn"), others: buildMember("off") } },
    off: { mode: "off", settings: { notes: buildMember("off"), others: buildMember("off") } },
  },
};

describe("how a rule stands in a version", () => {
  for (const [what, given, expected] of [
    ["its mode and settings", [config, "prod"], { mode: "enforce", settings: { level: 1, names: ["a"] } }],
    ["a variant's settings", [config, "prod", "strict"], { mode: "enforce", settings: { level: 2, names: ["a"] } }],
    [
      "a variant's settings in a cluster where they are more",
      [config, "more", "strict"],
      { mode: "audit", settings: { level: 2, more: true } },
    ],
    ["a variant that only a cluster has", [config, "more", "other"], { mode: "audit", settings: {} }],
    ["that it is off", [config, "off"], { absent: "has it off in off" }],
    [
      "that there is no such cluster",
      [config, "nowhere"],
      { absent: 'has no cluster "nowhere"; it has prod, test, off, more, worn' },
    ],
    ["that there is no such variant", [config, "prod", "lax"], { absent: "has no variant lax of it" }],
    [
      "no cluster by a name that any map has",
      [config, "constructor"],
      { absent: 'has no cluster "constructor"; it has prod, test, off, more, worn' },
    ],
    [
      "no variant by a name that any map has",
      [config, "prod", "toString"],
      { absent: "has no variant toString of it" },
    ],
    [
      "that the cluster must be said",
      [config],
      { fault: "--cluster must say in which cluster it is asked: prod, test, off, more, worn" },
    ],
    ["that its settings can't be read", [config, "worn"], { fault: "its settings in worn can't be read" }],
    [
      "settings that can't be sent",
      [config, "test", "strict"],
      { fault: "the settings that variant strict has in test can't be sent" },
    ],
    [
      "the only cluster there is",
      [{ clusters: { only: { mode: "warn", settings: {} } } }],
      { mode: "warn", settings: {} },
    ],
    ["a member of a group", [group, "prod"], { mode: "warn", settings: { level: 1 } }],
    ["a member that is off with all others", [group, "off"], { absent: "has it off in off" }],
    ["nothing where it is no share", [null, "prod"], { absent: 'has no cluster "prod"; it has ' }],
  ] as [string, [unknown, string?, string?], object][])
    it(`is ${what}`, () => assert.deepEqual(findConfiguredRule(given[0], "notes", given[1], given[2]), expected));

  it("is off alone in a group, too", () =>
    assert.deepEqual(findConfiguredRule(group, "others", "prod", undefined), { absent: "has it off in prod" }));

  it("is as a member only of a group that has it, and where it mutates", () => {
    const configs = new Map<string, unknown>([
      ...["notes", "toString"].map((name) => [name, config] as const),
      ["all", group],
    ]);
    assert.deepEqual(
      (["notes", "toString", "all", "others", "gone"] as const).map((name) =>
        findServingFunction(configs, name, "mutate"),
      ),
      ["all", "toString", "all", "all", undefined],
    );
    assert.equal(findServingFunction(configs, "notes", "validate"), "notes");
  });
});
