import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { RequestMatch, Rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../../test/catalogue-rules.ts";
import { type LambdaQuotas, toStackSettings } from "../../aws/lambda-functions.ts";
import type { StackTemplate } from "../../aws/stack.ts";
import type { PackagedRule } from "../versions/package.ts";
import { findExceededLimits } from "./limits.ts";
import type { RuleChangePlan } from "./plan.ts";

const quotas: LambdaQuotas = { concurrency: 1000, unreserved: 1000, codeBytes: 1e9, usedCodeBytes: 0, zipBytes: 50e6 };
const buildTemplate = (count: number, Type: string, Properties = {}): StackTemplate => ({
  Resources: Object.fromEntries(Array.from({ length: count }, (_, index) => [`R${index}`, { Type, Properties }])),
});
const matchPods: RequestMatch = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] };
const buildRule = (match: RequestMatch[] = [matchPods]): Rule => ({
  summary: "Rule.",
  match,
  validate: () => undefined,
});

interface SampleRule {
  environment?: Record<string, string>;
  bytes?: number;
  reserved?: number | undefined;
  mode?: "enforce" | "off";
  rule?: Rule;
  phases?: ("mutate" | "validate")[];
}
const buildPackagedRule = (name: string, sample: SampleRule): PackagedRule => ({
  name,
  listed: { ...toCatalogueRule(name, sample.rule ?? buildRule()), phases: sample.phases ?? ["validate"] },
  wanted: {
    zip: new Uint8Array(sample.bytes ?? 1),
    codeSha256: "",
    stackSettings: toStackSettings({}),
    description: "",
    environment: sample.environment ?? {},
    memorySize: 256,
    timeout: 10,
  },
  logic: "",
  config: { rule: name, clusters: { local: { keyVersions: [1], mode: sample.mode ?? "enforce", settings: {} } } },
  readsCluster: false,
  runsScripts: false,
  ...(sample.reserved !== undefined && { reserved: sample.reserved }),
});
const buildChanges = (samples: SampleRule[], changes = ["new"]): RuleChangePlan[] =>
  samples.map((sample, index) => ({
    part: buildPackagedRule(`rule-${index}`, sample),
    known: undefined,
    changes,
    settings: [],
  }));
const smallTemplate = buildTemplate(1, "AWS::SNS::Topic");
const findExcess = (
  template: StackTemplate,
  samples: SampleRule[] = [],
  given: Partial<LambdaQuotas> = {},
  deployed?: StackTemplate,
) => findExceededLimits({ template, parts: buildChanges(samples), warm: [] }, deployed, { ...quotas, ...given });
/** Builds a template with a function for each of the given numbers of reserved concurrent executions. */
const buildReserving = (...numbers: number[]): StackTemplate => ({
  Resources: Object.fromEntries(
    numbers.map((ReservedConcurrentExecutions, index) => [
      `F${index}`,
      { Type: "AWS::Lambda::Function", Properties: { ReservedConcurrentExecutions } },
    ]),
  ),
});
const repeat = (count: number, sample: SampleRule = {}) => Array.from({ length: count }, () => sample);

