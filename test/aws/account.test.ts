import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { request } from "node:https";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { CloudFormation } from "@aws-sdk/client-cloudformation";
import { CloudWatch } from "@aws-sdk/client-cloudwatch";
import { Lambda, UpdateFunctionCodeCommand, waitUntilFunctionUpdatedV2 } from "@aws-sdk/client-lambda";
import { S3 } from "@aws-sdk/client-s3";
import { bundleRule, type RuleBundle } from "../../infra/build/bundle.ts";
import { writeServerlessIncludes } from "../../infra/build/deployment.ts";
import { zip } from "../../infra/build/zip.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { createTestSigner } from "../../infra/parity/test-key.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";

// The stand-in of an AWS account behaves as AWS documents, as far as a deployment relies on it.
const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const osls = createRequire(import.meta.url).resolve("osls/bin/serverless.js");
const one = createTestSigner(1);

/** Returns the zip of a function that answers, throws or ends as its event says. */
const codeOf = (mark: string) =>
  zip({
    "index.cjs": Buffer.from(`exports.handler = async ({ throws, ends, waits, says, names }) => {
      if (says) process.stdout.write(says + "\\n");
      if (throws) throw new TypeError(throws);
      if (ends) process.exit(3);
      if (waits) await new Promise((resolve) => setTimeout(resolve, waits));
      if (names) return process.pid;
      return { mark: ${JSON.stringify(mark)}, version: process.env.AWS_LAMBDA_FUNCTION_VERSION };
    };`),
  });

