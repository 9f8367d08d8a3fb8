import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EndpointConfig } from "#lib/core/endpoint.ts";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../../test/catalogue-rules.ts";
import { readRows } from "../../../test/rows.ts";
import type { LambdaStackSettings } from "../../aws/function-updates.ts";
import type { StageIdentity } from "../../aws/identity.ts";
import { toStackSettings } from "../../aws/lambda-functions.ts";
import type { StageMetricsReader } from "../../aws/metrics.ts";
import type { StackTemplate } from "../../aws/stack.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import { type ClusterPlan, describeChangesSinceRelease } from "../clusters/cluster-plan.ts";
import type { FunctionState } from "../clusters/disarm.ts";
import type { PackagedRule } from "../versions/package.ts";
import type { Release } from "../versions/releases.ts";
import { estimateStageCosts, type MonthlyCost, type RuleCost, type StageCosts } from "./cost.ts";
import { compareRights, findOffRulesToKeep, planStack } from "./kept-functions.ts";
import { changesNothing, type DeploymentPlan, planRuleChanges, type RuleChangePlan } from "./plan.ts";
import { formatPlan, toPlanData } from "./plan-report.ts";

const pods = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE" as const] };
const denyingRule = rule({ summary: "Says no.", match: [pods], validate: () => "no" });
const environment = { POSTERN_KEYS: "key", POSTERN_STAGE: "test", POSTERN_CLUSTERS: "hash" };
const codeAndSettings = {
  codeSha256: "sha",
  environment,
  memorySize: 256,
  timeout: 10,
  stackSettings: toStackSettings({ LoggingConfig: { LogGroup: "/logs", LogFormat: "JSON" } }),
};

interface RuleRow {
  name: string;
  /** The hash of the rule's code in the package, if it differs from the one that the release records. */
  logic?: string;
  /** The rule's config in the cluster `local`, if it differs from the one that the release records. */
  config?: { settings: object; mode?: "warn" };
  wanted?: Partial<PackagedRule["wanted"]>;
  stackSettings?: Partial<LambdaStackSettings>;
  isNew?: boolean;
  state?: Partial<FunctionState>;
  changes: string[]; // the kinds of the planned changes, such as "code" or "settings"
  settings?: string[]; // the planned changes of settings, such as "local.settings.minimum: nothing → 2"
}
interface ReleaseRow {
  id: number;
  rules: string[];
  entries?: Record<string, string[]>; // by cluster, the rules (or `variant.RULE`) that webhook entries call
}
interface ClusterRow {
  name: string;
  /**
   * The release to compare with. The release "withoutCluster" has no record of the cluster, and "withoutSigner" doesn't
   * record which key signed the cluster's URLs.
   */
  release?: "none" | "withoutCluster" | "withoutSigner" | "newest";
  entries?: object[];
  hasRole?: boolean;
  hasRelay?: boolean;
  keyVersion?: number;
  signer?: string;
  differences: string[];
}
interface PlanRow {
  rule: string;
  changes: string[];
  settings: string[];
  live: string | null;
  disarmedUntil: string | null;
}
const rows = readRows<{
  rules: RuleRow[];
  settings: { name: string; before: object; after: object; differences: string[] }[];
  kept: { name: string; releases: ReleaseRow[]; kept: string[] }[]; // the rules that are off, but keep a function
  clusters: ClusterRow[];
  // What `-o json` prints of a plan. `ledgerMonth`: what the ledger cost in the last thirty days, in dollars.
  plan: Omit<DeploymentPlan, "template" | "parts" | "identity"> &
    StageIdentity & { rules: PlanRow[]; costs: RuleCost[]; months: MonthlyCost[]; ledgerMonth: number };
  planText: string;
  textWithoutChanges: string;
}>(import.meta.filename);

const buildClusterConfig = (settings: object, mode: "enforce" | "warn" = "enforce") => ({
  keyVersions: [1],
  mode,
  settings,
});

