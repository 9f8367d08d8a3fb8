import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { bundleRule, type RuleBundle } from "../../infra/build/bundle.ts";
import { writeServerlessIncludes } from "../../infra/build/deployment.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { readOrCreateUrlSigner } from "../../infra/keys/keys.ts";
import { cacheVariables } from "../checkout.ts";
import { needs } from "../parts.ts";
import { matchesPattern } from "./cloudwatch.ts";
import { lint } from "./tools.ts";

// Packages a catalogue of 59 rules with the real osls, and reads the templates for CloudFormation.

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const names = Array.from({ length: 59 }, (_, index) => `limit-something-or-other-${index + 1}`);

interface Resource {
  Type: string;
  Properties: Record<string, unknown>;
}
/** What osls, the fork of the Serverless Framework, has packaged for a stage. */
interface Packaged {
  resources: [string, Resource][];
  /** The contents of the templates and of the state file. */
  text: string;
  zips: Map<string, Buffer>;
  /** The path of a copy of the template. */
  template: string;
}

const folders: string[] = [];
const createFolder = async () => {
  const folder = await mkdtemp(join(tmpdir(), "postern-package-"));
  folders.push(folder);
  return folder;
};

/** Creates a checkout with generated rules. All rules mutate, and every second rule also validates. */
const createCheckout = async (names: string[]): Promise<string> => {
  const folder = await createFolder();
  for (const shared of ["lib", "node_modules"]) await symlink(join(root, shared), join(folder, shared));
  for (const file of ["package.json", "serverless.yml"]) await cp(join(root, file), join(folder, file));
  for (const [index, name] of names.entries()) {
    const ruleFolder = join(folder, "functions", name);
    await mkdir(ruleFolder, { recursive: true });
    const validateCode = index % 2 === 0 ? "" : `validate() { return "no ${index}"; },`;
    const rule = `import { rule } from "#lib/rule.ts";
      export default rule({
        summary: "Limits something or other.",
        match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
        mutate(object) { object.metadata = { labels: { touched: "${index}" } }; }, ${validateCode}
      });`;
    for (const [file, text] of Object.entries({ "rule.ts": rule, "cases.yaml": "[]", "README.md": "" }))
      await writeFile(join(ruleFolder, file), text);
  }
  return folder;
};

/** The rule whose function a schedule also calls. */
const [scheduledRule] = names;

/** Builds the bundles of these rules, and the files that serverless.yml includes. */
const buildBundles = async (folder: string, names: string[], publicKey: string, stage?: string) => {
  const built: RuleBundle[] = [];
  for (const name of names) {
    const listed = await readRule(join(folder, "functions", name), name);
    const clusters = { local: { keyVersions: [1], mode: "enforce" as const, settings: {} } };
    const endpointConfig = { rule: name, clusters };
    const bundle = await bundleRule(listed, endpointConfig, join(folder, "dist"), { budgetBytes: 30_000 });
    built.push({ ...bundle, reconciles: name === scheduledRule });
  }
  await writeServerlessIncludes(built, publicKey, join(folder, "dist"), stage);
};

const osls = createRequire(import.meta.url).resolve("osls/bin/serverless.js");

/** Packages a checkout with osls. */
const pack = async (folder: string, ...options: string[]): Promise<Packaged> => {
  const aws = { AWS_ACCESS_KEY_ID: "x", AWS_SECRET_ACCESS_KEY: "x", AWS_REGION: "eu-west-1" };
  const env = { PATH: process.env.PATH, HOME: folder, ...cacheVariables, ...aws };
  await run(process.execPath, [osls, "package", ...options], { cwd: folder, env });
  const read = (file: string) => readFile(join(folder, ".serverless", file), "utf8");
  const state = await read("serverless-state.json");
  const template = await read("cloudformation-template-update-stack.json");
  // A folder is packaged twice, without and with an option. Each time gets its own copy.
  const templateCopy = join(folder, `template${options.length}.json`);
  await writeFile(templateCopy, template);
  const functions: Record<string, { package: { artifact: string } }> = JSON.parse(state).service.functions;
  const zips = Object.entries(functions).map(
    async ([name, { package: zipPackage }]) => [name, await readFile(join(folder, zipPackage.artifact))] as const,
  );
  return {
    resources: Object.entries(JSON.parse(template).Resources),
    text: state + template + (await read("cloudformation-template-create-stack.json")),
    zips: new Map(await Promise.all(zips)),
    template: templateCopy,
  };
};

const selectResources = ({ resources }: Packaged, type: string) =>
  resources.filter(([, resource]) => resource.Type === `AWS::${type}`);

const toLogicalId = (name: string) => `L${name.slice(1).replaceAll("-", "Dash")}`;

