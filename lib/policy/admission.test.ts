import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { evaluate } from "../cue/engine.ts";
import { createDraft } from "../patch.ts";
import { completed, refusalOf } from "./admission.ts";

const cue = (source: string) => evaluate(source);

const override = (overriders: object) => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterOverridePolicy",
  metadata: { name: "p" },
  spec: { overrideRules: [{ overriders }] },
});
const validate = (rule: object) => ({
  ...override({}),
  kind: "ClusterValidatePolicy",
  spec: { validateRules: [rule] },
});
const over = "spec.overrideRules[0].overriders";

test("it names all faults of a policy before it compiles anything", async () => {
  const wrong = override({ cue: "a: b", plaintext: [{ op: "move", path: "/a" }, { op: "add" }] });
  assert.equal(
    await refusalOf(wrong, cue),
    `${over}.plaintext[0].op must be add, replace or remove, not "move"; ${over}.plaintext[1].path is missing`,
  );
});

const scripts: [name: string, policy: unknown, refusal: RegExp | undefined][] = [
  [
    "a script that names what isn't there",
    override({ cue: "a: b" }),
    /^spec.overrideRules\[0\].overriders.cue does not compile: .*reference "b" not found/,
  ],
  [
    "a validate script that contradicts itself",
    validate({ cue: "a: 1 & 2" }),
    /^spec.validateRules\[0\].cue does not compile: /,
  ],
  ["a tool package", override({ cue: 'import "tool/exec"\npatches: []' }), /tool/],
  [
    "a rendering of its template",
    validate({
      renderedCue: "a: b",
      template: { type: "condition", condition: { cond: "Exist", dataRef: { from: "old", path: "a" } } },
    }),
    /^spec.validateRules\[0\].renderedCue does not compile: /,
  ],
];
for (const [name, policy, refusal] of scripts)
  test(`it refuses ${name}`, async () => assert.match((await refusalOf(policy, cue)) ?? "", refusal ?? /^$/));

test("it leaves alone a rendering without a template, which never runs", async () => {
  assert.equal(await refusalOf(override({ renderedCue: "a: b" }), cue), undefined);
});

test("it refuses scripts, and no renderings, where there is no CUE", async () => {
  assert.equal(
    await refusalOf(override({ cue: "patches: []" }), undefined),
    `${over}.cue is a script, and scripts are turned off here`,
  );
  const template = { type: "labels", operation: "remove", path: "a" };
  assert.equal(await refusalOf(override({ template, renderedCue: "a: b" }), undefined), undefined);
});

test("it compiles no rendering that it would make itself", async () => {
  const nobody = () => Promise.reject(new Error("somebody asked"));
  const own = override({ template, renderedCue: "override labels" });
  assert.equal(await refusalOf(own, nobody, undefined, render), undefined);
  const condition = { cond: "Exist", affectMode: "reject", dataRef: { from: "old", path: "a" } };
  const rule = { template: { type: "condition", condition }, renderedCue: "reject Exist" };
  assert.equal(await refusalOf(validate(rule), nobody, undefined, render), undefined);
  const foreign = override({ template, renderedCue: "override others" });
  assert.match((await refusalOf(foreign, nobody, undefined, render)) ?? "", /renderedCue does not compile: somebody/);
});

test("it judges no update anew that leaves the spec as it was", async () => {
  const wrong = override({ cue: "a: b" });
  assert.equal(await refusalOf({ ...wrong, metadata: { name: "p", finalizers: [] } }, cue, wrong), undefined);
  assert.notEqual(await refusalOf(wrong, cue, override({ cue: "a: c" })), undefined);
  // As one that was written while nobody judged it: without its finalizers it would never go.
  const deep = () => override({ plaintext: JSON.parse(`${"[".repeat(9900)}${"]".repeat(9900)}`) });
  assert.equal(await refusalOf({ ...deep(), metadata: { name: "p", finalizers: [] } }, cue, deep()), undefined);
  assert.equal(await refusalOf(override({}), cue, deep()), undefined);
  assert.match((await refusalOf(deep(), cue, override({}))) ?? "", /nested too deeply/);
});

const render = {
  renderedOverride: ({ type }: { type: string }) => `override ${type}`,
  renderedCondition: ({ cond, affectMode }: { cond: string; affectMode?: string }) => `${affectMode} ${cond}`,
};
const after = (policy: object, before?: object) => {
  const { value, changes } = createDraft(policy);
  completed(value, render, before);
  return changes();
};
const template = { type: "labels", operation: "remove", path: "a" };

test("it renders templates, and says of a condition what its mode is", () => {
  assert.deepEqual(after(override({ template })), [
    { op: "add", path: "/spec/overrideRules/0/overriders/renderedCue", value: "override labels" },
  ]);
  const condition = { cond: "Exist" };
  assert.deepEqual(after(validate({ renderedCue: "old", template: { type: "condition", condition } })), [
    { op: "add", path: "/spec/validateRules/0/template/condition/affectMode", value: "reject" },
    { op: "replace", path: "/spec/validateRules/0/renderedCue", value: "reject Exist" },
  ]);
});

test("it changes nothing where all is there", () => {
  assert.deepEqual(after(override({ template, renderedCue: "override labels" })), []);
  assert.deepEqual(after(override({ template }), override({ template })), []);
});

test("it removes a rendering that has no template, or none that can be rendered", () => {
  const removal = [{ op: "remove", path: "/spec/overrideRules/0/overriders/renderedCue" }];
  assert.deepEqual(after(override({ renderedCue: "a" })), removal);
  assert.deepEqual(after(override({ renderedCue: "a", template: null })), removal);
});

test("it leaves renderings out that would make a policy larger than etcd takes", async () => {
  const large = { ...render, renderedOverride: () => "x".repeat(100_000) };
  const policy = override({});
  policy.spec.overrideRules = Array.from({ length: 5 }, () => ({ overriders: { template, renderedCue: "old" } }));
  const { value, changes } = createDraft(policy);
  completed(value, large);
  assert.deepEqual(
    changes().map(({ op, path }) => `${op} ${path}`),
    [0, 1, 2, 3, 4].map((at) => `${at < 2 ? "replace" : "remove"} /spec/overrideRules/${at}/overriders/renderedCue`),
  );
});

test("it leaves whatever is no policy to be refused", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (spec) => {
      const policy = { ...override({}), spec };
      after(policy);
      after({
        ...policy,
        spec: { overrideRules: [spec, { overriders: spec }], validateRules: [spec, { template: spec }] },
      });
    }),
  );
  const nested = JSON.parse(`${"[".repeat(100_000)}${"]".repeat(100_000)}`);
  assert.deepEqual(after(override({ template: nested, renderedCue: "a" })), []);
});