const buildPackagedRule = (name: string, overrides: Partial<PackagedRule> = {}): PackagedRule => ({
  name,
  listed: toCatalogueRule(name, denyingRule),
  readsCluster: false,
  runsScripts: false,
  logic: "hash of the code",
  wanted: { ...codeAndSettings, zip: new Uint8Array(), description: `code of ${name}` },
  config: { rule: name, clusters: { local: buildClusterConfig({}) } },
  ...overrides,
});

const modified = new Date("2026-01-01T00:00:00Z");
const buildState = (name: string, overrides: Partial<FunctionState> = {}, version = "1"): FunctionState => {
  const lambdaVersion = { ...codeAndSettings, version, description: "", modified };
  const live = { version, weights: {}, revision: "r" };
  return {
    rule: name,
    version,
    weights: {},
    modified,
    live,
    versions: [lambdaVersion],
    latest: lambdaVersion,
    ruleVersion: lambdaVersion,
    ...overrides,
  };
};

/** Builds a release with one version of each rule in `rules`, and no earlier versions. */
const buildRelease = (id: number, rules: Record<string, string>, overrides: Partial<Release> = {}): Release => ({
  id,
  at: modified.toISOString(),
  by: "team",
  complete: true,
  clusters: {},
  rules: Object.fromEntries(
    Object.entries(rules).map(([name, version]) => {
      const { logic, config } = buildPackagedRule(name);
      // Stored releases call the rule config `share`.
      return [name, { version, logic, share: config, phases: ["validate" as const], earlier: [] }];
    }),
  ),
  ...overrides,
});
/** Replaces the config of rule a in a release. Stored releases call it `share`. */
const setConfigOfA = ({ rules: { a } }: Release, config: EndpointConfig) => {
  assert.ok(a);
  a.share = config;
};
/** Returns the record of a cluster that has entries for the named rules. */
const buildClusterRecord = (...names: string[]) => {
  const manifest: DeployedObject = {
    apiVersion: "v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: "postern" },
    webhooks: names.map((name) => ({ name: `${name}.postern.dev` })),
  };
  return { at: modified.toISOString(), keyVersion: 1, hardened: [], since: {}, manifests: [manifest] };
};

describe("the plan of a rule", () => {
  const name = "a";
  const released = [buildRelease(1, { a: "1" })];
  const planRule = (part: PackagedRule, known: FunctionState | undefined, all = released) => {
    const [plan, ...more] = planRuleChanges([part], new Map(known ? [[name, known]] : []), all, ["local"]);
    assert.ok(plan && more.length === 0);
    assert.deepEqual([plan.part, plan.known], [part, known]);
    return { changes: plan.changes, settings: plan.settings };
  };
  const buildConfig = (settings: object, mode?: "warn"): Partial<PackagedRule> => ({
    config: { rule: name, clusters: { local: buildClusterConfig(settings, mode) } },
  });
  for (const {
    name: plan,
    logic = "hash of the code",
    config,
    wanted,
    stackSettings,
    isNew,
    state = {},
    changes,
    settings = [],
  } of rows.rules)
    it(`is ${plan}`, () => {
      const part = buildPackagedRule(name, { logic, ...(config && buildConfig(config.settings, config.mode)) });
      const { disarmed } = state;
      const until = new Date(disarmed?.until ?? 0);
      const known = buildState(name, { ...state, ...(disarmed && { disarmed: { ...disarmed, until } }) });
      const allStackSettings = { ...codeAndSettings.stackSettings, ...stackSettings };
      const wantedFunction = { ...part.wanted, ...wanted, stackSettings: allStackSettings };
      assert.deepEqual(planRule({ ...part, wanted: wantedFunction }, isNew ? undefined : known), { changes, settings });
    });

  it("a function's version must be tested if nothing differs, but no release has this version", () => {
    for (const all of [[], [buildRelease(1, { b: "1" })], [buildRelease(2, { a: "2" })]])
      assert.deepEqual(planRule(buildPackagedRule(name), buildState(name), all).changes, ["not tested yet"]);
    assert.deepEqual(
      planRule(buildPackagedRule(name), buildState(name), [buildRelease(2, { a: "2" }), ...released]).changes,
      [],
    );
  });

  it("settings are compared with the release of the function's version, not with the newest release", () => {
    const older = buildRelease(1, { a: "1" });
    const newer = buildRelease(2, { a: "2" });
    setConfigOfA(newer, { rule: name, clusters: { local: buildClusterConfig({ minimum: 9 }) } });
    const part = buildPackagedRule(name, buildConfig({ minimum: 2 }));
    part.wanted.codeSha256 = "other"; // The bundle contains the settings.
    assert.deepEqual(planRule(part, buildState(name), [newer, older]).settings, [
      "local.settings.minimum: nothing → 2",
    ]);
    assert.deepEqual(planRule(part, buildState(name, {}, "2"), [newer, older]).settings, [
      "local.settings.minimum: 9 → 2",
    ]);
  });

  it("planRuleChanges returns a plan for each rule, in the order of the rules", () => {
    const states = new Map([["b", buildState("b")]]);
    const plans = planRuleChanges(
      ["c", "b", "a"].map((one) => buildPackagedRule(one)),
      states,
      [buildRelease(1, { b: "1" })],
      ["local"],
    );
    assert.deepEqual(
      plans.map(({ part, changes }) => [part.name, changes]),
      [
        ["c", ["new"]],
        ["b", []],
        ["a", ["new"]],
      ],
    );
  });
});