describe("the limits of a stack", () => {
  const remedy = "turn rules off, or deploy some of them as another stage";

  it("the limits of a stack are 500 resources", () => {
    assert.deepEqual(findExcess(buildTemplate(500, "AWS::SNS::Topic")), []);
    assert.deepEqual(findExcess(buildTemplate(501, "AWS::SNS::Topic")), [
      `the stack would have 501 resources, and CloudFormation accepts 500: ${remedy}`,
    ]);
  });
  it("the limits of a stack are 300 integrations of its HTTP API", () => {
    assert.deepEqual(findExcess(buildTemplate(300, "AWS::ApiGatewayV2::Integration")), []);
    assert.deepEqual(findExcess(buildTemplate(301, "AWS::ApiGatewayV2::Integration")), [
      `the HTTP API would have 301 integrations, and API Gateway accepts 300: ${remedy}`,
    ]);
  });
  it("the limits of a stack are 200 outputs, and a million bytes", () => {
    const Outputs = Object.fromEntries(Array.from({ length: 201 }, (_, index) => [`O${index}`, {}]));
    assert.deepEqual(findExcess({ ...smallTemplate, Outputs }), [
      `the stack would have 201 outputs, and CloudFormation accepts 200: ${remedy}`,
    ]);
    const large = buildTemplate(1, "AWS::SNS::Topic", { DisplayName: "a".repeat(1_000_000) });
    const [sentence = "", ...others] = findExcess(large);
    assert.match(sentence, /^the template has 10000\d\d bytes, and CloudFormation accepts 1000000: turn rules off/);
    assert.deepEqual(others, []);
  });
});

describe("the limits of a role", () => {
  it("the limits of a role are 10,240 characters of policies", () => {
    const measure = (length: number) => {
      const PolicyDocument = { Statement: "a".repeat(length - '{"Statement":""}'.length) };
      return findExcess(buildTemplate(1, "AWS::IAM::Role", { Policies: [{ PolicyDocument }] }));
    };
    assert.deepEqual(measure(10_240), []);
    assert.match(measure(10_241)[0] ?? "", /^the policies of \w+ have about 10241 characters, and IAM accepts 10240: /);
  });
});

describe("the limits of a function", () => {
  it("the limits of a function are 4096 bytes of environment, as JSON", () => {
    const measure = (length: number) => findExcess(smallTemplate, [{ environment: { A: "a".repeat(length) } }]);
    assert.deepEqual(measure(4096 - '{"A":""}'.length), []);
    assert.deepEqual(measure(4097 - '{"A":""}'.length), [
      "the environment of rule-0 has 4097 bytes, and Lambda accepts 4096: finish the rotation of keys, or deploy some of the clusters as another stage",
    ]);
  });
  it("the limits of a function include the size of its zip, which is 1.5 MB in this account", () => {
    assert.deepEqual(findExcess(smallTemplate, [{ bytes: 2_000_000 }], { zipBytes: 1_500_000 }), [
      "the zip of rule-0 has 2.0 MB, and Lambda accepts 1.5 MB",
    ]);
  });
});