const cfnLint = await needs("cfn-lint");

describe("a package of 59 rules", () => {
  let http: Packaged;
  let url: Packaged;
  let repeated: Packaged;
  let keys: { publicKey: string; segment: string };

  before(async () => {
    const folder = await createCheckout(names);
    const signer = await readOrCreateUrlSigner(join(folder, ".postern"));
    keys = { publicKey: signer.publicKey, segment: signer.signSegment("local", 1) };
    await buildBundles(folder, names, keys.publicKey);
    http = await pack(folder);
    url = await pack(folder, "--param=endpoint=url");
    const otherFolder = await createCheckout(names);
    await buildBundles(otherFolder, names, keys.publicKey);
    repeated = await pack(otherFolder);
  });

  const getPackages = () => [http, url];

  it("packaging fails with the former name of the parameter for the endpoint type", async () => {
    const folder = await createCheckout([]);
    await buildBundles(folder, [], keys.publicKey);
    await assert.rejects(pack(folder, "--param=door=url"), { stdout: /the parameter door is named endpoint now/ });
  });

  it("a package has fewer than 450 resources: 7 for each rule, and 4 more for a schedule", () => {
    for (const { resources } of getPackages()) {
      assert.ok(resources.length < 450, `${resources.length} resources`);
      for (const name of names) {
        const resourcesOfRule = resources.filter(([id]) => new RegExp(`^${toLogicalId(name)}(?!\\d)`).test(id));
        assert.equal(
          resourcesOfRule.length,
          name === scheduledRule ? 11 : 7,
          `${name}: ${resourcesOfRule.map(([id]) => id).join(", ")}`,
        );
      }
    }
  });

  it("a package has one zip for each rule, with exactly the rule's bundle", async () => {
    for (const { zips } of getPackages()) {
      assert.deepEqual([...zips.keys()], names);
      for (const [name, zip] of zips) {
        const files = await Promise.all(
          ["index.cjs", "index.mjs", "review-faults.cjs"].map((file) =>
            readFile(join(folders[0] ?? "", "dist", name, file)),
          ),
        );
        assert.deepEqual(listZipEntries(zip), ["index.cjs", "index.mjs", "keys.json", "review-faults.cjs"]);
        assert.ok(
          files.every((file) => zip.includes(file)),
          name,
        );
        // 700 bytes are enough for keys.json and for the headers of the zip.
        assert.ok(zip.length < Buffer.concat(files).length + 700, name);
      }
    }
  });

  it("packages of the same rules in two folders have the same bytes", () => {
    assert.deepEqual(repeated.zips, http.zips);
    const listIds = ({ resources }: Packaged) => resources.map(([id]) => id);
    assert.deepEqual(listIds(repeated), listIds(http));
  });

  it("packaging uses the region of the AWS profile if the environment has none", async () => {
    const [folder = ""] = folders;
    for (const part of ["infra/aws", "infra/cli"]) await cp(join(root, part), join(folder, part), { recursive: true });
    const config = join(folder, "config");
    await writeFile(config, "[default]\nregion = eu-north-1\n");
    const aws = { AWS_ACCESS_KEY_ID: "x", AWS_SECRET_ACCESS_KEY: "x", AWS_CONFIG_FILE: config };
    const program = 'import { packageStack } from "./infra/aws/stack.ts"; await packageStack("prod");';
    const words = ["--input-type=module", "--eval", program];
    const env = { PATH: process.env.PATH, HOME: folder, ...cacheVariables, ...aws };
    await run(process.execPath, words, { cwd: folder, env });
    const state = await readFile(join(folder, ".serverless/serverless-state.json"), "utf8");
    assert.equal(JSON.parse(state).service.provider.region, "eu-north-1");
  });

  it("all functions write to one log group, and Lambda adds no lines below WARN", () => {
    for (const packaged of getPackages()) {
      const groups = selectResources(packaged, "Logs::LogGroup").filter(([id]) => id !== "HttpApiLogGroup");
      const RetentionInDays = 14;
      const LogGroup = "/aws/lambda/postern-dev";
      assert.deepEqual(
        groups.map(([id, { Properties }]) => [id, Properties]),
        [["FunctionsLogGroup", { LogGroupName: LogGroup, RetentionInDays }]],
      );
      for (const [id, { Properties }] of selectResources(packaged, "Lambda::Function"))
        assert.deepEqual(Properties.LoggingConfig, { LogFormat: "JSON", LogGroup, SystemLogLevel: "WARN" }, id);
    }
  });

  it("every function has its own role, which may write to the log and nothing else", () => {
    for (const packaged of getPackages()) {
      const roles = selectResources(packaged, "IAM::Role");
      assert.equal(roles.length, names.length);
      for (const name of names) {
        const id = toLogicalId(name);
        const role = roles.find(([key]) => key === `${id}Role`)?.[1];
        const statement = {
          Effect: "Allow",
          Action: ["logs:CreateLogStream", "logs:PutLogEvents"],
          // A function is created after its role, and the role after the log group. Otherwise Lambda would create the
          // log group itself.
          Resource: [{ "Fn::GetAtt": ["FunctionsLogGroup", "Arn"] }, { "Fn::Sub": buildOldLogArn(name) }],
        };
        const policies = [{ PolicyName: "log", PolicyDocument: { Version: "2012-10-17", Statement: [statement] } }];
        assert.deepEqual(role?.Properties.Policies, policies);
        assert.equal(role?.Properties.ManagedPolicyArns, undefined);
        const lambda = packaged.resources.find(([key]) => key === `${id}LambdaFunction`)?.[1];
        assert.deepEqual(lambda?.Properties.Role, { "Fn::Sub": `\${${id}Role.Arn}` });
      }
    }
  });

  it("gateways and URLs call the alias live, never the function itself", () => {
    const aliases = new Set(selectResources(http, "Lambda::Alias").map(([id]) => id));
    assert.equal(aliases.size, names.length);
    for (const packaged of getPackages()) {
      for (const [, { Properties }] of selectResources(packaged, "Lambda::Alias"))
        assert.equal(Properties.Name, "live");
      for (const [id, { Properties }] of selectResources(packaged, "Lambda::Permission"))
        assert.ok(aliases.has(getReference(Properties.FunctionName)), id);
    }
    for (const [id, { Properties }] of selectResources(http, "ApiGatewayV2::Integration"))
      assert.ok(aliases.has(getReference(Properties.IntegrationUri)), id);
    for (const [id, { Properties }] of selectResources(url, "Lambda::Url"))
      assert.equal(Properties.Qualifier, "live", id);
    assert.equal(selectResources(http, "ApiGatewayV2::Integration").length, names.length);
    assert.equal(selectResources(url, "Lambda::Url").length, names.length);
    // Two permissions for each URL, and one for the schedule.
    assert.equal(selectResources(url, "Lambda::Permission").length, 2 * names.length + 1);
  });

  it("an HTTP API has one route for each rule, with a variable for the cluster and its key", () => {
    const routes = selectResources(http, "ApiGatewayV2::Route").map(([, { Properties }]) => Properties.RouteKey);
    assert.deepEqual(
      routes,
      names.map((name) => `POST /{cluster}/${name}/{phase+}`),
    );
    assert.equal(selectResources(url, "ApiGatewayV2::Route").length, 0);
  });

  it("a template has one version of each function, with the same id in every package", () => {
    for (const packaged of getPackages())
      assert.deepEqual(
        selectResources(packaged, "Lambda::Version").map(([id]) => id),
        names.map((name) => `${toLogicalId(name)}Version`),
      );
  });

  it("a package contains the public key, but neither the signing key nor its signatures", async () => {
    const [, signature = ""] = keys.segment.split(".");
    for (const packaged of getPackages()) {
      // This is the hash of a list without exceptions. The environment has no other facts about clusters.
      const POSTERN_CLUSTERS = createHash("sha256").update("{}").digest("base64url");
      for (const [id, { Properties }] of selectResources(packaged, "Lambda::Function")) {
        const Variables = { POSTERN_KEYS: keys.publicKey, POSTERN_STAGE: "dev", POSTERN_CLUSTERS };
        assert.deepEqual(Properties.Environment, { Variables }, id);
      }
      assert.ok(!packaged.text.includes(signature));
      assert.ok(!packaged.text.includes("PRIVATE KEY"));
    }
  });

  it("the gateway logs only fields of a request that can't contain the key", () => {
    const [stage] = selectResources(http, "ApiGatewayV2::Stage");
    const format: unknown = Reflect.get(Object(stage?.[1].Properties.AccessLogSettings), "Format");
    assert.deepEqual(Object.keys(JSON.parse(String(format))), [
      "stage",
      "requestId",
      "sourceIp",
      "routeKey",
      "status",
      "function",
      "latency",
    ]);
    assert.doesNotMatch(String(format), /path/i);
  });

  it("a metric filter counts the requests that the gateway answered with 429", () => {
    const [[, { Properties }] = ["", { Properties: {} }], ...others] = selectResources(http, "Logs::MetricFilter");
    assert.deepEqual(others, []);
    const { FilterPattern, MetricTransformations } = Object(Properties);
    assert.deepEqual(MetricTransformations, [
      {
        MetricNamespace: "Postern",
        MetricName: "Lost",
        MetricValue: "1",
        Dimensions: [{ Key: "Stage", Value: "$.stage" }],
      },
    ]);
    const [stage] = selectResources(http, "ApiGatewayV2::Stage");
    const format = JSON.parse(String(Object(stage?.[1].Properties.AccessLogSettings).Format));
    assert.equal(format.stage, "dev");
    const table: [status: string, functionStatus: string, isLost: boolean][] = [
      ["200", "200", false],
      ["404", "404", false],
      ["404", "-", false],
      ["413", "-", false],
      ["429", "-", true],
      ["500", "500", false],
      ["503", "503", false],
      // API Gateway's own metric 5xx counts these requests.
      ["500", "-", false],
      ["503", "-", false],
      ["502", "200", false],
    ];
    for (const [status, functionStatus, isLost] of table) {
      const line = { ...format, status, function: functionStatus };
      assert.equal(matchesPattern(String(FilterPattern), line), isLost, `${status}, ${functionStatus} by the function`);
    }
  });

  it("a stage has alarms for all functions together, for each ten functions and for schedules", () => {
    const numbers = Array.from({ length: 6 }, (_, index) => index + 1);
    const scheduleAlarms = ["ScheduleAlarm", "ScheduleErrorsAlarm"].map(
      (kind) => `${toLogicalId(scheduledRule ?? "")}${kind}`,
    );
    const functions = names.map((name) => ({ Ref: `${toLogicalId(name)}LambdaFunction` }));
    for (const [packaged, gatewayAlarms] of [
      [http, ["ThrottlesAlarm"]],
      [url, []],
    ] as const) {
      const alarms = selectResources(packaged, "CloudWatch::Alarm");
      const functionAlarms = ["Crashes", "Throttles"].map((kind) => numbers.map((number) => `${kind}Alarm${number}`));
      const expected = ["ErrorsAlarm", "LatencyAlarm", ...gatewayAlarms, ...scheduleAlarms, ...functionAlarms.flat()];
      assert.deepEqual(alarms.map(([id]) => id).sort(), expected.sort());
      for (const ids of functionAlarms) {
        const watched = alarms
          .filter(([id]) => ids.includes(id))
          .flatMap(([, { Properties }]) => Object(Properties).Metrics)
          .flatMap(({ MetricStat }) => Object(MetricStat).Metric?.Dimensions ?? []);
        assert.deepEqual(
          watched.map(({ Value }) => Value),
          functions,
        );
      }
    }
  });

  it("cfn-lint finds no fault in the templates", cfnLint, () => lint(...getPackages().map(({ template }) => template)));
});