describe("the settings that differ", () => {
  const listDifferences = (before: object, after: object): string[] => {
    const release = buildRelease(1, { a: "1" });
    setConfigOfA(release, { rule: "a", clusters: { "prod-eu": buildClusterConfig(before) } });
    const part = buildPackagedRule("a", { config: { rule: "a", clusters: { "prod-eu": buildClusterConfig(after) } } });
    return planRuleChanges([part], new Map([["a", buildState("a")]]), [release], ["prod-eu"])[0]?.settings ?? [];
  };
  it("the settings that differ include the setting `logs`", () => {
    const release = buildRelease(1, { a: "1" });
    const config = { rule: "a", clusters: { "prod-eu": buildClusterConfig({}) } };
    setConfigOfA(release, config);
    const part = buildPackagedRule("a", { config: { ...config, logs: "minimal" } });
    const [change] = planRuleChanges([part], new Map([["a", buildState("a")]]), [release], ["prod-eu"]);
    assert.deepEqual(change?.settings, ['logs: nothing → "minimal"']);
  });
  for (const { name, before, after, differences } of rows.settings)
    it(`are listed with their paths: ${name}`, () =>
      assert.deepEqual(
        listDifferences(before, after),
        differences.map((difference) => `prod-eu.settings.${difference}`),
      ));

  it("the settings that differ include a cluster that is added or removed", () => {
    const release = buildRelease(1, { a: "1" });
    setConfigOfA(release, { rule: "a", clusters: { local: buildClusterConfig({}) } });
    const part = buildPackagedRule("a", { config: { rule: "a", clusters: { other: buildClusterConfig({}) } } });
    const [plan] = planRuleChanges([part], new Map([["a", buildState("a")]]), [release], ["other"]);
    const text = JSON.stringify(buildClusterConfig({}));
    assert.deepEqual(plan?.settings, [`local: ${text} → nothing`, `other: nothing → ${text}`]);
  });
});

