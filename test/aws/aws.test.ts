import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { CloudFormation } from "@aws-sdk/client-cloudformation";
import { Lambda } from "@aws-sdk/client-lambda";
import {
  openStageFunctions,
  type StageFunctions,
  toStackSettings,
  type WantedLambdaVersion,
} from "../../infra/aws/lambda-functions.ts";
import { openStack } from "../../infra/aws/stack.ts";
import { bundleRule } from "../../infra/build/bundle.ts";
import { zip } from "../../infra/build/zip.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { buildProbeReview } from "../../infra/clusters/probe.ts";
import {
  disarmRule,
  readFunctionState,
  restoreDisarmedRule,
  rollBackAlias,
} from "../../infra/rollout/clusters/disarm.ts";
import { runCases } from "../../infra/rollout/versions/case-runs.ts";
import { buildBenchEndpointConfig } from "../bench/handlers.ts";
import { runProgram } from "../checkout.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { needs } from "../parts.ts";
import { type Fault, type LambdaService, startLambda } from "./lambda.ts";

// Tests a stage's functions, from their first version to a rollback, with a stand-in that is as strict as Lambda and
// runs the published code.
const rule = "always-deny";
const name = `postern-test-${rule}`;
const ruleFolder = fileURLToPath(new URL(`../../functions/${rule}`, import.meta.url));
const signer = createTestSigner(1);

