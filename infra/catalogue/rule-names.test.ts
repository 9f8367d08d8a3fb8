import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { findClosest } from "../cli/did-you-mean.ts";
import { readCatalogue } from "./registry.ts";
import {
  buildFunctionName,
  findRuleByNameOrPlugin,
  findRuleOfLogicalId,
  resolveRuleNames,
  toLogicalId,
} from "./rule-names.ts";

const catalogue = await readCatalogue();
const rules = catalogue.map(({ name }) => name);

describe("a rule's name", () => {
  it("a rule's name is the name of its folder, or of its upstream plugin", () => {
    for (const { name, rule } of catalogue) {
      assert.equal(findRuleByNameOrPlugin(name, rules), name);
      if (rule.upstreamPlugin) assert.equal(findRuleByNameOrPlugin(rule.upstreamPlugin.plugin, rules), name);
    }
    for (const plugin of ["SecurityContextDeny", "PodSecurityPolicy", "InitialResources", "PersistentVolumeLabel"])
      assert.ok(findRuleByNameOrPlugin(plugin, rules), plugin);
  });
  it("a rule's name is not accepted in another spelling", () => {
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

  it("a misspelt name is refused in one sentence, with the closest name if there is one", () => {
    assert.throws(() => resolveRuleNames(["nope"], rules), /^\S*: ?there is no rule "nope"; postern rules lists them$/);
    const near = /there is no rule "limit-rangr"; did you mean limit-ranger\? postern rules lists them$/;
    assert.throws(() => resolveRuleNames(["limit-ranger", "limit-rangr"], rules), near);
  });
});

describe("the name of a function", () => {
  it("the name of a function has the stage and the rule's whole name, if it then has at most 64 characters", () => {
    assert.equal(buildFunctionName("prod", "limit-ranger"), "postern-prod-limit-ranger");
    assert.equal(buildFunctionName("a".repeat(13), "b".repeat(42)), `postern-${"a".repeat(13)}-${"b".repeat(42)}`);
  });
  it("a shortened function name ends in six digits of the hash of the rule's name, in every stage", () => {
    const rule = "owner-references-permission-enforcement";
    assert.equal(
      buildFunctionName("production-eu-central", rule),
      "postern-production-eu-central-owner-references-permission-ecf198",
    );
    assert.match(buildFunctionName("production-us-central", rule), /-owner-references-permission-ecf198$/);
    assert.match(
      buildFunctionName("production-eu-central", "limit-pod-hard-anti-affinity-topology"),
      /[a-z]-[0-9a-f]{6}$/,
    );
  });
  it("the name of a function has at most 64 characters, and differs between rules", () => {
    const stages = fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/);
    const names = fc.stringMatching(/^[a-z][a-z0-9-]{0,40}[a-z0-9]$/);
    fc.assert(
      fc.property(stages, fc.uniqueArray(names, { maxLength: 40 }), (stage, rules) => {
        const all = rules.map((rule) => buildFunctionName(stage, rule));
        for (const name of all) assert.match(name, new RegExp(`^postern-${stage}-[a-z0-9-]*[a-z0-9]$`));
        for (const name of all) assert.ok(name.length <= 64, name);
        assert.equal(new Set(all).size, rules.length);
      }),
    );
  });
  it("the name of a function differs between rules that begin alike", () => {
    const rules = Array.from({ length: 500 }, (_, index) => `limit-something-or-other-in-a-way-${index}`);
    const all = rules.map((rule) => buildFunctionName("production-eu-central", rule));
    assert.deepEqual([new Set(all).size, new Set(all.map((name) => name.length)).size], [500, 1]);
  });
});

describe("the logical id of a rule's function", () => {
  it("the logical id of a rule's function can be converted back to the name of the rule", () => {
    for (const rule of [...rules, "a", "a-b", "dash", "dash-x", "x-dash-1", "lambda-function"])
      assert.equal(findRuleOfLogicalId(`${toLogicalId(rule)}LambdaFunction`, "LambdaFunction"), rule);
  });
  it("the ids of other resources belong to no rule", () => {
    for (const id of ["LambdaFunction", "Bucket", "ABRole", "ABLambdaFunction", "aLambdaFunction", ""])
      assert.equal(findRuleOfLogicalId(id, "LambdaFunction"), undefined, id);
  });
});
