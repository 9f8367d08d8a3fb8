import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { CloudWatch } from "@aws-sdk/client-cloudwatch";
import { sendRequest } from "#lib/cluster/https-request.ts";
import { bundleRule, type RuleBundle } from "../../infra/build/bundle.ts";
import { writeServerlessIncludes } from "../../infra/build/deployment.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import type { AlarmHealth } from "../../infra/rollout/stage/alarm-health.ts";
import { cacheVariables, runProgram } from "../checkout.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { needs } from "../parts.ts";
import { buildPodReview } from "../requests.ts";
import { readRows } from "../rows.ts";
import { type Account, openAccount } from "./account.ts";
import { openCloudWatch } from "./cloudwatch.ts";
import { computeExpression, type TimeSeries } from "./metric-math.ts";

// Tests the alarms of a packaged stage. Each failure happens in the stand-ins, and the alarms are then evaluated on the
// metrics in the stand-in for CloudWatch.
const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const osls = createRequire(import.meta.url).resolve("osls/bin/serverless.js");
const signer = createTestSigner(1);
const minute = 60_000;
/** Topics: one without and one with a subscription, and one that doesn't exist. */
const unsubscribedTopic = "arn:aws:sns:eu-west-1:123456789012:unsubscribed";
const subscribedTopic = "arn:aws:sns:eu-west-1:123456789012:subscribed";
const missingTopic = "arn:aws:sns:eu-west-1:123456789012:missing";

interface Failure {
  name: string;
  /** The rule that gets the reviews. By default, it is the first rule. */
  rule?: string;
  /** The label `act` of the reviewed pod: what the rule does, such as `crash`. By default, the rule admits the pod. */
  send?: string;
  /** What is broken in AWS. */
  when?: "no concurrency" | "throttled route" | "no permission";
  /** Any value makes the key in the review's URL invalid. */
  key?: string;
  /** The end of the review's URL, instead of `validate`. */
  path?: string;
  /** The alarms that ring with each endpoint type; undefined if the failure is impossible with the type. */
  http?: string[];
  url?: string[];
}
const { failures, alarmsRefusedByCloudWatch, metricsOfRefusedAlarms } = readRows<{
  failures: Failure[];
  alarmsRefusedByCloudWatch: { because: string; alarm: Record<string, unknown> }[];
  metricsOfRefusedAlarms: { because: string; metrics: object[] }[];
}>(import.meta.filename);

/** There are more rules than an alarm can have metrics. */
const rules = Array.from({ length: 11 }, (_, index) => `note-${String(index + 1).padStart(2, "0")}`);
const [firstRule = ""] = rules;

const source = `import { rule } from "#lib/rule.ts";
const { hrtime, uptime } = process;
const measure = hrtime.bigint;
let ahead = 0n;
process.uptime = () => uptime() + Number(ahead);
hrtime.bigint = () => measure() + ahead * 1_000_000_000n;
export default rule({
  summary: "Does what the label says.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  validate(pod: { metadata?: { labels?: { act?: string } } }) {
    const act = pod.metadata?.labels?.act;
    if (act === "refuse") return "no";
    if (act === "error") throw new Error("boom");
    if (act === "crash") process.exit(1);
    if (act === "hang") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    // Instead of waiting, the function moves its clocks.
    if (act === "wait") ahead += 60n;
  },
});`;

const evaluation = {
  EvaluationPeriods: 5,
  Threshold: 0,
  ComparisonOperator: "GreaterThanThreshold",
  TreatMissingData: "notBreaching",
};
const valid = { ...evaluation, Namespace: "Postern", MetricName: "Errors", Statistic: "Sum", Period: 60 };

