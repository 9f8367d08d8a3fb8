import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { Agent, request } from "node:https";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import type { StackTemplate } from "../../infra/aws/stack.ts";
import { buildProbeReview } from "../../infra/clusters/probe.ts";
import type { StagePackage } from "../../infra/rollout/versions/package.ts";
import { type Checkout, openCheckout } from "../checkout.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { loadJob } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";

// Tests the upgrade of a stage whose functions each had a log group, as in an earlier version. It gets the present
// stack while API servers call its functions.

const rules = ["deny-left", "deny-right", "deny-both"];
const buildRule = (mark: string) => `
import { rule } from "postern/rule";
export default rule({
  summary: "Denies everything.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  validate() { return "${mark}"; },
});
`;
const buildCases = (mark: string) =>
  `- name: denies a pod\n  validate: { metadata: { name: a } }\n  refused: ${mark}\n`;

/** Converts a package to the stack that an earlier version of Postern created. */
const toOldLayout = (built: StagePackage, stage: string): StagePackage => {
  const { FunctionsLogGroup, ...otherResources } = structuredClone(built.template.Resources);
  const resources = Object.fromEntries(
    Object.entries(otherResources).filter(([, { Type }]) => Type !== "AWS::Logs::QueryDefinition"),
  );
  const RetentionInDays = FunctionsLogGroup?.Properties?.RetentionInDays;
  // Each function had a log group of its own, and its role could write only to this group.
  for (const rule of rules) {
    const id = `DenyDash${rule.slice("deny-".length)}`;
    const { LoggingConfig, ...properties } = Object(resources[`${id}LambdaFunction`]?.Properties);
    assert.ok(LoggingConfig, rule);
    resources[`${id}LambdaFunction`] = {
      Type: "AWS::Lambda::Function",
      Properties: properties,
      DependsOn: `${id}LogGroup`,
    };
    const LogGroupName = `/aws/lambda/postern-${stage}-${rule}`;
    resources[`${id}LogGroup`] = { Type: "AWS::Logs::LogGroup", Properties: { LogGroupName, RetentionInDays } };
    const { Statement } = Object(resources[`${id}Role`]?.Properties).Policies[0].PolicyDocument;
    Statement[0].Resource = { "Fn::GetAtt": [`${id}LogGroup`, "Arn"] };
  }
  // The stack had three simple alarms, and no dashboard.
  const keptResources = Object.entries(resources).filter(([, { Type }]) => !/^AWS::CloudWatch::/.test(Type));
  const comparison = { ComparisonOperator: "GreaterThanThreshold", Threshold: 0, EvaluationPeriods: 5 };
  const threshold = { ...comparison, TreatMissingData: "notBreaching" };
  const metric = { Namespace: "Postern", Dimensions: [{ Name: "Stage", Value: stage }], Period: 60, Statistic: "Sum" };
  const alarms = ["Errors", "Latency", "Throttles"].map((MetricName) => [
    `${MetricName}Alarm`,
    { Type: "AWS::CloudWatch::Alarm", Properties: { ...threshold, ...metric, MetricName } },
  ]);
  const Resources: StackTemplate["Resources"] = Object.fromEntries([...keptResources, ...alarms]);
  const parts = built.parts.map((part) => {
    const LoggingConfig = { LogGroup: `/aws/lambda/postern-${stage}-${part.name}`, LogFormat: "Text" as const };
    const stackSettings = { ...part.wanted.stackSettings, LoggingConfig };
    return { ...part, wanted: { ...part.wanted, stackSettings } };
  });
  return { ...built, parts, template: { ...built.template, Resources } };
};

