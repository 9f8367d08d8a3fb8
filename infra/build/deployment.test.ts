import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { createTestFolder } from "../../test/folders.ts";
import { countAlarmMetrics } from "../rollout/plan/cost.ts";
import type { RuleBundle } from "./bundle.ts";
import { writeServerlessIncludes } from "./deployment.ts";

// test/aws/package.test.ts tests whole packages.

const sample: RuleBundle = {
  name: "limiter",
  summary: "Limits pods.",
  phases: ["mutate"],
  timeoutSeconds: 3,
  bytes: 9,
  hash: "hash of code and settings",
  logicHash: "hash of code",
  codeSha256: "AAA=",
  readsCluster: false,
  callsOut: false,
  runsCue: false,
  tokens: [],
  actions: [],
  records: [],
  guards: false,
  ledgerRules: [],
  opensLedger: false,
  reconciles: false,
  keysHash: "hash of keys",
};
const writeTestDeployment = async (bundle: Partial<RuleBundle> = {}, publicKeys = "public keys") => {
  const folder = await createTestFolder();
  await writeServerlessIncludes([{ ...sample, ...bundle }], publicKeys, join(folder, "dist"));
  const read = async (file: string) => JSON.parse(await readFile(join(folder, "dist", file), "utf8"));
  const [lambda] = Object.values<Record<string, unknown>>(await read("functions.json"));
  const { Resources, Outputs } = await read("http.json");
  return { lambda, Resources, Outputs };
};

describe("a function's version", () => {
  it("the stack has only the first version and its alias: other code, keys or sizing don't change them", async () => {
    const all = await Promise.all([
      writeTestDeployment(),
      writeTestDeployment({ hash: "hash of other code", codeSha256: "BBB=" }),
      writeTestDeployment({}, "other public keys"),
      writeTestDeployment({ timeoutSeconds: 15 }),
      writeTestDeployment({ keysHash: "hash of other keys" }),
    ]);
    const versionsAndAliases = all.map(({ Resources }) => [Resources.LimiterVersion, Resources.LimiterAlias]);
    for (const pair of versionsAndAliases) assert.deepEqual(pair, versionsAndAliases[0]);
    assert.deepEqual(versionsAndAliases[0]?.[0].Properties, { FunctionName: { Ref: "LimiterLambdaFunction" } });
    assert.deepEqual(versionsAndAliases[0]?.[1].Properties.FunctionVersion, {
      "Fn::GetAtt": ["LimiterVersion", "Version"],
    });
  });

  it("a function has a longer timeout than its entries, and at most 30 s in the gateway", async () => {
    // The function gets a second more than its entries, and at least 10 s.
    const times = await Promise.all([3, 15, 30].map((timeoutSeconds) => writeTestDeployment({ timeoutSeconds })));
    assert.deepEqual(
      times.map(({ lambda }) => lambda?.timeout),
      [10, 16, 31],
    );
    assert.deepEqual(
      times.map(({ Resources }) => Resources.LimiterIntegration.Properties.TimeoutInMillis),
      [10_000, 16_000, 30_000],
    );
  });

  it("a function is called each minute if its rule reconciles clusters, and may then take a minute", async () => {
    const { lambda, Resources } = await writeTestDeployment({ reconciles: true });
    const { Description: _, ...schedule } = Resources.LimiterSchedule.Properties;
    const target = { Id: "function", Arn: { Ref: "LimiterAlias" }, Input: '{"reconcile":true}' };
    assert.deepEqual(schedule, { ScheduleExpression: "rate(1 minute)", Targets: [target] });
    assert.deepEqual(Resources.LimiterSchedulePermission.Properties, {
      FunctionName: { Ref: "LimiterAlias" },
      Action: "lambda:InvokeFunction",
      Principal: "events.amazonaws.com",
      SourceArn: { "Fn::GetAtt": ["LimiterSchedule", "Arn"] },
    });
    // A new alarm is in the state INSUFFICIENT_DATA, and sends no message of that. Later, this alarm sends a message if
    // its metric has no data, because the schedule calls nothing any more, and another if the calls come again.
    const { Dimensions, TreatMissingData, InsufficientDataActions, OKActions } =
      Resources.LimiterScheduleAlarm.Properties;
    assert.deepEqual(Dimensions, [{ Name: "FunctionName", Value: { Ref: "LimiterLambdaFunction" } }]);
    const topics = `\${param:alarmTopics}`;
    assert.deepEqual([TreatMissingData, InsufficientDataActions, OKActions], ["missing", topics, topics]);
    assert.deepEqual([lambda?.timeout, Resources.LimiterIntegration.Properties.TimeoutInMillis], [60, 10_000]);
    assert.ok(!("LimiterSchedule" in (await writeTestDeployment()).Resources));
  });

  it("a function reserves as much concurrency as the setting `reserved` of its rule, or none", async () => {
    const read = async (bundle: Partial<RuleBundle>) => (await writeTestDeployment(bundle)).lambda?.reservedConcurrency;
    assert.deepEqual([await read({}), await read({ reserved: 5 })], [undefined, 5]);
  });

  it("a function's version has its summary truncated to the length that Lambda accepts", async () => {
    const { lambda } = await writeTestDeployment({ summary: `${"Long ".repeat(100)}.` });
    assert.ok(String(lambda?.description).length <= 256);
  });
});