describe("the limits of an account", () => {
  it("the limits of an account aren't found if the account's quotas can't be read", () => {
    assert.deepEqual(
      findExceededLimits(
        { template: buildReserving(5000), parts: buildChanges(repeat(9, {})), warm: [] },
        undefined,
        undefined,
      ),
      [],
    );
  });

  it("the limits of an account keep a concurrency of 100 for functions without reserved concurrency", () => {
    assert.deepEqual(findExcess(buildReserving(400, 500)), []);
    assert.deepEqual(findExcess(buildReserving(400, 501)), [
      "the rules reserve 901 concurrent executions, which leaves 99 of the account's 1000 to functions that reserve none, and Lambda keeps 100 for those: lower `reserved` in postern.yaml, or ask AWS for a higher quota",
    ]);
    assert.match(
      String(findExcess(buildReserving(1), [], { concurrency: 10, unreserved: 10 })),
      /leaves 9 of the account's 10 /,
    );
  });
  it("the limits of an account count the concurrency that the stage and other functions have already reserved", () => {
    const shared = { unreserved: 300 };
    assert.deepEqual(findExcess(buildReserving(500), [], shared, buildReserving(400)), []);
    assert.match(
      String(findExcess(buildReserving(701), [], shared, buildReserving(400))),
      /reserve 701 .* leaves 0 of/,
    );
    // A deployment that reserves no more is not refused.
    assert.deepEqual(findExcess(buildReserving(400), [], { unreserved: 50 }, buildReserving(400)), []);
  });

  it("an account must have room for warm environments, including those of the previous version", () => {
    /** Plans `count` environments of a new version. The old version has 400, until all aliases have moved. */
    const plan = (count: number, reserved?: number, changes = ["code"]) => {
      const parts = buildChanges([{ reserved }], changes);
      const there = [{ version: "1", count: 400, status: "READY" as const, reason: undefined }];
      const warm = [{ rule: "rule-0", wanted: count, there, changes: ["more"] }];
      return findExceededLimits({ template: smallTemplate, parts, warm }, undefined, quotas);
    };
    assert.deepEqual(plan(500), []);
    assert.deepEqual(plan(501), [
      "the rules have 901 warm environments until the release is settled, and the account has 900 concurrent executions for them, because Lambda keeps 100 for other functions: lower `warm` in postern.yaml, or ask AWS for a higher quota",
    ]);
    assert.deepEqual(plan(5, 405), []);
    assert.deepEqual(plan(6, 405), [
      "rule-0 has 406 warm environments until the release is settled, and reserves 405 concurrent executions: raise `reserved` in postern.yaml, or lower `warm`",
    ]);
  });

  it("the limits of an account include the number of functions that one request calls at the same time", () => {
    const tenExecutions = { concurrency: 10, unreserved: 10 };
    assert.deepEqual(findExcess(smallTemplate, repeat(10), tenExecutions), []);
    assert.deepEqual(findExcess(smallTemplate, repeat(11), tenExecutions), [
      "a CREATE request for pods calls 11 functions at the same time, and the account has 10 concurrent executions that no function reserves: ask AWS for a higher quota",
    ]);
  });
  it("the limits of an account don't stop a deployment if all functions exist already", () => {
    const known = { version: "1" } as RuleChangePlan["known"];
    const parts = buildChanges(repeat(11)).map((change) => ({ ...change, known }));
    const tenExecutions = { ...quotas, concurrency: 10, unreserved: 10 };
    assert.deepEqual(findExceededLimits({ template: smallTemplate, parts, warm: [] }, undefined, tenExecutions), []);
  });
  it("functions that only mutate, are off, match other requests or reserve concurrency don't count", () => {
    const tenExecutions = { concurrency: 10, unreserved: 10 };
    const nodes = buildRule([{ ...matchPods, resources: ["nodes"] }]);
    for (const other of [{ phases: ["mutate"] }, { mode: "off" }, { rule: nodes }, { reserved: 5 }] as const)
      assert.deepEqual(findExcess(smallTemplate, [...repeat(10), other as SampleRule], tenExecutions), []);
    const everything = [
      { apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"] } satisfies RequestMatch,
    ];
    assert.match(
      String(findExcess(smallTemplate, [...repeat(10), { rule: buildRule(everything) }], tenExecutions)),
      /calls 11 functions/,
    );
  });

  it("the limits of an account include the storage for code; the code of a new function is stored twice", () => {
    const room = { codeBytes: 80e9, usedCodeBytes: 80e9 - 3_000_000 };
    assert.deepEqual(findExcess(smallTemplate, [{ bytes: 1_500_000 }], room), []);
    assert.deepEqual(findExcess(smallTemplate, [{ bytes: 1_600_000 }], room), [
      "the new versions need 3.2 MB of code storage, and 3.0 MB of the account's 80.0 GB are left in this region: delete functions and versions that nothing uses; Postern deletes its own old versions after each deployment",
    ]);
  });

  it("the limits of an account are all reported together", () => {
    const given = { concurrency: 10, unreserved: 10, usedCodeBytes: 1e9, zipBytes: 1 };
    const samples = repeat(20, { bytes: 2, environment: { A: "a".repeat(5000) } });
    const found = findExcess({ ...buildTemplate(501, "AWS::SNS::Topic"), Outputs: {} }, samples, given);
    // The stack, each environment, the parallel calls, each zip, and the storage for code.
    assert.equal(found.length, 1 + 20 + 1 + 20 + 1, found.join("\n"));
  });
});
