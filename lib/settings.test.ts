import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../test/rows.ts";
import { freezeDeep } from "./json.ts";
import { findSettingsMistakes, findVariantSettings, mergeWithDefaults } from "./settings.ts";

const rows = readRows<{ name: string; settings: unknown; found: [string, string][] }[]>(import.meta.filename);

const defaults = {
  seconds: 300,
  ratio: 0.5,
  on: false,
  name: "",
  images: ["a"],
  any: [] as unknown[],
  open: {},
  deep: { level: "low", further: { wait: 1 } },
  optional: null,
};

describe("mergeWithDefaults", () => {
  const table: [name: string, settings: unknown, merged: object][] = [
    ["returns the defaults for undefined", undefined, defaults],
    ["returns the defaults for a value that is not a map", [1], defaults],
    ["overrides one member", { seconds: 1 }, { ...defaults, seconds: 1 }],
    [
      "overrides inside a map",
      { deep: { further: { wait: 2 } } },
      { ...defaults, deep: { level: "low", further: { wait: 2 } } },
    ],
    ["replaces whole lists", { images: [] }, { ...defaults, images: [] }],
    ["fills open maps", { open: { a: { b: 1 } } }, { ...defaults, open: { a: { b: 1 } } }],
    ["sets a member whose default is null", { optional: { a: 1 } }, { ...defaults, optional: { a: 1 } }],
    ["sets a member with the key constructor", { constructor: { a: 1 } }, { ...defaults, constructor: { a: 1 } }],
  ];
  for (const [name, settings, merged] of table)
    it(name, () => assert.deepEqual(mergeWithDefaults(defaults, settings), merged));

  it("mergeWithDefaults keeps __proto__ as a key, which sets no prototype", () => {
    const merged = mergeWithDefaults({ open: {} }, JSON.parse('{"open":{"__proto__":{"a":1}},"__proto__":{"b":2}}'));
    assert.equal(JSON.stringify(merged), '{"open":{"__proto__":{"a":1}},"__proto__":{"b":2}}');
    assert.deepEqual([Reflect.get(merged, "b"), Object.getPrototypeOf(merged) === Object.prototype], [undefined, true]);
  });

  const maps = fc.dictionary(fc.string(), fc.jsonValue());
  it("mergeWithDefaults changes no argument, and returns the members of both maps", () => {
    fc.assert(
      fc.property(maps, maps, (left, right) => {
        const before = JSON.stringify([left, right]);
        const merged = mergeWithDefaults(left, right);
        assert.equal(JSON.stringify([left, right]), before);
        assert.deepEqual(new Set(Object.keys(merged)), new Set([...Object.keys(left), ...Object.keys(right)]));
        assert.deepEqual(mergeWithDefaults(merged, right), merged);
      }),
    );
  });
});

