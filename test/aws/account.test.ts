import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { request } from "node:https";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { CloudFormation } from "@aws-sdk/client-cloudformation";
import { CloudWatch } from "@aws-sdk/client-cloudwatch";
import { CloudWatchLogs } from "@aws-sdk/client-cloudwatch-logs";
import {
  Lambda,
  UpdateFunctionCodeCommand,
  type UpdateFunctionConfigurationRequest,
  waitUntilFunctionUpdatedV2,
} from "@aws-sdk/client-lambda";
import { S3 } from "@aws-sdk/client-s3";
import { createStageLogReader } from "../../infra/aws/log-queries.ts";
import { bundleRule, type RuleBundle } from "../../infra/build/bundle.ts";
import { writeServerlessIncludes } from "../../infra/build/deployment.ts";
import { zip } from "../../infra/build/zip.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { buildProbeReview } from "../../infra/clusters/probe.ts";
import { cacheVariables } from "../checkout.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { type Account, openAccount } from "./account.ts";
import { defaultQuotas } from "./lambda.ts";

// A deployment relies on behaviour that AWS documents. The stand-in for an AWS account must behave in the same way.

const run = promisify(execFile);
interface TemplateResource {
  Type: string;
  Properties: Record<string, unknown>;
}
/** The CloudFormation templates in account.test.yaml, by name. */
const templates = readRows<{
  stack: { Resources: { Live: TemplateResource; Rule: TemplateResource }; Outputs: object };
  gateway: object;
}>(import.meta.filename);
const root = fileURLToPath(new URL("../..", import.meta.url));
const osls = createRequire(import.meta.url).resolve("osls/bin/serverless.js");
const signer = createTestSigner(1);

/**
 * Returns the zip of a function whose event controls it: the function writes `says` to its log, throws the error
 * `throws`, ends its process (`ends`), waits for `waits` milliseconds, or returns its process ID (`returnsPid`).
 * Without these fields, the function returns `mark` and its version.
 */