describe("a function that reads a cluster", () => {
  const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:postern-AbCdEf";
  const tokens = [
    { secret: arn, region: "eu-west-1" },
    { secret: "postern", region: "eu-west-2" },
    { parameter: "/postern/prod", region: "eu-west-3" },
  ];

  it("a function may read the tokens for its clusters, and no other tokens", async () => {
    const { Resources } = await writeTestDeployment({ readsCluster: true, tokens });
    const [, policy] = Resources.LimiterRole.Properties.Policies;
    const buildArn = (service: string, path: string) => {
      const [partition, account] = ["Partition", "AccountId"].map((name) => `\${AWS::${name}}`);
      return { "Fn::Sub": `arn:${partition}:${service}:${account}:${path}` };
    };
    assert.deepEqual(policy.PolicyDocument.Statement, [
      { Effect: "Allow", Action: "secretsmanager:GetSecretValue", Resource: arn },
      {
        Effect: "Allow",
        Action: "secretsmanager:GetSecretValue",
        Resource: buildArn("secretsmanager:eu-west-2", "secret:postern-??????"),
      },
      {
        Effect: "Allow",
        Action: "ssm:GetParameter",
        Resource: buildArn("ssm:eu-west-3", "parameter/postern/prod"),
      },
      // A secret in another account must have a key of that account.
      {
        Effect: "Allow",
        Action: "kms:Decrypt",
        Resource: ["arn:aws:kms:eu-west-1:123456789012:key/*"],
        Condition: { StringEquals: { "kms:EncryptionContext:SecretARN": [arn] } },
      },
    ]);
  });

  it("a function has only the rights in AWS that its rule needs", async () => {
    const { Resources } = await writeTestDeployment({ actions: ["ec2:DescribeVolumes"] });
    const [, policy] = Resources.LimiterRole.Properties.Policies;
    const allowed = { Effect: "Allow", Action: ["ec2:DescribeVolumes"], Resource: "*" };
    assert.deepEqual(policy.PolicyDocument.Statement, [allowed]);
    assert.equal((await writeTestDeployment()).Resources.LimiterRole.Properties.Policies.length, 1);
  });

  it("a function may write its recordings below its own prefix, and not read them", async () => {
    const { Resources } = await writeTestDeployment({ records: ["reviews/a/prod/limiter/"] });
    const [, policy] = Resources.LimiterRole.Properties.Policies;
    const place = `arn:\${AWS::Partition}:s3:::reviews/a/prod/limiter/*`;
    assert.deepEqual(policy.PolicyDocument.Statement, [
      { Effect: "Allow", Action: "s3:PutObject", Resource: { "Fn::Sub": place } },
    ]);
  });

  it("a function may read and write its rules' part of the ledger, and neither list nor search it", async () => {
    const { lambda, Resources } = await writeTestDeployment({ ledgerRules: ["limiter", "other"], opensLedger: true });
    assert.equal(Object(lambda?.environment).POSTERN_LEDGER, `postern-\${sls:stage}`);
    const [, policy] = Resources.LimiterRole.Properties.Policies;
    const [{ Action, Resource, Condition, Effect }, ...others] = policy.PolicyDocument.Statement;
    assert.deepEqual([Effect, others], ["Allow", []]);
    assert.match(
      Resource["Fn::Sub"],
      /:dynamodb:\$\{AWS::Region\}:\$\{AWS::AccountId\}:table\/postern-\$\{sls:stage\}$/,
    );
    assert.deepEqual(Action, ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:ConditionCheckItem"]);
    assert.deepEqual(Condition, {
      "ForAllValues:StringLike": { "dynamodb:LeadingKeys": ["limiter/*", "other/*"] },
    });
  });

  it("a function keeps its right to the ledger when its rule is off, for a rollback", async () => {
    const { lambda, Resources } = await writeTestDeployment({ ledgerRules: ["limiter"] });
    assert.equal(Object(lambda?.environment).POSTERN_LEDGER, undefined);
    assert.equal(Resources.LimiterRole.Properties.Policies.length, 2);
  });

  it("a function has an output with its role only if it reads a cluster", async () => {
    const { Outputs } = await writeTestDeployment({ readsCluster: true });
    assert.deepEqual(Outputs.LimiterRoleArn.Value, { "Fn::GetAtt": ["LimiterRole", "Arn"] });
    assert.deepEqual(Object.keys((await writeTestDeployment()).Outputs), ["BaseUrl", "LossMetric", "LogRetention"]);
  });
});

describe("the alarms of a stage", async () => {
  const folder = await createTestFolder();
  const names = Array.from({ length: 23 }, (_, index) => `rule-${index}`);
  await writeServerlessIncludes(
    names.map((name) => ({ ...sample, name })),
    "key",
    folder,
  );
  for (const type of ["http", "url"] as const)
    it(`watch exactly as many metrics as the costs in a plan include, with the endpoint type ${type}`, async () => {
      const { Resources } = JSON.parse(await readFile(join(folder, `${type}.json`), "utf8"));
      const alarms = Object.values<{ Type: string; Properties: { Metrics?: { MetricStat?: object }[] } }>(
        Resources,
      ).filter(({ Type }) => Type === "AWS::CloudWatch::Alarm");
      const watched = alarms.map(({ Properties: { Metrics } }) => Metrics?.filter((one) => one.MetricStat).length ?? 1);
      assert.equal(
        watched.reduce((all, count) => all + count, 0),
        countAlarmMetrics(names.length, type),
      );
    });
});

describe("a function that calls out", () => {
  it("a function that calls out is in the VPC, where only Lambda may create network interfaces", async () => {
    const { lambda, Resources } = await writeTestDeployment({ callsOut: true });
    assert.equal(lambda?.vpc, `\${param:vpc}`);
    const { Statement } = Resources.LimiterRole.Properties.Policies.at(-1).PolicyDocument;
    const [allowed, denied] = Statement;
    assert.deepEqual([allowed.Effect, denied.Effect], ["Allow", "Deny"]);
    assert.deepEqual(allowed.Action, denied.Action);
    assert.equal(allowed.Condition, undefined);
    assert.match(denied.Condition.ArnLike["lambda:SourceFunctionArn"]["Fn::Sub"], /:function:postern-.*-\*$/);
  });

  it("a function that only records reviews is not in the VPC", async () => {
    const { lambda, Resources } = await writeTestDeployment({ records: ["reviews/a/"] });
    assert.equal(lambda?.vpc, undefined);
    assert.doesNotMatch(JSON.stringify(Resources), /NetworkInterface/);
  });
});
