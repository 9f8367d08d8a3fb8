import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { DeploymentPlan } from "../../infra/rollout/plan/plan.ts";
import { type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { createPackager, loadJob, type StagePackager } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";
import { runSchedules } from "./schedules.ts";

// Tests a rule that reconciles clusters on a schedule, from its first deployment to the last.
const minute = 60_000;
/** A rule that reconciles, and one that doesn't. */
const [rule, otherRule] = ["count-minutes", "deny-notes"];
const match = 'match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }]';
const buildRule = (mark: string) => `
import { pageReader, sharedLedger } from "#lib/needs.ts";
import { rule } from "#lib/rule.ts";
export default rule({
  summary: "Counts minutes.",
  ${match},
  needs: { ledger: sharedLedger(), listPage: pageReader(() => [{ group: "", resource: "pods" }]) },
  validate() {},
  settings: { fails: false },
  async reconcile({ ledger, settings }) {
    if (settings.fails && ledger.cluster === "east") throw new Error("east can't be read");
    const [count] = await ledger.change([ledger.cluster], ([count = 0]) => [count + 1]);
    return "${mark} " + count;
  },
});
`;
const buildOtherRule = (mark: string) => `
import { rule } from "#lib/rule.ts";
export default rule({ summary: "Denies notes.", ${match}, validate: () => "${mark}" });
`;

describe("the schedule of a rule that reconciles clusters", await needs("moto", "runtime client"), () => {
  let account: Account;
  let checkout: Checkout;
  let packageStage: StagePackager;
  let trees = 0;

  before(async () => {
    [account, checkout] = await Promise.all([openAccount(), openCheckout()]);
    packageStage = await createPackager(checkout.folder);
    account.lambda.updateMilliseconds = 0;
    Object.assign(process.env, account.actAs("deployer").env);
  });
  after(async () => {
    await account?.stop();
    await checkout?.remove();
  });

  const openJob = (rules: string) => {
    const connect = "{ connect: { server: 'https://127.0.0.1:9', tokenSecret: a-token, region: eu-west-1 } }";
    const yaml = `rules: { ${otherRule}: {}, ${rules} }\nclusters: { east: ${connect}, west: ${connect} }\n`;
    const write = join(checkout.folder, "entries");
    return loadJob(checkout.folder, `trees/${trees}`, yaml, { ca: account.ca, write });
  };
  const deploy = async (rules: string, mark: string) => {
    trees++;
    const cases = "- { name: admits a note, validate: { metadata: { name: a } }, needs: {}, admitted: true }\n";
    // A process loads a module only once, so each catalogue is also written to its own folder.
    for (const folder of ["functions", `trees/${trees}`]) {
      await checkout.rule(rule, buildRule(mark), cases, folder);
      await checkout.rule(otherRule, buildOtherRule(mark), cases.replace("admitted: true", `refused: ${mark}`), folder);
    }
    const { deployStage } =
      await checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts");
    // The plan must report no change by hand: the schedule's permission is as deployed, also after a rollback or `arm`.
    const show = async (plan: DeploymentPlan) => assert.deepEqual(plan.differences, []);
    assert.match(await deployStage(await openJob(rules), show, packageStage), /release r\d+ is live/);
  };
  /** Runs the schedules once, as in each minute. Returns the reports of the functions, and the number of calls. */
  const passMinute = async () => {
    const calls = await runSchedules(account.cloudformation, account.lambda);
    for (const { fault, payload } of calls) assert.equal(fault, undefined, JSON.stringify(payload));
    account.cloudwatch.clockOffset += minute;
    const lines = calls.flatMap(({ log }) => String(log).split("\n")).filter((line) => line.startsWith('{"Rule"'));
    const reports = lines.map((line) => {
      const { Cluster, done, verdict } = JSON.parse(line);
      return [Cluster, done ?? verdict].join(": ");
    });
    return { calls: calls.length, reports: reports.sort() };
  };
  /** Returns the states of the schedule's alarms: one rings if the schedule doesn't run, and one if its work fails. */
  const readAlarms = () => {
    const { MetricAlarms } = account.cloudwatch.alarms.describe({});
    const read = (kind: string) =>
      MetricAlarms.find(({ AlarmName }) => AlarmName === `postern-test-${rule}-${kind}`)?.StateValue;
    return [read("schedule"), read("schedule-errors")];
  };
  const passMinutes = async (count: number) => {
    for (let minutes = 0; minutes < count; minutes++) await passMinute();
  };
  const runPostern = async (...words: string[]) => {
    const { code, stderr } = await checkout.postern(account.actAs("tester").env, ...words, "--stage", "test");
    assert.equal(code, 0, stderr);
  };

  it("the schedule calls a rule for each cluster with a connection, and the rule keeps its ledger", async () => {
    await deploy(`${rule}: {}`, "first");
    // No alarm rings before the first call.
    const [running, failing] = readAlarms();
    assert.deepEqual([running, failing === "ALARM"], ["INSUFFICIENT_DATA", false]);
    assert.deepEqual(await passMinute(), { calls: 1, reports: ["east: first 1", "west: first 1"] });
    assert.deepEqual((await passMinute()).reports, ["east: first 2", "west: first 2"]);
  });

  it("the schedule calls the live version of a rule, also after a rollback", async () => {
    await deploy(`${rule}: {}`, "second");
    assert.deepEqual((await passMinute()).reports, ["east: second 3", "west: second 3"]);
    await runPostern("rollback", rule);
    assert.deepEqual((await passMinute()).reports, ["east: first 4", "west: first 4"]);
  });

  it("a rule that is disarmed or off does nothing when the schedule calls its function", async () => {
    await runPostern("disarm", rule, "--for", "5m");
    assert.deepEqual(await passMinute(), { calls: 1, reports: [": disarmed"] });
    await runPostern("arm", rule);
    assert.deepEqual((await passMinute()).reports, ["east: first 5", "west: first 5"]);
    await deploy(`${rule}: { mode: off }`, "third");
    assert.deepEqual(await passMinute(), { calls: 1, reports: [] });
  });

  it("alarms ring if a rule's work fails or its schedule stops, but not if the rule is disarmed", async () => {
    await deploy(`${rule}: { settings: { fails: true } }`, "failing");
    assert.deepEqual((await passMinute()).reports, ["east: failed", "west: failing 6"]);
    // The alarm counts failures in periods of five minutes.
    await passMinutes(20);
    assert.deepEqual(readAlarms(), ["OK", "ALARM"]);

    await runPostern("rollback", rule);
    await passMinutes(50);
    assert.deepEqual(readAlarms(), ["OK", "OK"]);

    const schedule = account.cloudformation.stack("postern-test")?.resources.get("CountDashminutesSchedule");
    assert.ok(schedule);
    schedule.properties.State = "DISABLED";
    // The alarm evaluates the last ten minutes.
    await passMinutes(13);
    assert.deepEqual(readAlarms(), ["INSUFFICIENT_DATA", "OK"]);
    const { stdout } = await checkout.postern(account.actAs("tester").env, "status", "--stage", "test");
    assert.match(
      stdout,
      /^postern-test-count-minutes-schedule +INSUFFICIENT_DATA +postern-test-count-minutes has not been called by its schedule$/m,
    );
    schedule.properties.State = "ENABLED";

    await runPostern("disarm", rule, "--for", "5m");
    await passMinutes(15);
    assert.deepEqual(readAlarms(), ["OK", "OK"]);
    await runPostern("arm", rule);
  });

  it("the schedule ends once postern.yaml doesn't name the rule, or the stage is destroyed", async () => {
    await deploy(`${rule}: {}`, "fourth");
    assert.equal((await passMinute()).calls, 1);
    await deploy("", "fifth");
    // The function is kept for a rollback until the next release.
    assert.equal((await passMinute()).calls, 1);
    await deploy("", "sixth");
    assert.deepEqual(await passMinute(), { calls: 0, reports: [] });
    assert.deepEqual(readAlarms(), [undefined, undefined]);
    await deploy(`${rule}: {}`, "seventh");
    const { destroyStage } =
      await checkout.load<typeof import("../../infra/rollout/destroy.ts")>("infra/rollout/destroy.ts");
    const forgotten = ["east", "west"];
    // `noticeMilliseconds: 0`: the command doesn't wait before it deletes the functions.
    await destroyStage({ ...(await openJob(`${rule}: {}`)), forgotten, noticeMilliseconds: 0 });
    assert.equal((await passMinute()).calls, 0);
  });
});
