import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Lambda } from "@aws-sdk/client-lambda";
import { openBucket } from "../../infra/aws/bucket.ts";
import {
  openStageFunctions,
  type StageFunctions,
  toStackSettings,
  type WantedLambdaVersion,
} from "../../infra/aws/lambda-functions.ts";
import type { StackTemplate, StageStack } from "../../infra/aws/stack.ts";
import { zip } from "../../infra/build/zip.ts";
import { type CatalogueRule, readCatalogue } from "../../infra/catalogue/registry.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { readFunctionState, rollBackAlias } from "../../infra/rollout/clusters/disarm.ts";
import type { StagePackage } from "../../infra/rollout/versions/package.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { needs } from "../parts.ts";
import { launchMoto, type Moto } from "./moto.ts";

// Tests Postern's calls to AWS with moto, an independent implementation. Other tests use the stand-ins of this folder,
// because moto creates no aliases, gateways and outputs of a stack. It compares no revisions and hashes, so concurrent
// changes succeed. It runs no code: an invocation returns its input. Its URLs for downloads of code, which disarm and
// arm use, point to Amazon.
const root = fileURLToPath(new URL("../..", import.meta.url));
const stage = "moto";
const [rule, otherRule] = ["always-deny", "always-pull-images"] as const;

describe("a stage deployed to moto", await needs("moto"), () => {
  let moto: Moto;
  let folder: string;
  let catalogue: CatalogueRule[];
  let stack: StageStack;
  let functions: StageFunctions;
  let firstPackage: StagePackage;
  let startTime: Date;

  before(async () => {
    // With three elements a page, lists have several pages.
    process.env.MOTO_S3_DEFAULT_MAX_KEYS = "3";
    moto = await launchMoto();
    const awsVariables = { AWS_ENDPOINT_URL: moto.url, AWS_REGION: "eu-west-1", AWS_EC2_METADATA_DISABLED: "true" };
    const shortPolling = { SLS_AWS_MONITORING_FREQUENCY: "100" };
    const credentials = { AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b" };
    Object.assign(process.env, awsVariables, shortPolling, credentials);
    const settings = JSON.stringify({ lambda: { use_docker: false } });
    await fetch(`${moto.url}/moto-api/config`, { method: "POST", body: settings });
    folder = await createCheckout();
    catalogue = await readCatalogue([{ name: "copy", folder: join(folder, "functions") }]);
    stack = (await loadModules()).openStack(stage);
    functions = openStageFunctions(stage, stack, undefined, 5);
    assert.deepEqual(
      [await stack.readTemplate(), await stack.readOutputs(), await stack.findBucket()],
      [undefined, {}, undefined],
    );
    startTime = new Date(Math.floor(Date.now() / 1000) * 1000);
    firstPackage = await deployCheckout();
    for (const name of [rule, otherRule]) {
      const alias = { FunctionName: functions.getFunctionName(name), Name: "live", FunctionVersion: "1" };
      await new Lambda().createAlias(alias);
    }
  });
  after(async () => {
    await moto?.stop();
    if (folder) await rm(folder, { recursive: true });
  });

  const importFromCheckout = (file: string) => import(pathToFileURL(join(folder, "infra", file)).href);
  const loadModules = async (): Promise<
    typeof import("../../infra/aws/stack.ts") & typeof import("../../infra/rollout/versions/package.ts")
  > => {
    return {
      ...(await importFromCheckout("aws/stack.ts")),
      ...(await importFromCheckout("rollout/versions/package.ts")),
    };
  };

  /** Packages the checkout, and deploys it with osls. */
  const deployCheckout = async (): Promise<StagePackage> => {
    const { packageStage, replacePackagedTemplate } = await loadModules();
    const text = `rules: { ${rule}: { exempt: { users: [], groups: [] } }, ${otherRule}: }`;
    const file = join(folder, "postern.yaml");
    const { publicKey } = createTestSigner(1);
    const built = await packageStage(stage, parseConfig(text, catalogue), catalogue, file, publicKey);
    await replacePackagedTemplate(reduceTemplate(built.template));
    await stack.deploy();
    return built;
  };
  const findWanted = ({ parts }: StagePackage): WantedLambdaVersion => {
    const part = parts.find(({ name }) => name === rule);
    assert.ok(part);
    // moto has no LoggingConfig.
    return { ...part.wanted, stackSettings: toStackSettings({ Runtime: "nodejs24.x" }) };
  };
  const FunctionName = `postern-${stage}-${rule}`;
  const readAlias = async () => {
    const { version, weights } = await functions.readAlias(rule);
    return { version, weights };
  };

  it("a stage has the stack of its template, and its own bucket", async () => {
    // A second creation must be harmless, because another command may have created the bucket.
    await stack.createBucket();
    const { Resources } = (await stack.readTemplate()) ?? {};
    assert.deepEqual(Resources, JSON.parse(JSON.stringify(reduceTemplate(firstPackage.template).Resources)));
    assert.match(String(await stack.findBucket()), /^postern-moto-serverlessdeploymentbucket/);
    const total = Object.keys(Resources ?? {}).length;
    assert.deepEqual([await stack.countDone(startTime), await stack.countDone(new Date())], [total, 0]);
  });

  describe("functions of the stage on moto", () => {
    it("functions are listed, each with the version that the stack created", async () => {
      assert.deepEqual(await functions.listRules(), [rule, otherRule]);
      assert.deepEqual(await openStageFunctions("other", (await loadModules()).openStack("other")).listRules(), []);
      const { codeSha256, environment, memorySize, timeout, stackSettings } = findWanted(firstPackage);
      const [version, ...otherVersions] = await functions.listVersions(rule);
      assert.ok(version);
      const { description, modified, ...content } = version;
      assert.deepEqual(content, { version: "1", codeSha256, environment, memorySize, timeout, stackSettings });
      assert.deepEqual([description, otherVersions], [catalogue.find(({ name }) => name === rule)?.rule.summary, []]);
      assert.ok(modified >= startTime, modified.toISOString());
      assert.deepEqual(await functions.readLatestEnvironment(rule), environment);
      assert.deepEqual(await readAlias(), { version: "1", weights: {} });
    });

    it("reading the function of a rule that isn't deployed fails", async () => {
      const sentence = /^Error: stage moto has no function for none, or none that is live$/;
      for (const read of [functions.readAlias, functions.listVersions]) await assert.rejects(read("none"), sentence);
    });

    it("a function gets versions with other code, with another environment, and with both changes", async () => {
      const { environment, ...withoutEnvironment } = findWanted(firstPackage);
      const code = zip({ "index.cjs": Buffer.from("exports.handler = async () => {};\n") });
      const otherCode = {
        ...withoutEnvironment,
        zip: code,
        codeSha256: createHash("sha256").update(code).digest("base64"),
      };
      const keys = { ...environment, POSTERN_KEYS: `${environment.POSTERN_KEYS},${createTestSigner(2).publicKey}` };
      const steps: [version: string, wanted: WantedLambdaVersion][] = [
        ["2", { ...otherCode, environment, description: "code" }],
        ["3", { ...otherCode, environment: keys, description: "environment" }],
        ["4", { ...withoutEnvironment, environment, description: "both" }],
      ];
      for (const [version, wanted] of steps) {
        assert.equal(await functions.publishVersion(rule, wanted), version);
        const { zip: _, ...wantedContent } = wanted;
        const { modified: __, ...published } = (await functions.listVersions(rule)).at(-1) ?? {};
        assert.deepEqual(published, { ...wantedContent, version });
      }
      assert.deepEqual(await readAlias(), { version: "1", weights: {} });
    });

    it("an alias moves to another version with weights, without weights, and back", async () => {
      await functions.moveAlias(rule, "1", await functions.readAlias(rule), { 2: 0.1 });
      assert.deepEqual(await readAlias(), { version: "1", weights: { 2: 0.1 } });
      await functions.moveAlias(rule, "2", await functions.readAlias(rule));
      assert.deepEqual(await readAlias(), { version: "2", weights: {} });
      assert.equal((await readFunctionState(functions, rule)).previous, "1");
      assert.equal(await rollBackAlias(functions, rule), "1");
      assert.deepEqual(await readAlias(), { version: "1", weights: {} });
    });

    it("a second deployment changes the code of a function, and keeps the alias", async () => {
      await functions.moveAlias(rule, "2", await functions.readAlias(rule), { 4: 0.2 });
      const file = join(folder, "functions", rule, "rule.ts");
      const source = await readFile(file, "utf8");
      assert.ok(source.includes("denying all modifications"));
      await writeFile(file, source.replace("denying all modifications", "denying them all"));
      const secondPackage = await deployCheckout();
      const { codeSha256 } = findWanted(secondPackage);
      assert.notEqual(codeSha256, findWanted(firstPackage).codeSha256);
      const { Configuration } = await new Lambda().getFunction({ FunctionName });
      assert.equal(Configuration?.CodeSha256, codeSha256);
      assert.deepEqual(await readAlias(), { version: "2", weights: { 4: 0.2 } });
      // The tests above published the versions 2 to 4.
      assert.equal(await functions.publishVersion(rule, findWanted(secondPackage)), "5");
      assert.equal((await functions.listVersions(rule)).at(-1)?.codeSha256, codeSha256);
      assert.deepEqual(await functions.listRules(), [rule, otherRule]);
    });

    it("a version can be deleted twice, and is listed no more", async () => {
      for (let time = 0; time < 2; time++) await functions.deleteVersion(rule, "3");
      assert.deepEqual(
        (await functions.listVersions(rule)).map(({ version }) => version),
        ["1", "2", "4", "5"],
      );
    });
  });

  it("a stage is deleted after its bucket was emptied", async () => {
    await openBucket(String(await stack.findBucket())).empty("lock.json");
    await stack.remove();
    assert.deepEqual(
      [await stack.readTemplate(), await stack.readOutputs(), await stack.findBucket()],
      [undefined, {}, undefined],
    );
    assert.deepEqual(await functions.listRules(), []);
  });
});

/** Creates a checkout with two rules of the catalogue. */
const createCheckout = async (): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-moto-"));
  for (const shared of ["lib", "node_modules"]) await symlink(join(root, shared), join(folder, shared));
  for (const copied of [
    "infra",
    "package.json",
    "serverless.yml",
    ...[rule, otherRule].map((name) => `functions/${name}`),
  ])
    await cp(join(root, copied), join(folder, copied), { recursive: true });
  return folder;
};

/** The types of resources that moto can't deploy, and of the resources that refer to aliases. */
const omittedTypes = [
  "Lambda::Alias",
  "Lambda::Permission",
  "ApiGatewayV2::Integration",
  "ApiGatewayV2::Route",
  "CloudWatch::Dashboard",
  "Logs::QueryDefinition",
];
/** Removes resources of the omitted types and all DependsOn, which moto doesn't need, from a template. */
const reduceTemplate = (template: StackTemplate): StackTemplate => {
  const keptResources = Object.entries(template.Resources).filter(
    ([, { Type }]) => !omittedTypes.includes(Type.replace(/^AWS::/, "")),
  );
  const resources = keptResources.map(([id, { DependsOn: _, ...resource }]) => [id, resource] as const);
  return { ...template, Resources: Object.fromEntries(resources) };
};
