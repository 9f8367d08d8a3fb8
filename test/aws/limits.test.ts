import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";

// Tests deployments beyond the limits of an account: the plan names all exceeded limits, and the deployment changes
// nothing.

const rule = `
import { rule } from "postern/rule";
export default rule({
  summary: "Admits everything.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
  validate() {},
});
`;
const cases = "- name: admits a pod\n  validate: { metadata: { name: a } }\n  admitted: true\n";
const listNames = (count: number) => Array.from({ length: count }, (_, index) => `rule-${index + 1}`);
const buildConfig = (names: string[], reserved?: number) =>
  `rules: { ${names.map((name) => `${name}: ${reserved ? `{ reserved: ${reserved} }` : ""}`).join(", ")} }\n`;

describe("limits of an account and of AWS", await needs("moto", "runtime client"), () => {
  let account: Account;
  let checkout: Checkout;
  /** The file with the CA of the stand-in's gateway. */
  let ca: string;

  before(async () => {
    [account, checkout] = await Promise.all([
      openAccount(),
      openCheckout(["limit-pod-hard-anti-affinity-topology", "owner-references-permission-enforcement"]),
    ]);
    account.lambda.updateMilliseconds = 0;
    for (const name of listNames(73)) await checkout.rule(name, rule, cases);
    ca = await checkout.write("ca.pem", account.ca);
  });
  after(async () => {
    await account?.stop();
    await checkout?.remove();
  });
  beforeEach(() => account.reset());

  const run = (...words: string[]) => checkout.postern(account.env, ...words);
  /** Deploys, and writes the clusters' webhook entries to files. */
  const deploy = (stage: string) => run("deploy", "--stage", stage, "--write", "entries", "--ca", ca);

  describe("exceeded limits", () => {
    const names = listNames(70);
    const limitPatterns = [
      /^the stack would have 5\d\d resources, and CloudFormation accepts 500: turn rules off, or deploy some of them as another stage$/,
      /^the rules reserve 60 concurrent executions, which leaves 60 of the account's 120 to functions that reserve none, and Lambda keeps 100 for those: /,
      /^rule-2 has 31 warm environments until the release is settled, and reserves 30 concurrent executions: /,
      /^the rules have 5 warm environments until the release is settled, and the account has 0 concurrent executions for them, because Lambda keeps 100 for other functions: /,
      /^a CREATE request for pods calls 68 functions at the same time, and the account has 60 concurrent executions that no function reserves: ask AWS for a higher quota$/,
      /^the new versions need \d+\.\d MB of code storage, and 0\.1 MB of the account's 0\.1 MB are left in this region: /,
    ];
    /** Returns postern.yaml with the 70 rules. The first rules have these configurations. */
    const configOf = (ruleConfigs: string[]) =>
      `rules: { ${names.map((name, index) => `${name}: ${ruleConfigs[index] ?? ""}`).join(", ")} }\n`;

    beforeEach(async () => {
      account.lambda.quotas = { concurrency: 120, codeBytes: 100_000 };
      await checkout.write("postern.yaml", configOf(["{ reserved: 30 }", "{ reserved: 30, warm: 31 }", "{ warm: 5 }"]));
    });

    it("a plan names all limits that the deployment would exceed", async () => {
      const { code, stdout, stderr } = await run("deploy", "--plan-only", "--stage=small");
      assert.equal(code, 1, stderr);
      const [, limits = ""] = /\nlimits\n(( {2}! .*\n)+)/.exec(stdout) ?? [];
      const limitLines = limits.split("\n").filter(Boolean);
      assert.equal(limitLines.length, limitPatterns.length, limits);
      for (const [index, pattern] of limitPatterns.entries()) assert.match(limitLines[index]?.slice(4) ?? "", pattern);
    });

    it("a deployment names all exceeded limits, and changes neither functions nor the stack", async () => {
      account.lambda.quotas = { concurrency: 6, codeBytes: 1000 };
      await checkout.write("postern.yaml", "rules: { rule-1: { reserved: 5 }, rule-2: , rule-3: }\n");
      const { code, stderr } = await deploy("small");
      assert.equal(code, 1, stderr);
      const [reserved, called, stored] = stderr.trimEnd().split("\n").slice(-3);
      assert.match(reserved ?? "", /^the rules reserve 5 concurrent executions, which leaves 1 of the account's 6 /);
      assert.match(called ?? "", /^a CREATE request for pods calls 2 functions at the same time, .* has 1 concurrent /);
      assert.match(
        stored ?? "",
        /^the new versions need 0\.\d MB of code storage, and 0\.0 MB of the account's 0\.0 MB /,
      );
      const changes = account.recordedCalls.filter(
        (call) => call.action.endsWith("ChangeSet") || (call.service === "lambda" && !/:(Get|List)/.test(call.action)),
      );
      assert.deepEqual(changes, []);
    });

    it("a build without an account also names the exceeded limit of a stack", async () => {
      const { code, stderr } = await run("build");
      assert.equal(code, 1, stderr);
      assert.match(stderr, /^the stack would have 5\d\d resources, and CloudFormation accepts 500: /);
    });

    it("the plan says that quotas were not compared if the right to read the quotas is missing", async () => {
      await checkout.write("postern.yaml", buildConfig(["rule-73"]));
      account.allow = ({ action }) => action !== "lambda:GetAccountSettings";
      const { code, stdout } = await run("deploy", "--plan-only", "--stage=small");
      assert.equal(code, 0);
      assert.doesNotMatch(stdout, /^limits$/m);
      assert.match(
        stdout,
        /^limits: the account's quotas of Lambda were not compared, because this identity has no right to lambda:GetAccountSettings$/m,
      );
    });
  });

  it("a rule can reserve concurrency, change the reservation and end the reservation", async () => {
    const reserve = async (config: string) => {
      await checkout.write("postern.yaml", config);
      const { code, stderr } = await deploy("test");
      assert.equal(code, 0, stderr);
      return account.lambda.functions.get("postern-test-rule-73")?.reserved;
    };
    assert.deepEqual(
      [
        await reserve(buildConfig(["rule-73"], 5)),
        await reserve(buildConfig(["rule-73"], 900)),
        await reserve(buildConfig(["rule-73"])),
      ],
      [5, 900, undefined],
    );
  });

  it("a deployment of many rules doesn't exceed Lambda's 15 calls per second", async () => {
    const names = listNames(12);
    await checkout.write("postern.yaml", buildConfig(names));
    account.lambda.isRateLimited = true;
    const { code, stderr } = await deploy("test");
    assert.equal(code, 0, stderr);
    for (const name of names) assert.ok(account.lambda.functions.get(`postern-test-${name}`)?.aliases.has("live"));
    await checkout.write("postern.yaml", buildConfig(names).replace(/: (,| })/g, ": { mode: warn }$1"));
    const second = await deploy("test");
    assert.equal(second.code, 0, second.stderr);
    for (const name of names)
      assert.equal(account.lambda.functions.get(`postern-test-${name}`)?.aliases.get("live")?.version, "2");
  });

  it("all commands shorten function names of more than 64 characters", async () => {
    const rules = ["limit-pod-hard-anti-affinity-topology", "owner-references-permission-enforcement"];
    const stage = ["--stage", "production-eu-central"];
    const deployWords = ["deploy", "--write", "entries", "--ca", ca];
    const [firstRule = ""] = rules;
    const requireSuccess = async (...words: string[]) => {
      const { code, stdout, stderr } = await run(...words, ...stage);
      assert.equal(code, 0, stderr);
      return stdout + stderr;
    };
    for (const mode of ["enforce", "warn"]) {
      const connect = "{ connect: { server: 'https://127.0.0.1:9', tokenSecret: a-token, region: eu-west-1 } }";
      const config = `rules: { ${rules.map((name) => `${name}: { mode: ${mode} }`).join(", ")} }`;
      await checkout.write("postern.yaml", `${config}\nclusters: { shop: ${connect} }\n`);
      assert.match(await requireSuccess(...deployWords), /is live in shop/);
    }
    assert.deepEqual([...account.lambda.functions.keys()].sort(), [
      "postern-production-eu-central-limit-pod-hard-anti-affinit-733e24",
      "postern-production-eu-central-owner-references-permission-ecf198",
    ]);
    assert.match(await requireSuccess(...deployWords), /nothing to do/);
    assert.match(await requireSuccess("disarm", firstRule, "--for", "5m"), new RegExp(firstRule));
    const status = await run("status", ...stage);
    for (const name of rules) assert.match(status.stdout, new RegExp(`^${name} `, "m"));
    await requireSuccess("arm", firstRule);
    assert.match(await requireSuccess("rollback", firstRule), new RegExp(`^${firstRule} is at version 1$`, "m"));
    await requireSuccess("destroy", "--yes", "--forget", "shop");
    assert.deepEqual([...account.lambda.functions.keys()], []);
  });
});