describe("the functions of a stage", await needs("runtime client"), () => {
  let folder: string;
  let service: LambdaService;
  let functions: StageFunctions;
  let goodCode: Buffer;
  const crashingCode = zip({ "index.cjs": Buffer.from('throw new Error("it does not start");\n') });
  const environment = { POSTERN_KEYS: signer.publicKey, POSTERN_STAGE: "test", POSTERN_ACCEPTS: "bench.1,other.1" };

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-aws-"));
    const listed = await readRule(ruleFolder, rule);
    await bundleRule(listed, buildBenchEndpointConfig(listed), folder);
    goodCode = await readFile(join(folder, `${rule}.zip`));
    service = await startLambda();
    functions = openFunctions("tester");
  });
  after(async () => {
    await service?.stop();
    await rm(folder, { recursive: true, force: true });
  });
  beforeEach(() => {
    service.functions.clear();
    service.recordedCalls.length = 0;
    service.fault = undefined;
    Object.assign(service, { updateMilliseconds: 30, pageSize: 50 });
    service.create(name, goodCode, environment);
  });

  const openFunctions = (accessKeyId: string): StageFunctions => {
    const credentials = { accessKeyId, secretAccessKey: "secret" };
    const maxAttempts = accessKeyId === "tester" ? 5 : 1;
    const client = new Lambda({ endpoint: service.url, region: "eu-west-1", credentials, maxAttempts });
    const stack = openStack("test", new CloudFormation({ endpoint: service.url, region: "eu-west-1", credentials }));
    return openStageFunctions("test", stack, client, 1);
  };

  /** Publishes code as a deployment does, and points the alias at the new version. */
  const deploy = (code: Buffer, variables: Record<string, string> = {}) => {
    const fn = service.functions.get(name);
    assert.ok(fn);
    fn.latest = { ...fn.latest, code, environment: { ...fn.latest.environment, ...variables } };
    fn.published += 1;
    fn.versions.set(String(fn.published), { ...fn.latest, description: `release ${fn.published}` });
    Object.assign(fn.aliases.get("live") ?? {}, { version: String(fn.published), weights: {} });
  };
  const getLiveAlias = () => service.functions.get(name)?.aliases.get("live");
  const getLatest = () => service.functions.get(name)?.latest;
  const buildEvent = (phase: string) => ({
    version: "2.0",
    routeKey: "$default",
    rawPath: `/${signer.segment("bench")}/${rule}/${phase}`,
    rawQueryString: "",
    headers: { "content-type": "application/json" },
    requestContext: { http: { method: "POST" } },
    body: JSON.stringify(review),
    isBase64Encoded: false,
  });
  /** Calls the live version with a review; returns its answer, or the message of its error. */
  const callLiveVersion = async () => {
    const { payload, fault } = await functions.invoke(rule, "live", buildEvent("mutate"));
    const { body } = Object(payload);
    return fault === undefined ? JSON.parse(String(body)) : String(Object(payload).errorMessage);
  };

  it("a stage's rules are listed without reading the environments of functions, with any page size", async () => {
    service.pageSize = 1;
    const longRule = "limit-pod-hard-anti-affinity-topology-more";
    service.create("postern-test-limit-pod-733e24", goodCode, { POSTERN_STAGE: "test", POSTERN_RULE: longRule });
    service.create("postern-prod-other", goodCode, { POSTERN_STAGE: "prod" });
    service.create("postern-test-2-other", goodCode, { POSTERN_STAGE: "test-2" });
    service.create("unrelated", goodCode, { PASSWORD: "secret" });
    assert.deepEqual(await functions.listRules(), [rule, longRule]);
    // One call for each of the two pages.
    assert.deepEqual(
      service.recordedCalls.map(({ action }) => action),
      Array(2).fill("cloudformation:ListStackResources"),
    );
  });

  describe("disarmed functions", () => {
    const getNextMinute = () => new Date(Date.now() + 60_000);

    it("a disarmed function allows everything with a warning, and decides again after the given time", async () => {
      assert.equal((await callLiveVersion()).response.allowed, false);
      const until = new Date(Date.now() + 12_000);
      await disarmRule(functions, rule, until);
      const time = until.toISOString();
      assert.deepEqual((await callLiveVersion()).response, {
        uid: review.request.uid,
        allowed: true,
        warnings: [`${rule} is disarmed until ${time}`],
        auditAnnotations: { "disarmed-until": time },
      });
      assert.deepEqual((await readFunctionState(functions, rule)).disarmed, { until, version: "1" });
      await wait(until.getTime() - Date.now() + 50);
      assert.equal((await callLiveVersion()).response.allowed, false);
    });

    it("a disarmed function answers only callers with a valid key, and refuses a body that is no review", async () => {
      await disarmRule(functions, rule, getNextMinute());
      const readStatus = async (change: object) => {
        const { payload, fault } = await functions.invoke(rule, "live", { ...buildEvent("mutate"), ...change });
        assert.equal(fault, undefined, JSON.stringify(change));
        return Object(payload).statusCode;
      };
      const buildPath = (segment: string) => ({ rawPath: `/${segment}/${rule}/mutate` });
      const benchSegment = signer.segment("bench");
      const changedSegment = benchSegment.replace(/.$/, (last) => String.fromCharCode(last.charCodeAt(0) + 1));
      const unknownSegments = [signer.segment("other", 2), signer.segment("stranger")];
      for (const segment of [`bench.${"A".repeat(86)}`, changedSegment, ...unknownSegments, "bench", ""])
        assert.equal(await readStatus(buildPath(segment)), 404, segment);
      assert.equal(await readStatus({ rawPath: undefined }), 404);
      for (const body of [undefined, "hello", "{}", '{"request":null}', "[]"])
        assert.equal(await readStatus({ body }), 400, body);
      const body = Buffer.from(JSON.stringify(review)).toString("base64");
      assert.equal(await readStatus({ body, isBase64Encoded: true }), 200);
      assert.equal(await readStatus(buildPath(signer.segment("other"))), 200);
      assert.equal(await readStatus({ rawPath: `${buildPath(benchSegment).rawPath}/variant` }), 200);
      const probe = { rawPath: "/", headers: { "user-agent": "ELB-HealthChecker/2.0" }, body: "" };
      assert.equal(await readStatus(probe), 200);
    });

    it("a disarmed function accepts and refuses the same clusters and key versions as before", async () => {
      // Without POSTERN_ACCEPTS, a file in the function's code says which keys it accepts.
      const { POSTERN_ACCEPTS: _, ...environmentWithoutAccepts } = environment;
      const listed = await readRule(ruleFolder, rule);
      const bench = { keyVersions: [2], mode: "enforce" as const, settings: listed.rule.settings ?? {} };
      // Unlisted clusters have the usual key version 1. `raised` has the settings of `bench`.
      const clusters = { gone: { ...bench, keyVersions: [] }, raised: "bench", bench };
      const config = { rule, usual: { ...bench, keyVersions: [1] }, clusters };
      await bundleRule(listed, config, join(folder, "usual"));
      service.functions.clear();
      service.create(name, await readFile(join(folder, "usual", `${rule}.zip`)), environmentWithoutAccepts);
      const readStatus = async (cluster: string, keyVersion: number) => {
        const rawPath = `/${signer.segment(cluster, keyVersion)}/${rule}/mutate`;
        const { payload } = await functions.invoke(rule, "live", { ...buildEvent("mutate"), rawPath });
        return Object(payload).statusCode;
      };
      const listStatuses = async () => {
        const clusterKeys = ["new", "gone", "raised", "bench"].flatMap((cluster) =>
          [1, 2].map((version) => ({ cluster, version })),
        );
        return Promise.all(clusterKeys.map(({ cluster, version }) => readStatus(cluster, version)));
      };
      // Two key versions each of new, gone, raised and bench.
      const expected = [200, 404, 404, 404, 404, 200, 404, 200];
      assert.deepEqual(await listStatuses(), expected);
      await disarmRule(functions, rule, getNextMinute());
      assert.deepEqual(await listStatuses(), expected);
    });

    it("a disarmed function allows everything even if its own code doesn't start", async () => {
      deploy(crashingCode);
      assert.match(String(await callLiveVersion()), /it does not start|the runtime ended/);
      await disarmRule(functions, rule, getNextMinute());
      assert.equal((await callLiveVersion()).response.allowed, true);
    });

    it("disarming leaves $LATEST as it was for the next deployment", async () => {
      const before = getLatest();
      await disarmRule(functions, rule, getNextMinute());
      assert.deepEqual([getLatest()?.code, getLatest()?.environment], [before?.code, before?.environment]);
    });

    it("an armed function decides again at once, and has the same version as before it was disarmed", async () => {
      deploy(goodCode);
      await disarmRule(functions, rule, getNextMinute());
      await disarmRule(functions, rule, getNextMinute());
      assert.equal(getLiveAlias()?.version, "4");
      assert.equal(await restoreDisarmedRule(functions, rule), "2");
      assert.equal(await restoreDisarmedRule(functions, rule), "2");
      assert.equal((await callLiveVersion()).response.allowed, false);
    });

    it("an interruption leaves a function unchanged or disarmed, and a second try disarms the function", async () => {
      service.updateMilliseconds = 0;
      // In each round, one more call succeeds before all calls fail.
      let step = 0;
      for (let stopped = true; stopped; step++) {
        service.functions.clear();
        service.create(name, goodCode, environment);
        let calls = 0;
        const [credential, limit] = [`stopped-${step}`, step];
        service.fault = ({ caller }, when): Fault | undefined =>
          when === "before" && caller === credential && calls++ >= limit ? "cut" : undefined;
        stopped = await disarmRule(openFunctions(credential), rule, getNextMinute()).then(
          () => false,
          () => true,
        );
        const { allowed, warnings } = (await callLiveVersion()).response;
        // always-deny allows the review only if it is disarmed, and then with a warning.
        assert.ok(allowed === (warnings?.length === 1), `after ${step} calls`);
        await disarmRule(functions, rule, getNextMinute());
        assert.equal((await callLiveVersion()).response.allowed, true, `after ${step} calls`);
        await restoreDisarmedRule(functions, rule);
        assert.equal((await callLiveVersion()).response.allowed, false, `after ${step} calls`);
        assert.deepEqual([getLatest()?.code, getLatest()?.environment], [goodCode, environment], `after ${step} calls`);
      }
      assert.ok(step > 8, `${step} steps`);
    });
  });

  describe("functions that get a new version", () => {
    const otherCode = zip({ "index.cjs": Buffer.from("exports.handler = async () => ({ other: true });\n") });
    const buildWanted = (code: Buffer, variables: Record<string, string> = {}): WantedLambdaVersion => ({
      zip: code,
      codeSha256: createHash("sha256").update(code).digest("base64"),
      environment: { ...environment, ...variables },
      memorySize: 256,
      timeout: 10,
      description: "wanted",
      stackSettings: toStackSettings({ Runtime: "nodejs24.x", LoggingConfig: { LogGroup: `/aws/lambda/${name}` } }),
    });

    it("a new version is published once for the same code and settings, and no alias points at it", async () => {
      const versions: string[] = [];
      for (const wanted of [
        buildWanted(otherCode),
        buildWanted(otherCode),
        buildWanted(otherCode, { MORE: "x" }),
        { ...buildWanted(otherCode), timeout: 20 },
      ])
        versions.push(await functions.publishVersion(rule, wanted));
      assert.deepEqual(versions, ["2", "2", "3", "4"]);
      assert.equal(getLiveAlias()?.version, "1");
      service.pageSize = 2;
      const found = await functions.listVersions(rule);
      const publishedVersions = [
        ["2", 10, undefined],
        ["3", 10, "x"],
        ["4", 20, undefined],
      ];
      assert.deepEqual(
        found.map(({ version, timeout, environment: { MORE } }) => [version, timeout, MORE]),
        [["1", found[0]?.timeout, undefined], ...publishedVersions],
      );
    });

    it("publishing a version waits for an update in progress, and retries when Lambda is busy", async () => {
      const faults: Fault[] = [
        { status: 409, error: "ResourceConflictException" },
        { status: 429, error: "TooManyRequestsException" },
        { status: 500, error: "ServiceException" },
        "cut",
      ];
      service.fault = ({ action }, when) =>
        when === "before" && /UpdateFunctionCode|PublishVersion/.test(action) ? faults.shift() : undefined;
      assert.equal(await functions.publishVersion(rule, buildWanted(otherCode)), "2");
      assert.deepEqual(faults, []);
    });

    it("a function gets no new version if another command changes the function at the same time", async () => {
      const otherChange = { code: crashingCode };
      for (const [action, when, change] of [
        ["UpdateFunctionCode", "before", otherChange],
        ["UpdateFunctionCode", "after", otherChange],
        // Lambda reports other code and another revision by different errors.
        ["PublishVersion", "before", otherChange],
        ["PublishVersion", "before", { memorySize: 512 }],
      ] as const) {
        service.functions.clear();
        service.create(name, goodCode, environment);
        let hasChanged = false;
        service.fault = (call, moment) => {
          if (hasChanged || !call.action.endsWith(action) || moment !== when) return undefined;
          hasChanged = true;
          const fn = service.functions.get(name);
          assert.ok(fn);
          fn.latest = { ...fn.latest, ...change, revision: "theirs" };
          return undefined;
        };
        await assert.rejects(
          functions.publishVersion(rule, buildWanted(otherCode)),
          /another command is changing always-deny at the same time/,
        );
        assert.equal(service.functions.get(name)?.versions.size, 1, `${action} ${when}`);
      }
    });

    it("a function gets one new version, however often a deployment is interrupted and repeated", async () => {
      // In each round, one more call succeeds before all calls fail.
      let step = 0;
      for (let stopped = true; stopped; step++) {
        let calls = 0;
        service.fault = ({ caller }, when): Fault | undefined =>
          when === "before" && caller === `stopped-${step}` && calls++ >= step ? "cut" : undefined;
        stopped = await openFunctions(`stopped-${step}`)
          .publishVersion(rule, buildWanted(otherCode, { MORE: "x" }))
          .then(
            () => false,
            () => true,
          );
      }
      assert.equal(await functions.publishVersion(rule, buildWanted(otherCode, { MORE: "x" })), "2");
      assert.ok(step > 5, `${step} steps`);
    });

    it("publishing a version reports an account without room for more code", async () => {
      service.fault = ({ action }, when) =>
        when === "before" && action.endsWith("UpdateFunctionCode")
          ? { status: 400, error: "CodeStorageExceededException" }
          : undefined;
      await assert.rejects(functions.publishVersion(rule, buildWanted(otherCode)), /no room for more code in Lambda/);
    });

    it("old versions are deleted, except a version at which an alias points", async () => {
      await functions.publishVersion(rule, buildWanted(otherCode));
      await functions.deleteVersion(rule, "1");
      await functions.deleteVersion(rule, "2");
      await functions.deleteVersion(rule, "7");
      assert.deepEqual([...(service.functions.get(name)?.versions.keys() ?? [])], ["1"]);
    });

    it("a version is tested by the rule's cases; a failure is reported with the end of its log", async () => {
      const listed = await readRule(ruleFolder, rule);
      assert.deepEqual((await runCases(functions, listed, "1")).faults, []);
      const failingCode = 'console.log("about to"); exports.handler = async () => { throw new Error("it breaks"); };\n';
      for (const [code, sentence] of [
        [crashingCode, /^always-deny, ".*": it fails: .*it does not start/],
        [zip({ "index.cjs": Buffer.from(failingCode) }), /it fails: .*it breaks.* \(its log ends: .+\)/s],
        [otherCode, /its answer is not an AdmissionReview: {"other":true}/],
      ] as const) {
        const { faults } = await runCases(functions, listed, await functions.publishVersion(rule, buildWanted(code)));
        assert.match(faults[0] ?? "", sentence);
      }
    });
  });

  describe("functions that are rolled back", () => {
    it("a rollback moves the alias to the previous version, without weights", async () => {
      deploy(crashingCode);
      assert.equal(await rollBackAlias(functions, rule), "1");
      assert.deepEqual([getLiveAlias()?.version, getLiveAlias()?.weights], ["1", {}]);
      assert.equal((await callLiveVersion()).response.allowed, false);
    });

    it("a rollback during a canary keeps the live version; the next one goes to the version before", async () => {
      deploy(goodCode);
      deploy(crashingCode);
      Object.assign(getLiveAlias() ?? {}, { version: "2", weights: { 3: 0.1 } });
      assert.equal(await rollBackAlias(functions, rule), "2");
      assert.deepEqual([getLiveAlias()?.version, getLiveAlias()?.weights], ["2", {}]);
      assert.equal(await rollBackAlias(functions, rule), "1");
    });

    it("a rollback goes to any existing version, but to no disarmed version", async () => {
      deploy(goodCode);
      deploy(goodCode);
      assert.equal(await rollBackAlias(functions, rule, "1"), "1");
      assert.equal(await rollBackAlias(functions, rule, "3"), "3");
      await disarmRule(functions, rule, new Date(Date.now() + 60_000));
      await assert.rejects(rollBackAlias(functions, rule, "4"), /version 4 of always-deny is a disarmed version/);
      assert.equal(await rollBackAlias(functions, rule), "2");
    });

    it("a rollback fails without a previous version, to a missing version, and without a function", async () => {
      await assert.rejects(rollBackAlias(functions, rule), /always-deny has no version before version 1/);
      await assert.rejects(rollBackAlias(functions, rule, "7"), /always-deny has no version 7; it has 1/);
      await assert.rejects(rollBackAlias(functions, "none"), /stage test has no function for none/);
    });

    it("a rollback to a version that doesn't accept the keys in use is refused", async () => {
      deploy(goodCode, { POSTERN_KEYS: `${signer.publicKey},second` });
      await assert.rejects(
        rollBackAlias(functions, rule),
        /version 1 of always-deny doesn't accept the keys that are in use now/,
      );
      deploy(goodCode, { POSTERN_KEYS: signer.publicKey, POSTERN_ACCEPTS: "bench.1,bench.2,other.1" });
      await assert.rejects(
        rollBackAlias(functions, rule, "1"),
        /doesn't accept the clusters and key versions that are in use now/,
      );
    });

    it("an alias isn't moved if another command has just moved it", async () => {
      deploy(goodCode);
      const before = await functions.readAlias(rule);
      await functions.moveAlias(rule, "1", before);
      await assert.rejects(
        functions.moveAlias(rule, "2", before),
        /another command has just moved the alias of always-deny/,
      );
    });

    it("a rollback retries if Lambda is busy", async () => {
      deploy(goodCode);
      let refusals = 2;
      service.fault = ({ action }, when) =>
        action === "lambda:UpdateAlias" && when === "before" && refusals-- > 0
          ? { status: 429, error: "TooManyRequestsException" }
          : undefined;
      assert.equal(await rollBackAlias(functions, rule), "1");
    });
  });

  describe("commands about functions", () => {
    const runPostern = async (...words: string[]) => {
      const env = {
        ...process.env,
        AWS_ENDPOINT_URL_LAMBDA: service.url,
        AWS_ENDPOINT_URL_CLOUDFORMATION: service.url,
        AWS_REGION: "eu-west-1",
        AWS_ACCESS_KEY_ID: "a",
        AWS_SECRET_ACCESS_KEY: "b",
      };
      const file = fileURLToPath(new URL("../../infra/main.ts", import.meta.url));
      const { code, stdout, stderr } = await runProgram([file, ...words], { env });
      return { code, output: code === 0 ? stdout : `${stdout}${stderr}` };
    };

    it("`postern status` shows a canary, and reports that the releases can't be read", async () => {
      deploy(goodCode);
      Object.assign(getLiveAlias() ?? {}, { weights: { 1: 0.1 } });
      const { output } = await runPostern("status", "--stage", "test");
      // Without the right to find the bucket, releases are unknown. The status still has the facts from Lambda.
      assert.match(output, /^RULE +LIVE +PUBLISHED +BEFORE\nalways-deny +2, 10% version 1 +\S+Z +1\n/);
      const { output: json, code } = await runPostern("status", "--stage", "test", "-o", "json");
      assert.equal(code, 3);
      assert.match(json, /"previous": "1".*the releases can't be read: /s);
    });

    it("a function is rolled back, disarmed and armed by commands", async () => {
      deploy(goodCode);
      assert.equal((await runPostern("rollback", rule, "--stage", "test")).output, "always-deny is at version 1\n");
      const { output } = await runPostern("disarm", rule, "--for", "30m", "--stage", "test");
      assert.match(output, /^always-deny allows everything until \S+Z, as version 3\n$/);
      assert.match((await runPostern("status", "--stage", "test")).output, /disarmed until/);
      const armed = await runPostern("arm", rule, "--stage", "test");
      assert.equal(armed.output, "always-deny decides again, as version 1\n");
    });

    it("commands report errors in a sentence", async () => {
      const refusedWords: [words: string[], code: number, sentence: RegExp][] = [
        [["status", "--stage", "none"], 1, /^stage none has no functions$/m],
        [
          ["rollback", "--stage", "test"],
          2,
          /^name one rule, or all: postern rollback RULE, or postern rollback --all$/m,
        ],
        [["rollback", rule, "--stage", "test"], 1, /has no version before version 1/],
        [["disarm", rule, "--stage", "test", "--for", "5s"], 2, /^--for takes a time from 1m to 24h.*not "5s"/],
        [["disarm", rule, "--stage", "test"], 2, /^--for takes a time from 1m to 24h/],
        [["disarm", rule, "--stage", "test", "--for", "25h"], 2, /^--for takes a time from 1m to 24h.*not "25h"/],
        [["disarm", "none", "--stage", "test", "--for", "5m"], 1, /^stage test has no function for none/],
      ];
      for (const [words, code, sentence] of refusedWords) {
        const answer = await runPostern(...words);
        assert.match(answer.output, sentence);
        assert.equal(answer.code, code, words.join(" "));
      }
    });
  });
});

const review = buildProbeReview([]);
