import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { StackTemplate } from "../../infra/aws/stack.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { lockTermMilliseconds } from "../../infra/rollout/stage/lock.ts";
import { buildKubeconfig, type Checkout, cacheVariables, openCheckout } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { type Account, openAccount } from "./account.ts";
import {
  accountId,
  buildArn,
  type Call,
  cloudFormationContext,
  findAllowingStatement,
  listIamCalls,
  readAccess,
  region,
  templateFile,
} from "./rights.ts";
import { lint } from "./tools.ts";

// Tests the roles of infra/aws/iam/pipeline.yml: each command works with the rights of its role, and every right is
// used.

const stage = "test";

/** Rights that no command in these tests uses, with the reasons. */
const unusedRights: Record<string, string> = {
  "DeployPolicy lambda:DeleteFunction":
    "a version is deleted after five later live versions of its rule; these tests deploy fewer",
  "DeployPolicy sns:GetTopicAttributes": "the stage's alarms have no topics; those of alarms.test.ts have",
  "EmergencyPolicy sns:GetTopicAttributes": "the stage's alarms have no topics; those of alarms.test.ts have",
  "DeployPolicy dynamodb:BatchGetItem": "the stage has no quotas; quotas.test.ts reads some",
  "EmergencyPolicy dynamodb:BatchGetItem": "the stage has no quotas; quotas.test.ts reads some",
  "DeployPolicy s3:CreateBucket": "the stage's bucket isn't lost; the one of identity.test.ts is",
  "DeployPolicy s3:PutBucketPolicy": "the stage's bucket isn't lost; the one of identity.test.ts is",
  "PlanPolicy eks:DescribeAccessEntry": "the stage has no access entries; the one of eks.test.ts has some",
  "DeployPolicy eks:CreateAccessEntry": "the stage has no access entries; the one of eks.test.ts has some",
  "DeployPolicy eks:TagResource": "the stage has no access entries; the one of eks.test.ts has some",
  "DeployPolicy eks:DeleteAccessEntry": "the stage has no access entries; the one of eks.test.ts has some",
  "DeployPolicy cloudformation:TagResource": "the stand-in requires no separate right for a stack's tags",
};

const { types, accessEntry, refusedToDeploy, refusedToRead, refusedToFunctions } = readRows<{
  /** The calls of CloudFormation for each type of resource. */
  types: Record<
    string,
    {
      /** The ARNs of the resources that `actions` are called for. */
      on: string[];
      actions: string[];
      /** Actions that take no resource. */
      anywhere?: string[];
      /** Other calls, most of which are allowed only with the tags that their context states. */
      tagged?: Call[];
    }
  >;
  /** A call that the role for deployments may make. `refusedToDeploy` has similar calls that are refused. */
  accessEntry: Call;
  refusedToDeploy: Call[];
  refusedToRead: Call[];
  refusedToFunctions: Call[];
}>(import.meta.filename);
/** The actions that Lambda does with the function's role to connect a function to a VPC. */
const networkActions = [
  "ec2:CreateNetworkInterface",
  "ec2:DescribeNetworkInterfaces",
  "ec2:DeleteNetworkInterface",
  "ec2:AssignPrivateIpAddresses",
  "ec2:UnassignPrivateIpAddresses",
  "ec2:DescribeSubnets",
];
/** The actions to which the caller needs rights if Lambda or CloudFormation creates a function in a VPC. */
const callerNetworkActions = [
  "ec2:DescribeSubnets",
  "ec2:DescribeSecurityGroups",
  "ec2:DescribeVpcs",
  "ec2:DescribeNetworkInterfaces",
];

/** The actions that send traces, which take no resource. */
const tracingActions = ["xray:PutTraceSegments", "xray:PutTelemetryRecords"];
/** The actions for which IAM knows no narrower resource than *. */
const actionsOnAnyResource = new Set([
  "lambda:GetAccountSettings",
  "cloudwatch:GetMetricData",
  "logs:GetQueryResults",
  "ec2:DescribeVolumes",
  "cloudformation:ValidateTemplate",
  ...tracingActions,
  ...networkActions,
  ...callerNetworkActions,
  ...Object.values(types).flatMap(({ anywhere = [] }) => anywhere),
]);

const cfnLint = await needs("cfn-lint");

