import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { findClosest } from "../cli/did-you-mean.ts";
import { readCatalogue } from "./registry.ts";
import { findRuleByNameOrPlugin, resolveRuleNames } from "./rule-names.ts";

const catalogue = await readCatalogue();
const rules = catalogue.map(({ name }) => name);

describe("a rule's name", () => {
  it("is the name of its folder, or of its upstream plugin", () => {
    for (const { name, rule } of catalogue) {
      assert.equal(findRuleByNameOrPlugin(name, rules), name);
      if (rule.upstreamPlugin) assert.equal(findRuleByNameOrPlugin(rule.upstreamPlugin.plugin, rules), name);
    }
    for (const plugin of ["SecurityContextDeny", "PodSecurityPolicy", "InitialResources", "PersistentVolumeLabel"])
      assert.ok(findRuleByNameOrPlugin(plugin, rules), plugin);
  });
  it("is not accepted in another spelling", () => {
    for (const given of ["alwayspullimages", "Always-Pull-Images", "always-pull-image", "always", ""])
      assert.equal(findRuleByNameOrPlugin(given, rules), undefined, given);
  });
});

describe("a misspelt name", () => {
  const cases: [given: string, known: string[], meant: string | undefined][] = [
    ["chekc", ["check", "bench"], "check"],
    ["prot", ["host", "port", "watch"], "port"],
    ["manifest", ["manifests", "new"], "manifests"],
    ["nope", ["new", "test"], undefined],
    ["list", ["test", "rules"], undefined],
    ["AlwaysPullImage", rules, "always-pull-images"],
    ["limit-rangers", rules, "limit-ranger"],
    ["pod-secruity", rules, "pod-security"],
    ["", rules, undefined],
  ];
  for (const [given, known, meant] of cases)
    it(`${JSON.stringify(given)} ${meant ? `means ${meant}` : "has no similar name"}`, () => {
      assert.equal(findClosest(given, known), meant);
    });

  it("is refused in one sentence, with the closest name if there is one", () => {
    assert.throws(() => resolveRuleNames(["nope"], rules), /^\S*: ?there is no rule "nope"; postern rules lists them$/);
    const near = /there is no rule "limit-rangr"; did you mean limit-ranger\? postern rules lists them$/;
    assert.throws(() => resolveRuleNames(["limit-ranger", "limit-rangr"], rules), near);
  });
});