const buildCode = (mark: string) =>
  zip({
    "index.cjs": Buffer.from(`exports.handler = async ({ throws, ends, waits, says, returnsPid }) => {
      if (says) process.stdout.write(says + "\\n");
      if (throws) throw new TypeError(throws);
      if (ends) process.exit(3);
      if (waits) await new Promise((resolve) => setTimeout(resolve, waits));
      if (returnsPid) return process.pid;
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
    account.recordedCalls.length = 0;
    Object.assign(account, { fault: undefined, allow: undefined });
    Object.assign(account.lambda, { updateMilliseconds: 5, propagationMilliseconds: 0, random: Math.random });
  });

  const openLambda = (caller = "tester") => new Lambda({ ...account.actAs(caller), maxAttempts: 1 });
  const openCloudFormation = (caller = "tester") => new CloudFormation({ ...account.actAs(caller), maxAttempts: 1 });
  const openS3 = () => new S3({ ...account.actAs("tester"), maxAttempts: 1 });
  /** Returns a function for assert.rejects, which accepts only errors with this name. */
  const expectError = (name: string) => (error: Error) =>
    error.name === name || assert.fail(`${error.name}: ${error.message}`);
  /** Sends a review as an API server would. */
  const review = (base: string, rule: string, segment = signer.segment("local"), phase = "validate") =>
    new Promise<{ status: number | undefined; body: string }>((resolve, reject) => {
      const headers = { "content-type": "application/json" };
      const target = `${base.replace(/\/$/, "")}/${segment}/${rule}/${phase}?timeout=3s`;
      const outgoing = request(target, { method: "POST", headers, ca: account.ca, agent: false }, async (response) => {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk);
        resolve({ status: response.statusCode, body: String(Buffer.concat(chunks)) });
      });
      outgoing.on("error", reject);
      outgoing.end(JSON.stringify(question));
    });
  const FunctionName = "postern-test-rule";
  const function_ = { FunctionName };
  const alias = { FunctionName, Name: "live" };

  /** Creates a function with two versions. The alias `live` points at version 1. */
  const createTwoVersions = () => {
    account.lambda.create(FunctionName, buildCode("one"), { POSTERN_STAGE: "test" });
    const fn = account.lambda.functions.get(FunctionName);
    assert.ok(fn);
    fn.latest = { ...fn.latest, code: buildCode("two"), revision: "second" };
    fn.versions.set("2", { ...fn.latest });
    Object.assign(fn, { published: 2, publishedFrom: fn.latest });
  };
  const invoke = async (event: object = {}, Qualifier?: string) => {
    const request = { FunctionName, Qualifier, LogType: "Tail" as const, Payload: JSON.stringify(event) };
    const answer = await openLambda().invoke(request);
    const payload: unknown = JSON.parse(answer.Payload?.transformToString() || "null");
    const log = Buffer.from(answer.LogResult ?? "", "base64").toString();
    return { payload, log, version: answer.ExecutedVersion, fault: answer.FunctionError };
  };
  /** Returns the sum of a metric's values over the last five minutes. */
  const sumMetric = async (Namespace: string, MetricName: string, dimensions: Record<string, string>, Stat = "Sum") => {
    const Dimensions = Object.entries(dimensions).map(([Name, Value]) => ({ Name, Value }));
    const Metric = { Namespace, MetricName, Dimensions };
    const now = Date.now();
    const client = new CloudWatch({ ...account.actAs("tester"), maxAttempts: 1 });
    const { MetricDataResults = [] } = await client.getMetricData({
      StartTime: new Date(now - 300_000),
      EndTime: new Date(now + 60_000),
      MetricDataQueries: [{ Id: "one", MetricStat: { Metric, Period: 3600, Stat } }],
    });
    return (MetricDataResults[0]?.Values ?? []).reduce((sum, value) => sum + value, 0);
  };
  const readLiveAlias = () => openLambda().getAlias(alias);
  const readLatest = () => openLambda().getFunctionConfiguration(function_);
  const waitUntilUpdated = async () => {
    await waitUntilFunctionUpdatedV2(
      { client: openLambda(), maxWaitTime: 60, minDelay: 0.01, maxDelay: 0.05 },
      function_,
    );
    return readLatest();
  };
  const configure = async (change: Omit<UpdateFunctionConfigurationRequest, "FunctionName">) => {
    await openLambda().updateFunctionConfiguration({ FunctionName, ...change });
    await waitUntilUpdated();
  };

  describe("functions of the stand-in for Lambda", () => {
    beforeEach(createTwoVersions);

    it("a change of a function is refused unless it names the latest revision", async () => {
      const { RevisionId } = await readLatest();
      const change = { FunctionName, ZipFile: buildCode("three"), RevisionId };
      await openLambda().updateFunctionCode(change);
      await waitUntilUpdated();
      const callsWithOldRevision = [
        () => openLambda().updateFunctionCode(change),
        () => openLambda().updateFunctionConfiguration({ FunctionName, RevisionId, MemorySize: 512 }),
        () => openLambda().publishVersion({ FunctionName, RevisionId }),
        () => openLambda().updateAlias({ ...alias, RevisionId, FunctionVersion: "2" }),
      ];
      for (const call of callsWithOldRevision) await assert.rejects(call, expectError("PreconditionFailedException"));
      const moved = await openLambda().updateAlias({
        ...alias,
        RevisionId: (await readLiveAlias()).RevisionId,
        FunctionVersion: "2",
      });
      assert.notEqual(moved.RevisionId, RevisionId);
      assert.equal(moved.FunctionVersion, "2");
    });

    it("a function refuses a second change during an update", async () => {
      account.lambda.updateMilliseconds = 60_000;
      await openLambda().updateFunctionCode({ FunctionName, ZipFile: buildCode("three") });
      assert.equal((await readLatest()).LastUpdateStatus, "InProgress");
      const conflict = expectError("ResourceConflictException");
      await assert.rejects(openLambda().updateFunctionConfiguration({ FunctionName, Timeout: 5 }), conflict);
      await assert.rejects(openLambda().publishVersion(function_), conflict);
    });

    it("a dry run changes no function, and is refused for an old revision and for a broken zip", async () => {
      const before = await readLatest();
      const dry = { FunctionName, ZipFile: buildCode("three"), DryRun: true };
      const dryRun = await openLambda().updateFunctionCode(dry);
      assert.notEqual(dryRun.CodeSha256, before.CodeSha256);
      assert.deepEqual((await readLatest()).CodeSha256, before.CodeSha256);
      const stale = new UpdateFunctionCodeCommand({ ...dry, RevisionId: "another" });
      await assert.rejects(openLambda().send(stale), expectError("PreconditionFailedException"));
      const broken = new UpdateFunctionCodeCommand({ ...dry, ZipFile: Buffer.from("no zip") });
      await assert.rejects(openLambda().send(broken), expectError("InvalidParameterValueException"));
    });

    it("a version is published once after each change, and only with the expected hash of the code", async () => {
      const publish = (input: object = {}) => openLambda().publishVersion({ FunctionName, ...input });
      await assert.rejects(publish({ CodeSha256: "another" }), ({ name, message }: Error) => {
        return name === "InvalidParameterValueException" && /^CodeSHA256 \(another\) is different from/.test(message);
      });
      assert.equal((await publish()).Version, "2");
      const changes = [
        { MemorySize: 512 },
        { Timeout: 7 },
        { Description: "third" },
        { Environment: { Variables: { MORE: "b" } } },
      ];
      for (const [index, change] of changes.entries()) {
        await openLambda().updateFunctionConfiguration({ FunctionName, ...change });
        const { CodeSha256 } = await waitUntilUpdated();
        const { Version } = await publish({ CodeSha256, Description: `change ${index}` });
        // The first change makes version 3, the second one version 4.
        assert.equal(Version, String(index + 3), JSON.stringify(change));
        assert.equal((await publish({ Description: "another" })).Version, Version);
      }
      const { MemorySize, Timeout, Description } = await openLambda().getFunctionConfiguration({
        FunctionName,
        Qualifier: "5",
      });
      assert.deepEqual([MemorySize, Timeout, Description], [512, 7, "change 2"]);
    });

    it("no new version is published after a dry run or an update that changes nothing", async () => {
      const { CodeSha256 } = await readLatest();
      const code = { FunctionName, ZipFile: buildCode("two") };
      await openLambda().updateFunctionCode({ ...code, DryRun: true });
      assert.equal((await openLambda().publishVersion(function_)).Version, "2");
      await openLambda().updateFunctionCode(code);
      assert.equal((await waitUntilUpdated()).CodeSha256, CodeSha256);
      await openLambda().updateFunctionConfiguration(function_);
      await waitUntilUpdated();
      assert.equal((await openLambda().publishVersion(function_)).Version, "2");
      await openLambda().updateFunctionConfiguration({ FunctionName, Description: "another" });
      await waitUntilUpdated();
      assert.equal((await openLambda().publishVersion(function_)).Version, "3");
    });

    it("a function refuses a configuration that Lambda refuses", async () => {
      const refusedChanges: [change: object, error: string][] = [
        [{ MemorySize: 64 }, "ValidationException"],
        [{ Timeout: 901 }, "ValidationException"],
        [{ Description: "x".repeat(257) }, "ValidationException"],
        [{ Environment: { Variables: { "a-b": "" } } }, "ValidationException"],
        [{ Environment: { Variables: { AWS_REGION: "eu-west-1" } } }, "InvalidParameterValueException"],
        [{ Environment: { Variables: { MUCH: "x".repeat(4093) } } }, "InvalidParameterValueException"],
      ];
      const before = await readLatest();
      for (const [change, error] of refusedChanges)
        await assert.rejects(
          openLambda().updateFunctionConfiguration({ FunctionName, ...change }),
          expectError(error),
          JSON.stringify(change).slice(0, 99),
        );
      assert.equal((await readLatest()).RevisionId, before.RevisionId);
    });

    it("a function can't be called while its role is deleted", async () => {
      const { Role = "" } = await readLatest();
      account.lambda.deletedRoles.add(Role);
      await assert.rejects(invoke({}, "live"), expectError("AccessDeniedException"));
      account.lambda.deletedRoles.delete(Role);
      assert.equal((await invoke({}, "live")).version, "1");
    });

    it("a function writes to its configured log group; Lambda adds no lines with JSON and the level WARN", async () => {
      const LoggingConfig = { LogFormat: "JSON", LogGroup: "/aws/lambda/all", SystemLogLevel: "WARN" } as const;
      const change = (changed: object) => openLambda().updateFunctionConfiguration({ FunctionName, ...changed });
      await assert.rejects(
        change({ LoggingConfig: { SystemLogLevel: "WARN" } }),
        expectError("InvalidParameterValueException"),
      );
      assert.equal((await readLatest()).LoggingConfig?.LogGroup, `/aws/lambda/${FunctionName}`);
      await change({ LoggingConfig });
      assert.deepEqual((await waitUntilUpdated()).LoggingConfig, LoggingConfig);
      const { Version } = await openLambda().publishVersion(function_);
      assert.equal((await invoke({ says: "hello" }, Version)).log, "hello");
      assert.match((await invoke({ says: "hello" }, "live")).log, /^START .*\nhello\nEND .*\nREPORT /);
    });

    it("a version can't be deleted while an alias points at it or sends a share of calls to it", async () => {
      const remove = (Qualifier: string) => openLambda().deleteFunction({ FunctionName, Qualifier });
      await assert.rejects(remove("1"), expectError("ResourceConflictException"));
      const RoutingConfig = { AdditionalVersionWeights: { 2: 0.1 } };
      await openLambda().updateAlias({ ...alias, RoutingConfig });
      await assert.rejects(remove("2"), expectError("ResourceConflictException"));
      await assert.rejects(remove("$LATEST"), expectError("InvalidParameterValueException"));
      await openLambda().updateAlias({ ...alias, RoutingConfig: { AdditionalVersionWeights: {} } });
      await remove("2");
      await assert.rejects(remove("2"), expectError("ResourceNotFoundException"));
      await assert.rejects(invoke({}, "2"), expectError("ResourceNotFoundException"));
    });
  });

  describe("quotas of the stand-in for Lambda", () => {
    beforeEach(createTwoVersions);
    afterEach(() => Object.assign(account.lambda, { quotas: { ...defaultQuotas }, isRateLimited: false }));
    const reserve = (ReservedConcurrentExecutions: number) =>
      openLambda().putFunctionConcurrency({ FunctionName, ReservedConcurrentExecutions });

    it("GetAccountSettings returns the quotas and the present usage", async () => {
      await reserve(300);
      const { AccountLimit, AccountUsage } = await openLambda().getAccountSettings({});
      const { ConcurrentExecutions, UnreservedConcurrentExecutions, TotalCodeSize } = AccountLimit ?? {};
      assert.deepEqual(
        [ConcurrentExecutions, UnreservedConcurrentExecutions, TotalCodeSize],
        [1000, 700, 80_530_636_800],
      );
      const bytes = buildCode("one").length + 2 * buildCode("two").length;
      assert.deepEqual(AccountUsage, { FunctionCount: 1, TotalCodeSize: bytes });
    });

    // 900 is the quota of 1000 without 100.
    it("100 concurrent calls can't be reserved, and in an account with a quota of 10 none of them", async () => {
      await reserve(900);
      await assert.rejects(reserve(901), expectError("InvalidParameterValueException"));
      await openLambda().deleteFunctionConcurrency(function_);
      account.lambda.quotas.concurrency = 10;
      await assert.rejects(reserve(1), /below its minimum value of \[10\]/);
    });

    it("a function without reserved concurrency is throttled if other calls use up the quota", async () => {
      account.lambda.create("postern-test-other", buildCode("other"), {});
      const fn = account.lambda.functions.get(FunctionName);
      assert.ok(fn);
      account.lambda.quotas.concurrency = 1;
      fn.running = 1;
      await assert.rejects(invoke({}, "live"), expectError("TooManyRequestsException"));
      fn.running = 0;
      assert.equal((await invoke({}, "live")).version, "1");
      account.lambda.quotas.concurrency = 101;
      await reserve(1);
      account.lambda.quotas.concurrency = 1;
      await assert.rejects(
        openLambda().invoke({ FunctionName: "postern-test-other", Payload: "{}" }),
        expectError("TooManyRequestsException"),
      );
      assert.equal((await invoke({}, "live")).version, "1");
    });

    it("a quota limits the size of the code of all versions together", async () => {
      const { length } = buildCode("three");
      account.lambda.quotas.codeBytes = buildCode("one").length + 2 * buildCode("two").length + length - 1;
      const change = { FunctionName, ZipFile: Buffer.concat([buildCode("three")]) };
      await openLambda().updateFunctionCode({ ...change, DryRun: true });
      await openLambda().updateFunctionCode(change);
      await waitUntilUpdated();
      await assert.rejects(openLambda().publishVersion(function_), expectError("CodeStorageExceededException"));
    });

    it("a quota limits the calls per second, and allows more for GetFunction than for GetAlias", async () => {
      account.lambda.isRateLimited = true;
      const client = openLambda();
      const countRefused = async (length: number, call: () => Promise<unknown>) => {
        const results = await Promise.allSettled(Array.from({ length }, call));
        const refused = results.flatMap((result) => (result.status === "rejected" ? [result.reason.name] : []));
        assert.deepEqual(new Set([...refused, "TooManyRequestsException"]), new Set(["TooManyRequestsException"]));
        return refused.length;
      };
      assert.ok((await countRefused(200, () => client.getAlias(alias))) > 0);
      assert.equal(await countRefused(60, () => client.getFunction(function_)), 0);
    });
  });

  describe("aliases of the stand-in for Lambda", () => {
    beforeEach(createTwoVersions);
    const updateAlias = (change: object) => openLambda().updateAlias({ ...alias, ...change });

    it("an alias points only at published versions, with a weight for one version with the same role", async () => {
      const refusedChanges: [object, string][] = [
        [{ FunctionVersion: "$LATEST" }, "InvalidParameterValueException"],
        [{ FunctionVersion: "9" }, "ResourceNotFoundException"],
        [buildRouting({ 9: 0.1 }), "ResourceNotFoundException"],
        [buildRouting({ $LATEST: 0.1 }), "InvalidParameterValueException"],
        [buildRouting({ 1: 0.1 }), "InvalidParameterValueException"],
        [buildRouting({ 2: 1.1 }), "InvalidParameterValueException"],
        [buildRouting({ 2: -0.1 }), "InvalidParameterValueException"],
      ];
      for (const [change, error] of refusedChanges)
        await assert.rejects(updateAlias(change), expectError(error), JSON.stringify(change));
      const versions = account.lambda.functions.get(FunctionName)?.versions;
      versions?.set("3", getSecondVersion());
      const invalid = expectError("InvalidParameterValueException");
      await assert.rejects(updateAlias(buildRouting({ 2: 0.1, 3: 0.1 })), invalid);
      versions?.set("3", { ...getSecondVersion(), role: "arn:aws:iam::123456789012:role/another" });
      await assert.rejects(updateAlias(buildRouting({ 3: 0.1 })), invalid);
      assert.equal((await readLiveAlias()).FunctionVersion, "1");
    });
    const buildRouting = (AdditionalVersionWeights: Record<string, number>) => ({
      RoutingConfig: { AdditionalVersionWeights },
    });
    const getSecondVersion = () => {
      const fnVersion = account.lambda.functions.get(FunctionName)?.versions.get("2");
      assert.ok(fnVersion);
      return fnVersion;
    };

    it("an alias sends a fraction of calls to another version until its weights are empty", async () => {
      await updateAlias(buildRouting({ 2: 0.1 }));
      account.lambda.random = () => 0.09;
      assert.equal((await invoke({}, "live")).version, "2");
      account.lambda.random = () => 0.1;
      assert.equal((await invoke({}, "live")).version, "1");
      await updateAlias({ Description: "still weighted" });
      assert.deepEqual((await readLiveAlias()).RoutingConfig?.AdditionalVersionWeights, { 2: 0.1 });
      await updateAlias(buildRouting({}));
      assert.equal((await readLiveAlias()).RoutingConfig, undefined);
      account.lambda.random = () => 0;
      assert.equal((await invoke({}, "live")).version, "1");
    });

    it("the API shows a new or moved alias at once, but invocations use it only after some time", async () => {
      account.lambda.propagationMilliseconds = 60_000;
      await updateAlias({ FunctionVersion: "2" });
      await openLambda().createAlias({ FunctionName, Name: "fresh", FunctionVersion: "2" });
      assert.equal((await readLiveAlias()).FunctionVersion, "2");
      assert.equal((await invoke({}, "live")).version, "1");
      assert.equal((await invoke({}, "2")).version, "2");
      await assert.rejects(invoke({}, "fresh"), expectError("ResourceNotFoundException"));
      account.lambda.propagationMilliseconds = 0;
      for (const name of ["live", "fresh"]) assert.equal((await invoke({}, name)).version, "2");
    });
  });

  describe("calls of functions of the stand-in for Lambda", () => {
    beforeEach(createTwoVersions);

    it("a call returns the version that ran, and at most 4096 bytes of its log", async () => {
      assert.deepEqual((await invoke({}, "2")).payload, { mark: "two", version: "2" });
      const { log, version, fault } = await invoke({ says: "a line of its own" }, "live");
      assert.deepEqual([version, fault], ["1", undefined]);
      assert.match(log, /^START RequestId: \S+ Version: 1\na line of its own\nEND RequestId: /);
      const { log: long } = await invoke({ says: "x".repeat(9000) }, "1");
      assert.equal(Buffer.byteLength(long), 4096);
    });

    it("a call returns the error that a function threw, and the function can be called again", async () => {
      const { payload, fault, log } = await invoke({ throws: "no such thing" }, "live");
      assert.equal(fault, "Unhandled");
      assert.equal(Object(payload).errorType, "TypeError");
      assert.equal(Object(payload).errorMessage, "no such thing");
      assert.match(log, /no such thing/);
      assert.equal((await invoke({}, "live")).fault, undefined);
    });

    it("a function is started again after its process ended", async () => {
      assert.equal((await invoke({ ends: true }, "live")).fault, "Unhandled");
      assert.deepEqual((await invoke({}, "live")).payload, { mark: "one", version: "1" });
    });

    it("a call ends after the function's timeout, and the next call starts the function again", async () => {
      await configure({ Timeout: 1 });
      const { payload, fault } = await invoke({ waits: 60_000 });
      assert.equal(fault, "Unhandled");
      assert.match(Object(payload).errorMessage, /Task timed out after 1.00 seconds/);
      await configure({ Timeout: 60 });
      assert.equal((await invoke({})).fault, undefined);
    });

    it("three simultaneous calls of a version run in two processes", async () => {
      const busy = { waits: 300, returnsPid: true };
      const answers = await Promise.all([busy, busy, busy].map((event) => invoke(event, "live")));
      const pids = answers.map(({ payload }) => payload);
      assert.equal(pids.filter((pid) => typeof pid === "number").length, 3);
      assert.equal(new Set(pids).size, 2);
    });
  });

  describe("metrics of the stand-in for Lambda", () => {
    beforeEach(createTwoVersions);
    it("invocations and errors are counted by the version that an alias chose", async () => {
      const Resource = `${FunctionName}:live`;
      const buildDimensions = (version: string) => ({ FunctionName, Resource, ExecutedVersion: version });
      const readCounts = async () => [
        await sumMetric("AWS/Lambda", "Invocations", { FunctionName }),
        await sumMetric("AWS/Lambda", "Invocations", { FunctionName, Resource }),
        await sumMetric("AWS/Lambda", "Errors", { FunctionName, Resource }),
        await sumMetric("AWS/Lambda", "Invocations", buildDimensions("1")),
        await sumMetric("AWS/Lambda", "Errors", buildDimensions("1")),
        await sumMetric("AWS/Lambda", "Invocations", buildDimensions("2")),
        await sumMetric("AWS/Lambda", "Errors", buildDimensions("2")),
      ];
      const before = await readCounts();
      const RoutingConfig = { AdditionalVersionWeights: { 2: 0.5 } };
      await openLambda().updateAlias({ ...alias, RoutingConfig });
      account.lambda.random = () => 0.9;
      await invoke({}, "live");
      account.lambda.random = () => 0.1;
      await invoke({ throws: "a" }, "live");
      await invoke({}, "live");
      await invoke({}, "2");
      const after = await readCounts();
      assert.deepEqual(
        after.map((count, index) => count - (before[index] ?? 0)),
        // In the order of readCounts. The call by `Qualifier: "2"` counts only for the function itself.
        [4, 3, 1, 1, 0, 2, 1],
      );
      assert.ok((await sumMetric("AWS/Lambda", "Duration", buildDimensions("2"), "p99")) > 0);
    });
  });

  describe("the stand-in for CloudWatch Logs", () => {
    const group = "/aws/lambda/postern-test";
    const query = "filter level > 0 | stats sum(level) as sum, count(*) as lines by who | sort who";
    const openLogs = () => new CloudWatchLogs({ ...account.actAs("tester"), maxAttempts: 1 });
    const startQuery = (input: object = {}) => {
      const now = Math.ceil(Date.now() / 1000);
      return openLogs().startQuery({
        logGroupName: group,
        queryString: query,
        startTime: now - 60,
        endTime: now,
        ...input,
      });
    };
    const readRowsOfQuery = (input: object = {}, from = new Date(Date.now() - 60_000), to = new Date()) => {
      const { logGroup = group, text = query }: { logGroup?: string; text?: string } = input;
      return createStageLogReader(new CloudWatchLogs(account.actAs("tester"))).query(logGroup, text, from, to);
    };
    const write = (line: object) => account.logs.write(group, "stream", JSON.stringify(line));
    beforeEach(() => {
      account.logs.clear();
      account.logs.groups.clear();
      account.logs.groups.set(group, []);
      Object.assign(account.logs, { ingestionMilliseconds: 0, queryMilliseconds: 50, startsPerSecond: 100 });
    });

    it("a query reads only the lines of its log group and of its time", async () => {
      for (const line of [{ who: "b", level: 1 }, { who: "a", level: 2 }, { who: "b", level: "3" }, { who: "c" }])
        write(line);
      const rows = [
        { who: "a", sum: "2", lines: "1" },
        { who: "b", sum: "4", lines: "2" },
      ];
      assert.deepEqual(await readRowsOfQuery(), rows);
      const hoursAgo = (hours: number) => new Date(Date.now() - hours * 3_600_000);
      assert.deepEqual(await readRowsOfQuery({}, hoursAgo(2), hoursAgo(1)), []);
      assert.deepEqual(await readRowsOfQuery({ logGroup: `${group}-other` }), []);
    });

    it("a query finds a line only after a while, and has a result only when the query is complete", async () => {
      account.logs.ingestionMilliseconds = 3_600_000;
      write({ who: "a", level: 1 });
      assert.deepEqual(await readRowsOfQuery(), []);
      Object.assign(account.logs, { ingestionMilliseconds: 0, queryMilliseconds: 600 });
      const { queryId } = await startQuery();
      assert.equal((await openLogs().getQueryResults({ queryId })).status, "Running");
      assert.deepEqual(await readRowsOfQuery(), [{ who: "a", sum: "1", lines: "1" }]);
    });

    it("wrong queries, more than 30 queries at once, and too many starts per second are refused", async () => {
      await assert.rejects(startQuery({ queryString: "parse it" }), expectError("MalformedQueryException"));
      await assert.rejects(startQuery({ logGroupName: "/no" }), expectError("ResourceNotFoundException"));
      await assert.rejects(startQuery({ limit: 10_001 }), expectError("InvalidParameterException"));
      await assert.rejects(
        // Milliseconds; CloudWatch Logs expects seconds.
        startQuery({ startTime: Date.now(), endTime: Date.now() }),
        expectError("InvalidParameterException"),
      );
      account.logs.queryMilliseconds = 60_000;
      const mostConcurrentQueries = 30;
      for (let count = 0; count < mostConcurrentQueries; count++) await startQuery();
      await assert.rejects(startQuery(), expectError("LimitExceededException"));
      account.logs.startsPerSecond = 0;
      await assert.rejects(startQuery(), expectError("ThrottlingException"));
      account.logs.startsPerSecond = 100;
    });

    it("a line for a log group that doesn't exist is dropped", async () => {
      account.logs.write("/no", "stream", "{}");
      assert.deepEqual([...account.logs.groups.keys()], [group]);
    });

    it("a log group has a function's lines, and at the level WARN only Lambda's reports of failures", async () => {
      createTwoVersions();
      const LoggingConfig = { LogGroup: group, LogFormat: "JSON", SystemLogLevel: "WARN" } as const;
      await configure({ LoggingConfig, Timeout: 60 });
      const line = JSON.stringify({ who: "a", level: 1 });
      await invoke({ says: line });
      const readLines = () => (account.logs.groups.get(group) ?? []).map(({ line }) => line);
      // Lambda's runtime client doesn't change the standard output.
      assert.deepEqual(readLines(), [line]);
      await configure({ Timeout: 1 });
      await invoke({ waits: 60_000 });
      await configure({ Timeout: 60 });
      await invoke({ ends: true });
      await invoke({});
      const reports = await readRowsOfQuery({
        text: 'fields @logStream, record.status | filter type = "platform.report" | sort @timestamp',
      });
      assert.deepEqual(
        // The name of a log stream begins with a date, such as 2026/11/23/.
        reports.map((row) => [row["@logStream"]?.slice("2026/11/23/".length), row["record.status"]]),
        [
          [`${FunctionName}[$LATEST][stand-in]`, "timeout"],
          [`${FunctionName}[$LATEST][stand-in]`, "error"],
        ],
      );
      const levelWithoutJson = openLambda().updateFunctionConfiguration({
        FunctionName,
        LoggingConfig: { SystemLogLevel: "WARN" },
      });
      await assert.rejects(levelWithoutJson, expectError("InvalidParameterValueException"));
    });
  });

  describe("stacks of the stand-in for CloudFormation", () => {
    const StackName = "postern-test";
    const buildTemplate = (
      change: { code?: string; version?: unknown; memory?: number; extraResources?: object } = {},
    ) => {
      const { Resources, Outputs } = structuredClone(templates.stack);
      const { Rule, Live } = Resources;
      Object.assign(Object(Rule.Properties.Code), { S3Key: change.code ?? "rule.zip" });
      Object.assign(Rule.Properties, { MemorySize: change.memory ?? 128 });
      if (change.version) Object.assign(Live.Properties, { FunctionVersion: change.version });
      return { Resources: { ...Resources, ...change.extraResources }, Outputs };
    };
    const buildStackRequest = (content: object) => ({
      StackName,
      TemplateBody: JSON.stringify(content),
      Capabilities: ["CAPABILITY_IAM" as const],
    });
    const create = async (content: object) => {
      await openCloudFormation().createStack(buildStackRequest(content));
      return waitForStack();
    };
    const update = async (content: object) => {
      await openCloudFormation().updateStack(buildStackRequest(content));
      return waitForStack();
    };
    const waitForStack = async () => {
      await account.cloudformation.waitUntilIdle();
      const { Stacks = [] } = await openCloudFormation().describeStacks({ StackName });
      return Stacks[0];
    };
    const remove = async () => {
      await openCloudFormation().deleteStack({ StackName });
      await account.cloudformation.waitUntilIdle();
    };
    const listActions = (caller: string) =>
      account.recordedCalls.filter((call) => call.caller === caller).map(({ action }) => action.replace("lambda:", ""));

    before(async () => {
      await account.storage.createBucket("templates");
      for (const [Key, mark] of [
        ["rule.zip", "one"],
        ["next.zip", "two"],
      ] as const)
        await openS3().putObject({ Bucket: "templates", Key, Body: buildCode(mark) });
    });
    beforeEach(() => {
      account.cloudformation.stacks.clear();
      account.logs.groups.clear();
    });

    it("a stack creates resources in the order of their references, and returns its outputs", async () => {
      const stack = await create(buildTemplate());
      assert.equal(stack?.StackStatus, "CREATE_COMPLETE");
      assert.deepEqual(
        stack?.Outputs?.map(({ OutputValue }) => OutputValue),
        [`arn:aws:lambda:eu-west-1:123456789012:function:${FunctionName}:live`, "eu-west-1-a"],
      );
      assert.deepEqual(listActions("cloudformation"), [
        "CreateFunction",
        "GetFunctionConfiguration",
        "PublishVersion",
        "CreateAlias",
      ]);
      assert.deepEqual((await invoke({}, "live")).payload, { mark: "one", version: "1" });
      const { TemplateBody } = await openCloudFormation().getTemplate({ StackName });
      assert.equal(TemplateBody, JSON.stringify(buildTemplate()));
    });

    it("an update changes only properties that differ in the template; a moved alias isn't moved back", async () => {
      await create(buildTemplate());
      await assert.rejects(update(buildTemplate()), /No updates are to be performed/);
      await openLambda().updateFunctionCode({ FunctionName, ZipFile: buildCode("elsewhere") });
      await waitUntilUpdated();
      await openLambda().publishVersion(function_);
      const RoutingConfig = { AdditionalVersionWeights: { 1: 0.2 } };
      await openLambda().updateAlias({ ...alias, FunctionVersion: "2", RoutingConfig });
      account.recordedCalls.length = 0;
      assert.equal((await update(buildTemplate({ code: "next.zip" })))?.StackStatus, "UPDATE_COMPLETE");
      assert.deepEqual(listActions("cloudformation"), ["UpdateFunctionCode", "GetFunctionConfiguration"]);
      const { FunctionVersion, RoutingConfig: kept } = await readLiveAlias();
      assert.deepEqual([FunctionVersion, kept], ["2", RoutingConfig]);
      account.recordedCalls.length = 0;
      await update(buildTemplate({ code: "next.zip", memory: 256 }));
      assert.deepEqual(listActions("cloudformation"), ["UpdateFunctionConfiguration", "GetFunctionConfiguration"]);
    });

    it("an update moves an alias if its version changes in the template, and removes the alias's weights", async () => {
      await create(buildTemplate());
      const second = {
        Type: "AWS::Lambda::Version",
        Properties: { FunctionName: { Ref: "Rule" }, Description: "second" },
      };
      await update(buildTemplate({ code: "next.zip", extraResources: { Second: second } }));
      const RoutingConfig = { AdditionalVersionWeights: { 2: 0.2 } };
      await openLambda().updateAlias({ ...alias, RoutingConfig });
      const version = { "Fn::GetAtt": ["Second", "Version"] };
      await update(buildTemplate({ code: "next.zip", version, extraResources: { Second: second } }));
      const { FunctionVersion, RoutingConfig: remaining } = await readLiveAlias();
      assert.deepEqual([FunctionVersion, remaining], ["2", undefined]);
    });

    it("a stack rolls back if a step fails and can then be updated; it fails if the rollback fails too", async () => {
      await create(buildTemplate());
      // Every configuration update fails, also that of the rollback.
      account.fault = ({ action, caller }, when) =>
        caller === "cloudformation" && action === "lambda:UpdateFunctionConfiguration" && when === "before"
          ? { status: 500, error: "ServiceException" }
          : undefined;
      const change = buildTemplate({ code: "next.zip", memory: 256 });
      assert.equal((await update(change))?.StackStatus, "UPDATE_ROLLBACK_FAILED");
      account.cloudformation.stacks.clear();
      account.logs.groups.clear();
      account.lambda.functions.clear();
      await create(buildTemplate({ code: "rule.zip" }));
      // Only the first configuration update fails.
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
      assert.equal((await readLatest()).MemorySize, 128);
      assert.equal((await update(change))?.StackStatus, "UPDATE_COMPLETE");
      assert.equal((await readLatest()).MemorySize, 256);
    });

    it("a stack whose creation fails keeps no resources, and must be deleted before the next creation", async () => {
      const failed = await create(buildTemplate({ code: "none.zip" }));
      assert.equal(failed?.StackStatus, "ROLLBACK_COMPLETE");
      assert.equal(account.lambda.functions.size, 0);
      await assert.rejects(update(buildTemplate()), /is in ROLLBACK_COMPLETE state and can not be updated/);
      await remove();
      assert.equal((await create(buildTemplate()))?.StackStatus, "CREATE_COMPLETE");
    });

    it("an update deletes resources that the template no longer has, except with DeletionPolicy Retain", async () => {
      const kept = { Type: "AWS::S3::Bucket", DeletionPolicy: "Retain", Properties: { BucketName: "kept-bucket" } };
      const deleted = { Type: "AWS::S3::Bucket", Properties: { BucketName: "deleted-bucket" } };
      await create(buildTemplate({ extraResources: { Kept: kept, Deleted: deleted } }));
      assert.equal((await update(buildTemplate({ memory: 256 })))?.StackStatus, "UPDATE_COMPLETE");
      const { Contents, KeyCount } = await openS3().listObjectsV2({ Bucket: "kept-bucket" });
      assert.deepEqual([Contents, KeyCount], [undefined, 0]);
      await assert.rejects(openS3().listObjectsV2({ Bucket: "deleted-bucket" }), expectError("NoSuchBucket"));
    });

    it("a stack can't create a log group that the same stack has, or that was removed from it and kept", async () => {
      const LogGroupName = "/aws/lambda/all";
      const group = { Type: "AWS::Logs::LogGroup", DeletionPolicy: "Retain", Properties: { LogGroupName } };
      await create(buildTemplate({ extraResources: { FirstGroup: group } }));
      assert.equal(
        (await update(buildTemplate({ extraResources: { SecondGroup: group } })))?.StackStatus,
        "UPDATE_ROLLBACK_COMPLETE",
      );
      assert.equal((await update(buildTemplate({ memory: 256 })))?.StackStatus, "UPDATE_COMPLETE");
      const again = buildTemplate({ memory: 256, extraResources: { SecondGroup: group } });
      assert.equal((await update(again))?.StackStatus, "UPDATE_ROLLBACK_COMPLETE");
    });

    it("a stack takes over an existing log group by a change set of type IMPORT without other changes", async () => {
      const LogGroupName = "/aws/lambda/kept";
      account.logs.groups.set(LogGroupName, []);
      const Kept = { Type: "AWS::Logs::LogGroup", DeletionPolicy: "Retain", Properties: { LogGroupName } };
      const keptGroup = { ResourceType: Kept.Type, LogicalResourceId: "Kept", ResourceIdentifier: { LogGroupName } };
      const importFrom = async (content: object) => {
        const set = { ...buildStackRequest(content), ChangeSetName: "import", ChangeSetType: "IMPORT" as const };
        await openCloudFormation().createChangeSet({ ...set, ResourcesToImport: [keptGroup] });
        await openCloudFormation().executeChangeSet({ StackName, ChangeSetName: "import" });
        return waitForStack();
      };
      await create(buildTemplate());
      const Other = { ...Kept, Properties: { LogGroupName: "/aws/lambda/other" } };
      await assert.rejects(
        importFrom(buildTemplate({ extraResources: { Kept, Other } })),
        /cannot modify or add resources/,
      );
      const imported = await importFrom(buildTemplate({ extraResources: { Kept } }));
      assert.equal(imported?.StackStatus, "IMPORT_COMPLETE");
      const extraResources = { Kept: { ...Kept, Properties: { LogGroupName, RetentionInDays: 3 } } };
      assert.equal((await update(buildTemplate({ memory: 256, extraResources })))?.StackStatus, "UPDATE_COMPLETE");
      assert.equal(account.logs.retention.get(LogGroupName), 3);
      await remove();
      assert.deepEqual([...account.logs.groups.keys()], [LogGroupName]);
    });

    it("the deletion of a stack fails if a bucket isn't empty, but deletes the other resources", async () => {
      const Full = { Type: "AWS::S3::Bucket", Properties: { BucketName: "full-bucket" } };
      await create(buildTemplate({ extraResources: { Full } }));
      await openS3().putObject({ Bucket: "full-bucket", Key: "a", Body: "b" });
      await remove();
      const stack = account.cloudformation.stack(StackName);
      assert.equal(stack?.status, "DELETE_FAILED");
      assert.match(String(stack?.reason), /\[Full\]/);
      assert.equal(account.lambda.functions.size, 0);
    });
  });

  describe("the stand-in for API Gateway", () => {
    const source = `exports.handler = async ({ rawPath, requestContext, body }) => {
      if (rawPath.endsWith("/rule/slow")) await new Promise((resolve) => setTimeout(resolve, 60_000));
      if (rawPath.endsWith("/rule/broken")) return { body: "no status" };
      return { statusCode: 418, headers: { "content-type": "text/plain" }, body: requestContext.http.method + body.length };
    };`;
    const create = async (StackName: string, content: object) => {
      await openCloudFormation().createStack({ StackName, TemplateBody: JSON.stringify(content) });
      await account.cloudformation.waitUntilIdle();
      const stack = account.cloudformation.stack(StackName);
      assert.equal(stack?.status, "CREATE_COMPLETE", stack?.reason);
      return String(stack?.outputs.BaseUrl?.value);
    };
    const remove = async (StackName: string) => {
      await openCloudFormation().deleteStack({ StackName });
      await account.cloudformation.waitUntilIdle();
    };
    before(async () => {
      await account.storage.createBucket("gateway");
      const Body = zip({ "index.cjs": Buffer.from(source) });
      await openS3().putObject({ Bucket: "gateway", Key: "rule.zip", Body });
    });

    it("a gateway returns a function's answer, or 502 without a status, or 503 after the timeout", async () => {
      const base = await create("waiting", templates.gateway);
      assert.equal(base, account.baseUrl);
      const sendReview = async (phase: string) => {
        const { status, body } = await review(base, "rule", "a.b", phase);
        return [status, body];
      };
      assert.deepEqual(await sendReview("mutate"), [418, `POST${JSON.stringify(question).length}`]);
      assert.deepEqual(await sendReview("broken"), [502, '{"message":"Internal Server Error"}']);
      assert.deepEqual(await sendReview("slow"), [503, '{"message":"Service Unavailable"}']);
      await remove("waiting");
    });

    it("a gateway uses a new route, a removed permission and a new permission only after some time", async () => {
      account.lambda.propagationMilliseconds = 60_000;
      const base = await create("fresh", templates.gateway);
      assert.deepEqual(await review(base, "rule"), { status: 404, body: '{"message":"Not Found"}' });
      account.lambda.propagationMilliseconds = 0;
      assert.equal((await review(base, "rule")).status, 418);
      const [removed] = account.lambda.functions.get(FunctionName)?.policies.get("live")?.statements ?? [];
      const permission = { ...function_, Qualifier: "live", StatementId: String(removed?.Sid) };
      const forbidden = { status: 500, body: '{"message":"Internal Server Error"}' };
      account.lambda.propagationMilliseconds = 60_000;
      await openLambda().removePermission(permission);
      assert.equal((await review(base, "rule")).status, 418);
      account.lambda.propagationMilliseconds = 0;
      assert.deepEqual(await review(base, "rule"), forbidden);
      account.lambda.propagationMilliseconds = 60_000;
      const Principal = "apigateway.amazonaws.com";
      await openLambda().addPermission({ ...permission, Action: "lambda:InvokeFunction", Principal });
      assert.deepEqual(await review(base, "rule"), forbidden);
      account.lambda.propagationMilliseconds = 0;
      assert.equal((await review(base, "rule")).status, 418);
      await remove("fresh");
    });
  });

  describe("the stand-in of an AWS account, deployed to by osls", () => {
    const rules = ["always-deny", "always-admit"];
    let folder: string;
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), "postern-account-test-"));
      for (const shared of ["lib", "node_modules"]) await symlink(join(root, shared), join(folder, shared));
      await cp(join(root, "package.json"), join(folder, "package.json"));
      const service = await readFile(join(root, "serverless.yml"), "utf8");
      const packaging = /^package:/m.test(service) ? "" : "\npackage:\n  individually: true\n";
      await writeFile(join(folder, "serverless.yml"), `${service}${packaging}`);
    });
    after(() => rm(folder, { recursive: true, force: true }));
    beforeEach(() => account.reset());

    /** Builds a rule that denies with this message, and a rule that admits. */
    const build = async (message: string) => {
      const bundles: RuleBundle[] = [];
      for (const name of rules) {
        const ruleFolder = join(folder, "functions", name);
        await mkdir(ruleFolder, { recursive: true });
        const verdict = name === "always-deny" ? JSON.stringify(message) : "undefined";
        const source = `import { rule } from "#lib/rule.ts";
          export default rule({
            summary: "Says ${message}.",
            match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
            validate() { return ${verdict}; },
          });`;
        for (const [file, text] of Object.entries({ "rule.ts": source, "cases.yaml": "[]", "README.md": "" }))
          await writeFile(join(ruleFolder, file), text);
        const clusters = { local: { keyVersions: [1], mode: "enforce" as const, settings: {} } };
        bundles.push(
          await bundleRule(await readRule(ruleFolder, name), { rule: name, clusters }, join(folder, "dist"), {
            budgetBytes: 30_000,
          }),
        );
      }
      await writeServerlessIncludes(bundles, signer.publicKey, join(folder, "dist"));
    };
    const runOsls = (...words: string[]) => {
      const env = { PATH: process.env.PATH, HOME: folder, NO_COLOR: "1", ...cacheVariables, ...account.env };
      return run(process.execPath, [osls, ...words, "--stage", "test"], { cwd: folder, env });
    };
    const readVerdict = async (base: string, rule: string) => {
      const { status, body } = await review(base, rule);
      assert.equal(status, 200, body);
      return JSON.parse(body).response;
    };
    const getOutputs = () => account.cloudformation.stack("postern-test")?.outputs ?? {};

    it("the account gets a URL for each function, and counts reviews, refused calls and errors", async () => {
      await build("no");
      await runOsls("deploy", "--param=endpoint=url");
      assert.equal(Object(await openS3().listBuckets({})).Buckets.length, 1, "earlier tests left no buckets");
      const { AlwaysDashdenyBaseUrl, AlwaysDashadmitBaseUrl } = Object(getOutputs());
      const [denyUrl, admitUrl] = [AlwaysDashdenyBaseUrl, AlwaysDashadmitBaseUrl].map((output) =>
        String(Object(output).value),
      );
      assert.equal((await readVerdict(String(denyUrl), "always-deny")).allowed, false);
      assert.equal((await readVerdict(String(denyUrl), "always-deny")).allowed, false);
      assert.equal((await readVerdict(String(admitUrl), "always-admit")).allowed, true);
      const lines = (account.logs.groups.get("/aws/lambda/postern-test") ?? []).map(({ line }) => JSON.parse(line));
      // Only the first review of a function waits for the function's start. Its latency contains the start.
      assert.deepEqual(
        lines.map(({ Rule, Init, ColdStart, Latency }) => [Rule, Init > 0, Latency > Init, ColdStart === Latency]),
        [
          ["always-deny", true, true, true],
          ["always-deny", false, true, false],
          ["always-admit", true, true, true],
        ],
      );
      const samples = ["ColdStart", "Latency"].map((name) =>
        sumMetric("Postern", name, { Stage: "test" }, "SampleCount"),
      );
      assert.deepEqual(await Promise.all(samples), [2, 3]);
      const policies = account.lambda.functions.get("postern-test-always-admit")?.policies;
      policies?.clear();
      assert.deepEqual(await review(String(admitUrl), "always-admit"), {
        status: 403,
        body: '{"Message":"Forbidden"}',
      });
      const denying = account.lambda.functions.get("postern-test-always-deny");
      assert.ok(denying);
      denying.reserved = 0;
      assert.equal((await review(String(denyUrl), "always-deny")).status, 429);
      denying.reserved = undefined;
      denying.versions.set("1", { ...denying.latest, code: zip({ "index.cjs": Buffer.from("throw 1;") }) });
      assert.equal((await review(String(denyUrl), "always-deny")).status, 502);
      const counts = ["Url4xxCount", "Url5xxCount", "Throttles", "Errors"].map((metric) =>
        sumMetric("AWS/Lambda", metric, { FunctionName: "postern-test-always-deny" }),
      );
      assert.deepEqual(await Promise.all(counts), [1, 1, 1, 1]);
    });
  });
});

const question = buildProbeReview([]);
