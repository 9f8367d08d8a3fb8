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

test("findPolicyRefusal names all faults of a policy before it compiles anything", async () => {
  const wrong = buildOverridePolicy({ cue: "a: b", plaintext: [{ op: "move", path: "/a" }, { op: "add" }] });
  assert.equal(
    await findPolicyRefusal(wrong, evaluateCue),
    `${overridersField}.plaintext[0].op must be add, replace or remove, not "move"; ${overridersField}.plaintext[1].path is missing`,
  );
});

const refusedScripts: [name: string, policy: unknown, refusal: RegExp][] = [
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
  ["a script that imports a tool package", buildOverridePolicy({ cue: 'import "tool/exec"\npatches: []' }), /tool/],
  [
    "a renderedCue that does not compile, also beside a template",
    buildValidatePolicy({
      renderedCue: "a: b",
      template: { type: "condition", condition: { cond: "Exist", dataRef: { from: "old", path: "a" } } },
    }),
    /^spec.validateRules\[0\].renderedCue does not compile: /,
  ],
];
for (const [name, policy, refusal] of refusedScripts)
  test(`findPolicyRefusal refuses ${name}`, async () =>
    assert.match((await findPolicyRefusal(policy, evaluateCue)) ?? "", refusal));

test("findPolicyRefusal accepts any renderedCue without a template, because this renderedCue never runs", async () => {
  assert.equal(await findPolicyRefusal(buildOverridePolicy({ renderedCue: "a: b" }), evaluateCue), undefined);
});

test("findPolicyRefusal refuses a script if scripts are turned off, but accepts a renderedCue", async () => {
  assert.equal(
    await findPolicyRefusal(buildOverridePolicy({ cue: "patches: []" }), undefined),
    `${overridersField}.cue is a script, and scripts are turned off here`,
  );
  assert.equal(await findPolicyRefusal(buildOverridePolicy({ template, renderedCue: "a: b" }), undefined), undefined);
});

test("findPolicyRefusal compiles a renderedCue only if it differs from the rendering of its template", async () => {
  const failingCue = () => Promise.reject(new Error("the compiler was called"));
  const overridePolicy = buildOverridePolicy({ template, renderedCue: renderTemplateAsCue(template) });
  assert.equal(await findPolicyRefusal(overridePolicy, failingCue), undefined);
  const rule = { template: { type: "condition", condition }, renderedCue: renderConditionAsCue(condition) };
  assert.equal(await findPolicyRefusal(buildValidatePolicy(rule), failingCue), undefined);
  const otherRendering = buildOverridePolicy({ template, renderedCue: "patches: []" });
  assert.match(
    (await findPolicyRefusal(otherRendering, failingCue)) ?? "",
    /does not compile: the compiler was called/,
  );
});

test("findPolicyRefusal refuses a policy that is nested too deeply", async () => {
  assert.match((await findPolicyRefusal(nestDeeply(), evaluateCue)) ?? "", /nested too deeply/);
});

/** Returns how the admission changes a policy whose author left out fields; in an update, `oldPolicy` is replaced. */
const findChanges = (policy: object, oldPolicy?: object) => {
  const { value, changes } = createDraft(policy);
  completePolicy(value, oldPolicy);
  return changes();
};

test("completePolicy renders templates, and sets the affectMode of conditions", () => {
  assert.deepEqual(findChanges(buildOverridePolicy({ template })), [
    { op: "add", path: "/spec/overrideRules/0/overriders/renderedCue", value: renderTemplateAsCue(template) },
  ]);
  const { affectMode: _, ...conditionWithoutMode } = condition;
  assert.deepEqual(
    findChanges(
      buildValidatePolicy({ renderedCue: "old", template: { type: "condition", condition: conditionWithoutMode } }),
    ),
    [
      { op: "add", path: "/spec/validateRules/0/template/condition/affectMode", value: "reject" },
      { op: "replace", path: "/spec/validateRules/0/renderedCue", value: renderConditionAsCue(condition) },
    ],
  );
});

test("completePolicy leaves a complete policy as it is, and an incomplete one in an update with the same spec", () => {
  assert.deepEqual(findChanges(buildOverridePolicy({ template, renderedCue: renderTemplateAsCue(template) })), []);
  const before = buildOverridePolicy({ template });
  assert.deepEqual(findChanges(buildOverridePolicy({ template }), before), []);
});

test("completePolicy removes a renderedCue if there is no template, or a template that can't be rendered", () => {
  const removal = [{ op: "remove", path: "/spec/overrideRules/0/overriders/renderedCue" }];
  assert.deepEqual(findChanges(buildOverridePolicy({ renderedCue: "a" })), removal);
  assert.deepEqual(findChanges(buildOverridePolicy({ renderedCue: "a", template: null })), removal);
});

test("completePolicy omits renderings that would make a policy too large for etcd", async () => {
  const large = { type: "labels", operation: "add", path: "a", value: { string: "x".repeat(100_000) } };
  const policy = buildOverridePolicy({});
  policy.spec.overrideRules = Array.from({ length: 5 }, () => ({
    overriders: { template: large, renderedCue: "old" },
  }));
  const { value, changes } = createDraft(policy);
  completePolicy(value);
  // The limit is 256 KiB: two renderings of 100,000 characters fit, and three don't.
  assert.deepEqual(
    changes().map(({ op, path }) => `${op} ${path}`),
    [0, 1, 2, 3, 4].map((at) => `${at < 2 ? "replace" : "remove"} /spec/overrideRules/${at}/overriders/renderedCue`),
  );
});

test("completePolicy completes a policy without an error, whatever JSON the policy contains", () => {
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
  // Nothing of a policy that is nested too deeply is completed, so not even this outdated renderedCue is deleted.
  assert.deepEqual(findChanges(buildOverridePolicy({ template: nested, renderedCue: "outdated" })), []);
});