describe("a package for a stage and rules with long names", () => {
  const stage = "production-eu-central";
  const rules = ["limit-ranger", "limit-pod-hard-anti-affinity-topology", "owner-references-permission-enforcement"];

  it("long function names are shortened, and cfn-lint finds no fault in the template", cfnLint, async () => {
    const folder = await createCheckout(rules);
    await buildBundles(folder, rules, "key", stage);
    for (const options of [[], ["--param=endpoint=url"]]) {
      const packaged = await pack(folder, "--stage", stage, ...options);
      await lint(packaged.template);
      const functions = selectResources(packaged, "Lambda::Function").map(([, { Properties }]) => [
        Properties.FunctionName,
        Object(Properties.Environment).Variables.POSTERN_RULE,
      ]);
      assert.deepEqual(functions, [
        ["postern-production-eu-central-limit-ranger", undefined],
        ["postern-production-eu-central-limit-pod-hard-anti-affinit-733e24", rules[1]],
        ["postern-production-eu-central-owner-references-permission-ecf198", rules[2]],
      ]);
    }
  });
});

after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

/** Returns the ARN of the log group that a function had before all functions shared one. */
const buildOldLogArn = (name: string) =>
  `arn:\${AWS::Partition}:logs:\${AWS::Region}:\${AWS::AccountId}:log-group:/aws/lambda/postern-dev-${name}:*`;

const getReference = (value: unknown) => String(Reflect.get(Object(value), "Ref"));

/** Returns the file names in a zip's central directory. The numbers are offsets of fields in the zip format. */
const listZipEntries = (zip: Buffer): string[] => {
  const end = zip.lastIndexOf("PK\u0005\u0006");
  let offset = zip.readUInt32LE(end + 16);
  return Array.from({ length: zip.readUInt16LE(end + 10) }, () => {
    const nameLength = zip.readUInt16LE(offset + 28);
    const nameStart = offset + 46;
    // After the name come the extra field and the comment of the file.
    offset = nameStart + nameLength + zip.readUInt16LE(offset + 30) + zip.readUInt16LE(offset + 32);
    return zip.toString("utf8", nameStart, nameStart + nameLength);
  });
};