describe("the changed settings of many clusters", () => {
  const setup = buildClusterConfig({ minimum: 1 });
  const listChanges = (before: EndpointConfig, after: EndpointConfig, inPosternYaml = ["a", "b", "c", "d"]) => {
    const release = buildRelease(1, { a: "1" });
    setConfigOfA(release, before);
    const part = buildPackagedRule("a", { config: after });
    return planRuleChanges([part], new Map([["a", buildState("a")]]), [release], inPosternYaml)[0]?.settings;
  };
  const old = { rule: "a", clusters: Object.fromEntries(["a", "b", "c", "d"].map((name) => [name, setup])) };

  it("settings that each cluster had, and that `usual` now gives to all clusters, are no change", () =>
    assert.deepEqual(listChanges(old, { rule: "a", usual: setup, clusters: {} }), []));
  it("a setting that changes in many clusters is one line, with the names of at most three clusters", () => {
    const usual = buildClusterConfig({ minimum: 2 });
    assert.deepEqual(listChanges(old, { rule: "a", usual, clusters: {} }), ["a, b, 2 others.settings.minimum: 1 → 2"]);
    const after = { rule: "a", usual, clusters: { d: setup } };
    assert.deepEqual(listChanges(old, after), ["a, b, c.settings.minimum: 1 → 2"]);
  });
  it("the changed settings of many clusters name the clusters that functions will refuse after the deployment", () => {
    const refused = { ...setup, keyVersions: [] }; // functions accept no key of the cluster d, which left postern.yaml
    const after = { rule: "a", usual: setup, clusters: { d: refused } };
    assert.deepEqual(listChanges(old, after, ["a", "b", "c"]), ["d.keyVersions: [1] → []"]);
  });
});

/** The start of the logical ids of each rule's resources, as the packager osls (a Serverless Framework) writes it. */
const idStart: Record<string, string> = { constructor: "Constructor", a: "A", "a-b": "ADashb", ab: "Ab", b: "B" };
const buildTemplate = (...rules: string[]): StackTemplate => ({
  Resources: {
    HttpApi: { Type: "AWS::ApiGatewayV2::Api" },
    ...Object.fromEntries(
      rules.flatMap((name) => [
        [
          `${idStart[name]}LambdaFunction`,
          { Type: "AWS::Lambda::Function", Properties: { FunctionName: `postern-test-${name}` } },
        ],
        [`${idStart[name]}Role`, { Type: "AWS::IAM::Role" }],
      ]),
    ),
  },
  Outputs: {},
});
const listRulesWithFunctions = ({ Resources }: StackTemplate) =>
  Object.values(Resources)
    .filter(({ Type }) => Type === "AWS::Lambda::Function")
    .map(({ Properties }) => String(Properties?.FunctionName).replace("postern-test-", ""));

