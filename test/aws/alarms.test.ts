import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
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
import { createTestSigner } from "../../infra/parity/test-key.ts";
import { needs } from "../parts.ts";
import { buildPodReview } from "../requests.ts";
import { readRows } from "../rows.ts";
import { type Account, openAccount } from "./account.ts";
import { openCloudWatch } from "./cloudwatch.ts";
import { computeExpression, type TimeSeries } from "./metric-math.ts";

// The alarms of a packaged stage: each failure happens in the stand-ins, and the alarms are evaluated on the metrics
// that CloudWatch then has.
const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const osls = createRequire(import.meta.url).resolve("osls/bin/serverless.js");
const signer = createTestSigner(1);
const minute = 60_000;

interface Failure {
  name: string;
  /** The rule that gets the reviews; the first one by default. */
  rule?: string;
  /** What the object of a review tells the rule to do. */
  send?: string;
  /** What is broken in AWS. */
  when?: "no concurrency" | "throttled route" | "no permission";
  key?: string;
  path?: string;
  /** The alarms that ring; undefined if the endpoint type can't fail like that. */
  http?: string[];
  url?: string[];
}
const { failures, refused, refusedMetrics } = readRows<{
  failures: Failure[];
  refused: { because: string; alarm: Record<string, unknown> }[];
  refusedMetrics: { because: string; metrics: object[] }[];
}>(import.meta.filename);

/** More rules than an alarm has metrics. */
const rules = Array.from({ length: 11 }, (_, index) => `note-${String(index + 1).padStart(2, "0")}`);
const [firstRule = ""] = rules;

const source = `import { rule } from "#lib/rule.ts";
const measure = process.hrtime;
let ahead = 0;
process.hrtime = Object.assign(() => {
  const [seconds, nanoseconds] = measure();
  return [seconds + ahead, nanoseconds];
}, { bigint: measure.bigint });
export default rule({
  summary: "Does what the label says.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  validate(pod: { metadata?: { labels?: { act?: string } } }) {
    const act = pod.metadata?.labels?.act;
    if (act === "refuse") return "no";
    if (act === "error") throw new Error("boom");
    if (act === "crash") process.exit(1);
    while (act === "hang");
    // The function's clock is moved instead of waiting.
    if (act === "wait") ahead += 60;
  },
});`;

const evaluation = {
  ...{ EvaluationPeriods: 5, Threshold: 0 },
  ...{ ComparisonOperator: "GreaterThanThreshold", TreatMissingData: "notBreaching" },
};
const valid = { ...evaluation, Namespace: "Postern", MetricName: "Errors", Statistic: "Sum", Period: 60 };

