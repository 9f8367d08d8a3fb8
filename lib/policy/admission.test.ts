import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createDraft } from "../core/patch.ts";
import { evaluateCue } from "../cue/engine.ts";
import { completePolicy, findPolicyRefusal } from "./admission.ts";
import { renderConditionAsCue } from "./rendered-cue/conditions.ts";
import { renderTemplateAsCue } from "./rendered-cue/templates.ts";
import type { OverrideTemplate, PolicyCondition } from "./types.ts";

const buildOverridePolicy = (overriders: object) => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterOverridePolicy",
  metadata: { name: "p" },
  spec: { overrideRules: [{ overriders }] },
});
const buildValidatePolicy = (rule: object) => ({
  ...buildOverridePolicy({}),
  kind: "ClusterValidatePolicy",
  spec: { validateRules: [rule] },
});
const template: OverrideTemplate = { type: "labels", operation: "remove", path: "a" };
const condition: PolicyCondition = { cond: "Exist", affectMode: "reject", dataRef: { from: "old", path: "a" } };
const nestDeeply = () => buildOverridePolicy({ plaintext: JSON.parse(`${"[".repeat(9900)}${"]".repeat(9900)}`) });
const overridersField = "spec.overrideRules[0].overriders";

test("it names all faults of a policy before it compiles anything", async () => {
  const wrong = buildOverridePolicy({ cue: "a: b", plaintext: [{ op: "move", path: "/a" }, { op: "add" }] });
  assert.equal(
    await findPolicyRefusal(wrong, evaluateCue),
    `${overridersField}.plaintext[0].op must be add, replace or remove, not "move"; ${overridersField}.plaintext[1].path is missing`,
  );
});

const scripts: [name: string, policy: unknown, refusal: RegExp | undefined][] = [
  [
    "a script that names a missing field",
    buildOverridePolicy({ cue: "a: b" }),
    /^spec.overrideRules\[0\].overriders.cue does not compile: .*reference "b" not found/,
  ],
  [
    "a validate script that contradicts itself",
    buildValidatePolicy({ cue: "a: 1 & 2" }),
    /^spec.validateRules\[0\].cue does not compile: /,
  ],
  ["a tool package", buildOverridePolicy({ cue: 'import "tool/exec"\npatches: []' }), /tool/],
  [
    "a rendering of its template",
    buildValidatePolicy({
      renderedCue: "a: b",
      template: { type: "condition", condition: { cond: "Exist", dataRef: { from: "old", path: "a" } } },
    }),
    /^spec.validateRules\[0\].renderedCue does not compile: /,
  ],
];
for (const [name, policy, refusal] of scripts)
  test(`it refuses ${name}`, async () =>
    assert.match((await findPolicyRefusal(policy, evaluateCue)) ?? "", refusal ?? /^$/));

test("it accepts any rendering without a template, which never runs", async () => {
  assert.equal(await findPolicyRefusal(buildOverridePolicy({ renderedCue: "a: b" }), evaluateCue), undefined);
});

test("it refuses scripts if there is no CUE, but accepts renderings", async () => {
  assert.equal(
    await findPolicyRefusal(buildOverridePolicy({ cue: "patches: []" }), undefined),
    `${overridersField}.cue is a script, and scripts are turned off here`,
  );
  assert.equal(await findPolicyRefusal(buildOverridePolicy({ template, renderedCue: "a: b" }), undefined), undefined);
});

test("it does not compile a rendering that equals its own rendering of the template", async () => {
  const rejectAll = () => Promise.reject(new Error("somebody asked"));
  const overridePolicy = buildOverridePolicy({ template, renderedCue: renderTemplateAsCue(template) });
  assert.equal(await findPolicyRefusal(overridePolicy, rejectAll), undefined);
  const rule = { template: { type: "condition", condition }, renderedCue: renderConditionAsCue(condition) };
  assert.equal(await findPolicyRefusal(buildValidatePolicy(rule), rejectAll), undefined);
  const foreign = buildOverridePolicy({ template, renderedCue: "patches: []" });
  assert.match((await findPolicyRefusal(foreign, rejectAll)) ?? "", /renderedCue does not compile: somebody/);
});

test("it refuses a policy that is nested too deeply", async () => {
  assert.match((await findPolicyRefusal(nestDeeply(), evaluateCue)) ?? "", /nested too deeply/);
});

const findChanges = (policy: object, before?: object) => {
  const { value, changes } = createDraft(policy);
  completePolicy(value, before);
  return changes();
};

test("it renders templates and sets the affectMode of conditions", () => {
  assert.deepEqual(findChanges(buildOverridePolicy({ template })), [
    { op: "add", path: "/spec/overrideRules/0/overriders/renderedCue", value: renderTemplateAsCue(template) },
  ]);
  const { affectMode: _, ...open } = condition;
  assert.deepEqual(
    findChanges(buildValidatePolicy({ renderedCue: "old", template: { type: "condition", condition: open } })),
    [
      { op: "add", path: "/spec/validateRules/0/template/condition/affectMode", value: "reject" },
      { op: "replace", path: "/spec/validateRules/0/renderedCue", value: renderConditionAsCue(condition) },
    ],
  );
});

test("it does not change a complete policy", () => {
  assert.deepEqual(findChanges(buildOverridePolicy({ template, renderedCue: renderTemplateAsCue(template) })), []);
  assert.deepEqual(findChanges(buildOverridePolicy({ template }), buildOverridePolicy({ template })), []);
});

test("it removes a rendering without a template or with one that can't be rendered", () => {
  const removal = [{ op: "remove", path: "/spec/overrideRules/0/overriders/renderedCue" }];
  assert.deepEqual(findChanges(buildOverridePolicy({ renderedCue: "a" })), removal);
  assert.deepEqual(findChanges(buildOverridePolicy({ renderedCue: "a", template: null })), removal);
});

test("it omits renderings that would make a policy too large for etcd", async () => {
  const large = { type: "labels", operation: "add", path: "a", value: { string: "x".repeat(100_000) } };
  const policy = buildOverridePolicy({});
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

test("it does not fail for any JSON", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (spec) => {
      const policy = { ...buildOverridePolicy({}), spec };
      findChanges(policy);
      findChanges({
        ...policy,
        spec: { overrideRules: [spec, { overriders: spec }], validateRules: [spec, { template: spec }] },
      });
    }),
  );
  const nested = JSON.parse(`${"[".repeat(100_000)}${"]".repeat(100_000)}`);
  assert.deepEqual(findChanges(buildOverridePolicy({ template: nested, renderedCue: "a" })), []);
});