describe("a rule that was turned off", () => {
  const parts = [buildPackagedRule("a-b")];
  const deployed = buildTemplate("a", "a-b", "ab");
  const findKept = (all: Release[], template: StackTemplate | undefined = deployed) =>
    findOffRulesToKeep("test", template, parts, all);

  for (const { name, releases, kept } of rows.kept)
    it(name, () => {
      const all = releases.map(({ id, rules, entries = {} }) => {
        const clusters = Object.entries(entries).map(([cluster, names]) => [cluster, buildClusterRecord(...names)]);
        return buildRelease(id, Object.fromEntries(rules.map((rule) => [rule, "1"])), {
          clusters: Object.fromEntries(clusters),
        });
      });
      assert.deepEqual(findKept(all), kept);
    });

  it("a rule that was turned off may be named `constructor`, like a member of every object", () =>
    assert.deepEqual(findKept([buildRelease(1, {})], buildTemplate("constructor")), []));

  it("a rule that was turned off keeps its function only in the stack that has this function", () => {
    const all = [buildRelease(1, { a: "1", b: "1", "a-b": "1" })];
    // The stack of the stage "test" has functions of a, a-b and ab. Only a-b is still on, and ab isn't in the release.
    assert.deepEqual(findKept(all), ["a"]);
    assert.deepEqual(findOffRulesToKeep("test", undefined, parts, all), []);
    assert.deepEqual(findOffRulesToKeep("other", deployed, parts, all), []);
  });

  describe("in a stack that had the rules a and a-b", () => {
    const withoutA = { parts, template: buildTemplate("a-b"), notes: [] };
    const releasesWithBoth = [buildRelease(1, { a: "1", "a-b": "1" })];
    const releasesSinceOff = [buildRelease(2, { "a-b": "1" }), ...releasesWithBoth];
    const deployed = buildTemplate("a", "a-b");

    for (const [title, releases] of [
      ["keeps its function while the newest release still has the rule", releasesWithBoth],
      ["keeps its function during further deployments without other changes", releasesSinceOff],
    ] as const)
      it(title, () => {
        const { template, stack, kept } = planStack("test", withoutA, { deployed, releases, hasOtherChanges: false });
        assert.deepEqual([listRulesWithFunctions(template).sort(), kept], [["a", "a-b"], ["a"]]);
        assert.deepEqual(stack, { isNew: false, added: [], changed: [], removed: [] });
      });

    it("is removed by the next deployment with a change in the stack or elsewhere", () => {
      const removed = ["ALambdaFunction", "ARole"];
      const releases = releasesSinceOff;
      const elsewhere = planStack("test", withoutA, { deployed, releases, hasOtherChanges: true });
      assert.deepEqual([listRulesWithFunctions(elsewhere.template), elsewhere.kept], [["a-b"], []]);
      assert.deepEqual(elsewhere.stack, { isNew: false, added: [], changed: [], removed });
      const grown = { ...withoutA, parts: [...parts, buildPackagedRule("b")], template: buildTemplate("a-b", "b") };
      const here = planStack("test", grown, { deployed, releases, hasOtherChanges: false });
      assert.deepEqual([listRulesWithFunctions(here.template), here.kept], [["a-b", "b"], []]);
      assert.deepEqual(here.stack, { isNew: false, added: ["BLambdaFunction", "BRole"], changed: [], removed });
    });

    it("changes nothing in the stack if it is turned on again", () => {
      const withBoth = { parts: [buildPackagedRule("a"), ...parts], template: deployed, notes: [] };
      const present = { deployed, releases: releasesSinceOff, hasOtherChanges: true };
      const { stack, kept } = planStack("test", withBoth, present);
      assert.deepEqual([stack, kept], [{ isNew: false, added: [], changed: [], removed: [] }, []]);
    });

    it("is not kept in a new stack", () => {
      const noStack = { deployed: undefined, releases: [], hasOtherChanges: true };
      const { template, stack, kept } = planStack("test", withoutA, noStack);
      assert.deepEqual([template, kept, stack.isNew], [withoutA.template, [], true]);
    });
  });
});

describe("the log group of a single function, which older versions of Postern created,", () => {
  const LogGroupName = "/aws/lambda/postern-test-a-b";
  const group = { Type: "AWS::Logs::LogGroup", Properties: { LogGroupName } };
  const retained = { ...group, DeletionPolicy: "Retain" };
  const built = { parts: [buildPackagedRule("a-b")], template: buildTemplate("a-b"), notes: [] };
  const addToStack = (ADashbLogGroup: StackTemplate["Resources"][string]): StackTemplate => ({
    ...buildTemplate("a-b"),
    Resources: { ...buildTemplate("a-b").Resources, ADashbLogGroup },
  });
  const plan = (deployed: StackTemplate, hasOtherChanges: boolean) => {
    const { template, stack } = planStack("test", built, { deployed, releases: [], hasOtherChanges });
    return [template.Resources.ADashbLogGroup, stack.changed, stack.removed];
  };

  it("an old log group stays in the stack for one deployment, so that CloudFormation keeps its logs", () => {
    assert.deepEqual(plan(addToStack(group), true), [retained, ["ADashbLogGroup"], []]);
    assert.deepEqual(plan(addToStack(group), false), [retained, ["ADashbLogGroup"], []]);
  });

  it("an old log group leaves the stack with the next deployment that changes anything", () => {
    assert.deepEqual(plan(addToStack(retained), true), [undefined, [], ["ADashbLogGroup"]]);
    assert.deepEqual(plan(addToStack(retained), false), [retained, [], []]);
  });

  it("an old log group stays only if the stack has room for the group", () => {
    const resources = Array.from({ length: 499 }, (_, index) => [`Topic${index}`, { Type: "AWS::SNS::Topic" }]);
    const full = { ...built, template: { Resources: Object.fromEntries(resources) } };
    const groups = { ADashbLogGroup: group, BLogGroup: group };
    const deployed = { Resources: { ...full.template.Resources, ...groups } };
    const { template, stack } = planStack("test", full, { deployed, releases: [], hasOtherChanges: true });
    assert.deepEqual([Object.keys(template.Resources).length, stack.removed], [500, ["BLogGroup"]]);
  });

  it("a log group that is not of a single function, such as the gateway's, leaves the stack at once", () => {
    for (const other of ["/aws/vendedlogs/postern-test", "/other"])
      assert.deepEqual(plan(addToStack({ ...group, Properties: { LogGroupName: other } }), true), [
        undefined,
        [],
        ["ADashbLogGroup"],
      ]);
  });
});

