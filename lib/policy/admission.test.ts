import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { evaluate } from "../cue/engine.ts";
import { createDraft } from "../patch.ts";
import { completePolicy, findPolicyRefusal } from "./admission.ts";
import { renderCondition } from "./rendered-cue/conditions.ts";
import { renderTemplate } from "./rendered-cue/templates.ts";
import type { OverrideTemplate, PolicyCondition } from "./types.ts";

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
const template: OverrideTemplate = { type: "labels", operation: "remove", path: "a" };
const condition: PolicyCondition = { cond: "Exist", affectMode: "reject", dataRef: { from: "old", path: "a" } };
const deep = () => override({ plaintext: JSON.parse(`${"[".repeat(9900)}${"]".repeat(9900)}`) });
const over = "spec.overrideRules[0].overriders";

test("it names all faults of a policy before it compiles anything", async () => {
  const wrong = override({ cue: "a: b", plaintext: [{ op: "move", path: "/a" }, { op: "add" }] });
  assert.equal(
    await findPolicyRefusal(wrong, cue),
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
  test(`it refuses ${name}`, async () => assert.match((await findPolicyRefusal(policy, cue)) ?? "", refusal ?? /^$/));

test("it leaves alone a rendering without a template, which never runs", async () => {
  assert.equal(await findPolicyRefusal(override({ renderedCue: "a: b" }), cue), undefined);
});

test("it refuses scripts, and no renderings, where there is no CUE", async () => {
  assert.equal(
    await findPolicyRefusal(override({ cue: "patches: []" }), undefined),
    `${over}.cue is a script, and scripts are turned off here`,
  );
  assert.equal(await findPolicyRefusal(override({ template, renderedCue: "a: b" }), undefined), undefined);
});

test("it compiles no rendering that it would make itself", async () => {
  const nobody = () => Promise.reject(new Error("somebody asked"));
  const own = override({ template, renderedCue: renderTemplate(template) });
  assert.equal(await findPolicyRefusal(own, nobody), undefined);
  const rule = { template: { type: "condition", condition }, renderedCue: renderCondition(condition) };
  assert.equal(await findPolicyRefusal(validate(rule), nobody), undefined);
  const foreign = override({ template, renderedCue: "patches: []" });
  assert.match((await findPolicyRefusal(foreign, nobody)) ?? "", /renderedCue does not compile: somebody/);
});

test("it refuses a policy that is nested too deeply", async () => {
  assert.match((await findPolicyRefusal(deep(), cue)) ?? "", /nested too deeply/);
});

const after = (policy: object, before?: object) => {
  const { value, changes } = createDraft(policy);
  completePolicy(value, before);
  return changes();
};

test("it renders templates, and says of a condition what its mode is", () => {
  assert.deepEqual(after(override({ template })), [
    { op: "add", path: "/spec/overrideRules/0/overriders/renderedCue", value: renderTemplate(template) },
  ]);
  const { affectMode: _, ...open } = condition;
  assert.deepEqual(after(validate({ renderedCue: "old", template: { type: "condition", condition: open } })), [
    { op: "add", path: "/spec/validateRules/0/template/condition/affectMode", value: "reject" },
    { op: "replace", path: "/spec/validateRules/0/renderedCue", value: renderCondition(condition) },
  ]);
});

test("it changes nothing where all is there", () => {
  assert.deepEqual(after(override({ template, renderedCue: renderTemplate(template) })), []);
  assert.deepEqual(after(override({ template }), override({ template })), []);
});

test("it removes a rendering that has no template, or none that can be rendered", () => {
  const removal = [{ op: "remove", path: "/spec/overrideRules/0/overriders/renderedCue" }];
  assert.deepEqual(after(override({ renderedCue: "a" })), removal);
  assert.deepEqual(after(override({ renderedCue: "a", template: null })), removal);
});

test("it leaves renderings out that would make a policy larger than etcd takes", async () => {
  const large = { type: "labels", operation: "add", path: "a", value: { string: "x".repeat(100_000) } };
  const policy = override({});
  policy.spec.overrideRules = Array.from({ length: 5 }, () => ({
    overriders: { template: large, renderedCue: "old" },
  }));
  const { value, changes } = createDraft(policy);
  completePolicy(value);
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
