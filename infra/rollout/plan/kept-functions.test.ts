import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readRows } from "../../../test/rows.ts";
import type { StackTemplate } from "../../aws/stack.ts";
import { compareStacks, copyRuleResources, isUnchanged, listRoleRights, listStackRules } from "./kept-functions.ts";

/** The logical ids that osls and serverless.yml give to rules, by the rules' names. */
const ids: Record<string, string> = {
  a: "A",
  "a-b": "ADashb",
  "a-b-c": "ADashbDashc",
  ab: "Ab",
  a1: "A1",
  dash: "Dash",
};
const rules = Object.keys(ids);
type Resources = StackTemplate["Resources"];

/** `mark` makes the resources differ from those with another mark. */
const buildRuleResources = (rule: string, mark = ""): Resources => {
  const id = ids[rule];
  return {
    [`${id}LambdaFunction`]: {
      Type: "AWS::Lambda::Function",
      Properties: { FunctionName: `postern-test-${rule}`, Handler: `index.handler${mark}` },
    },
    [`${id}LogGroup`]: { Type: "AWS::Logs::LogGroup", Properties: { LogGroupName: `/aws/lambda/${rule}${mark}` } },
    [`${id}Role`]: { Type: "AWS::IAM::Role", Properties: {} },
    [`${id}Alias`]: { Type: "AWS::Lambda::Alias", Properties: { Name: "live" } },
  };
};
const buildTemplate = (
  names: string[],
  { mark = "", resources = {} }: { mark?: string; resources?: Resources } = {},
): StackTemplate => ({
  Resources: {
    HttpApi: { Type: "AWS::ApiGatewayV2::Api", Properties: { Name: "postern-test" } },
    ...Object.assign({}, ...names.map((rule) => buildRuleResources(rule, mark))),
    ...resources,
  },
  Outputs: {
    BaseUrl: { Value: "https://api" },
    ...Object.fromEntries(names.map((rule) => [`${ids[rule]}RoleArn`, { Value: `role of ${rule}${mark}` }])),
  },
});

const rows = readRows<{ name: string; statement: object; rights: string[] }[]>(import.meta.filename);

describe("the change of a stack", () => {
  const before = buildTemplate(["a", "a-b"]);
  const changeFunction = (properties: object): StackTemplate =>
    buildTemplate(["a", "a-b"], {
      resources: {
        ALambdaFunction: {
          Type: "AWS::Lambda::Function",
          Properties: { FunctionName: "postern-test-a", Handler: "index.handler", ...properties },
        },
      },
    });

  it("compareStacks reports a new stack if there was none", () => {
    const { isNew, added, changed, removed } = compareStacks(undefined, buildTemplate(["a"]));
    assert.deepEqual([isNew, changed, removed], [true, [], []]);
    const resourcesOfRule = ["ALambdaFunction", "ALogGroup", "ARole", "AAlias"];
    assert.deepEqual(added, ["HttpApi", ...resourcesOfRule, "output BaseUrl", "output ARoleArn"]);
    assert.equal(isUnchanged(compareStacks(undefined, { Resources: {} })), false);
  });

  it("compareStacks finds no change if only the order of resources differs", () => {
    const reordered = Object.fromEntries(Object.entries(before.Resources).reverse());
    const change = compareStacks(before, { ...before, Resources: reordered });
    assert.deepEqual(change, { isNew: false, added: [], changed: [], removed: [] });
    assert.equal(isUnchanged(change), true);
  });

  it("compareStacks ignores changes of the code, environment, description and sizing of a function", () => {
    const ignored = {
      Code: { S3Key: "a.zip" },
      Environment: { Variables: { A: "b" } },
      Description: "other",
      MemorySize: 1024,
      Timeout: 30,
    };
    for (const [name, value] of Object.entries(ignored))
      assert.equal(isUnchanged(compareStacks(before, changeFunction({ [name]: value }))), true, name);
    for (const [name, value] of Object.entries({ Runtime: "nodejs26.x", Role: "other", Handler: "other" }))
      assert.deepEqual(compareStacks(before, changeFunction({ [name]: value })).changed, ["ALambdaFunction"], name);
  });

  it("compareStacks compares the description of a resource that is no function, such as an alarm", () => {
    const describeAlarm = (Description: string) =>
      buildTemplate([], { resources: { Alarm: { Type: "AWS::CloudWatch::Alarm", Properties: { Description } } } });
    assert.deepEqual(compareStacks(describeAlarm("a"), describeAlarm("b")).changed, ["Alarm"]);
  });

  it("compareStacks lists the resources and outputs that are added, changed and removed", () => {
    const after = buildTemplate(["a-b", "ab"]);
    after.Resources.ADashbRole = { Type: "AWS::IAM::Role", Properties: { Policies: [] } };
    after.Outputs = { ...after.Outputs, BaseUrl: { Value: "https://other" } };
    const change = compareStacks(before, after);
    assert.deepEqual(change, {
      isNew: false,
      added: ["AbLambdaFunction", "AbLogGroup", "AbRole", "AbAlias", "output AbRoleArn"],
      changed: ["ADashbRole", "output BaseUrl"],
      removed: ["ALambdaFunction", "ALogGroup", "ARole", "AAlias", "output ARoleArn"],
    });
    assert.equal(isUnchanged(change), false);
  });

  it("isUnchanged is false if the stack is new or if one of the lists isn't empty", () => {
    const same = { isNew: false, added: [], changed: [], removed: [] };
    for (const one of [{ isNew: true }, { added: ["a"] }, { changed: ["a"] }, { removed: ["a"] }])
      assert.equal(isUnchanged({ ...same, ...one }), false, JSON.stringify(one));
  });
});