describe("the plan of a cluster, compared with the newest release,", () => {
  const buildManifest = (kind: "ClusterRole" | "ValidatingWebhookConfiguration", fields: object): DeployedObject => ({
    apiVersion: "v1",
    kind,
    metadata: { name: "postern" },
    ...fields,
  });
  const buildEntries = (...webhooks: object[]) => buildManifest("ValidatingWebhookConfiguration", { webhooks });
  const entry = { name: "a.postern.dev", timeoutSeconds: 3, clientConfig: { url: "https://x/local.{key}/a/validate" } };
  const role = buildManifest("ClusterRole", { rules: [] });
  const recorded = { manifests: [buildEntries(entry)], keyVersion: 1, signer: "first" };
  const update = { at: modified.toISOString(), hardened: [], since: {} };
  const { signer: _, ...recordedWithoutSigner } = recorded;

  const releases = {
    none: undefined,
    withoutCluster: buildRelease(2, {}),
    withoutSigner: buildRelease(2, {}, { clusters: { local: { ...update, ...recordedWithoutSigner } } }),
    newest: buildRelease(2, { a: "1" }, { clusters: { local: { ...update, ...recorded } } }),
  };
  for (const { name, release = "newest", entries, hasRole, differences, ...change } of rows.clusters)
    it(name, () => {
      const manifests = entries
        ? [buildEntries(...entries.map((fields) => ({ ...entry, ...fields })))]
        : hasRole
          ? [role]
          : recorded.manifests;
      const now = { ...recorded, manifests, ...change };
      assert.deepEqual(describeChangesSinceRelease(releases[release], "local", now), differences);
    });
});

describe("rights", () => {
  const withRight = (Action: string): StackTemplate => {
    const PolicyDocument = { Statement: [{ Action, Resource: "*" }] };
    return { Resources: { ARole: { Type: "AWS::IAM::Role", Properties: { Policies: [{ PolicyDocument }] } } } };
  };
  it("added and removed rights are listed with their role, such as `ARole: a:A on *`", () => {
    const none = { added: [], removed: [] };
    assert.deepEqual(compareRights(withRight("a:A"), withRight("a:A")), none);
    assert.deepEqual(compareRights(undefined, withRight("a:A")), { ...none, added: ["ARole: a:A on *"] });
    assert.deepEqual(compareRights(withRight("a:A"), withRight("a:B")), {
      added: ["ARole: a:B on *"],
      removed: ["ARole: a:A on *"],
    });
  });
});

const unchangedRule: RuleChangePlan = {
  part: buildPackagedRule("a"),
  known: buildState("a"),
  changes: [],
  settings: [],
};
/** In this cluster, no entries get failurePolicy Fail (`hardened`), and nothing differs from postern.yaml. */
const unchangedCluster: ClusterPlan = { cluster: "local", hardened: [], differences: [], policies: [], notes: [] };
const idle: DeploymentPlan = {
  identity: { partition: "aws", account: "123456789012", region: "eu-west-1", stage: "test" },
  template: buildTemplate("a"),
  parts: [unchangedRule],
  kept: [],
  warm: [],
  clusters: [unchangedCluster],
  presentPlugins: [],
  limits: [],
  notes: [],
  stack: { isNew: false, added: [], changed: [], removed: [] },
  rights: { added: [], removed: [] },
  differences: [], // what was changed in AWS by hand
};