describe("the stand-in of CloudWatch's alarms", () => {
  const invalidAlarms = [
    ...alarmsRefusedByCloudWatch.map(({ because, alarm }) => ({ because, alarm: { ...valid, ...alarm } })),
    ...metricsOfRefusedAlarms.map(({ because, metrics }) => ({ because, alarm: { ...evaluation, Metrics: metrics } })),
  ];
  for (const { because, alarm } of invalidAlarms)
    it(`PutMetricAlarm refuses an alarm: ${because}`, () => {
      const { alarms } = openCloudWatch();
      alarms.put("valid", valid);
      assert.throws(() => alarms.put("broken", alarm), { message: because });
    });

  for (const [values, state] of [
    ["-----", "OK"],
    ["XX---", "OK"],
    ["X-X-X", "ALARM"],
    ["XX0XX", "ALARM"],
    ["0X0X0", "OK"],
    // Instead of missing values, CloudWatch uses values from before the evaluation periods.
    ["X-X-X--", "ALARM"],
    ["X-X-X00", "ALARM"],
    ["X-XX0000", "OK"],
  ] as const)
    it(`an alarm on three bad minutes of five is ${state} after the minutes ${values} (X bad, - missing)`, () => {
      const cloudwatch = openCloudWatch();
      cloudwatch.alarms.put("some", { ...valid, DatapointsToAlarm: 3 });
      const time = Date.now();
      for (const [index, value] of [...values].entries())
        if (value !== "-")
          cloudwatch.record({
            namespace: "Postern",
            metric: "Errors",
            dimensions: {},
            value: value === "X" ? 1 : 0,
            time: time + index * minute,
          });
      cloudwatch.clockOffset = values.length * minute;
      assert.equal(cloudwatch.alarms.describe({}).MetricAlarms[0]?.StateValue, state);
    });

  it("an alarm has the state INSUFFICIENT_DATA while all values are missing and treated as missing", () => {
    const cloudwatch = openCloudWatch();
    cloudwatch.alarms.put("some", { ...valid, ComparisonOperator: "LessThanThreshold", TreatMissingData: "missing" });
    const readState = () => cloudwatch.alarms.describe({}).MetricAlarms[0]?.StateValue;
    const states: unknown[] = [];
    for (const hasValue of [false, true, false, false, false, false, false, false, false]) {
      const datum = { namespace: "Postern", metric: "Errors", dimensions: {}, value: 1, time: Date.now() };
      if (hasValue) cloudwatch.record(datum);
      cloudwatch.clockOffset += minute;
      states.push(readState());
    }
    // CloudWatch also reads two minutes before the five evaluated ones.
    assert.deepEqual(states, ["INSUFFICIENT_DATA", ...Array(7).fill("OK"), "INSUFFICIENT_DATA"]);
  });

  it("an alarm has the state INSUFFICIENT_DATA before the first minute has passed", () => {
    const cloudwatch = openCloudWatch();
    cloudwatch.alarms.put("some", valid);
    const readState = () => cloudwatch.alarms.describe({}).MetricAlarms[0]?.StateValue;
    assert.equal(readState(), "INSUFFICIENT_DATA");
    cloudwatch.clockOffset = minute;
    assert.equal(readState(), "OK");
  });

  for (const [expression, values] of [
    ["FILL(a, 0)", { 0: 1, 60: 0, 120: 3 }],
    ["FILL(a, 0) + FILL(b, 0)", { 0: 1, 60: 20, 120: 33 }],
    ["a + b", { 0: 1, 60: 20, 120: 33 }],
    ["FILL(none, 0) + a", { 0: 1, 60: 0, 120: 3 }],
    ["100 * a / b", { 60: 0, 120: 10 }],
    ["100 * (a + b) / b", { 60: 100, 120: 110 }],
  ] as const)
    it(`the metric math ${expression} is computed`, () => {
      const metrics: Record<string, TimeSeries> = {
        a: new Map([
          [0, 1],
          [120, 3],
        ]),
        b: new Map([
          [60, 20],
          [120, 30],
        ]),
      };
      const series = computeExpression(expression, (id) => metrics[id] ?? new Map(), [0, 60, 120]);
      assert.deepEqual(Object.fromEntries(series), values);
    });
});