describe("the stand-in of CloudWatch's alarms", () => {
  const invalid = [
    ...refused.map(({ because, alarm }) => ({ because, alarm: { ...valid, ...alarm } })),
    ...refusedMetrics.map(({ because, metrics }) => ({ because, alarm: { ...evaluation, Metrics: metrics } })),
  ];
  for (const { because, alarm } of invalid)
    it(`refuses an alarm: ${because}`, () => {
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
    // Real values that are older than the evaluation periods are used instead of missing ones.
    ["X-X-X--", "ALARM"],
    ["X-X-X00", "ALARM"],
    ["X-XX0000", "OK"],
  ] as const)
    it(`is ${state} after the minutes ${values}, with three of five bad ones (X) and missing ones (-)`, () => {
      const cloudwatch = openCloudWatch();
      cloudwatch.alarms.put("some", { ...valid, DatapointsToAlarm: 3 });
      const time = Date.now();
      for (const [index, value] of [...values].entries())
        if (value !== "-")
          cloudwatch.record({
            ...{ namespace: "Postern", metric: "Errors", dimensions: {}, value: value === "X" ? 1 : 0 },
            time: time + index * minute,
          });
      cloudwatch.ahead = values.length * minute;
      assert.equal(cloudwatch.alarms.describe({}).MetricAlarms[0]?.StateValue, state);
    });

  it("has not enough data before the first minute has passed", () => {
    const cloudwatch = openCloudWatch();
    cloudwatch.alarms.put("some", valid);
    const readState = () => cloudwatch.alarms.describe({}).MetricAlarms[0]?.StateValue;
    assert.equal(readState(), "INSUFFICIENT_DATA");
    cloudwatch.ahead = minute;
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
    it(`computes ${expression}`, () => {
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

for (const type of ["http", "url"] as const)
  describe(`the alarms of a stage with the endpoint type ${type}`, await needs("moto", "runtime client"), () => {
    let account: Account;
    let folder: string;
    before(async () => {
      [account, folder] = await Promise.all([openAccount(), mkdtemp(join(tmpdir(), "postern-alarms-"))]);
      for (const shared of ["lib", "node_modules"]) await symlink(join(root, shared), join(folder, shared));
      for (const file of ["package.json", "serverless.yml"]) await cp(join(root, file), join(folder, file));
      await buildPackage(folder);
      const env = { PATH: process.env.PATH, HOME: folder, NO_COLOR: "1", ...account.env };
      await run(process.execPath, [osls, "deploy", "--stage", "test", `--param=door=${type}`], { cwd: folder, env });
      for (const fn of account.lambda.functions.values())
        for (const version of fn.versions.values()) version.timeout = 2;
    });
    after(async () => {
      await account?.stop();
      await rm(folder, { recursive: true, force: true });
    });
    afterEach(() => {
      account.cloudwatch.delay = 0;
      account.cloudwatch.clear();
      account.throttled.clear();
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
    /** Moves CloudWatch's clock to the beginning of its next minute. */
    const goToNextMinute = () => {
      const now = Date.now() + account.cloudwatch.ahead;
      account.cloudwatch.ahead += minute - (now % minute);
    };
    const listRinging = async () => {
      const client = new CloudWatch({ ...account.actAs("tester"), maxAttempts: 1 });
      const { MetricAlarms = [] } = await client.describeAlarms({ AlarmNamePrefix: "postern-test-" });
      const ringing = MetricAlarms.filter(({ StateValue }) => StateValue === "ALARM");
      return ringing.map(({ AlarmName = "" }) => AlarmName.replace(/^postern-test-(\w+)-\w+$/, "$1"));
    };
    /** Breaks a part of the stage; returns the function that repairs it. */
    const breakStage = ({ rule = firstRule, when }: Failure) => {
      const fn = account.lambda.functions.get(`postern-test-${rule}`);
      assert.ok(fn);
      if (when === "no concurrency") fn.reserved = 0;
      if (when === "throttled route") account.throttled.add(rule);
      if (when !== "no permission") return () => {};
      const policies = new Map(fn.policies);
      fn.policies.clear();
      return () => {
        fn.policies = policies;
      };
    };

    it("ring though CloudWatch gets every value more than three minutes late", async () => {
      account.cloudwatch.delay = 3.5 * minute;
      for (const ringing of [[], [], [], [], [], [], ["ErrorsAlarm"]]) {
        goToNextMinute();
        await sendReview({ name: "late", send: "error" });
        assert.deepEqual(await listRinging(), ringing);
      }
    });

    for (const failure of failures) {
      const wanted = failure[type];
      if (wanted === undefined) continue;
      const title = wanted.length > 0 ? `are ${wanted} if ${failure.name}` : `are silent if ${failure.name}`;
      it(`${title} in three minutes of ten`, async () => {
        const repair = breakStage(failure);
        for (const ringing of [[], [], wanted]) {
          goToNextMinute();
          await sendReview(failure);
          goToNextMinute();
          assert.deepEqual(await listRinging(), ringing);
        }
        repair();
        account.cloudwatch.ahead += 15 * minute;
        assert.deepEqual(await listRinging(), []);
      });
    }
  });

const buildPackage = async (folder: string) => {
  const bundles: RuleBundle[] = [];
  for (const name of rules) {
    const home = join(folder, "functions", name);
    await mkdir(home, { recursive: true });
    for (const [file, text] of Object.entries({ "rule.ts": source, "cases.yaml": "[]", "README.md": "" }))
      await writeFile(join(home, file), text);
    const clusters = { local: { keyVersions: [1], mode: "enforce" as const, settings: {} } };
    bundles.push(await bundleRule(await readRule(home, name), { rule: name, clusters }, join(folder, "dist"), 30_000));
  }
  await writeServerlessIncludes(bundles, signer.publicKey, join(folder, "dist"));
};