describe("the stand-in of an AWS account", await needs("moto", "runtime client"), () => {
  let account: Account;
  before(async () => {
    account = await openAccount();
  });
  after(() => account?.stop());
  beforeEach(() => {
    account.lambda.functions.clear();
    account.heard.length = 0;
    Object.assign(account, { fault: undefined, allow: undefined });
    Object.assign(account.lambda, { updating: 5, random: Math.random });
  });

  const lambda = (caller = "somebody") => new Lambda({ ...account.as(caller), maxAttempts: 1 });
  const formation = (caller = "somebody") => new CloudFormation({ ...account.as(caller), maxAttempts: 1 });
  const s3 = () => new S3({ ...account.as("somebody"), maxAttempts: 1 });
  const called = (name: string) => (error: Error) =>
    error.name === name || assert.fail(`${error.name}: ${error.message}`);
  /** Sends a review as an API server would. */
  const review = (base: string, rule: string, segment = one.segment("local"), phase = "validate") =>
    new Promise<{ status: number | undefined; body: string }>((resolve, reject) => {
      const headers = { "content-type": "application/json" };
      const target = `${base.replace(/\/$/, "")}/${segment}/${rule}/${phase}?timeout=3s`;
      const asking = request(target, { method: "POST", headers, ca: account.ca, agent: false }, async (response) => {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk);
        resolve({ status: response.statusCode, body: String(Buffer.concat(chunks)) });
      });
      asking.on("error", reject);
      asking.end(JSON.stringify(question));
    });
  const FunctionName = "postern-test-rule";
  const function_ = { FunctionName };
  const alias = { FunctionName, Name: "live" };

  /** A function with two versions, of which the first is live. */
  const twoVersions = () => {
    account.lambda.create(FunctionName, codeOf("one"), { POSTERN_STAGE: "test" });
    const found = account.lambda.functions.get(FunctionName);
    assert.ok(found);
    found.latest = { ...found.latest, code: codeOf("two"), revision: "second" };
    found.versions.set("2", { ...found.latest });
    found.published = 2;
  };
  const invoke = async (event: object = {}, Qualifier?: string) => {
    const request = { FunctionName, Qualifier, LogType: "Tail" as const, Payload: JSON.stringify(event) };
    const answer = await lambda().invoke(request);
    const payload: unknown = JSON.parse(answer.Payload?.transformToString() || "null");
    const log = Buffer.from(answer.LogResult ?? "", "base64").toString();
    return { payload, log, version: answer.ExecutedVersion, fault: answer.FunctionError };
  };
  /** Returns a metric's sum over the last five minutes. */
  const ask = async (Namespace: string, MetricName: string, dimensions: Record<string, string>, Stat = "Sum") => {
    const Dimensions = Object.entries(dimensions).map(([Name, Value]) => ({ Name, Value }));
    const Metric = { Namespace, MetricName, Dimensions };
    const now = Date.now();
    const client = new CloudWatch({ ...account.as("somebody"), maxAttempts: 1 });
    const { MetricDataResults = [] } = await client.getMetricData({
      ...{ StartTime: new Date(now - 300_000), EndTime: new Date(now + 60_000) },
      MetricDataQueries: [{ Id: "one", MetricStat: { Metric, Period: 3600, Stat } }],
    });
    return (MetricDataResults[0]?.Values ?? []).reduce((sum, value) => sum + value, 0);
  };
  const live = () => lambda().getAlias(alias);
  const latest = () => lambda().getFunctionConfiguration(function_);
  const updated = async () => {
    await waitUntilFunctionUpdatedV2({ client: lambda(), maxWaitTime: 5, minDelay: 0.01, maxDelay: 0.05 }, function_);
    return latest();
  };

  describe("has functions that", () => {
    beforeEach(twoVersions);

    it("can be changed only with their latest revision", async () => {
      const { RevisionId } = await latest();
      const change = { FunctionName, ZipFile: codeOf("three"), RevisionId };
      await lambda().updateFunctionCode(change);
      await updated();
      const stale = [
        () => lambda().updateFunctionCode(change),
        () => lambda().updateFunctionConfiguration({ FunctionName, RevisionId, MemorySize: 512 }),
        () => lambda().publishVersion({ FunctionName, RevisionId }),
        () => lambda().updateAlias({ ...alias, RevisionId, FunctionVersion: "2" }),
      ];
      for (const act of stale) await assert.rejects(act, called("PreconditionFailedException"));
      const moved = await lambda().updateAlias({
        ...alias,
        RevisionId: (await live()).RevisionId,
        FunctionVersion: "2",
      });
      assert.notEqual(moved.RevisionId, RevisionId);
      assert.equal(moved.FunctionVersion, "2");
    });

    it("refuse a second change during an update", async () => {
      account.lambda.updating = 60_000;
      await lambda().updateFunctionCode({ FunctionName, ZipFile: codeOf("three") });
      assert.equal((await latest()).LastUpdateStatus, "InProgress");
      const conflict = called("ResourceConflictException");
      await assert.rejects(lambda().updateFunctionConfiguration({ FunctionName, Timeout: 5 }), conflict);
      await assert.rejects(lambda().publishVersion(function_), conflict);
    });

    it("aren't changed by a dry run", async () => {
      const before = await latest();
      const dry = { FunctionName, ZipFile: codeOf("three"), DryRun: true };
      const told = await lambda().updateFunctionCode(dry);
      assert.notEqual(told.CodeSha256, before.CodeSha256);
      assert.deepEqual((await latest()).CodeSha256, before.CodeSha256);
      const stale = new UpdateFunctionCodeCommand({ ...dry, RevisionId: "another" });
      await assert.rejects(lambda().send(stale), called("PreconditionFailedException"));
      const broken = new UpdateFunctionCodeCommand({ ...dry, ZipFile: Buffer.from("no zip") });
      await assert.rejects(lambda().send(broken), called("InvalidParameterValueException"));
    });

    it("are published once, and only with the expected hash", async () => {
      const publish = (more: object = {}) => lambda().publishVersion({ FunctionName, ...more });
      await assert.rejects(publish({ CodeSha256: "another" }), called("PreconditionFailedException"));
      assert.equal((await publish()).Version, "2");
      const changes = [
        { MemorySize: 512 },
        { Timeout: 7 },
        { Description: "third" },
        { Environment: { Variables: { A: "b" } } },
      ];
      for (const [index, change] of changes.entries()) {
        await lambda().updateFunctionConfiguration({ FunctionName, ...change });
        const { CodeSha256 } = await updated();
        const { Version } = await publish({ CodeSha256, Description: `change ${index}` });
        assert.equal(Version, String(index + 3), JSON.stringify(change));
        assert.equal((await publish({ Description: "another" })).Version, Version);
      }
      const { MemorySize, Timeout, Description } = await lambda().getFunctionConfiguration({
        FunctionName,
        Qualifier: "5",
      });
      assert.deepEqual([MemorySize, Timeout, Description], [512, 7, "change 2"]);
    });

    it("keep versions that an alias points at, also by weight", async () => {
      const remove = (Qualifier: string) => lambda().deleteFunction({ FunctionName, Qualifier });
      await assert.rejects(remove("1"), called("ResourceConflictException"));
      const RoutingConfig = { AdditionalVersionWeights: { 2: 0.1 } };
      await lambda().updateAlias({ ...alias, RoutingConfig });
      await assert.rejects(remove("2"), called("ResourceConflictException"));
      await assert.rejects(remove("$LATEST"), called("InvalidParameterValueException"));
      await lambda().updateAlias({ ...alias, RoutingConfig: { AdditionalVersionWeights: {} } });
      await remove("2");
      await assert.rejects(remove("2"), called("ResourceNotFoundException"));
      await assert.rejects(invoke({}, "2"), called("ResourceNotFoundException"));
    });
  });

  describe("has aliases that", () => {
    beforeEach(twoVersions);
    const move = (change: object) => lambda().updateAlias({ ...alias, ...change });

    it("point only at published versions", async () => {
      const wrong: [object, string][] = [
        [{ FunctionVersion: "$LATEST" }, "InvalidParameterValueException"],
        [{ FunctionVersion: "9" }, "ResourceNotFoundException"],
        [weights({ 9: 0.1 }), "ResourceNotFoundException"],
        [weights({ $LATEST: 0.1 }), "InvalidParameterValueException"],
        [weights({ 1: 0.1 }), "InvalidParameterValueException"],
        [weights({ 2: 1.1 }), "InvalidParameterValueException"],
        [weights({ 2: -0.1 }), "InvalidParameterValueException"],
      ];
      for (const [change, error] of wrong) await assert.rejects(move(change), called(error), JSON.stringify(change));
      account.lambda.functions.get(FunctionName)?.versions.set("3", usualVersion());
      await assert.rejects(move(weights({ 2: 0.1, 3: 0.1 })), called("InvalidParameterValueException"));
      assert.equal((await live()).FunctionVersion, "1");
    });
    const weights = (AdditionalVersionWeights: Record<string, number>) => ({
      RoutingConfig: { AdditionalVersionWeights },
    });
    const usualVersion = () => {
      const found = account.lambda.functions.get(FunctionName)?.versions.get("2");
      assert.ok(found);
      return found;
    };

    it("send a share of calls to another version until the weights are empty", async () => {
      await move(weights({ 2: 0.1 }));
      account.lambda.random = () => 0.09;
      assert.equal((await invoke({}, "live")).version, "2");
      account.lambda.random = () => 0.1;
      assert.equal((await invoke({}, "live")).version, "1");
      await move({ Description: "still weighted" });
      assert.deepEqual((await live()).RoutingConfig?.AdditionalVersionWeights, { 2: 0.1 });
      await move(weights({}));
      assert.equal((await live()).RoutingConfig, undefined);
      account.lambda.random = () => 0;
      assert.equal((await invoke({}, "live")).version, "1");
    });
  });

  describe("runs functions, and", () => {
    beforeEach(twoVersions);

    it("returns the version that ran, and its log", async () => {
      assert.deepEqual((await invoke({}, "2")).payload, { mark: "two", version: "2" });
      const { log, version, fault } = await invoke({ says: "a line of its own" }, "live");
      assert.deepEqual([version, fault], ["1", undefined]);
      assert.match(log, /^START RequestId: \S+ Version: 1\na line of its own\nEND RequestId: /);
      const { log: long } = await invoke({ says: "x".repeat(9000) }, "1");
      assert.equal(Buffer.byteLength(long), 4096);
    });

    it("returns the error that a function threw, and calls it again", async () => {
      const { payload, fault, log } = await invoke({ throws: "no such thing" }, "live");
      assert.equal(fault, "Unhandled");
      assert.equal(Object(payload).errorType, "TypeError");
      assert.equal(Object(payload).errorMessage, "no such thing");
      assert.match(log, /no such thing/);
      assert.equal((await invoke({}, "live")).fault, undefined);
    });

    it("starts a function again after its process ended", async () => {
      assert.equal((await invoke({ ends: true }, "live")).fault, "Unhandled");
      assert.deepEqual((await invoke({}, "live")).payload, { mark: "one", version: "1" });
    });

    it("waits no longer than the function's time", async () => {
      await lambda().updateFunctionConfiguration({ FunctionName, Timeout: 1 });
      await updated();
      const { payload, fault } = await invoke({ waits: 60_000 });
      assert.equal(fault, "Unhandled");
      assert.match(Object(payload).errorMessage, /Task timed out after 1.00 seconds/);
      assert.equal((await invoke({})).fault, undefined);
    });

    it("runs two calls of a version in parallel; a third one waits", async () => {
      const busy = { waits: 300, names: true };
      const answers = await Promise.all([busy, busy, busy].map((event) => invoke(event, "live")));
      const pids = answers.map(({ payload }) => payload);
      assert.equal(pids.filter((pid) => typeof pid === "number").length, 3);
      assert.equal(new Set(pids).size, 2);
    });
  });

  describe("counts", () => {
    beforeEach(twoVersions);
    it("invocations and errors by the version that an alias chose", async () => {
      const Resource = `${FunctionName}:live`;
      const dimensions = (version: string) => ({ FunctionName, Resource, ExecutedVersion: version });
      const counts = async () => [
        await ask("AWS/Lambda", "Invocations", { FunctionName }),
        await ask("AWS/Lambda", "Invocations", { FunctionName, Resource }),
        await ask("AWS/Lambda", "Errors", { FunctionName, Resource }),
        await ask("AWS/Lambda", "Invocations", dimensions("1")),
        await ask("AWS/Lambda", "Errors", dimensions("1")),
        await ask("AWS/Lambda", "Invocations", dimensions("2")),
        await ask("AWS/Lambda", "Errors", dimensions("2")),
      ];
      const before = await counts();
      const RoutingConfig = { AdditionalVersionWeights: { 2: 0.5 } };
      await lambda().updateAlias({ ...alias, RoutingConfig });
      account.lambda.random = () => 0.9;
      await invoke({}, "live");
      account.lambda.random = () => 0.1;
      await invoke({ throws: "a" }, "live");
      await invoke({}, "live");
      await invoke({}, "2");
      const after = await counts();
      assert.deepEqual(
        after.map((count, index) => count - (before[index] ?? 0)),
        [4, 3, 1, 1, 0, 2, 1],
      );
      assert.ok((await ask("AWS/Lambda", "Duration", dimensions("2"), "p99")) > 0);
    });
  });

  describe("has stacks that", () => {
    const StackName = "postern-test";
    const place = { S3Bucket: "templates", S3Key: "rule.zip" };
    const template = (change: { code?: string; version?: unknown; memory?: number; more?: object } = {}) => ({
      Resources: {
        Live: {
          Type: "AWS::Lambda::Alias",
          Properties: {
            ...{ Name: "live", FunctionName: { Ref: "Rule" } },
            FunctionVersion: change.version ?? { "Fn::GetAtt": ["First", "Version"] },
          },
        },
        First: { Type: "AWS::Lambda::Version", Properties: { FunctionName: { Ref: "Rule" } } },
        Role: { Type: "AWS::IAM::Role", Properties: { AssumeRolePolicyDocument: {} } },
        Rule: {
          Type: "AWS::Lambda::Function",
          DependsOn: ["Log"],
          Properties: {
            ...{ FunctionName, Handler: "index.handler", Runtime: "nodejs24.x", Timeout: 10 },
            ...{ MemorySize: change.memory ?? 128, Role: { "Fn::Sub": `$\{Role.Arn}` } },
            Code: { ...place, S3Key: change.code ?? place.S3Key },
          },
        },
        Log: { Type: "AWS::Logs::LogGroup", Properties: { LogGroupName: `/aws/lambda/${FunctionName}` } },
        ...change.more,
      },
      Outputs: {
        Alias: { Value: { Ref: "Live" } },
        Stage: { Value: { "Fn::Join": ["-", [{ Ref: "AWS::Region" }, "a"]] } },
      },
    });
    const bodyOf = (made: object) => ({
      ...{ StackName, TemplateBody: JSON.stringify(made) },
      Capabilities: ["CAPABILITY_IAM" as const],
    });
    const create = async (made: object) => {
      await formation().createStack(bodyOf(made));
      return settled();
    };
    const update = async (made: object) => {
      await formation().updateStack(bodyOf(made));
      return settled();
    };
    const settled = async () => {
      await account.cloudformation.settled();
      const { Stacks = [] } = await formation().describeStacks({ StackName });
      return Stacks[0];
    };
    const remove = async () => {
      await formation().deleteStack({ StackName });
      await account.cloudformation.settled();
    };
    const actions = (caller: string) =>
      account.heard.filter((one) => one.caller === caller).map(({ action }) => action.replace("lambda:", ""));

    before(async () => {
      await account.storage.make("templates");
      for (const [Key, mark] of [
        ["rule.zip", "one"],
        ["next.zip", "two"],
      ] as const)
        await s3().putObject({ Bucket: "templates", Key, Body: codeOf(mark) });
    });
    beforeEach(() => {
      account.cloudformation.stacks.clear();
    });

    it("are created in the order of references, and return their outputs", async () => {
      const made = await create(template());
      assert.equal(made?.StackStatus, "CREATE_COMPLETE");
      assert.deepEqual(
        made?.Outputs?.map(({ OutputValue }) => OutputValue),
        [`arn:aws:lambda:eu-west-1:123456789012:function:${FunctionName}:live`, "eu-west-1-a"],
      );
      assert.deepEqual(actions("cloudformation"), [
        ...["CreateFunction", "GetFunctionConfiguration", "PublishVersion", "CreateAlias"],
      ]);
      assert.deepEqual((await invoke({}, "live")).payload, { mark: "one", version: "1" });
      const { TemplateBody } = await formation().getTemplate({ StackName });
      assert.equal(TemplateBody, JSON.stringify(template()));
    });

    it("change only what differs in the template: an alias stays where it was moved", async () => {
      await create(template());
      await assert.rejects(update(template()), /No updates are to be performed/);
      await lambda().updateFunctionCode({ FunctionName, ZipFile: codeOf("elsewhere") });
      await updated();
      await lambda().publishVersion(function_);
      const RoutingConfig = { AdditionalVersionWeights: { 1: 0.2 } };
      await lambda().updateAlias({ ...alias, FunctionVersion: "2", RoutingConfig });
      account.heard.length = 0;
      assert.equal((await update(template({ code: "next.zip" })))?.StackStatus, "UPDATE_COMPLETE");
      assert.deepEqual(actions("cloudformation"), ["UpdateFunctionCode", "GetFunctionConfiguration"]);
      const { FunctionVersion, RoutingConfig: kept } = await live();
      assert.deepEqual([FunctionVersion, kept], ["2", RoutingConfig]);
      account.heard.length = 0;
      await update(template({ code: "next.zip", memory: 256 }));
      assert.deepEqual(actions("cloudformation"), ["UpdateFunctionConfiguration", "GetFunctionConfiguration"]);
    });

    it("set an alias as in the template if that changes, without weights", async () => {
      await create(template());
      const second = {
        Type: "AWS::Lambda::Version",
        Properties: { FunctionName: { Ref: "Rule" }, Description: "second" },
      };
      await update(template({ code: "next.zip", more: { Second: second } }));
      const RoutingConfig = { AdditionalVersionWeights: { 2: 0.2 } };
      await lambda().updateAlias({ ...alias, RoutingConfig });
      const version = { "Fn::GetAtt": ["Second", "Version"] };
      await update(template({ code: "next.zip", version, more: { Second: second } }));
      const { FunctionVersion, RoutingConfig: left } = await live();
      assert.deepEqual([FunctionVersion, left], ["2", undefined]);
    });

    it("roll back if a step fails, and can be updated afterwards", async () => {
      await create(template());
      account.fault = ({ action, caller }, when) =>
        caller === "cloudformation" && action === "lambda:UpdateFunctionConfiguration" && when === "before"
          ? { status: 500, error: "ServiceException" }
          : undefined;
      const change = template({ code: "next.zip", memory: 256 });
      assert.equal((await update(change))?.StackStatus, "UPDATE_ROLLBACK_FAILED");
      account.cloudformation.stacks.clear();
      account.lambda.functions.clear();
      await create(template({ code: "rule.zip" }));
      let failures = 1;
      account.fault = ({ action, caller }, when) =>
        caller === "cloudformation" &&
        action === "lambda:UpdateFunctionConfiguration" &&
        when === "before" &&
        failures-- > 0
          ? { status: 500, error: "ServiceException" }
          : undefined;
      assert.equal((await update(change))?.StackStatus, "UPDATE_ROLLBACK_COMPLETE");
      assert.deepEqual((await invoke()).payload, { mark: "one", version: "$LATEST" });
      assert.equal((await latest()).MemorySize, 128);
      assert.equal((await update(change))?.StackStatus, "UPDATE_COMPLETE");
      assert.equal((await latest()).MemorySize, 256);
    });

    it("leave no resources if their creation fails", async () => {
      const failed = await create(template({ code: "none.zip" }));
      assert.equal(failed?.StackStatus, "ROLLBACK_COMPLETE");
      assert.equal(account.lambda.functions.size, 0);
      await assert.rejects(update(template()), /is in ROLLBACK_COMPLETE state and can not be updated/);
      await remove();
      assert.equal((await create(template()))?.StackStatus, "CREATE_COMPLETE");
    });

    it("delete resources that the template has no more, except retained ones", async () => {
      const kept = { Type: "AWS::S3::Bucket", DeletionPolicy: "Retain", Properties: { BucketName: "kept-bucket" } };
      const lost = { Type: "AWS::S3::Bucket", Properties: { BucketName: "lost-bucket" } };
      await create(template({ more: { Kept: kept, Lost: lost } }));
      assert.equal((await update(template({ memory: 256 })))?.StackStatus, "UPDATE_COMPLETE");
      const { Contents, KeyCount } = await s3().listObjectsV2({ Bucket: "kept-bucket" });
      assert.deepEqual([Contents, KeyCount], [undefined, 0]);
      await assert.rejects(s3().listObjectsV2({ Bucket: "lost-bucket" }), called("NoSuchBucket"));
    });

    it("can't be deleted before their buckets are empty", async () => {
      await create(
        template({ more: { Full: { Type: "AWS::S3::Bucket", Properties: { BucketName: "full-bucket" } } } }),
      );
      await s3().putObject({ Bucket: "full-bucket", Key: "a", Body: "b" });
      await remove();
      const stack = account.cloudformation.stack(StackName);
      assert.equal(stack?.status, "DELETE_FAILED");
      assert.match(String(stack?.reason), /\[Full\]/);
      assert.equal(account.lambda.functions.size, 0);
    });
  });

  describe("has a gateway that", () => {
    const source = `exports.handler = async ({ rawPath, requestContext, body }) => {
      if (rawPath.endsWith("/rule/slow")) await new Promise((resolve) => setTimeout(resolve, 60_000));
      if (rawPath.endsWith("/rule/broken")) return { body: "no status" };
      return { statusCode: 418, headers: { "content-type": "text/plain" }, body: requestContext.http.method + body.length };
    };`;
    const template = (TimeoutInMillis = 30_000) => ({
      Resources: {
        Rule: {
          Type: "AWS::Lambda::Function",
          Properties: { FunctionName, Code: { S3Bucket: "gateway", S3Key: "rule.zip" }, Timeout: 30 },
        },
        First: { Type: "AWS::Lambda::Version", Properties: { FunctionName: { Ref: "Rule" } } },
        Live: {
          Type: "AWS::Lambda::Alias",
          Properties: {
            ...{ Name: "live", FunctionName: { Ref: "Rule" } },
            FunctionVersion: { "Fn::GetAtt": ["First", "Version"] },
          },
        },
        Api: { Type: "AWS::ApiGatewayV2::Api", Properties: { Name: "api", ProtocolType: "HTTP" } },
        Integration: {
          Type: "AWS::ApiGatewayV2::Integration",
          Properties: { ApiId: { Ref: "Api" }, IntegrationUri: { Ref: "Live" }, TimeoutInMillis },
        },
        Route: {
          Type: "AWS::ApiGatewayV2::Route",
          Properties: {
            ...{ ApiId: { Ref: "Api" }, RouteKey: "POST /{cluster}/rule/{phase+}" },
            Target: { "Fn::Join": ["/", ["integrations", { Ref: "Integration" }]] },
          },
        },
        Permission: {
          Type: "AWS::Lambda::Permission",
          Properties: {
            ...{ FunctionName: { Ref: "Live" }, Action: "lambda:InvokeFunction" },
            Principal: "apigateway.amazonaws.com",
            SourceArn: { "Fn::Sub": `arn:aws:execute-api:\${AWS::Region}:\${AWS::AccountId}:\${Api}/*` },
          },
        },
      },
      Outputs: { BaseUrl: { Value: { "Fn::GetAtt": ["Api", "ApiEndpoint"] } } },
    });
    const create = async (StackName: string, made: object) => {
      await formation().createStack({ StackName, TemplateBody: JSON.stringify(made) });
      await account.cloudformation.settled();
      const stack = account.cloudformation.stack(StackName);
      assert.equal(stack?.status, "CREATE_COMPLETE", stack?.reason);
      return String(stack?.outputs.BaseUrl?.value);
    };
    const remove = async (StackName: string) => {
      await formation().deleteStack({ StackName });
      await account.cloudformation.settled();
    };
    before(async () => {
      await account.storage.make("gateway");
      const Body = zip({ "index.cjs": Buffer.from(source) });
      await s3().putObject({ Bucket: "gateway", Key: "rule.zip", Body });
    });

    it("returns a function's answer, within the timeout of the template", async () => {
      const base = await create("waiting", template(3000));
      assert.equal(base, account.baseUrl);
      const asked = async (phase: string) => {
        const { status, body } = await review(base, "rule", "a.b", phase);
        return [status, body];
      };
      assert.deepEqual(await asked("mutate"), [418, `POST${JSON.stringify(question).length}`]);
      assert.deepEqual(await asked("broken"), [502, '{"message":"Internal Server Error"}']);
      assert.deepEqual(await asked("slow"), [503, '{"message":"Service Unavailable"}']);
      await remove("waiting");
    });
  });

  describe("is deployed to by osls", () => {
    const rules = ["always-deny", "always-admit"];
    let folder: string;
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), "postern-account-test-"));
      for (const shared of ["lib", "node_modules"]) await symlink(join(root, shared), join(folder, shared));
      await cp(join(root, "package.json"), join(folder, "package.json"));
      const service = await readFile(join(root, "serverless.yml"), "utf8");
      const individually = /^package:/m.test(service) ? "" : "\npackage:\n  individually: true\n";
      await writeFile(join(folder, "serverless.yml"), `${service}${individually}`);
    });
    after(() => rm(folder, { recursive: true, force: true }));
    beforeEach(() => account.reset());

    const build = async (word: string) => {
      const made: RuleBundle[] = [];
      for (const name of rules) {
        const home = join(folder, "functions", name);
        await mkdir(home, { recursive: true });
        const verdict = name === "always-deny" ? JSON.stringify(word) : "undefined";
        const source = `import { rule } from "#lib/rule.ts";
          export default rule({
            summary: "Says ${word}.",
            match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
            validate() { return ${verdict}; },
          });`;
        for (const [file, text] of Object.entries({ "rule.ts": source, "cases.yaml": "[]", "README.md": "" }))
          await writeFile(join(home, file), text);
        const clusters = { local: { keyVersions: [1], mode: "enforce" as const, settings: {} } };
        made.push(await bundleRule(await readRule(home, name), { rule: name, clusters }, join(folder, "dist"), 30_000));
      }
      await writeServerlessIncludes(made, one.publicKey, join(folder, "dist"));
    };
    const deploy = (...words: string[]) => {
      const env = { PATH: process.env.PATH, HOME: folder, NO_COLOR: "1", ...account.env };
      return run(process.execPath, [osls, ...words, "--stage", "test"], { cwd: folder, env });
    };
    const verdict = async (base: string, rule: string) => {
      const { status, body } = await review(base, rule);
      assert.equal(status, 200, body);
      return JSON.parse(body).response;
    };
    const outputs = () => account.cloudformation.stack("postern-test")?.outputs ?? {};

    it("with a URL for each function", async () => {
      await build("no");
      await deploy("deploy", "--param=door=url");
      assert.equal(Object(await s3().listBuckets({})).Buckets.length, 1, "nothing is left of before");
      const { AlwaysDashdenyBaseUrl, AlwaysDashadmitBaseUrl } = Object(outputs());
      const [deny, admit] = [AlwaysDashdenyBaseUrl, AlwaysDashadmitBaseUrl].map((one) => String(Object(one).value));
      assert.equal((await verdict(String(deny), "always-deny")).allowed, false);
      assert.equal((await verdict(String(admit), "always-admit")).allowed, true);
      const denying = account.lambda.functions.get("postern-test-always-deny");
      assert.ok(denying);
      denying.reserved = 0;
      assert.equal((await review(String(deny), "always-deny")).status, 429);
      denying.reserved = undefined;
      denying.versions.set("1", { ...denying.latest, code: zip({ "index.cjs": Buffer.from("throw 1;") }) });
      assert.equal((await review(String(deny), "always-deny")).status, 502);
      const counts = ["Url4xxCount", "Url5xxCount", "Throttles", "Errors"].map((metric) =>
        ask("AWS/Lambda", metric, { FunctionName: "postern-test-always-deny" }),
      );
      assert.deepEqual(await Promise.all(counts), [1, 1, 1, 1]);
    });
  });
});

const question = {
  ...{ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview" },
  request: {
    uid: "705ab4f5-6393-11e8-b7cc-42010a800002",
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
    ...{ name: "a", namespace: "default", operation: "CREATE", userInfo: { username: "jane" } },
    object: { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "default" }, spec: {} },
    ...{ oldObject: null, dryRun: false, options: null },
  },
};