describe("the stand-in of CloudWatch's dashboards", () => {
  const region = "eu-west-1";
  const putMetrics = (metrics: unknown[], widgetFields: object = {}) => {
    const cloudwatch = openCloudWatch();
    const properties = { title: "some", region, period: 60, stat: "Sum", metrics };
    const widget = { type: "metric", width: 8, height: 6, properties, ...widgetFields };
    cloudwatch.dashboards.put("postern-test", JSON.stringify({ widgets: [widget] }));
    return cloudwatch;
  };

  for (const [because, metrics, widgetFields] of [
    ["the stand-in knows no widget text", [], { type: "text" }],
    ["a widget's width is from 1 to 24", [["A", "B"]], { width: 25 }],
    ['"some" has from 1 to 500 metrics', [], {}],
    ['["A"] is no metric', [["A"]], {}],
    ['["A","B","C"] is no metric', [["A", "B", "C"]], {}],
    ['["A","B","C",""] has an empty part', [["A", "B", "C", ""]], {}],
    ["the stand-in doesn't know the field color", [["A", "B", { color: "red" }]], {}],
    ["a / b refers to b", [[{ expression: "a / b", id: "c" }], ["A", "B", { id: "a" }]], {}],
    ["the stand-in doesn't know the search SEARCH('{A,B}')", [[{ expression: "SEARCH('{A,B}')" }]], {}],
    [
      "the stand-in doesn't know C=d in SEARCH('{A,B} C=d', 'Sum', 60)",
      [[{ expression: "SEARCH('{A,B} C=d', 'Sum', 60)" }]],
      {},
    ],
  ] as const)
    it(`PutDashboard refuses a dashboard: ${because}`, () =>
      assert.throws(() => putMetrics([...metrics], widgetFields), {
        message: `The dashboard's body is invalid: ${because}`,
      }));

  for (const [term, foundFunctions] of [
    ["FunctionName=postern-prod", ["postern-prod-a", "postern-prod-eu-b"]],
    ['FunctionName="postern-prod-a"', ["postern-prod-a"]],
    ['FunctionName="postern-prod"', []],
    ["FunctionName=prod-postern", []],
    ["FunctionName=postern-pro", []],
  ] as const)
    it(`a search finds ${foundFunctions.length} functions by ${term}`, () => {
      const cloudwatch = putMetrics([[{ expression: `SEARCH('{AWS/Lambda,FunctionName} ${term}', 'Sum', 60)` }]]);
      for (const FunctionName of ["postern-prod-a", "postern-prod-eu-b", "postern-test-prod"])
        for (const dimensions of [{ FunctionName }, { FunctionName, Resource: "live" }] as Record<string, string>[])
          cloudwatch.record({ namespace: "AWS/Lambda", metric: "Errors", dimensions, value: 1, time: 0 });
      const [line] = cloudwatch.dashboards.readLines("postern-test", 0, 60);
      assert.deepEqual(Object.keys(line?.series ?? {}), foundFunctions);
    });
});