describe("the upgrade of a stage from an earlier version", await needs("moto", "runtime client"), () => {
  let account: Account;
  let checkout: Checkout;

  before(async () => {
    [account, checkout] = await Promise.all([openAccount(), openCheckout()]);
    account.lambda.updateMilliseconds = 0;
    for (const mark of ["old", "new"])
      for (const rule of rules) await checkout.rule(rule, buildRule(mark), buildCases(mark), `trees/${mark}`);
    Object.assign(process.env, account.actAs("deployer").env);
  });
  after(async () => {
    await account?.stop();
    await checkout?.remove();
  });

  const openJob = async (stage: string, mark: string, { timeoutSeconds = 3 } = {}) => {
    const text = `rules: { ${rules.map((rule) => `${rule}: { timeoutSeconds: ${timeoutSeconds} }`).join(", ")} }`;
    const { createAwsStageClients } =
      await checkout.load<typeof import("../../infra/aws/stage.ts")>("infra/aws/stage.ts");
    return loadJob(checkout.folder, `trees/${mark}`, `${text}\nclusters: { shop: {} }\n`, {
      stage: createAwsStageClients(stage),
      clusters: [],
      ca: account.ca,
    });
  };
  /** Deploys. With `isOld`, the stage gets the stack of the earlier version. */
  const deploy = async (job: Awaited<ReturnType<typeof openJob>>, { isOld = false } = {}) => {
    const { deployStage } =
      await checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts");
    const { packageStage } = await checkout.load<typeof import("../../infra/rollout/versions/package.ts")>(
      "infra/rollout/versions/package.ts",
    );
    const build: typeof packageStage = async (stage, ...others) => {
      const built = await packageStage(stage, ...others);
      return isOld ? toOldLayout(built, stage) : built;
    };
    return deployStage(job, async () => {}, build);
  };
  const readSegment = async (job: Awaited<ReturnType<typeof openJob>>) => {
    const { readKeyring } = await checkout.load<typeof import("../../infra/rollout/stage/keyring.ts")>(
      "infra/rollout/stage/keyring.ts",
    );
    return (await readKeyring(job.stage.parameters))?.current.signSegment("shop", 1) ?? "";
  };

  /** Starts eight clients, which send reviews to all rules until `stop`, and count the answers by their message. */
  const startClients = (segment: string) => {
    const agent = new Agent({ keepAlive: true, ca: account.ca });
    const answers = new Map<string, number>();
    const body = JSON.stringify(buildProbeReview([]));
    const sendReview = (rule: string) =>
      new Promise<string>((resolve) => {
        const options = { method: "POST", agent, headers: { "content-type": "application/json" } };
        const url = `${account.baseUrl}/${segment}/${rule}/validate?timeout=3s`;
        const outgoing = request(url, options, async (answer) => {
          const chunks: Buffer[] = [];
          for await (const chunk of answer) chunks.push(chunk);
          const answerBody = String(Buffer.concat(chunks));
          const message = answer.statusCode === 200 ? JSON.parse(answerBody).response.status?.message : undefined;
          resolve(message ?? `${answer.statusCode} of ${rule}: ${answerBody}`);
        });
        outgoing.on("error", (error) => resolve(`${rule}: ${error.message}`));
        outgoing.end(body);
      });
    let isOver = false;
    const clients = Array.from({ length: 8 }, async (_, client) => {
      for (let count = client; !isOver; count++) {
        const message = await sendReview(rules[count % rules.length] ?? "");
        answers.set(message, (answers.get(message) ?? 0) + 1);
        await wait(100);
      }
    });
    return {
      answers,
      /** Waits for a number of further answers with this message. */
      waitForMore: async (message: string, count = 24) => {
        const wantedCount = (answers.get(message) ?? 0) + count;
        const hasEnough = async () => (answers.get(message) ?? 0) >= wantedCount;
        await waitUntil(`there were no ${wantedCount} answers with ${message} in time`, hasEnough);
      },
      stop: async () => {
        isOver = true;
        await Promise.all(clients);
        agent.destroy();
      },
    };
  };

  /** Asserts that the log group of every version exists, and that the version's role may write to it. */
  const requireWritableLogs = (stage: string) => {
    const resources = [...(account.cloudformation.stack(`postern-${stage}`)?.resources.values() ?? [])];
    const groups = [...resources, ...account.cloudformation.retained].filter(
      ({ type }) => type === "AWS::Logs::LogGroup",
    );
    for (const [name, { versions }] of account.lambda.functions) {
      if (!name.startsWith(`postern-${stage}-`)) continue;
      for (const { role, logging } of versions.values()) {
        const group = logging.LogGroup ?? `/aws/lambda/${name}`;
        assert.ok(
          groups.some(({ physical }) => physical === group),
          `${group} exists`,
        );
        const roleResource = resources.find(({ physical }) => role.endsWith(`/${physical}`));
        assert.ok(
          JSON.stringify(roleResource?.properties.Policies).includes(`log-group:${group}:*`),
          `${role} writes to ${group}`,
        );
      }
    }
  };
  /** Returns the DeletionPolicies of the log groups of single functions in the stack. */
  const listPoliciesOfOldGroups = (stage: string) =>
    [...(account.cloudformation.stack(`postern-${stage}`)?.resources.values() ?? [])]
      .filter(
        ({ type, physical }) => type === "AWS::Logs::LogGroup" && physical.startsWith(`/aws/lambda/postern-${stage}-`),
      )
      .map(({ deletion }) => deletion);

  for (const endpointType of ["http", "url"])
    it(`a stage with endpoint type ${endpointType} gets the present stack without a failed review`, async () => {
      const stage = `live-${endpointType}`;
      const service = await readFile(join(checkout.folder, "serverless.yml"), "utf8");
      await checkout.write("serverless.yml", service.replace(/endpoint: \w+/, `endpoint: ${endpointType}`));
      await account.reset();
      const oldJob = await openJob(stage, "old");
      await deploy(oldJob, { isOld: true });
      assert.deepEqual(listPoliciesOfOldGroups(stage), [undefined, undefined, undefined]);
      requireWritableLogs(stage);

      const clients = startClients(await readSegment(oldJob));
      try {
        await clients.waitForMore("old");
        const newJob = await openJob(stage, "new");
        assert.match(await deploy(newJob), /is live$/);
        await clients.waitForMore("new");
        assert.deepEqual(listPoliciesOfOldGroups(stage), ["Retain", "Retain", "Retain"]);
        requireWritableLogs(stage);

        const { rollBackAll } = await checkout.load<typeof import("../../infra/rollout/versions/rollback.ts")>(
          "infra/rollout/versions/rollback.ts",
        );
        await rollBackAll(newJob, undefined);
        await clients.waitForMore("old");
        // The next release no longer has the log groups of single functions in its stack.
        assert.match(await deploy(await openJob(stage, "new", { timeoutSeconds: 15 })), /is live$/);
        await clients.waitForMore("new");
        assert.deepEqual([listPoliciesOfOldGroups(stage), account.cloudformation.retained.size], [[], rules.length]);
        requireWritableLogs(stage);
      } finally {
        await clients.stop();
      }
      assert.deepEqual([...clients.answers.keys()].sort(), ["new", "old"]);
    });
});
