import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:https";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { type Checkout, openCheckout } from "../checkout.ts";
import { close, listen } from "../listen.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";
import { findAllowingStatement, listIamCalls, readAccess } from "./rights.ts";
import { lint } from "./tools.ts";

// A stage whose functions are in a VPC, and EKS clusters with networks of all kinds.
describe("a stage in a VPC", await needs("moto", "runtime client", "cfn-lint"), () => {
  const region = "eu-west-1";
  const vpc = "{ subnetIds: [subnet-0000000b, subnet-0000000a], securityGroupIds: [sg-0000000c] }";
  const [asking, quiet] = ["postern-test-namespace-exists", "postern-test-always-pull-images"];
  let account: Account;
  let checkout: Checkout;
  let serverless: string;
  let shop: { server: string; ca: string };
  const server = createServer((_, response) => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ kind: "Namespace", apiVersion: "v1", metadata: { name: "default" } }));
  });

  const setVpc = (value: string) =>
    checkout.write("serverless.yml", serverless.replace("    vpc: false", `    vpc: ${value}`));
  const deploy = async (...words: string[]) => {
    const ca = join(checkout.folder, "ca.pem");
    const { code, stdout, stderr } = await checkout.postern(
      ...[account.env, "deploy", "--stage", "test", "--ca", ca, "--write", "entries", ...words],
    );
    assert.equal(code, 0, stdout + stderr);
    return stdout;
  };
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
      openCheckout(["namespace-exists", "always-pull-images"]),
    ]);
    const { ca, cert, key } = await readOrCreateServerCertificate(checkout.folder, "127.0.0.1");
    server.setSecureContext({ cert, key });
    shop = { server: `https://127.0.0.1:${await listen(server)}`, ca };
    account.clusters.set("shop", shop);
    await checkout.write("ca.pem", account.ca);
    await checkout.write(
      "postern.yaml",
      `rules: { namespace-exists: , always-pull-images: }\nclusters: { shop: { connect: { eks: shop, region: ${region} } } }\n`,
    );
    serverless = await readFile(join(checkout.folder, "serverless.yml"), "utf8");
  });
  after(async () => {
    await Promise.all([account?.stop(), close(server)]);
    await checkout?.remove();
  });

  it("has no function in it and no right to it as long as serverless.yml has none", async () => {
    await deploy();
    assert.deepEqual(readNetworks(asking), { live: "1", latest: {}, served: {} });
    assert.deepEqual(listNetworkRights(), []);
  });

  it("has a plan that says what follows from the network of an EKS cluster", async () => {
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

  it("moves the functions that call out into it, with new versions", async () => {
    await setVpc(vpc);
    const plan = await deploy("--plan-only");
    assert.match(plan, /~ NamespaceDashexistsLambdaFunction\n/);
    assert.match(plan, /~ namespace-exists: network \(live: version 1\)\n {2}1 of 2 unchanged\n/);
    assert.match(plan, /\+ NamespaceDashexistsRole: ec2:CreateNetworkInterface on \*\n/);
    await deploy();
    const network = { SubnetIds: ["subnet-0000000b", "subnet-0000000a"], SecurityGroupIds: ["sg-0000000c"] };
    assert.deepEqual(readNetworks(asking), { live: "2", latest: network, served: network });
    assert.deepEqual(readNetworks(quiet), { live: "1", latest: {}, served: {} });
    assert.deepEqual(listNetworkRights(), ["NamespaceDashexistsRole"]);
    assert.match(await deploy("--plan-only"), /stack\n {2}nothing to change\n\nrules\n {2}2 of 2 unchanged\n/);
  });

  it("is a template that cfn-lint finds nothing wrong with, and that names no partition of AWS", async () => {
    const template = account.cloudformation.stack("postern-test")?.deployed?.text ?? "";
    assert.doesNotMatch(template, /arn:aws|\.amazonaws\.com\b(?!")/);
    await lint(await checkout.write("template.json", template));
  });

  it("can't be deployed if a function's role doesn't let Lambda connect it", async () => {
    const template = JSON.parse(account.cloudformation.stack("postern-test")?.deployed?.text ?? "");
    const { Role, ...properties } = template.Resources.NamespaceDashexistsLambdaFunction.Properties;
    await assert.rejects(
      account.lambda.act("UpdateFunctionConfiguration", quiet, {
        VpcConfig: properties.VpcConfig,
      }),
      /The provided execution role does not have permissions to call CreateNetworkInterface on EC2/,
    );
    assert.ok(Role);
  });

  it("can't change an HTTP API without its tag, with the rights of the role that deploys", async () => {
    const { role } = await readAccess({ Stage: "test", GitHubRepository: "acme/postern" });
    account.allow = (call) =>
      call.service !== "apigateway" ||
      listIamCalls(call).every((one) => findAllowingStatement(role("DeployRole"), one) !== undefined);
    const stack = account.cloudformation.stack("postern-test");
    const api = stack?.resources.get("HttpApi") ?? assert.fail();
    const { Tags, ...untagged } = api.properties;
    assert.deepEqual(Tags, { postern: "test" });
    const changed = JSON.parse(stack?.deployed?.text ?? "");
    changed.Resources.HttpApi.Properties.Name = "other";
    const form = { StackName: "postern-test", TemplateBody: JSON.stringify(changed) };
    const body = new URLSearchParams({
      ...{ Action: "UpdateStack", "Capabilities.member.1": "CAPABILITY_NAMED_IAM", ...form },
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

  it("moves them out of it again, and still lets Lambda delete their network interfaces", async () => {
    await setVpc("false");
    assert.match(await deploy(), /namespace-exists: network \(live: version 2\)/);
    assert.deepEqual(readNetworks(asking), { live: "1", latest: {}, served: {} });
    assert.deepEqual(listNetworkRights(), ["NamespaceDashexistsRole"]);
  });

  it("is refused if serverless.yml names something else than subnets and security groups", async () => {
    await setVpc("{ subnetIds: [10.0.0.0/24], securityGroupIds: [sg-0000000c] }");
    const { code, stderr } = await checkout.postern(account.env, "deploy", "--stage", "test", "--plan-only");
    assert.deepEqual(
      [code, stderr],
      [2, 'vpc in serverless.yml must have ids such as subnet-0a1b and sg-0a1b, not "10.0.0.0/24"\n'],
    );
  });
});