describe("the roles of infra/aws/iam/pipeline.yml", () => {
  const policies = ["PlanPolicy", "DeployPolicy", "StackPolicy", "EmergencyPolicy", "FunctionsBoundary"];
  const github = { Stage: stage, GitHubRepository: "acme/postern" };
  const boundary = `arn:aws:iam::${accountId}:stack/FunctionsBoundary`;

  it("cfn-lint finds no fault in the template of the roles", cfnLint, () => lint(templateFile));

  it("policies name actions in full, and the resource * only for actions without a narrower resource", async () => {
    const { policy } = await readAccess({ ...github, CodeBuildProjects: "postern-", CodeBuildArtefacts: "source" });
    for (const { actions, Resource, Effect, Condition, policy: name, ...rest } of [
      ...policies,
      "CodeBuildPolicy",
    ].flatMap(policy)) {
      assert.deepEqual(Object.keys(rest), ["Action"], name);
      for (const operator of Object.keys(Condition ?? {}))
        assert.match(operator, /^(StringEquals(IfExists)?|ForAllValues:StringLike|ArnLike|Null)$/, name);
      for (const action of actions) {
        assert.match(action, /^[a-z0-9]+:[A-Za-z]+$/);
        assert.ok(Resource !== "*" || actionsOnAnyResource.has(action), `${name}: ${action} on *`);
      }
      assert.ok(Effect === "Allow" || name === "FunctionsBoundary");
    }
  });

  it("no policy has more than 6144 characters, which is IAM's limit", async () => {
    const { policy } = await readAccess({ ...github, Stage: "a23456789012345f" }); // the longest name
    for (const name of policies) {
      const Statement = policy(name).map(({ policy: _, actions: __, ...statement }) => statement);
      const { length } = JSON.stringify({ Version: "2012-10-17", Statement });
      assert.ok(length <= 6144, `${name} has ${length} characters`);
    }
  });

  it("at GitHub, only pull requests may plan, and only the branch or the environment may deploy", async () => {
    const readSubjects = async (parameters: Record<string, string>) => {
      const { trust } = await readAccess({ ...github, ...parameters });
      return Object.fromEntries(
        ["PlanRole", "DeployRole", "EmergencyRole"].map((role) => {
          const federated = trust(role).filter(({ Action }) => Action === "sts:AssumeRoleWithWebIdentity");
          return [role, federated.map(({ Condition }) => Object(Object(Condition).StringEquals))];
        }),
      );
    };
    const buildSubject = (sub: string) => [
      {
        "token.actions.githubusercontent.com:aud": "sts.amazonaws.com",
        "token.actions.githubusercontent.com:sub": `repo:acme/postern:${sub}`,
      },
    ];
    const [plan, main, prod] = ["pull_request", "ref:refs/heads/main", "environment:prod"].map(buildSubject);
    assert.deepEqual(await readSubjects({}), { PlanRole: plan, DeployRole: main, EmergencyRole: main });
    const environment = await readSubjects({ GitHubEnvironment: "prod" });
    assert.deepEqual(environment, { PlanRole: plan, DeployRole: prod, EmergencyRole: prod });
  });

  it("the roles trust only builds of the named CodeBuild projects of this account", async () => {
    const { trust, role } = await readAccess({ Stage: stage, CodeBuildProjects: "postern-test-" });
    for (const name of ["PlanRole", "DeployRole"]) {
      const [statement, ...otherStatements] = trust(name);
      assert.deepEqual(otherStatements, []);
      assert.deepEqual(statement?.Principal, { Service: "codebuild.amazonaws.com" });
      assert.deepEqual(statement?.Condition, {
        StringEquals: { "aws:SourceAccount": accountId },
        ArnLike: { "aws:SourceArn": buildArn("codebuild", "project/postern-test-*") },
      });
      const log = {
        action: "logs:PutLogEvents",
        resource: buildArn("logs", "log-group:/aws/codebuild/postern-test-plan:*"),
      };
      assert.ok(findAllowingStatement(role(name), log));
    }
  });

  it("only the role for emergencies exists if there are no pipelines", async () => {
    const { resources, trust } = await readAccess({ Stage: stage });
    assert.deepEqual(
      ["PlanRole", "DeployRole", "EmergencyRole", "GitHub", "GitLab"].filter((id) => resources.has(id)),
      ["EmergencyRole"],
    );
    assert.deepEqual(
      trust("EmergencyRole").map(({ Principal }) => Principal),
      [{ AWS: `arn:aws:iam::${accountId}:root` }],
    );
  });

  it("the role that deploys can't change the roles, reach another stage or create an unlimited role", async () => {
    const { role, resources } = await readAccess({ ...github, EksClusters: [buildArn("eks", "cluster/shop")] });
    const deploy = role("DeployRole");
    const context = { ...cloudFormationContext, "iam:PermissionsBoundary": boundary };
    const roleNames = ["PlanRole", "DeployRole", "EmergencyRole"].map((id) =>
      String(resources.get(id)?.Properties.RoleName),
    );
    const changesOfRoles = roleNames.flatMap((name) =>
      ["iam:PutRolePolicy", "iam:UpdateAssumeRolePolicy", "iam:PassRole", "iam:DeleteRole"].map((action): Call => {
        const resource = `arn:aws:iam::${accountId}:role/${name}`;
        return { action, resource, context: { ...context, "iam:PassedToService": "lambda.amazonaws.com" } };
      }),
    );
    for (const call of [...changesOfRoles, ...refusedToDeploy])
      assert.equal(findAllowingStatement(deploy, call), undefined, JSON.stringify(call));
    assert.ok(findAllowingStatement(deploy, accessEntry));
    const creation = { action: "iam:CreateRole", resource: refusedToDeploy[0]?.resource ?? "", context };
    assert.ok(findAllowingStatement(deploy, creation));
  });

  it("no role can read other functions, stacks, topics and logs; only two can read the stage's topic", async () => {
    const topic = buildArn("sns", "oncall");
    const { role } = await readAccess({
      ...github,
      AlarmTopics: [topic],
      EksClusters: [buildArn("eks", "cluster/shop")],
    });
    for (const id of ["PlanRole", "DeployRole", "EmergencyRole"])
      for (const call of refusedToRead)
        assert.equal(findAllowingStatement(role(id), call), undefined, `${id}: ${JSON.stringify(call)}`);
    const readingTopic = { action: "sns:GetTopicAttributes", resource: topic };
    const topicReaders = ["PlanRole", "DeployRole", "EmergencyRole"].filter((id) =>
      findAllowingStatement(role(id), readingTopic),
    );
    assert.deepEqual(topicReaders, ["DeployRole", "EmergencyRole"]);
  });

  it("the actions with the resource * are those in the table of docs/reference/rights.md", async () => {
    const { role } = await readAccess(github);
    const page = await readFile(new URL("../../docs/reference/rights.md", import.meta.url), "utf8");
    const [, table = ""] = page.split("| right | roles |");
    const rows = [...(table.split("\n\n")[0] ?? "").matchAll(/^\| (`.*`) \| ([^|]+) \|/gm)];
    const listed = rows.flatMap(([, actions = "", roles = ""]) =>
      [...actions.matchAll(/`([^`]+)`/g)].map(([, action]) => `${action}: ${roles.replace(", by CloudFormation", "")}`),
    );
    const roles = { plan: "PlanRole", deploy: "DeployRole", emergency: "EmergencyRole" };
    const onEverything = Object.entries(roles).flatMap(([name, id]) =>
      role(id)
        .filter(({ Resource }) => Resource === "*")
        .flatMap(({ actions }) => [...new Set(actions)].map((action) => ({ action, name }))),
    );
    const groups = [...Map.groupBy(onEverything, ({ action }) => action)].map(
      ([action, holders]) => `${action}: ${[...new Set(holders.map(({ name }) => name))].join(", ")}`,
    );
    assert.deepEqual(groups.sort(), listed.sort());
  });

  it("the roles for plans and emergencies have no right to create or delete", async () => {
    const { role } = await readAccess(github);
    const listVerbs = (id: string) =>
      role(id).flatMap(({ actions }) => actions.map((action) => action.replace(/^.*:/, "")));
    // A query of a log changes nothing.
    for (const verb of listVerbs("PlanRole")) assert.match(verb, /^(Get|List|Describe|StartQuery$)/);
    for (const verb of listVerbs("EmergencyRole"))
      assert.match(
        verb,
        /^(Get|BatchGetItem$|List|Describe|StartQuery$|UpdateAlias|UpdateFunction|PublishVersion|InvokeFunction|PutObject)/,
      );
  });

  it("the role that checks clusters trusts only the branch, and may only find clusters", async () => {
    const shop = buildArn("eks", "cluster/shop");
    const { role, trust } = await readAccess({ ...github, EksClusters: [shop] });
    assert.deepEqual(
      role("LiveRole").map(({ actions, Resource }) => [actions, Resource]),
      [[["eks:DescribeCluster"], [shop]]],
    );
    assert.deepEqual(trust("LiveRole"), trust("DeployRole"));
    const { resources } = await readAccess({ Stage: stage, CodeBuildProjects: "postern-", EksClusters: [shop] });
    assert.ok(!resources.has("LiveRole"));
  });

  it("only the roles for deployments and emergencies can read the key that signs URLs", async () => {
    const { role } = await readAccess(github);
    const resource = buildArn("ssm", `parameter/postern/${stage}/keys`);
    const readers = ["PlanRole", "DeployRole", "EmergencyRole"].filter((id) =>
      findAllowingStatement(role(id), { action: "ssm:GetParameter", resource }),
    );
    assert.deepEqual(readers, ["DeployRole", "EmergencyRole"]);
    assert.deepEqual(
      role("PlanRole").flatMap(({ actions }) => actions.filter((action) => /^(ssm|secretsmanager|kms):/.test(action))),
      [],
    );
  });

  it("the boundary limits functions to the rights that the catalogue's rules and the named tokens need", async () => {
    const secret = `arn:aws:secretsmanager:us-east-1:${accountId}:secret:shop-AbCdEf`;
    const parameter = buildArn("ssm", "parameter/shop/token");
    const reviews = "arn:aws:s3:::reviews/prod/*";
    const tokens = { TokenSecrets: [secret], TokenParameters: [parameter, buildArn("ssm", "parameter/postern/*")] };
    const parameters = { ...github, ...tokens, RecordedReviews: [reviews] };
    const { policy } = await readAccess(parameters);
    const boundaryStatements = policy("FunctionsBoundary");
    const wanted = (await readCatalogue()).flatMap(({ rule }) =>
      Object.values(rule.needs ?? {}).flatMap(({ action }) => action ?? []),
    );
    const log = buildArn("logs", "log-group:/aws/lambda/postern-test:log-stream:1");
    const oldLog = buildArn("logs", "log-group:/aws/lambda/postern-test-some:log-stream:1");
    const allowed: Call[] = [
      ...[...wanted, ...networkActions, ...tracingActions].map((action) => ({ action, resource: "*" })),
      { action: "logs:CreateLogStream", resource: log },
      { action: "logs:PutLogEvents", resource: log },
      { action: "logs:PutLogEvents", resource: oldLog },
      { action: "secretsmanager:GetSecretValue", resource: secret },
      {
        action: "kms:Decrypt",
        resource: "arn:aws:kms:us-east-1:444455556666:key/1a2b",
        context: { "kms:EncryptionContext:SecretARN": secret },
      },
      { action: "ssm:GetParameter", resource: parameter },
      { action: "s3:PutObject", resource: "arn:aws:s3:::reviews/prod/eu/pod-security/2026-01-01/a.yaml" },
      ...["GetItem", "PutItem", "ConditionCheckItem"].map((name) => {
        return { action: `dynamodb:${name}`, resource: buildArn("dynamodb", "table/postern-test") };
      }),
    ];
    for (const call of allowed) assert.ok(findAllowingStatement(boundaryStatements, call), JSON.stringify(call));
    assert.deepEqual(
      [
        ...new Set(boundaryStatements.filter(({ Effect }) => Effect === "Allow").flatMap(({ actions }) => actions)),
      ].sort(),
      [...new Set(allowed.map(({ action }) => action))].sort(),
    );
    for (const call of refusedToFunctions)
      assert.equal(findAllowingStatement(boundaryStatements, call), undefined, JSON.stringify(call));
  });
});

describe("a stage with the rights of its roles", await needs("moto", "runtime client", "API server"), () => {
  let account: Account;
  let cluster: TestCluster;
  let checkout: Checkout;
  let options: string[];
  /** The options for the same cluster, as a user without rights in the cluster. */
  let optionsWithoutRights: string[];
  let template: StackTemplate;
  let access: Awaited<ReturnType<typeof readAccess>>;
  /** The role with whose rights commands run. */
  let currentRole: string;
  /** The used rights, each as `POLICY ACTION`. */
  const usedRights = new Set<string>();

  const buildRules = (mode: string) =>
    `rules:\n  always-pull-images: { mode: ${mode}, warm: 1 }\n  deny-service-external-ips:\n  event-rate-limit: { settings: { limits: [{ type: Server, qps: 1, burst: 3 }] } }\n`;
  const buildConfig = (mode: string, keyVersion: string) =>
    `${buildRules(mode)}clusters:\n  local: { keyVersion: ${keyVersion} }\n`;

  before(async () => {
    const binaries = await requireBinaries();
    const catalogue = ["always-pull-images", "deny-service-external-ips", "namespace-exists", "event-rate-limit"];
    [account, cluster, checkout, access] = await Promise.all([
      openAccount(region),
      bootCluster(binaries, { rbac: true }),
      openCheckout(catalogue),
      readAccess({
        Stage: stage,
        GitHubRepository: "acme/postern",
        EksClusters: [buildArn("eks", "cluster/shop")],
        AlarmTopics: [buildArn("sns", "oncall")],
      }),
    ]);
    await checkout.write("postern.yaml", buildConfig("enforce", "[1, 2]"));
    // This config has a rule that reads the cluster, and the cluster's address comes only from EKS.
    const connect = `clusters:\n  local: { connect: { eks: shop, region: ${region} } }\n`;
    await checkout.write("eks.yaml", `${buildRules("enforce")}  namespace-exists:\n${connect}`);
    account.clusters.set("shop", { server: cluster.server, ca: String(cluster.ca) });
    const kubeconfig = await checkout.write("kubeconfig", buildKubeconfig({ local: cluster }));
    const ca = await checkout.write("ca.pem", account.ca);
    options = ["--kubeconfig", kubeconfig, "--ca", ca];
    const unauthorizedKubeconfig = await checkout.write("kubeconfig.none", buildKubeconfig({ local: cluster }, "jane"));
    optionsWithoutRights = ["--kubeconfig", unauthorizedKubeconfig, "--ca", ca];
    account.allow = (recorded) =>
      listIamCalls(recorded).every((call) => {
        const statement = findAllowingStatement(access.role(currentRole), call);
        if (statement && recorded.caller !== "cloudformation") usedRights.add(`${statement.policy} ${call.action}`);
        return statement !== undefined;
      });
  });
  after(async () => {
    await Promise.all([account?.stop(), cluster?.stop()]);
    await checkout?.remove();
  });

  /** Returns the options without `--ca`. */
  const getClusterOptions = () => options.slice(0, 2);
  /** Runs postern with the rights of one role. */
  const runAs = async (role: string, ...words: string[]) => {
    currentRole = role;
    const { code, stdout, stderr } = await checkout.postern(account.actAs(role).env, ...words, "--stage", stage);
    return { code, output: `${stdout}${stderr}`, stderr };
  };
  const requireSuccess = async (role: string, ...words: string[]) => {
    const { code, output } = await runAs(role, ...words);
    assert.equal(code, 0, output);
    return output;
  };
  const requireRefusal = async (role: string, action: string, ...words: string[]) => {
    const { code, stderr } = await runAs(role, ...words);
    assert.equal(code, 3, stderr);
    assert.match(stderr, new RegExp(`^( .*: failed\\n)?AWS: .*not authorized to perform: ${action}[^\\n]*\\n$`));
  };

  it("the role for plans can make a plan of a new stage", async () => {
    const output = await requireSuccess("PlanRole", "deploy", "--plan-only", ...optionsWithoutRights);
    assert.match(output, /is new: .*\n\nledger\n {2}~ table postern-test: new\n/);
  });

  it("a deployment with the role for plans fails with a sentence", async () => {
    await requireRefusal("PlanRole", "cloudformation:CreateStack", "deploy", ...options);
  });

  /** The calls after which a deployment is killed, from the earliest to the latest. */
  const lastSteps: [action: string, name: RegExp][] = [
    ["cloudformation:CreateStack", /^postern-test$/],
    ["s3:PutObject", /\/lock\.json$/],
    ["dynamodb:UpdateTimeToLive", /^postern-test$/],
    ["s3:PutObject", /\/serverless\/.*\.zip$/],
    ["cloudformation:ExecuteChangeSet", /^postern-test$/],
  ];
  const countChangeSets = () =>
    account.recordedCalls.filter(({ action }) => action === "cloudformation:ExecuteChangeSet").length;
  for (const [action, name] of lastSteps)
    it(`a deployment that is killed at ${action} of ${name.source} leaves a lock`, async () => {
      currentRole = "DeployRole";
      const words = [join(checkout.folder, "infra/main.ts"), "deploy", ...options, "--stage", stage];
      const { PATH = "" } = process.env;
      const child = spawn(process.execPath, words, {
        cwd: checkout.folder,
        env: { ...account.actAs("DeployRole").env, PATH, HOME: checkout.folder, CI: "true", ...cacheVariables },
        stdio: ["ignore", "pipe", "pipe"],
      });
      let printed = "";
      for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (printed += chunk));
      account.fault = (call, when) => {
        if (when === "after" && call.action === action && name.test(call.name)) child.kill("SIGKILL");
        return undefined;
      };
      const [, signal] = await once(child, "exit");
      account.fault = undefined;
      assert.equal(signal, "SIGKILL", printed);
      await account.cloudformation.waitUntilIdle();
      // The stack creates the bucket, which has the lock.
      if (action !== "cloudformation:CreateStack") {
        const { code, output } = await runAs("DeployRole", "deploy", ...options);
        assert.equal(code, 1, output);
        assert.match(
          output,
          /^this stage is locked by .* \(postern deploy\); the lock expires at .*Z unless that command renews it\n$/m,
        );
      }
      account.s3.clockOffset += lockTermMilliseconds + 2_000;
    });

  it("the role for deployments can deploy after earlier deployments were killed", async () => {
    // Killing a deployment also ends its osls, so the change set was executed only once.
    assert.equal(countChangeSets(), 1);
    assert.match(await requireSuccess("DeployRole", "deploy", ...options), /release r1 is live/);
    assert.equal(countChangeSets(), 1);
    template = JSON.parse(account.cloudformation.stack("postern-test")?.deployed?.text ?? "");
  });

  const readUrls = async (): Promise<string[]> => {
    const path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/postern";
    const { body } = await cluster.admin({ method: "GET", path });
    return Object(body).webhooks.map((entry: { clientConfig: { url: string } }) => entry.clientConfig.url);
  };

  it("the role for plans can make a plan of a stage without the signing key and rights in the cluster", async () => {
    const callsBefore = account.recordedCalls.length;
    const output = await requireSuccess("PlanRole", "deploy", "--plan-only", ...optionsWithoutRights);
    assert.match(
      output,
      /stack\n {2}nothing to change\n\nrules\n {2}3 of 3 unchanged\n\ncluster local\n {2}nothing to change\n/,
    );
    assert.match(
      output,
      /compared with the entries that were deployed last; postern status compares them with the cluster/,
    );
    // The plan doesn't need a token that the cluster accepts.
    assert.match(
      await requireSuccess("PlanRole", "deploy", "--plan-only", "--config", "eks.yaml", ...optionsWithoutRights),
      /namespace-exists: new/,
    );
    const calls = account.recordedCalls.slice(callsBefore);
    assert.deepEqual(
      calls.filter(({ service }) => service === "ssm"),
      [],
    );
    const [, key = ""] = /\.([\w-]{86})\//.exec((await readUrls())[0] ?? "") ?? [];
    assert.notEqual(key, "");
    const readObjects = calls
      .filter(({ action }) => action === "s3:GetObject")
      .map(({ name }) => name.split(/\/(.*)/s));
    assert.ok(readObjects.length > 0);
    for (const [bucket = "", name = ""] of readObjects) {
      const document = String(await account.storage.read(bucket, name));
      assert.ok(document.includes("/{cluster}.{key}/") && !document.includes(key) && !document.includes("PRIVATE"));
    }
  });

  it("a plan without the signing key shows the changes that a deployment would make to entries", async () => {
    const changed = buildConfig("enforce", "[1, 2]").replace("mode: enforce", "timeoutSeconds: 5");
    await checkout.write("changed.yaml", changed);
    assert.match(
      await requireSuccess("PlanRole", "deploy", "--plan-only", "--config", "changed.yaml", ...optionsWithoutRights),
      /~ mutating entry always-pull-images.postern.dev: timeoutSeconds is 3, not 5/,
    );
    await checkout.write("changed.yaml", buildConfig("enforce", "[2, 3]"));
    assert.match(
      await requireSuccess("PlanRole", "deploy", "--plan-only", "--config", "changed.yaml", ...optionsWithoutRights),
      /cluster local\n {2}~ its URLs get a key of version 3, not 2\n/,
    );
  });

  it("the status with the role for plans names the parts that could not be read", async () => {
    const notProbed =
      /its endpoints were not probed, because the key that signs URLs can't be read: .* ssm:GetParameter/;
    const { code, output } = await runAs("PlanRole", "status", ...optionsWithoutRights.slice(0, 2));
    assert.equal(code, 3, output);
    assert.match(output, notProbed);
    assert.match(output, /^no alarm can ring: alarmTopics in serverless\.yml names no SNS topic$/m);
    assert.match(output, /^ledger: table postern-test, for event-rate-limit: complete$/m);
    assert.match(output, /the API server refuses to show the \w+WebhookConfiguration postern \(403\)/);
    assert.doesNotMatch(output, /answer,|all answer/);
    // With rights in the cluster, only the endpoints are unknown.
    const withRights = await runAs("PlanRole", "status", ...getClusterOptions());
    const found = [notProbed.test(withRights.output), / ~ /.test(withRights.output)];
    assert.deepEqual([withRights.code, ...found], [3, true, false], withRights.output);
  });

  it("the status with the role that deploys is complete", async () => {
    const output = await requireSuccess("DeployRole", "status", ...getClusterOptions());
    assert.match(output, /^no alarm can ring: [\s\S]*all answer/m);
  });

  it("the status with the role for plans finds a wrong key in an entry, and a ledger without recovery", async () => {
    const path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/postern";
    const [, key = ""] = /\.([\w-]{86})\//.exec((await readUrls())[0] ?? "") ?? [];
    const replaceKey = async (other: string) => {
      const { body } = await cluster.admin({ method: "GET", path });
      const edited = JSON.stringify(body).replaceAll(/(?<=\/local\.)[\w-]{86}/g, other);
      assert.equal((await cluster.admin({ method: "PUT", path, body: JSON.parse(edited) })).code, 200);
    };
    await replaceKey("A".repeat(86));
    const { code, output } = await runAs("PlanRole", "status", ...getClusterOptions());
    await replaceKey(key);
    assert.equal(code, 1, output);
    assert.match(output, /~ mutating entry always-pull-images.postern.dev: clientConfig.url has another key than/);
    assert.doesNotMatch(output, /validating entry/);
    currentRole = "DeployRole";
    const recoveryOff = { PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: false } };
    const input = { TableName: "postern-test", ...recoveryOff };
    const changed = await account.callTable(currentRole, "UpdateContinuousBackups", input);
    assert.equal(changed.status, 200);
    const corrected = await runAs("PlanRole", "status", ...getClusterOptions());
    assert.deepEqual([corrected.code, / ~ /.test(corrected.output)], [1, false], corrected.output);
    assert.match(corrected.output, /^ledger: .*: its point-in-time recovery is off; postern deploy corrects that$/m);
  });

  it("the role for deployments can change a mode and a key version, and turn the ledger's recovery on", async () => {
    await checkout.write("postern.yaml", buildConfig("warn", "2"));
    const output = await requireSuccess("DeployRole", "deploy", ...options);
    assert.match(
      output,
      /stack\n {2}nothing to change\n\nledger\n {2}~ table postern-test: its point-in-time recovery is off\n/,
    );
    assert.match(output, /release r2 is live/);
  });

  it("the role for deployments can deploy a change of the stack", async () => {
    const yaml = await readFile(join(checkout.folder, "serverless.yml"), "utf8");
    await checkout.write("serverless.yml", yaml.replace("logRetentionInDays: 14", "logRetentionInDays: 30"));
    assert.match(await requireSuccess("DeployRole", "deploy", ...options), /resources changed/);
  });

  it("the role for deployments can repair an alias and its permissions", async () => {
    const stranger = { StatementId: "mine", Action: "lambda:InvokeFunction", Principal: "999999999999" };
    await account.lambda.act("DeleteAlias", "postern-test-always-pull-images", {}, { Name: "live" });
    await account.lambda.act("AddPermission", "postern-test-event-rate-limit", stranger, { Qualifier: "live" });
    const plan = await requireSuccess("PlanRole", "deploy", "--plan-only", ...optionsWithoutRights);
    assert.match(
      plan,
      /changed in AWS\n {2}~ the alias live of always-pull-images doesn't exist; postern deploy repairs it\n/,
    );
    assert.match(await requireSuccess("DeployRole", "deploy", ...options), /changed in AWS: 3 repaired\n/);
  });

  it("the role for emergencies can roll back, disarm and arm a rule", async () => {
    const rule = "always-pull-images";
    const { cloudwatch } = account;
    const dimensions = { FunctionName: `postern-test-${rule}` };
    for (const _ of [1, 2, 3]) {
      cloudwatch.record({ namespace: "AWS/Lambda", metric: "Throttles", dimensions, value: 1, time: Date.now() });
      cloudwatch.clockOffset += 60_000;
    }
    const status = await requireSuccess("EmergencyRole", "status", ...getClusterOptions());
    assert.match(status, /ThrottlesAlarm1-\S+ +ALARM +postern-test-always-pull-images has 3 Throttles in 15 minutes\n/);
    assert.match(status, /all answer/);
    cloudwatch.clockOffset = 0;
    assert.match(await requireSuccess("EmergencyRole", "status", "--denials"), /^\d+ denials? since /);
    // The role may describe the EKS cluster; the cluster itself refuses its token.
    const { code, output } = await runAs("EmergencyRole", "status", "--config", "eks.yaml");
    assert.equal(code, 3, output);
    assert.match(output, /all answer, .*the API server doesn't accept the credentials/s);
    assert.match(await requireSuccess("EmergencyRole", "rollback", rule), /is at version/);
    assert.match(await requireSuccess("EmergencyRole", "disarm", rule, "--for", "5m"), /allows everything/);
    assert.match(await requireSuccess("EmergencyRole", "arm", rule), /decides again/);
  });

  it("a deployment with the role for emergencies fails with a sentence", async () => {
    await requireRefusal("EmergencyRole", "cloudformation:DescribeStacks", "deploy", ...options);
  });

  it("the role for deployments can roll back, destroy, deploy again, and destroy with the data", async () => {
    assert.match(
      await requireSuccess("DeployRole", "rollback", "--all", "--to", "r1", ...getClusterOptions()),
      /as in release r1/,
    );
    assert.match(
      await requireSuccess("DeployRole", "destroy", "--yes", ...getClusterOptions()),
      /^kept, because --with-data is not given:\n( {2}the log group .*\n){2} {2}the table postern-test with the ledger$/m,
    );
    assert.match(await requireSuccess("DeployRole", "deploy", ...options), /release r1 is live/);
    assert.match(
      await requireSuccess("DeployRole", "destroy", "--yes", "--with-data", ...getClusterOptions()),
      /^stage test is deleted\n(.*\n)*.* ledger: the table postern-test is deleted\n/,
    );
  });

  it("the tests of the stage used all rights of the roles, except CloudFormation's and those of `unusedRights`", () => {
    const givenRights = ["PlanPolicy", "DeployPolicy", "EmergencyPolicy"].flatMap((id) =>
      access.policy(id).flatMap(({ policy, actions }) => actions.map((action) => `${policy} ${action}`)),
    );
    const unusedFound = [...new Set(givenRights)].filter((right) => !usedRights.has(right));
    assert.deepEqual(unusedFound.sort(), Object.keys(unusedRights).sort());
  });

  it("CloudFormation may create, change and delete the types of its templates, and nothing else", async () => {
    const text = await readFile(join(checkout.folder, "infra/build/resources.yaml"), "utf8");
    const ofRules = [...text.matchAll(/^ +Type: (AWS::\S+)$/gm)].map(([, type = ""]) => type);
    const declared = [...Object.values(template.Resources).map(({ Type }) => Type), ...ofRules];
    assert.deepEqual([...new Set(declared)].sort(), Object.keys(types).sort());
    const [deploy, deployPolicy] = [access.role("DeployRole"), access.policy("DeployPolicy")];
    const context = {
      ...cloudFormationContext,
      "iam:PermissionsBoundary": `arn:aws:iam::${accountId}:stack/FunctionsBoundary`,
    };
    const neededActions = new Set<string>(["iam:PassRole", ...callerNetworkActions]);
    /** Asserts that CloudFormation may do an action, and that the caller itself may not. */
    const requireRight = (type: string, action: string, resource: string, added: Call["context"] = {}) => {
      neededActions.add(action);
      const call = { action, resource, context: { ...context, ...added } };
      assert.ok(findAllowingStatement(deploy, call), `${type}: ${action} on ${resource}`);
      const direct = findAllowingStatement(deploy, { action, resource });
      assert.ok(
        !direct || deployPolicy.some(({ actions }) => actions.includes(action)) || direct.policy === "PlanPolicy",
        action,
      );
    };
    for (const [type, { on, actions, anywhere = [], tagged = [] }] of Object.entries(types)) {
      for (const { action, resource, context: added } of tagged) requireRight(type, action, resource, added);
      for (const action of actions) for (const resource of on) requireRight(type, action, resource);
      for (const action of anywhere) requireRight(type, action, "*");
    }
    const passed = { action: "iam:PassRole", context: { "iam:PassedToService": "lambda.amazonaws.com" } };
    for (const resource of types["AWS::IAM::Role"]?.on ?? [])
      assert.ok(findAllowingStatement(deploy, { ...passed, resource }));
    for (const action of callerNetworkActions) assert.ok(findAllowingStatement(deploy, { action, resource: "*" }));
    const givenRights = access.policy("StackPolicy").flatMap(({ actions }) => actions);
    assert.deepEqual(
      [...new Set(givenRights)].filter((action) => !neededActions.has(action)),
      [],
    );
  });

  it("every function's role has the permissions boundary of the stage, if the stage has one", async () => {
    const boundary = `arn:aws:iam::${accountId}:policy/PosternFunctions-test`;
    const yaml = await readFile(join(checkout.folder, "serverless.yml"), "utf8");
    await checkout.write(
      "serverless.yml",
      yaml.replace(/^params:\n/m, `params:\n  test: { boundary: "${boundary}" }\n`),
    );
    process.env.AWS_REGION = region;
    const { packageStack } = await checkout.load<typeof import("../../infra/aws/stack.ts")>("infra/aws/stack.ts");
    const listBoundaries = async () =>
      Object.values((await packageStack(stage)).Resources)
        .filter(({ Type }) => Type === "AWS::IAM::Role")
        .map(({ Properties }) => Properties?.PermissionsBoundary);
    assert.deepEqual(await listBoundaries(), [boundary, boundary, boundary]);
    await checkout.write("serverless.yml", yaml);
    assert.deepEqual(await listBoundaries(), Array(3).fill({ Ref: "AWS::NoValue" }));
  });
});