describe("findSettingsMistakes", () => {
  for (const { name, settings, found } of rows)
    it(`finds ${name}`, () =>
      assert.deepEqual(
        findSettingsMistakes({ settings: defaults }, settings).map(({ path, sentence }) => [path.join("."), sentence]),
        found,
      ));

  it("findSettingsMistakes checks list elements, and map values of any key, against examples in `elements`", () => {
    const rule = {
      settings: { names: [], labels: { "cost-center": "unknown" }, quotas: [], any: {} },
      elements: { names: "", labels: "", quotas: { hard: {}, on: true }, "quotas.*.hard": 1 },
    };
    const findMistakes = (settings: object) =>
      findSettingsMistakes(rule, settings).map(({ path, sentence }) => `${path.join(".")} ${sentence}`);
    assert.deepEqual(
      findMistakes({ names: ["a"], labels: { team: "a" }, quotas: [{ hard: { cpu: 2 } }], any: { a: [] } }),
      [],
    );
    assert.deepEqual(
      findMistakes({
        names: [1],
        labels: { team: 2, ["__proto__"]: 3 },
        quotas: [{ hard: { cpu: "2" }, off: true }, 5],
      }),
      [
        "names.0 must be a text, not 1",
        "labels.team must be a text, not 2",
        "labels.__proto__ must be a text, not 3",
        'quotas.0.hard.cpu must be a number, not "2"',
        "quotas.0.off is unknown; one of hard, on is expected",
        "quotas.1 must be a map, not 5",
      ],
    );
  });

  it("findSettingsMistakes reports that a rule has no settings", () =>
    assert.deepEqual(findSettingsMistakes({}, { a: 1 }), [
      { path: ["a"], sentence: "is unknown; there are no settings here" },
    ]));

  it("findSettingsMistakes finds nothing in settings of the same shape as the defaults", () => {
    const similarSettings = fc.record(
      {
        seconds: fc.integer(),
        on: fc.boolean(),
        name: fc.string(),
        images: fc.array(fc.string()),
        any: fc.array(fc.jsonValue()),
        open: fc.dictionary(fc.string(), fc.jsonValue()),
        optional: fc.jsonValue(),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(similarSettings, (settings) => findSettingsMistakes({ settings: defaults }, settings).length === 0),
    );
  });

  it("merged settings keep the shape of the defaults if findSettingsMistakes finds no mistake", () => {
    const anySettings = fc.dictionary(fc.constantFrom(...Object.keys(defaults), "other"), fc.jsonValue());
    fc.assert(
      fc.property(anySettings, (settings) => {
        if (findSettingsMistakes({ settings: defaults }, settings).length > 0) return;
        assert.deepEqual(findSettingsMistakes({ settings: defaults }, mergeWithDefaults(defaults, settings)), []);
        assert.deepEqual(Object.keys(mergeWithDefaults(defaults, settings)), Object.keys(defaults));
      }),
      { numRuns: 1000 },
    );
  });
});

describe("freezeDeep", () => {
  it("freezeDeep freezes all of a value that nests deeply", () => {
    const deep = JSON.parse(`{"a":[${"[".repeat(9900)}{"b":1}${"]".repeat(9900)}]}`);
    assert.equal(freezeDeep(deep), deep);
    let inner: unknown = deep.a;
    for (; Array.isArray(inner); [inner] = inner) assert.ok(Object.isFrozen(inner));
    assert.ok(Object.isFrozen(inner) && Object.isFrozen(deep));
  });
  it("freezeDeep freezes long lists, and returns primitive values", () => {
    const longList = Array.from({ length: 300_000 }, () => ({}));
    assert.ok(freezeDeep(longList).every(Object.isFrozen));
    for (const value of [undefined, null, 1, "a"]) assert.equal(freezeDeep(value), value);
  });
});

describe("findVariantSettings", () => {
  const ruleConfig = { variants: { strict: { limit: 2, deep: { a: 1 } } } };
  const settings = { limit: 1, deep: { a: 0, b: 0 }, list: [{}] };

  it("findVariantSettings applies the rule's variant, or the cluster's variant if the cluster has variants", () => {
    const variantSettings = { limit: 2, deep: { a: 1, b: 0 }, list: [{}] };
    for (const clusterWithoutVariants of [undefined, {}])
      assert.deepEqual(findVariantSettings(ruleConfig, clusterWithoutVariants, "strict", settings), variantSettings);
    const clusterWithVariants = { variants: { strict: {} } };
    assert.deepEqual(findVariantSettings(ruleConfig, clusterWithVariants, "strict", settings), settings);
  });
  it("findVariantSettings returns nothing for a variant that the cluster doesn't have", () => {
    for (const name of [undefined, "loose", "toString"])
      assert.equal(findVariantSettings(ruleConfig, undefined, name, settings), undefined);
    assert.equal(findVariantSettings(ruleConfig, { variants: {} }, "strict", settings), undefined);
  });
  it("findVariantSettings returns the same frozen object for the same settings, and another for their copy", () => {
    const variantSettings = findVariantSettings(ruleConfig, undefined, "strict", settings);
    assert.ok(Object.isFrozen(variantSettings) && Object.isFrozen(settings.list[0]));
    assert.equal(findVariantSettings(ruleConfig, {}, "strict", settings), variantSettings);
    assert.notEqual(findVariantSettings(ruleConfig, undefined, "strict", { ...settings }), variantSettings);
  });
});