for (const type of ["http", "url"] as const)
  describe(`the alarms of a stage with the endpoint type ${type}`, await needs("moto", "runtime client"), () => {
    let account: Account;
    let folder: string;
    before(async () => {
      [account, folder] = await Promise.all([openAccount(), mkdtemp(join(tmpdir(), "postern-alarms-"))]);
      for (const shared of ["lib", "node_modules"]) await symlink(join(root, shared), join(folder, shared));
      await cp(join(root, "package.json"), join(folder, "package.json"));
      const service = await readFile(join(root, "serverless.yml"), "utf8");
      // Only the stage with the HTTP API has topics.
      const topics = type === "http" ? [unsubscribedTopic, subscribedTopic] : [];
      account.topics.set(unsubscribedTopic, 0).set(subscribedTopic, 1);
      await writeFile(join(folder, "serverless.yml"), service.replace("alarmTopics: []", `alarmTopics: [${topics}]`));
      await buildPackage(folder);
      const env = { PATH: process.env.PATH, HOME: folder, NO_COLOR: "1", ...cacheVariables, ...account.env };
      await run(process.execPath, [osls, "deploy", "--stage", "test", `--param=endpoint=${type}`], {
        cwd: folder,
        env,
      });
      for (const fn of account.lambda.functions.values())
        for (const version of [fn.latest, ...fn.versions.values()]) version.timeout = 2;
    });
    after(async () => {
      await account?.stop();
      await rm(folder, { recursive: true, force: true });
    });
    afterEach(() => {
      account.cloudwatch.delayMilliseconds = 0;
      account.cloudwatch.clear();
      account.throttledRules.clear();
      for (const fn of account.lambda.functions.values()) fn.reserved = undefined;
    });

    const sendReview = async ({ rule = firstRule, send = "nothing", key, path = "validate" }: Failure) => {
      const outputs = account.cloudformation.stack("postern-test")?.outputs ?? {};
      const output = type === "http" ? "BaseUrl" : `${rule.replace("-", "Dash")}BaseUrl`.replace(/^n/, "N");
      const base = String(outputs[output]?.value).replace(/\/$/, "");
      const segment = key === undefined ? signer.segment("local") : `local.${"A".repeat(86)}`;
      const options = { method: "POST", headers: { "content-type": "application/json" }, ca: account.ca, agent: false };
      const body = JSON.stringify(buildPodReview({ object: { metadata: { name: "a", labels: { act: send } } } }));
      return sendRequest(`${base}/${segment}/${rule}/${path}`, options, body, Date.now() + minute);
    };
    /** Moves CloudWatch's clock forward to the beginning of the next minute. */
    const goToNextMinute = () => {
      const now = Date.now() + account.cloudwatch.clockOffset;
      account.cloudwatch.clockOffset += minute - (now % minute);
    };
    const listRinging = async () => {
      const client = new CloudWatch({ ...account.actAs("tester"), maxAttempts: 1 });
      const { MetricAlarms = [] } = await client.describeAlarms({ AlarmNamePrefix: "postern-test-" });
      const ringing = MetricAlarms.filter(({ StateValue }) => StateValue === "ALARM");
      return ringing.map(({ AlarmName = "" }) => shortenName(AlarmName));
    };
    /** Breaks a part of the stage; returns the function that repairs it. */
    const breakStage = ({ rule = firstRule, when }: Failure) => {
      const fn = account.lambda.functions.get(`postern-test-${rule}`);
      assert.ok(fn);
      if (when === "no concurrency") fn.reserved = 0;
      if (when === "throttled route") account.throttledRules.add(rule);
      if (when !== "no permission") return () => {};
      const policies = new Map(fn.policies);
      fn.policies.clear();
      return () => {
        fn.policies = policies;
      };
    };

    const runStatus = (...words: string[]) => {
      const env = { PATH: process.env.PATH, HOME: folder, ...cacheVariables, ...account.env };
      return runProgram([join(root, "infra/main.ts"), "status", "--stage", "test", ...words], { env });
    };
    const readStatus = async () => {
      const { code, stdout, stderr } = await runStatus("-o", "json");
      const { alarms }: { alarms?: AlarmHealth[] } = JSON.parse(stdout);
      const rows = alarms?.map(({ alarm, canRing, reasons }) => [shortenName(alarm), canRing, ...reasons]);
      const causes = Object.fromEntries(
        (alarms ?? []).flatMap(({ alarm, causes }) => (causes.length > 0 ? [[shortenName(alarm), causes]] : [])),
      );
      return { code, shown: rows, stderr, causes };
    };
    const changeAlarm = (id: string, change: (properties: Record<string, unknown>) => object) => {
      const alarm = account.cloudformation.stack("postern-test")?.resources.get(id);
      assert.ok(alarm);
      account.cloudwatch.alarms.put(alarm.physical, { ...alarm.properties, ...change(alarm.properties) });
      return () => account.cloudwatch.alarms.put(alarm.physical, alarm.properties);
    };

    if (type === "http")
      it("the alarms are listed by `postern status`, with the reasons why an alarm can't ring", async () => {
        const noSubscription = `the topic ${unsubscribedTopic} has no confirmed subscription`;
        const stageAlarms = ["ErrorsAlarm", "LatencyAlarm", "ThrottlesAlarm"];
        const functionAlarms = [1, 2].flatMap((group) => [`CrashesAlarm${group}`, `ThrottlesAlarm${group}`]);
        const { code, shown } = await readStatus();
        assert.deepEqual(
          shown?.sort(),
          [...stageAlarms, ...functionAlarms].map((alarm) => [alarm, true, noSubscription]).sort(),
        );
        assert.equal(code, 0);

        const repairs = [
          changeAlarm("ErrorsAlarm", () => ({ ActionsEnabled: false })),
          changeAlarm("LatencyAlarm", () => ({ AlarmActions: [missingTopic] })),
          changeAlarm("ThrottlesAlarm", ({ AlarmActions }) => ({ AlarmActions: [AlarmActions].flat().slice(0, 1) })),
        ];
        const broken = await readStatus();
        assert.deepEqual(broken.shown?.filter(([alarm]) => !functionAlarms.includes(String(alarm))).sort(), [
          [
            "ErrorsAlarm",
            false,
            "its actions are disabled; aws cloudwatch enable-alarm-actions enables them",
            noSubscription,
          ],
          ["LatencyAlarm", false, `the topic ${missingTopic} doesn't exist`],
          ["ThrottlesAlarm", false, noSubscription],
        ]);
        assert.equal(broken.code, 1);
        for (const repair of repairs) repair();

        account.allow = ({ action }) => action !== "sns:GetTopicAttributes";
        const unknown = await readStatus();
        assert.deepEqual([unknown.code, new Set(unknown.shown?.map(([, canRing]) => canRing))], [3, new Set([null])]);
        account.allow = ({ action }) => action !== "cloudwatch:DescribeAlarms";
        const { shown: shownWithoutRight, ...rest } = await readStatus();
        account.allow = undefined;
        assert.deepEqual([shownWithoutRight, rest.code], [undefined, 3]);
        assert.match(rest.stderr, /^the alarms can't be read: .*cloudwatch:DescribeAlarms/m);
      });
    else
      it("the alarms are listed by `postern status`; one line says that the stage has no SNS topics", async () => {
        const { code, shown = [] } = await readStatus();
        assert.deepEqual([code, shown.length], [0, 6]);
        const { stdout } = await runStatus();
        assert.match(stdout, /^no alarm can ring: alarmTopics in serverless.yml names no SNS topic$/m);
        const last = account.lambda.functions.get("postern-test-note-11");
        assert.ok(last);
        // Two alarms watch the function that doesn't exist any more.
        account.lambda.functions.delete("postern-test-note-11");
        const incomplete = (await readStatus()).shown?.filter(([, , ...reasons]) => reasons.length > 1);
        assert.deepEqual(incomplete?.map(([name]) => name).sort(), ["CrashesAlarm2", "ThrottlesAlarm2"]);
        account.lambda.functions.set("postern-test-note-11", last);
      });

    it("a stage has a dashboard; all its lines have data after reviews, a canary, failures and throttles", async () => {
      const name = `postern-test-${firstRule}`;
      const fn = account.lambda.functions.get(name);
      const [first] = fn?.versions.values() ?? [];
      const live = fn?.aliases.get("live");
      assert.ok(fn && first && live);
      fn.versions.set("2", { ...first });
      live.weights = { 2: 0.5 };
      const begun = Math.floor(Date.now() / minute) * 60;
      // The canary gets half of the calls: 0.9 chooses version 1, and 0.1 version 2.
      for (const [random, behaviours] of [
        [0.9, ["nothing", "refuse", "refuse", "error", "crash"]],
        [0.1, ["nothing", "refuse", "crash"]],
      ] as const) {
        account.lambda.random = () => random;
        for (const send of behaviours) await sendReview({ name: "", send });
      }
      fn.reserved = 0;
      await sendReview({ name: "" });
      account.throttledRules.add(firstRule);
      await sendReview({ name: "" });
      live.weights = {};
      fn.versions.delete("2");

      const end = begun + 60 * Math.ceil((Date.now() / 1000 - begun) / 60);
      const lines = account.cloudwatch.dashboards.readLines("postern-test", begun, end);
      const totals: Record<string, Record<string, number>> = {};
      for (const { title, source, series } of lines) {
        assert.notDeepEqual(series, {}, `${title}: ${source}`);
        for (const [label, values] of Object.entries(series)) {
          assert.ok(values.size > 0, `${title}: ${source} ${label}`);
          const total = values.values().reduce((sum, value) => sum + value, 0);
          totals[title] ??= {};
          if (total > 0) totals[title][label] = total;
        }
      }
      const [versionOne, versionTwo] = [1, 2].map((version) => `${version} ${name} ${name}:live`);
      assert.ok(versionOne && versionTwo);
      const gateway = type === "http";
      const { "Latency in milliseconds": latency, "Cold starts": cold, ...counts } = totals;
      assert.deepEqual(counts, {
        Reviews: { Latency: 6 },
        "Denials by rule": { [`${firstRule} test`]: 3 },
        // The gateway answers 5xx to the review with an error, to both crashes, and to the call that Lambda throttles.
        Errors: { Errors: 1, [name]: 2, ...(gateway && { "5xx": 4 }) },
        Throttles: { [name]: gateway ? 1 : 2, ...(gateway && { Lost: 1 }) },
        "Calls by version": { [versionOne]: 5, [versionTwo]: 3 },
        "Crashes by version": { [versionOne]: 1, [versionTwo]: 1 },
      });
      assert.deepEqual([Object.keys(latency ?? {}), Object.keys(cold ?? {})], [["Latency"], ["share", "ColdStart"]]);
      const alarms = account.cloudwatch.alarms.describe({}).MetricAlarms.map(({ AlarmArn }) => AlarmArn);
      assert.deepEqual(account.cloudwatch.dashboards.listAlarms("postern-test").sort(), alarms.sort());
    });

    it("a ringing alarm is listed by `postern status` with the functions for which it rings", async () => {
      const repair = breakStage({ name: "", rule: "note-02", when: "no concurrency" });
      for (const _ of [1, 2, 3]) {
        goToNextMinute();
        await sendReview({ name: "", send: "crash" });
        await sendReview({ name: "", rule: "note-02" });
      }
      goToNextMinute();
      const crashes = `postern-test-${firstRule} has 3 Errors in 15 minutes`;
      const throttles = "postern-test-note-02 has 3 Throttles in 15 minutes";
      const { causes } = await readStatus();
      assert.deepEqual(causes, { CrashesAlarm1: [crashes], ThrottlesAlarm1: [throttles] });
      account.allow = ({ action }) => action !== "cloudwatch:GetMetricData";
      const { causes: causesWithoutMetrics } = await readStatus();
      account.allow = undefined;
      assert.match(
        String(causesWithoutMetrics.CrashesAlarm1),
        /^what it counts of each function can't be read: .*GetMetricData/,
      );
      repair();
    });

    it("each alarm sends messages to the stage's topics when it begins to ring, and when it stops", async () => {
      const topics = type === "http" ? [unsubscribedTopic, subscribedTopic] : [];
      for (const { AlarmName, AlarmActions, OKActions } of account.cloudwatch.alarms.describe({}).MetricAlarms)
        assert.deepEqual([AlarmActions, OKActions], [topics, topics], String(AlarmName));
    });

    it("an alarm rings even if CloudWatch gets every value more than three minutes late", async () => {
      account.cloudwatch.delayMilliseconds = 3.5 * minute;
      // The alarm needs three bad minutes, and the third is known after 3.5 more minutes.
      for (const ringing of [[], [], [], [], [], [], ["ErrorsAlarm"]]) {
        goToNextMinute();
        await sendReview({ name: "late", send: "error" });
        assert.deepEqual(await listRinging(), ringing);
      }
    });

    for (const failure of failures) {
      const wanted = failure[type];
      if (wanted === undefined) continue;
      it(`if ${failure.name} in three minutes of ten, ringing alarms are: ${wanted.join(", ") || "none"}`, async () => {
        const repair = breakStage(failure);
        for (const ringing of [[], [], wanted]) {
          goToNextMinute();
          await sendReview(failure);
          goToNextMinute();
          assert.deepEqual(await listRinging(), ringing);
        }
        repair();
        account.cloudwatch.clockOffset += 15 * minute;
        assert.deepEqual(await listRinging(), []);
      });
    }
  });

/** Returns the logical id in an alarm's name. */
const shortenName = (name: string) => name.replace(/^postern-test-(\w+)-\w+$/, "$1");

const buildPackage = async (folder: string) => {
  const bundles: RuleBundle[] = [];
  for (const name of rules) {
    const ruleFolder = join(folder, "functions", name);
    await mkdir(ruleFolder, { recursive: true });
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
