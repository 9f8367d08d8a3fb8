import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:https";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { sendRequest } from "#lib/cluster/https-request.ts";
import { openParameters } from "../../infra/aws/parameters.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { readKeyring } from "../../infra/rollout/stage/keyring.ts";
import { type Checkout, openCheckout } from "../checkout.ts";
import { close, listen } from "../listen.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";
import { findAllowingStatement, listIamCalls, readAccess } from "./rights.ts";
import { lint } from "./tools.ts";

// Tests a stage whose functions are in a VPC, EKS clusters with all kinds of networks, and rules that keep a ledger in
// DynamoDB, which is outside the VPC and outside the stage's stack.
describe("a stage with functions in a VPC", await needs("moto", "runtime client", "cfn-lint"), () => {
  const region = "eu-west-1";
  const vpc = "{ subnetIds: [subnet-0000000b, subnet-0000000a], securityGroupIds: [sg-0000000c] }";
  const [readingFunction, otherFunction] = ["postern-test-namespace-exists", "postern-test-always-pull-images"];
  let account: Account;
  let checkout: Checkout;
  let serverless: string;
  let shop: { server: string; ca: string };
  const server = createServer(({ url = "" }, response) => {
    response.setHeader("content-type", "application/json");
    const namespace = { kind: "Namespace", apiVersion: "v1", metadata: { name: "default" } };
    response.end(JSON.stringify(url.includes("/pods/") ? guardedPod : namespace));
  });
  const guardedPod = {
    kind: "Pod",
    apiVersion: "v1",
    metadata: {
      name: "web",
      namespace: "default",
      uid: "u1",
      labels: { "deletion-guard.postern.dev/cleans-up": "yes" },
    },
    spec: { nodeName: "one", containers: [] },
    status: { phase: "Running", podIP: "127.0.0.1" },
  };
  /** The URL that a function calls for clean-ups, and the number of calls so far. The first call gets no answer. */
  let cleanUp: string;
  let cleanUps = 0;
  const cleanUpServer = createHttpServer((_, response) => {
    cleanUps += 1;
    if (cleanUps > 1) response.end();
  });

  const setVpc = (value: string) =>
    checkout.write("serverless.yml", serverless.replace("    vpc: false", `    vpc: ${value}`));
  const deploy = async (...words: string[]) => {
    const ca = join(checkout.folder, "ca.pem");
    const deployWords = ["deploy", "--stage", "test", "--ca", ca, "--write", "entries"];
    const { code, stdout, stderr } = await checkout.postern(account.env, ...deployWords, ...words);
    assert.equal(code, 0, stdout + stderr);
    return stdout;
  };
  const writeConfig = (extraYaml = "") =>
    checkout.write(
      "postern.yaml",
      `rules: { namespace-exists: , always-pull-images: ${extraYaml} }\nclusters: { shop: { connect: { eks: shop, region: ${region} } } }\n`,
    );
  const readNetworks = (name: string) => {
    const { latest, versions, aliases } = account.lambda.functions.get(name) ?? assert.fail(name);
    const live = aliases.get("live")?.version ?? "";
    return { live, latest: latest.network, served: versions.get(live)?.network };
  };
  const listNetworkRights = () =>
    [...(account.cloudformation.stack("postern-test")?.resources.values() ?? [])]
      .filter(({ properties }) => JSON.stringify(properties).includes("ec2:CreateNetworkInterface"))
      .map(({ id }) => id);

  before(async () => {
    [account, checkout] = await Promise.all([
      openAccount(region),
      openCheckout(["namespace-exists", "always-pull-images", "event-rate-limit", "deletion-guard"]),
    ]);
    const { ca, cert, key } = await readOrCreateServerCertificate(checkout.folder, "127.0.0.1");
    server.setSecureContext({ cert, key });
    shop = { server: `https://127.0.0.1:${await listen(server)}`, ca };
    account.clusters.set("shop", shop);
    cleanUp = `http://{ip}:${await listen(cleanUpServer)}/`;
    await checkout.write("ca.pem", account.ca);
    await writeConfig();
    serverless = await readFile(join(checkout.folder, "serverless.yml"), "utf8");
  });
  after(async () => {
    await Promise.all([account?.stop(), close(server), close(cleanUpServer)]);
    await checkout?.remove();
  });

  it("no function is in a VPC or has a right to a VPC if serverless.yml names no VPC", async () => {
    await deploy();
    assert.deepEqual(readNetworks(readingFunction), { live: "1", latest: {}, served: {} });
    assert.deepEqual(listNetworkRights(), []);
  });

  it("the plan warns of the consequences of an EKS cluster's network", async () => {
    const network = { controlPlaneEgressMode: "CUSTOMER_ROUTED", endpointPublicAccess: false };
    account.clusters.set("shop", { ...shop, network });
    const plan = await deploy("--plan-only");
    account.clusters.set("shop", shop);
    assert.match(
      plan,
      /cluster shop\n( {2}.*\n)+ {2}! its API server calls through the cluster's own subnets \(CUSTOMER_ROUTED\)/,
    );
    assert.match(
      plan,
      /! its API server has only a private endpoint, and functions are in no VPC: namespace-exists can't read it/,
    );
    assert.doesNotMatch(await deploy("--plan-only"), /! its API server/);
  });

  const ledgerRoles = ["DeletionDashguardRole", "EventDashrateDashlimitRole"];

  it("a deployment moves only the functions that send requests into the VPC, with new versions", async () => {
    await setVpc(vpc);
    const plan = await deploy("--plan-only");
    assert.match(plan, /~ NamespaceDashexistsLambdaFunction\n/);
    assert.match(
      plan,
      /\n {2}each NAT gateway that the functions in a VPC need adds \$36\.00 a month and \$0\.045 for each GB /,
    );
    assert.match(plan, /~ namespace-exists: network \(live: version 1\)\n {2}1 of 2 unchanged\n/);
    assert.match(plan, /\+ NamespaceDashexistsRole: ec2:CreateNetworkInterface on \*\n/);
    const limits = "limits: [{ type: Server, qps: 1, burst: 3 }, { type: User, qps: 1, burst: 50 }]";
    await writeConfig(
      `, event-rate-limit: { settings: { ${limits} } }, deletion-guard: { settings: { cleanUp: "${cleanUp}", addresses: [127.0.0.0/8] } }`,
    );
    assert.match(await deploy(), /\n\nledger\n {2}~ table postern-test: new\n\n/);
    const network = { SubnetIds: ["subnet-0000000b", "subnet-0000000a"], SecurityGroupIds: ["sg-0000000c"] };
    assert.deepEqual(readNetworks(readingFunction), { live: "2", latest: network, served: network });
    assert.deepEqual(readNetworks(otherFunction), { live: "1", latest: {}, served: {} });
    assert.deepEqual(listNetworkRights().sort(), [...ledgerRoles, "NamespaceDashexistsRole"]);
    assert.match(await deploy("--plan-only"), /stack\n {2}nothing to change\n\nrules\n {2}4 of 4 unchanged\n/);
  });

  /** Sends a review of a rule to the gateway, as the cluster does, and returns the response. */
  const sendReview = async (rule: string, requestFields: object) => {
    const keyring = (await readKeyring(openParameters("test"))) ?? assert.fail();
    const request = { uid: "1", namespace: "default", name: "web", userInfo: { username: "jane" }, ...requestFields };
    const url = `${account.baseUrl}/${keyring.current.signSegment("shop", 1)}/${rule}/validate`;
    const { body } = await sendRequest(
      url,
      { method: "POST", ca: account.ca, headers: { "content-type": "application/json" } },
      JSON.stringify({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request }),
      Date.now() + 60_000,
    );
    const response = JSON.parse(body).response;
    return response ?? assert.fail(body);
  };
  const TableName = "postern-test";
  const readKeys = async (): Promise<string[]> => {
    const { body } = await account.callTable("tester", "Scan", { TableName });
    return body.Items.map(({ key }) => key.S).sort();
  };

  it("the ledger keeps the values of rules from one review to the next", async () => {
    Object.assign(process.env, account.env);
    const event = {
      operation: "CREATE",
      kind: { group: "", version: "v1", kind: "Event" },
      resource: { group: "", version: "v1", resource: "events" },
      object: { metadata: { name: "web" } },
    };
    const answers: unknown[] = [];
    while (answers.at(-1) !== 429 && answers.length < 100)
      answers.push((await sendReview("event-rate-limit", event)).status?.code);
    // The limit of the server allows three events at once, and then one event a second.
    assert.deepEqual(answers.slice(0, 3), [undefined, undefined, undefined]);
    assert.equal(answers.at(-1), 429);

    const deletion = {
      operation: "DELETE",
      kind: { group: "", version: "v1", kind: "Pod" },
      oldObject: guardedPod,
      resource: { group: "", version: "v1", resource: "pods" },
    };
    const outcomes = [];
    for (let index = 0; index < 3; index++) outcomes.push(await sendReview("deletion-guard", deletion));
    assert.deepEqual(
      outcomes.map(({ allowed, auditAnnotations }) => [allowed, auditAnnotations?.["clean-up"]]),
      [
        [
          false,
          `it could not be started: could not ask ${new URL(cleanUp.replace("{ip}", "127.0.0.1")).host}: it did not answer in time`,
        ],
        [false, "it was started"],
        [false, "it was started before"],
      ],
    );
    assert.equal(cleanUps, 2);
    // The keys of event-rate-limit have the limit's number, and the user if each user has a limit.
    const expected = ["deletion-guard/shop/u1", "event-rate-limit/shop/0 ", "event-rate-limit/shop/1 jane"];
    assert.deepEqual(await readKeys(), expected);
  });

  it("a function has no right to values of other rules or to searches, even in a transaction", async () => {
    const ruleKey = "event-rate-limit/shop/own";
    const otherKeys = ["deletion-guard/shop/u1", "event-rate-limits/shop/a", "event-rate-limit", ""];
    const toKey = (key: string) => ({ TableName, Key: { key: { S: key } } });
    const toItem = (key: string) => ({ TableName, Item: { key: { S: key }, version: { S: "1" } } });
    const check = { ConditionExpression: "attribute_not_exists(#v)", ExpressionAttributeNames: { "#v": "version" } };
    const callAsFunction = async (operation: string, input: object) => {
      const { status, body } = await account.callTable("postern-test-event-rate-limit", operation, input);
      return status === 200 ? "done" : String(body.__type).replace(/.*#/, "");
    };
    assert.equal(await callAsFunction("GetItem", toKey(ruleKey)), "done");
    const before = await readKeys();
    const refused: [operation: string, input: object][] = [
      ["Scan", { TableName }],
      ["Query", { TableName, ...check }],
      ["DeleteItem", toKey(ruleKey)],
      ["UpdateItem", toKey(ruleKey)],
      ["DescribeTable", { TableName }],
      ["DeleteTable", { TableName }],
      ["PutItem", { ...toItem(ruleKey), TableName: "postern-other" }],
      ...otherKeys.flatMap((key): [string, object][] => [
        ["GetItem", toKey(key)],
        ["PutItem", toItem(key)],
        ["TransactGetItems", { TransactItems: [{ Get: toKey(ruleKey) }, { Get: toKey(key) }] }],
        ["TransactWriteItems", { TransactItems: [{ Put: toItem(ruleKey) }, { Put: toItem(key) }] }],
        [
          "TransactWriteItems",
          { TransactItems: [{ Put: toItem(ruleKey) }, { ConditionCheck: { ...toKey(key), ...check } }] },
        ],
      ]),
      ["TransactWriteItems", { TransactItems: [{ Put: toItem(ruleKey) }, { Delete: toKey(`${ruleKey}2`) }] }],
    ];
    for (const [operation, input] of refused)
      assert.equal(
        await callAsFunction(operation, input),
        "AccessDeniedException",
        `${operation} ${JSON.stringify(input)}`,
      );
    assert.deepEqual(await readKeys(), before);
    const allowed = [{ Put: toItem(ruleKey) }, { ConditionCheck: { ...toKey(`${ruleKey}2`), ...check } }];
    assert.equal(await callAsFunction("TransactWriteItems", { TransactItems: allowed }), "done");
    assert.deepEqual(await readKeys(), [...before, ruleKey].sort());
  });

  it("cfn-lint finds no error in the stack's template, and the template names no partition of AWS", async () => {
    const template = account.cloudformation.stack("postern-test")?.deployed?.text ?? "";
    assert.doesNotMatch(template, /arn:aws|\.amazonaws\.com\b(?!")/);
    await lint(await checkout.write("template.json", template));
  });

  it("Lambda refuses a VPC for a function whose role has no right to network interfaces", async () => {
    const template = JSON.parse(account.cloudformation.stack("postern-test")?.deployed?.text ?? "");
    const { Role, VpcConfig } = template.Resources.NamespaceDashexistsLambdaFunction.Properties;
    assert.ok(Role, "the function in the VPC has a role of its own");
    await assert.rejects(
      account.lambda.act("UpdateFunctionConfiguration", otherFunction, { VpcConfig }),
      /The provided execution role does not have permissions to call CreateNetworkInterface on EC2/,
    );
  });

  it("the role that deploys has no right to change an HTTP API without the tag of the stage", async () => {
    const { role } = await readAccess({ Stage: "test", GitHubRepository: "acme/postern" });
    account.allow = (call) =>
      call.service !== "apigateway" ||
      listIamCalls(call).every((iamCall) => findAllowingStatement(role("DeployRole"), iamCall) !== undefined);
    const stack = account.cloudformation.stack("postern-test");
    const api = stack?.resources.get("HttpApi") ?? assert.fail();
    const { Tags, ...untagged } = api.properties;
    assert.deepEqual(Tags, { postern: "test" });
    const changed = JSON.parse(stack?.deployed?.text ?? "");
    changed.Resources.HttpApi.Properties.Name = "other";
    const form = { StackName: "postern-test", TemplateBody: JSON.stringify(changed) };
    const body = new URLSearchParams({
      Action: "UpdateStack",
      "Capabilities.member.1": "CAPABILITY_NAMED_IAM",
      ...form,
    });
    const request = { method: "POST", path: "/", query: new URLSearchParams(), headers: {}, target: "/" };
    const update = async () => {
      await account.cloudformation.answer({ ...request, body: Buffer.from(String(body)) });
      await account.cloudformation.waitUntilIdle();
    };
    api.properties = untagged;
    await update();
    assert.equal(stack?.status, "UPDATE_ROLLBACK_COMPLETE");
    const reasons = stack.events.map(({ ResourceStatusReason }) => ResourceStatusReason).join("\n");
    assert.match(reasons, /not authorized to perform: apigateway:PATCH on resource: \/apis\//);
    api.properties = { ...untagged, Tags };
    await update();
    assert.equal(stack.status, "UPDATE_COMPLETE");
    account.allow = undefined;
  });

  it("functions moved out of the VPC keep the right by which Lambda deletes their network interfaces", async () => {
    await setVpc("false");
    assert.match(await deploy(), /namespace-exists: network \(live: version 2\)/);
    assert.deepEqual(readNetworks(readingFunction), { live: "1", latest: {}, served: {} });
    assert.deepEqual(listNetworkRights().sort(), [...ledgerRoles, "NamespaceDashexistsRole"]);
  });

  it("`destroy` keeps the ledger's table unless --with-data is given", async () => {
    const destroy = async (...words: string[]) => {
      const destroyWords = ["destroy", "--stage", "test", "--forget", "shop"];
      const { code, stdout, stderr } = await checkout.postern(account.env, ...destroyWords, ...words);
      assert.equal(code, 0, stderr);
      return stdout;
    };
    const table = "the table postern-test with the ledger";
    assert.match(await destroy("--with-data"), new RegExp(`^deleted:(\n  .*)*\n  ${table}$`, "m"));
    const before = await readKeys();
    assert.match(
      await destroy("--yes"),
      new RegExp(`^kept, because --with-data is not given:(\n  .*)*\n  ${table}$`, "m"),
    );
    assert.deepEqual(await readKeys(), before);
    assert.match(await destroy("--yes", "--with-data"), new RegExp(`^deleted:(\n  .*)*\n  ${table}$`, "m"));
    assert.equal((await account.callTable("tester", "DescribeTable", { TableName })).status, 400);
  });

  it("a deployment is refused if the VPC in serverless.yml has other values than ids", async () => {
    await setVpc("{ subnetIds: [10.0.0.0/24], securityGroupIds: [sg-0000000c] }");
    const { code, stderr } = await checkout.postern(account.env, "deploy", "--stage", "test", "--plan-only");
    assert.deepEqual(
      [code, stderr],
      [2, 'vpc in serverless.yml must have ids such as subnet-0a1b and sg-0a1b, not "10.0.0.0/24"\n'],
    );
  });
});