describe("a plan", () => {
  const missingAlias = { sentence: "the alias live of a doesn't exist" };
  const table: [name: string, change: Partial<DeploymentPlan>, changesNothing: boolean][] = [
    ["changes nothing if nothing differs", {}, true],
    ["changes nothing if it only has notes", { notes: ["a"], clusters: [{ ...unchangedCluster, notes: ["b"] }] }, true],
    [
      "has changes if deploy can repair a difference",
      { differences: [{ ...missingAlias, repair: async () => {} }] },
      false,
    ],
    [
      "changes nothing if only a command can repair a difference",
      { differences: [{ ...missingAlias, command: "aws" }] },
      true,
    ],
    ["changes nothing if it only keeps the function of a rule that is off", { kept: ["b"] }, true],
    [
      "has changes if warm environments change",
      { warm: [{ rule: "a", wanted: 0, there: [], changes: ["no longer 1 warm environment on version 1"] }] },
      false,
    ],
    ["has changes if the ledger's table is new", { ledger: { table: "postern-test", changes: ["new"] } }, false],
    ["changes nothing if the ledger's table is complete", { ledger: { table: "postern-test", changes: [] } }, true],
    ["has changes if the stack is new", { stack: { ...idle.stack, isNew: true } }, false],
    ["has changes if the stack changes", { stack: { ...idle.stack, changed: ["A"] } }, false],
    ["has changes if a rule changes", { parts: [unchangedRule, { ...unchangedRule, changes: ["keys"] }] }, false],
    [
      "has changes if a cluster differs",
      { clusters: [unchangedCluster, { ...unchangedCluster, differences: ["a"] }] },
      false,
    ],
    [
      "has changes if a cluster can't be read",
      { clusters: [{ ...unchangedCluster, unknown: "no connection" }] },
      false,
    ],
  ];
  for (const [name, change, expected] of table)
    it(name, () => assert.equal(changesNothing({ ...idle, ...change }), expected));

  describe("has costs", () => {
    const now = new Date("2026-02-01T00:00:00Z");
    const getFunctionName = (name: string) => `postern-test-${name}`;
    const refuseCall = () => assert.fail("the estimate needs only the name of a function");
    const functions = new Proxy({} as Parameters<typeof estimateStageCosts>[0]["functions"], {
      get: (_, method) => (method === "getFunctionName" ? getFunctionName : refuseCall),
    });
    const estimate = (metrics: StageMetricsReader, endpointType: "http" | "url", parts: PackagedRule[]) =>
      estimateStageCosts({ name: "test", functions, metrics }, endpointType, parts, now);
    const metrics: StageMetricsReader = {
      ask: async (questions, from, to) => {
        assert.deepEqual([from, to], [new Date("2026-01-02T00:00:00Z"), now]);
        const values: Record<string, number> = {
          "Denials of a in test": 2_000_000,
          // With cases and probes, which are no reviews of an API server.
          "Invocations of postern-test-a": 2_000_100,
          "Duration of postern-test-a": 20_001_000,
          "Invocations of postern-test-workload-quota": 43_200,
          "ConsumedReadCapacityUnits of postern-test": 4_000_000,
          "ConsumedWriteCapacityUnits of postern-test": 8_000_000,
        };
        const answers = Object.entries<(typeof questions)[keyof typeof questions]>(questions).map(
          ([name, { namespace, metric, dimensions, stat }]) => {
            const { FunctionName, TableName = FunctionName, Rule, Stage } = dimensions;
            assert.equal(stat, namespace === "Postern" ? "SampleCount" : "Sum");
            return [name, values[`${metric} of ${TableName ?? `${Rule} in ${Stage}`}`] ?? 0];
          },
        );
        return Object.fromEntries(answers);
      },
    };
    const roundCosts = ({ rules }: StageCosts) =>
      rules.map(({ rule, million, reviews, month }) => [rule, million.toFixed(2), reviews, month.toFixed(2)]);

    it("that are computed from the reviews of the last thirty days", async () => {
      const reading = buildPackagedRule("b", { readsCluster: true });
      assert.deepEqual(roundCosts(await estimate(metrics, "url", [buildPackagedRule("a"), reading])), [
        ["a", "0.61", 2_000_000, "1.23"],
        ["b", "0.69", 0, "0.00"],
      ]);
      assert.deepEqual(roundCosts(await estimate(metrics, "http", [buildPackagedRule("a")])), [
        ["a", "1.74", 2_000_000, "3.48"],
      ]);
    });

    it("of the ledger in the last thirty days, and for a million reviews of each kind", async () => {
      const part = buildPackagedRule("workload-quota");
      const wanted = { ...part.wanted, environment: { POSTERN_LEDGER: "postern-test" } };
      const found = await estimate(metrics, "url", [{ ...part, wanted }]);
      assert.deepEqual(found.rules[0]?.ledger, [
        { review: "a charge", million: 2.75 },
        { review: "a release", million: 0.75 },
        { review: "a refusal", million: 8.75 },
        { review: "a refusal that replaces 10 reservations", million: 25.25 },
      ]);
      assert.deepEqual([found.ledgerMonth, found.rules[0]?.reviews], [5.5, 0]);
      assert.equal(found.months.find(({ writes }) => writes === 1e6)?.dollars.ledger, 2.75);
      assert.equal((await estimate(metrics, "url", [buildPackagedRule("a")])).ledgerMonth, undefined);
    });

    it("that include a VPC if a function is in one", async () => {
      const part = buildPackagedRule("a");
      const VpcConfig = { SubnetIds: ["subnet-1"], SecurityGroupIds: ["sg-1"] };
      const wanted = { ...part.wanted, stackSettings: { ...part.wanted.stackSettings, VpcConfig } };
      assert.equal((await estimate(metrics, "url", [part, { ...part, wanted }])).isInVpc, true);
      assert.equal((await estimate(metrics, "url", [part])).isInVpc, false);
    });

    it("that are estimated with usual values if CloudWatch doesn't answer", async () => {
      const silent = { ask: () => Promise.reject(new Error("Rate exceeded")) };
      assert.deepEqual(roundCosts(await estimate(silent, "url", [buildPackagedRule("a")])), [["a", "0.60", 0, "0.00"]]);
    });
  });

  const { rules, costs: ruleCosts, months, ledgerMonth, partition, account, region, stage, ...printed } = rows.plan;
  const identity = { partition, account, region, stage };
  const costs = { rules: ruleCosts, months, ledgerMonth, isInVpc: true };
  const parts = rules.map(({ rule, live, disarmedUntil, changes, settings }): RuleChangePlan => {
    const disarmed = disarmedUntil ? { disarmed: { until: new Date(disarmedUntil), version: "3" } } : {};
    return {
      part: buildPackagedRule(rule),
      known: live ? buildState(rule, disarmed, live) : undefined,
      changes,
      settings,
    };
  });
  const busy: DeploymentPlan = { ...printed, identity, template: buildTemplate(), parts };

  it("a plan is printed as text", () => assert.equal(formatPlan(busy, costs), rows.planText));

  it("a plan that changes nothing is printed with a sentence that says so", () =>
    assert.equal(formatPlan(idle, { rules: [], months: [] }), rows.textWithoutChanges));

  it("a plan shows only the number of resources if the stack is new", () => {
    const stack = { isNew: true, added: ["A", "B", "C"], changed: [], removed: [] };
    assert.match(
      formatPlan({ ...idle, stack }, { rules: [], months: [] }),
      /^stack\n {2}is new: 3 resources\n\nrules$/m,
    );
  });

  it("a plan is converted to the data that `-o json` prints", () => {
    assert.deepEqual(JSON.parse(JSON.stringify(toPlanData(busy, costs))), { ...rows.plan, idle: false });
    assert.deepEqual(Reflect.get(toPlanData(idle, { rules: [], months: [] }), "idle"), true);
  });
});
