import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";

// An edit of serverless.yml must reach the versions that answer reviews. An unchanged serverless.yml must make no new
// version.
describe("edits of serverless.yml", await needs("moto"), () => {
  const fn = "postern-test-always-pull-images";
  const id = "AlwaysDashpullDashimages";
  const layer = "arn:aws:lambda:eu-west-1:123456789012:layer:tracer:3";
  let account: Account;
  let checkout: Checkout;
  let serverless: string;

  before(async () => {
    [account, checkout] = await Promise.all([
      openAccount("eu-west-1", { isInProcess: true }),
      openCheckout(["always-pull-images"]),
    ]);
    account.lambda.updateMilliseconds = 0;
    await checkout.write("postern.yaml", "rules: { always-pull-images: }\n");
    await checkout.write("ca.pem", account.ca);
    serverless = await readFile(join(checkout.folder, "serverless.yml"), "utf8");
    const { code, stdout, stderr } = await deploy();
    assert.equal(code, 0, stdout + stderr);
  });
  after(async () => {
    await account?.stop();
    await checkout?.remove();
  });

  const deploy = (...words: string[]) =>
    checkout.postern(account.env, "deploy", "--stage", "test", "--ca", "ca.pem", "--write", "entries", ...words);
  /** Adds lines to the provider of serverless.yml. */
  const setProvider = (lines: string) =>
    checkout.write("serverless.yml", serverless.replace("provider:\n", `provider:\n  ${lines}\n`));
  /** Adds settings of the rule's function to serverless.yml. */
  const setFunction = (settings: string) => {
    const [functionsLine] = serverless.match(/^functions: (.*)$/m) ?? assert.fail();
    const functionsValue = functionsLine.replace("functions: ", "");
    const withRule = `functions:\n  - ${functionsValue}\n  - always-pull-images: { ${settings} }`;
    return checkout.write("serverless.yml", serverless.replace(functionsLine, withRule));
  };
  const readLive = () => {
    const { latest, versions, aliases } = account.lambda.functions.get(fn) ?? assert.fail(fn);
    const { version = "" } = aliases.get("live") ?? {};
    return { version, live: versions.get(version) ?? assert.fail(version), latest };
  };

  const hasTracingRight = () => {
    const { properties } = account.cloudformation.stack("postern-test")?.resources.get(`${id}Role`) ?? assert.fail();
    return JSON.stringify(properties).includes("xray:PutTraceSegments");
  };

  // Each edit replaces the edit before, so a plan also names what returns to its first value.
  const edits: [what: string, edit: () => Promise<string>, plan: RegExp, read: () => unknown, value: unknown][] = [
    [
      "layers",
      () => setProvider(`layers: ["${layer}"]`),
      /rules\n {2}~ always-pull-images: layers \(/,
      () => readLive().live.layers,
      [layer],
    ],
    [
      "tracing, with the permission for it",
      () => setProvider("tracing: { lambda: true }"),
      /~ always-pull-images: layers, tracing \((?:.*\n)* {2}\+ AlwaysDashpullDashimagesRole: xray:PutTraceSegments on \*/,
      () => [readLive().live.tracing, hasTracingRight()],
      ["Active", true],
    ],
    [
      "the environment",
      () => setProvider("environment: { PLACE: here }"),
      /~ always-pull-images: environment, tracing \(/,
      () => [readLive().live.environment.PLACE, readLive().live.environment.POSTERN_STAGE],
      ["here", "test"],
    ],
    [
      "the level of Lambda's own log lines",
      () => checkout.write("serverless.yml", serverless.replace("systemLogLevel: WARN", "systemLogLevel: INFO")),
      /~ always-pull-images: environment, logging \(/,
      () => readLive().live.logging.SystemLogLevel,
      "INFO",
    ],
    [
      "the memory and the size of /tmp of one function",
      () => setFunction("memorySize: 512, ephemeralStorageSize: 1024"),
      /~ always-pull-images: sizing, storage, logging \(/,
      () => [readLive().live.memorySize, readLive().live.storage],
      [512, 1024],
    ],
  ];
  for (const [index, [what, edit, plan, read, value]] of edits.entries())
    it(`an edit of serverless.yml makes a new version live: ${what}`, async () => {
      await edit();
      const { code, stdout, stderr } = await deploy();
      assert.equal(code, 0, stdout + stderr);
      assert.match(stdout, plan);
      assert.match(stderr, /versions: 1 published\n(.*\n)*.*aliases: 1 moved\n/);
      // The first deployment published version 1.
      assert.deepEqual([readLive().version, read()], [String(index + 2), value]);
    });

  it("an edit of serverless.yml is deployed only once", async () =>
    assert.match((await deploy()).stderr, /^nothing to do: release r/m));

  it("an edit of serverless.yml makes an earlier version with the same properties live again", async () => {
    await checkout.write("serverless.yml", serverless);
    assert.match((await deploy()).stderr, /versions: 0 published, 1 reused/);
    assert.equal(readLive().version, "1");
  });

  for (const [what, lines, plan] of [
    ["of functions", "tags: { team: a }", /stack\n {2}~ AlwaysDashpullDashimagesLambdaFunction\n/],
    ["of the stack", "stackTags: { team: a }", /stack\n {2}\+ tag team\n/],
  ] as const)
    it(`tags ${what} are deployed without a new version, because versions have no tags`, async () => {
      await checkout.write("serverless.yml", serverless);
      await deploy();
      await setProvider(lines);
      const { stdout, stderr } = await deploy();
      assert.match(stdout, plan);
      assert.match(stderr, /stack: 1 resource changed\n(.*\n)*release r\d+ is live/);
      assert.equal(readLive().version, "1");
      assert.match((await deploy()).stderr, /^nothing to do: release r/m);
    });

  it("changes that were made by hand to the unpublished function are not published", async () => {
    const { latest } = readLive();
    await account.lambda.act("UpdateFunctionConfiguration", fn, { Layers: [layer], MemorySize: 1024 });
    await setProvider("environment: { PLACE: there }");
    await deploy();
    const { live } = readLive();
    assert.deepEqual([live.environment.PLACE, live.layers, live.memorySize], ["there", [], latest.memorySize]);
  });

  for (const [what, change, sentence] of [
    [
      "a property that postern deploy can't put into versions",
      "onError: arn:aws:sns:eu-west-1:123456789012:failures",
      /serverless\.yml gives the function of always-pull-images the property DeadLetterConfig, which postern deploy can't put into its versions; leave it out/,
    ],
    [
      "a value that only CloudFormation knows",
      "environment: { PLACE: { Ref: HttpApi } }",
      /serverless\.yml must give the function of always-pull-images plain values, not \{"Ref":"HttpApi"\}: postern deploy puts them into its versions/,
    ],
  ] as const)
    it(`serverless.yml is refused if it has ${what}`, async () => {
      await setFunction(change);
      const { code, stderr } = await deploy("--plan-only");
      assert.equal(code, 2);
      assert.match(stderr, sentence);
    });

  it("serverless.yml is refused if it has the former name of the parameter for the endpoint type", async () => {
    await checkout.write("serverless.yml", serverless.replace(/^params:\n/m, "params:\n  test: { door: url }\n"));
    const { code, stderr } = await deploy("--plan-only");
    assert.equal(code, 3);
    assert.match(stderr, /osls package fails: .*the parameter door is named endpoint now.* Received: url/);
  });
});