describe("the rules of a stack", () => {
  it("the rules of a stack are those that have a function with the stage's name", () => {
    assert.deepEqual(listStackRules(buildTemplate(rules), "test"), rules);
    assert.deepEqual(listStackRules(buildTemplate(rules), "other"), []);
    assert.deepEqual(listStackRules(undefined, "test"), []);
  });

  it("the rules of a stack have their full names even if the names of the functions are shortened", () => {
    const Environment = { Variables: { POSTERN_RULE: "a-b" } };
    const shortened = {
      Type: "AWS::Lambda::Function",
      Properties: { FunctionName: "postern-test-a-1a2b3c", Environment },
    };
    assert.deepEqual(listStackRules({ Resources: { ADashbLambdaFunction: shortened } }, "test"), ["a-b"]);
  });
});

describe("the resources kept for rules that are off", () => {
  const old = buildTemplate(rules, { mark: " as it was" });
  const pickRuleResources = (rule: string, { Resources, Outputs }: StackTemplate) =>
    [...Object.keys(buildRuleResources(rule)), `${ids[rule]}RoleArn`].map((id) => Resources[id] ?? Outputs?.[id]);

  for (const rule of rules)
    it(`are all those of ${rule}, and none of another rule`, () => {
      const fresh = buildTemplate(rules.filter((one) => one !== rule));
      const copied = copyRuleResources(fresh, old, [rule]);
      assert.deepEqual(pickRuleResources(rule, copied), pickRuleResources(rule, old));
      for (const other of rules.filter((one) => one !== rule))
        assert.deepEqual(pickRuleResources(other, copied), pickRuleResources(other, fresh));
      assert.deepEqual(copied.Resources.HttpApi, fresh.Resources.HttpApi);
      assert.deepEqual(Object.keys(copied.Resources).sort(), Object.keys(old.Resources).sort());
      assert.deepEqual(Object.keys(copied.Outputs ?? {}).sort(), Object.keys(old.Outputs ?? {}).sort());
    });

  it("no resources are kept without a deployed stack or without rules that are off", () => {
    const fresh = buildTemplate(["a"]);
    assert.deepEqual(copyRuleResources(fresh, undefined, ["a-b"]), fresh);
    assert.deepEqual(copyRuleResources(fresh, old, []), fresh);
  });

  it("copyRuleResources changes neither of the two templates", () => {
    const [fresh, copy] = [buildTemplate(["a"]), buildTemplate(["a"])];
    copyRuleResources(fresh, old, ["a-b"]);
    assert.deepEqual([fresh, old], [copy, buildTemplate(rules, { mark: " as it was" })]);
  });
});

describe("the rights of a stack", () => {
  const buildRole = (...Statement: object[]): Resources[string] => ({
    Type: "AWS::IAM::Role",
    Properties: { Policies: [{ PolicyName: "one", PolicyDocument: { Statement } }] },
  });
  for (const { name, statement, rights } of rows)
    it(`are ${name}`, () => assert.deepEqual(listRoleRights({ Resources: { ARole: buildRole(statement) } }), rights));

  it("the rights of a stack are those of all its roles, and none without roles", () => {
    const Resources = {
      ARole: buildRole({ Action: "a:A", Resource: "*" }, { Action: "a:B", Resource: "*" }),
      BRole: buildRole({ Action: "b:A", Resource: "*" }),
      Plain: { Type: "AWS::IAM::Role" },
      Bucket: { Type: "AWS::S3::Bucket", Properties: { Policies: "none of a role" } },
    };
    assert.deepEqual(listRoleRights({ Resources }), ["ARole: a:A on *", "ARole: a:B on *", "BRole: b:A on *"]);
    assert.deepEqual(listRoleRights(undefined), []);
  });
});
