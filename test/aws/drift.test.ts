import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";

// Tests changes that were made in AWS by hand: `status` and the plan show them, and `deploy` repairs them or prints the
// command that does.
describe("changes that were made in AWS by hand", await needs("moto"), () => {
  const fn = "postern-test-always-pull-images";
  const group = "/aws/lambda/postern-test";
  let account: Account;
  let checkout: Checkout;

  before(async () => {
    [account, checkout] = await Promise.all([
      openAccount("eu-west-1", { isInProcess: true }),
      openCheckout(["always-pull-images"]),
    ]);
    account.lambda.updateMilliseconds = 0;
    await checkout.write("ca.pem", account.ca);
    await writeConfig("warn");
    const { code, stdout, stderr } = await deploy();
    assert.equal(code, 0, stdout + stderr);
    await writeConfig("enforce");
    assert.equal((await deploy()).code, 0);
  });
  after(async () => {
    await account?.stop();
    await checkout?.remove();
  });

  const writeConfig = (mode: string) =>
    checkout.write(
      "postern.yaml",
      `rules: { always-pull-images: { mode: ${mode}, reserved: 7 } }\nclusters: { shop: {} }\n`,
    );
  const deploy = (...words: string[]) =>
    checkout.postern(account.env, "deploy", "--stage", "test", "--ca", "ca.pem", "--write", "entries", ...words);
  const readStatus = () => checkout.postern(account.env, "status", "--stage", "test");
  const getFunction = () => account.lambda.functions.get(fn) ?? assert.fail();
  const act = (action: string, input: object = {}, query: Record<string, string> = {}) =>
    account.lambda.act(action, fn, { ...input }, query);
  const readState = () => {
    const { latest, aliases, policies } = getFunction();
    const { version, weights } = aliases.get("live") ?? assert.fail();
    const statements = (policies.get("live")?.statements ?? []).map((statement) => JSON.stringify(statement));
    const { memorySize, layers, environment } = latest;
    return { version, weights, statements: statements.sort(), memorySize, layers, environment };
  };
  const deleteStatements = () => getFunction().policies.delete("live");
  const gatewayRight = { Action: "lambda:InvokeFunction", Principal: "apigateway.amazonaws.com" };

  it("no change by hand is reported after a deployment", async () => {
    const { stdout } = await readStatus();
    assert.doesNotMatch(stdout, /changed in AWS/);
    assert.match((await deploy()).stderr, /^nothing to do: release r2 is live/m);
  });

  const repaired: [what: string, change: () => unknown, ...sentences: RegExp[]][] = [
    [
      "a permission that is gone",
      deleteStatements,
      /the alias live of always-pull-images doesn't let apigateway\.amazonaws\.com do lambda:InvokeFunction/,
    ],
    [
      "a permission for another API",
      async () => {
        const [{ Sid } = {}] = getFunction().policies.get("live")?.statements ?? [];
        deleteStatements();
        const SourceArn = "arn:aws:execute-api:eu-west-1:123456789012:stranger/*";
        await act("AddPermission", { StatementId: Sid, ...gatewayRight, SourceArn }, { Qualifier: "live" });
      },
      /lets apigateway\.amazonaws\.com do lambda:InvokeFunction \(\S+\), which was not deployed/,
      /doesn't let apigateway\.amazonaws\.com do lambda:InvokeFunction/,
    ],
    [
      "a permission that strangers got",
      () =>
        act(
          "AddPermission",
          { StatementId: "mine", Action: "lambda:InvokeFunction", Principal: "999999999999" },
          { Qualifier: "live" },
        ),
      /the alias live of always-pull-images lets 999999999999 do lambda:InvokeFunction \(mine\), which was not deployed/,
    ],
    [
      "an alias that is gone, with its permissions",
      () => act("DeleteAlias", {}, { Name: "live" }),
      /the alias live of always-pull-images doesn't exist/,
      /doesn't let apigateway\.amazonaws\.com/,
    ],
    [
      "an alias at an older version",
      () => act("UpdateAlias", { FunctionVersion: "1" }, { Name: "live" }),
      /the alias live of always-pull-images points at version 1, and release r\d+ has version 2/,
    ],
    [
      "an alias with a weight",
      () => act("UpdateAlias", { RoutingConfig: { AdditionalVersionWeights: { 2: 0.25 } } }, { Name: "live" }),
      /the alias live of always-pull-images sends 25% of reviews to version 2/,
    ],
    [
      "the unpublished function",
      () => act("UpdateFunctionConfiguration", { MemorySize: 1024, Environment: { Variables: { TOKEN: "hidden" } } }),
      /the unpublished function of always-pull-images was changed: keys, environment, sizing/,
    ],
  ];
  /** Groups of changes that can be made at the same time. */
  const rounds = [repaired.slice(0, 1), repaired.slice(1, 3), repaired.slice(3, 4), repaired.slice(4)];
  for (const round of rounds)
    it(`status shows and deploy repairs a change by hand: ${round.map(([what]) => what).join("; ")}`, async () => {
      const before = readState();
      for (const [, change] of round) await change();
      const sentences = round.flatMap(([, , ...sentencesOfChange]) => sentencesOfChange);
      const status = await readStatus();
      assert.equal(status.code, 1);
      for (const { source } of sentences)
        assert.match(
          status.stdout,
          new RegExp(`changed in AWS\\n(.*\\n)*  ~ .*${source}.*; postern deploy repairs it\\n`),
        );
      assert.doesNotMatch(status.stdout + status.stderr, /hidden/);
      const { code, stdout, stderr } = await deploy();
      assert.equal(code, 0, stdout + stderr);
      for (const sentence of sentences) assert.match(stdout, sentence);
      assert.match(stderr, /release r\d+ is live/);
      assert.deepEqual(readState(), before);
    });

  const getAlarmName = () =>
    [...(account.cloudformation.stack("postern-test")?.resources.values() ?? [])].find(
      ({ id }) => id === "LatencyAlarm",
    )?.physical ?? assert.fail();
  /** Runs a command of the AWS CLI against the stand-ins. */
  const runCommand = async (command: string) => {
    const parts = command.split(" && ").map(async (part) => {
      const [, service = "", operation = ""] = part.split(" ");
      // The value of an option: quoted or unquoted at the end of the command, or unquoted before other options.
      const option = (name: string) =>
        new RegExp(`--${name} (?:'(.*)'|(\\S+))$|--${name} (\\S+)`).exec(part)?.slice(1).find(Boolean) ?? "";
      if (service === "lambda" && operation === "put-function-concurrency")
        await account.lambda.act("PutFunctionConcurrency", option("function-name"), {
          ReservedConcurrentExecutions: Number(option("reserved-concurrent-executions")),
        });
      else if (service === "logs" && operation === "create-log-group")
        account.logs.groups.set(option("log-group-name"), []);
      else if (service === "logs" && operation === "put-retention-policy")
        account.logs.retention.set(option("log-group-name"), Number(option("retention-in-days")));
      else if (service === "cloudwatch" && operation === "put-metric-alarm") {
        const { AlarmName, ...properties } = JSON.parse(option("cli-input-json").replaceAll("'\\''", "'"));
        account.cloudwatch.alarms.put(AlarmName, properties);
      } else assert.fail(part);
    });
    await Promise.all(parts);
  };
  const readAlarm = () =>
    account.cloudwatch.alarms.describe({ AlarmNames: [getAlarmName()] }).MetricAlarms[0] ?? assert.fail();

  const reported: [what: string, change: () => unknown, sentence: RegExp][] = [
    [
      "a throttle",
      () => act("PutFunctionConcurrency", { ReservedConcurrentExecutions: 0 }),
      /the reserved concurrency of always-pull-images is 0, not 7, so Lambda refuses all of its reviews/,
    ],
    [
      "no reserved concurrency",
      () => act("DeleteFunctionConcurrency"),
      /the reserved concurrency of always-pull-images is none, not 7/,
    ],
    [
      "another retention",
      () => account.logs.retention.delete(group),
      /the log group \/aws\/lambda\/postern-test keeps lines without an end, not for 14 days/,
    ],
    [
      "a log group that is gone",
      () => {
        account.logs.groups.delete(group);
        account.logs.retention.delete(group);
      },
      /the log group \/aws\/lambda\/postern-test doesn't exist/,
    ],
    [
      "an alarm with another threshold",
      () => account.cloudwatch.alarms.put(getAlarmName(), { ...readAlarm(), Threshold: 9000 }),
      /the alarm \S+ has Threshold 9000, not 2400/,
    ],
    ["an alarm that is gone", () => account.cloudwatch.alarms.delete(getAlarmName()), /the alarm \S+ doesn't exist/],
  ];
  // Two changes of the same thing are in different rounds: throttle, log group and alarm have two changes each.
  for (const round of [reported.filter((_, index) => index % 2 === 0), reported.filter((_, index) => index % 2 === 1)])
    it(`status and deploy print the command for a repair: ${round.map(([what]) => what).join("; ")}`, async () => {
      for (const [, change] of round) await change();
      const status = await readStatus();
      assert.equal(status.code, 1);
      const { code, stderr } = await deploy();
      assert.equal(code, 1);
      assert.match(stderr, /^nothing to do: release r\d+ is live, but AWS is not as it was deployed:\n {2}! /m);
      for (const [, , sentence] of round) {
        assert.match(status.stdout, sentence);
        assert.match(stderr, sentence);
      }
      for (const [, command = ""] of stderr.matchAll(/this repairs it:\n {6}(aws .*)\n/g)) await runCommand(command);
      assert.doesNotMatch((await readStatus()).stdout, /changed in AWS/);
    });

  it("changes by hand can't be found without a right, and status says which right is missing", async () => {
    account.allow = ({ action }) => action !== "lambda:GetPolicy";
    const [status, plan] = [await readStatus(), await deploy("--plan-only")];
    account.allow = undefined;
    assert.match(status.stderr, /what was changed in AWS by hand is not known, because a right is missing .*GetPolicy/);
    assert.match(plan.stdout, /what was changed in AWS by hand is not known/);
    assert.deepEqual([status.code, plan.code], [3, 0]);
  });
});
