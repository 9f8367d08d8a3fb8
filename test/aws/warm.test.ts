import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { Lambda } from "@aws-sdk/client-lambda";
import { zip } from "../../infra/build/zip.ts";
import type { Progress } from "../../infra/cli/progress.ts";
import type { CanaryOptions } from "../../infra/rollout/versions/canary.ts";
import { type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { createPackager, loadJob, type StagePackager } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";
import { type LambdaService, startLambda } from "./lambda.ts";

// Tests warm environments, which are Lambda's provisioned concurrency of versions, from the first deployment to the
// last.
const rule = "stamp-notes";
const buildRule = (stamp: string) => `
import { rule } from "#lib/rule.ts";
export default rule({
  summary: "Stamps notes.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
  mutate(note) { note.data = { stamp: "${stamp}" }; },
});
`;
const buildCases = (stamp: string) => `
- name: stamps a note
  mutate: { metadata: { name: a } }
  becomes: { metadata: { name: a }, data: { stamp: ${stamp} } }
`;

describe("the stand-in for provisioned concurrency", await needs("runtime client"), () => {
  const FunctionName = "postern-test-rule";
  let service: LambdaService;
  let client: Lambda;
  before(async () => {
    service = await startLambda();
    const credentials = { accessKeyId: "tester", secretAccessKey: "secret" };
    client = new Lambda({ endpoint: service.url, region: "eu-west-1", credentials, maxAttempts: 1 });
  });
  after(() => service?.stop());
  beforeEach(() => {
    const code = "exports.handler = async () => process.env.AWS_LAMBDA_INITIALIZATION_TYPE;";
    service.functions.clear();
    service.create(FunctionName, zip({ "index.cjs": Buffer.from(code) }), {});
    Object.assign(service, { warmingMilliseconds: 0, warmFailure: undefined });
  });
  const putProvisioned = (Qualifier: string, ProvisionedConcurrentExecutions = 1) =>
    client.putProvisionedConcurrencyConfig({ FunctionName, Qualifier, ProvisionedConcurrentExecutions });
  const listProvisioned = async () =>
    (await client.listProvisionedConcurrencyConfigs({ FunctionName })).ProvisionedConcurrencyConfigs ?? [];
  const invoke = async () => (await client.invoke({ FunctionName, Qualifier: "live" })).Payload?.transformToString();
  const buildRefusal = (message: string) => new RegExp(`^InvalidParameterValueException: .*${message}`);

  it("provisioned concurrency takes time to start, and fails if the test sets a reason", async () => {
    service.warmingMilliseconds = 60_000;
    assert.equal((await putProvisioned("1", 2)).Status, "IN_PROGRESS");
    service.warmFailure = "FUNCTION_ERROR_INIT_FAILURE";
    await putProvisioned("1", 3);
    const [starting] = await listProvisioned();
    assert.deepEqual([starting?.Status, starting?.RequestedProvisionedConcurrentExecutions], ["IN_PROGRESS", 3]);
    service.warmingMilliseconds = 0;
    const [failed] = await listProvisioned();
    assert.deepEqual([failed?.Status, failed?.StatusReason], ["FAILED", "FUNCTION_ERROR_INIT_FAILURE"]);
    service.warmFailure = undefined;
    assert.equal((await putProvisioned("1", 2)).Status, "READY");
  });

  it("the stand-in runs calls in a provisioned environment as soon as one is ready", async () => {
    assert.equal(await invoke(), '"on-demand"');
    await putProvisioned("1");
    assert.equal(await invoke(), '"provisioned-concurrency"');
    await client.deleteProvisionedConcurrencyConfig({ FunctionName, Qualifier: "1" });
    assert.equal(await invoke(), '"on-demand"');
    await assert.rejects(client.deleteProvisionedConcurrencyConfig({ FunctionName, Qualifier: "1" }), /No Provisioned/);
  });

  it("the stand-in refuses the same numbers and deletions as Lambda", async () => {
    await assert.rejects(putProvisioned("$LATEST"), buildRefusal("unpublished function versions"));
    await assert.rejects(putProvisioned("7"), /^ResourceNotFoundException/);
    await assert.rejects(putProvisioned("1", 0), /^InvalidParameterValueException/);
    const fn = service.functions.get(FunctionName);
    assert.ok(fn);
    fn.reserved = 2;
    await putProvisioned("1", 2);
    await assert.rejects(putProvisioned("1", 3), buildRefusal("not be greater than the reservedConcurrentExecution"));
    fn.versions.set("2", { ...fn.latest });
    await assert.rejects(putProvisioned("2", 1), buildRefusal("not be greater than the reservedConcurrentExecution"));
    fn.reserved = undefined;
    // Of the 1000 concurrent executions, 100 must stay unreserved.
    await putProvisioned("1", 500);
    await assert.rejects(putProvisioned("2", 401), buildRefusal("below its minimum value of \\[100\\]"));
    await putProvisioned("2", 400);
    await assert.rejects(client.deleteFunction({ FunctionName, Qualifier: "2" }), /it has provisioned concurrency/);
  });

  it("an alias can't have weights and provisioned concurrency at the same time", async () => {
    const fn = service.functions.get(FunctionName);
    fn?.versions.set("2", { ...fn.latest });
    const alias = { FunctionName, Name: "live" };
    const buildWeights = (AdditionalVersionWeights: Record<string, number>) => ({
      RoutingConfig: { AdditionalVersionWeights },
    });
    await client.updateAlias({ ...alias, ...buildWeights({ 2: 0.1 }) });
    await assert.rejects(putProvisioned("live"), buildRefusal("Invalid alias configuration"));
    await putProvisioned("1");
    await client.updateAlias({ ...alias, ...buildWeights({}) });
    await assert.rejects(putProvisioned("live"), /^ResourceConflictException/);
    await client.deleteProvisionedConcurrencyConfig({ FunctionName, Qualifier: "1" });
    await putProvisioned("live");
    await assert.rejects(
      client.updateAlias({ ...alias, ...buildWeights({ 2: 0.1 }) }),
      buildRefusal("Invalid alias configuration"),
    );
  });
});

describe("a rule with warm environments", await needs("moto", "runtime client"), () => {
  let account: Account;
  let checkout: Checkout;
  let packageStage: StagePackager;
  let trees = 0;
  const output: string[] = [];

  before(async () => {
    [account, checkout] = await Promise.all([openAccount(), openCheckout()]);
    packageStage = await createPackager(checkout.folder);
    Object.assign(process.env, account.actAs("deployer").env);
  });
  after(async () => {
    await account?.stop();
    await checkout?.remove();
  });
  beforeEach(() => {
    output.length = 0;
    account.recordedCalls.length = 0;
    Object.assign(account.lambda, { warmingMilliseconds: 700, warmFailure: undefined, propagationMilliseconds: 0 });
  });

  const progress: Progress = {
    say: (line) => void output.push(line),
    step: async (name, act) => void output.push(`${name}: ${await act(() => {})}`),
  };
  const writeTree = async (stamp: string) => {
    trees += 1;
    // A process loads a module only once, so each catalogue is also written to its own folder.
    for (const folder of ["functions", `trees/${trees}`])
      await checkout.rule(rule, buildRule(stamp), buildCases(stamp), folder);
  };
  const openJob = (config: string) =>
    loadJob(checkout.folder, `trees/${trees}`, `rules: { ${rule}: ${config} }\nclusters: { shop: {} }`, {
      ca: account.ca,
      progress,
      write: join(checkout.folder, "entries"),
    });
  const loadDeployment = () => checkout.load<typeof import("../../infra/rollout/deploy.ts")>("infra/rollout/deploy.ts");
  const deploy = async (config: string, canary?: CanaryOptions) => {
    const { deployStage } = await loadDeployment();
    return deployStage({ ...(await openJob(config)), canary }, async () => {}, packageStage);
  };
  const listPlannedChanges = async (config: string) => {
    const { planDeployment } = await loadDeployment();
    return (await planDeployment(await openJob(config), packageStage)).warm.flatMap(({ changes }) => changes);
  };
  const runPostern = (...words: string[]) => checkout.postern(account.actAs("tester").env, ...words);
  const getFunction = () => {
    const fn = account.lambda.functions.get(`postern-test-${rule}`);
    assert.ok(fn);
    return fn;
  };
  const getLiveVersion = () => String(getFunction().aliases.get("live")?.version);
  /** Returns the number of warm environments by version. */
  const listWarm = () =>
    Object.fromEntries([...getFunction().provisioned].map(([version, { count }]) => [version, count]));
  /** Returns the calls that changed versions, aliases and warm environments, in their order. */
  const listChanges = () =>
    account.recordedCalls.flatMap(({ action, caller }) => {
      const [, name] =
        /^lambda:((?:Publish|Update|Put|Delete)(?:Version|Alias|ProvisionedConcurrencyConfig))$/.exec(action) ?? [];
      return caller === "cloudformation" || name === undefined
        ? []
        : [name.replace("ProvisionedConcurrencyConfig", "")];
    });

  it("a rule has warm environments before clusters get the rule's entries", async () => {
    await writeTree("one");
    assert.deepEqual(await listPlannedChanges("{ warm: 2 }"), ["2 warm environments on the new version"]);
    assert.match(await deploy("{ warm: 2 }"), /release r1 is live/);
    const step = output.indexOf("warm environments: 2 ready, of 1 rule");
    assert.ok(step >= 0 && step < output.findIndex((line) => line.startsWith("cluster shop")), output.join("\n"));
    assert.deepEqual(listWarm(), { [getLiveVersion()]: 2 });
    assert.deepEqual(await listPlannedChanges("{ warm: 2 }"), []);
    assert.match(await deploy("{ warm: 2 }"), /nothing to do/);
  });

  it("a new version is warm before the alias moves, and the old version stays warm until the end", async () => {
    const before = getLiveVersion();
    await writeTree("two");
    assert.match(await deploy("{ warm: 2 }"), /release r2 is live/);
    assert.notEqual(getLiveVersion(), before);
    assert.deepEqual(listWarm(), { [getLiveVersion()]: 2 });
    assert.deepEqual(listChanges(), ["PublishVersion", "Put", "UpdateAlias", "Delete"]);
  });

  it("the number of warm environments changes without a new version", async () => {
    const version = getLiveVersion();
    assert.deepEqual(await listPlannedChanges("{ warm: 3 }"), [
      `3 warm environments on version ${version}, which has 2 (READY)`,
    ]);
    assert.match(await deploy("{ warm: 3 }"), /release r3 is live/);
    assert.deepEqual([getLiveVersion(), listWarm(), listChanges()], [version, { [version]: 3 }, ["Put"]]);
  });

  it("the status shows the warm environments of a rule", async () => {
    const { stdout } = await runPostern("status", "--stage", "test");
    assert.match(
      stdout,
      new RegExp(`^stamp-notes .* 3 warm environments of version ${getLiveVersion()} READY *$`, "m"),
    );
    const { stdout: json } = await runPostern("status", "--stage", "test", "-o", "json");
    assert.deepEqual(JSON.parse(json).rules[0].warm, [{ version: getLiveVersion(), count: 3, status: "READY" }]);
  });

  it("a version stays live if Lambda can't start or refuses the next version's warm environments", async () => {
    const before = getLiveVersion();
    await writeTree("three");
    account.lambda.warmFailure = "FUNCTION_ERROR_INIT_FAILURE";
    await assert.rejects(
      deploy("{ warm: 3 }"),
      /nothing was moved, because Lambda could not start 3 warm environments of version \d+ of stamp-notes: FUNCTION_ERROR_INIT_FAILURE$/,
    );
    account.lambda.warmFailure = undefined;
    await assert.rejects(deploy("{ warm: 999 }"), /^Error: the rules have 1002 warm environments until/);
    // A plan can't know the warm environments of other functions in the account.
    account.lambda.create("other", zip({ "index.cjs": Buffer.from("") }), {});
    const halfOfQuota = { ProvisionedConcurrentExecutions: 500 };
    await account.lambda.act("PutProvisionedConcurrencyConfig", "other", halfOfQuota, { Qualifier: "1" });
    await assert.rejects(
      deploy("{ warm: 500 }"),
      /Lambda refuses 500 warm environments for version \d+ of stamp-notes: .*minimum value of \[100\]/,
    );
    account.lambda.functions.delete("other");
    assert.deepEqual([getLiveVersion(), listWarm()], [before, { [before]: 3 }]);
  });

  it("a version whose canary is rolled back loses its warm environments", async () => {
    const before = getLiveVersion();
    const interruption = new AbortController();
    account.fault = ({ action }, when) => {
      if (when === "after" && action === "lambda:UpdateAlias") interruption.abort();
      return undefined;
    };
    const canary = { share: 0.1, milliseconds: 60_000, every: 50, metricDelay: 0, signal: interruption.signal };
    await assert.rejects(deploy("{ warm: 3 }", canary), /interrupted; the versions in the canary were rolled back/);
    account.fault = undefined;
    assert.deepEqual([getLiveVersion(), listWarm()], [before, { [before]: 3 }]);
    assert.deepEqual(listChanges(), ["PublishVersion", "Put", "UpdateAlias", "UpdateAlias", "Delete"]);
  });

  it("a rollback says that the version has no warm environments, and a deployment starts them", async () => {
    assert.match(await deploy("{ warm: 3 }"), /release r\d+ is live/);
    const versionBefore = getLiveVersion();
    const { stdout, stderr } = await runPostern("rollback", rule, "--stage", "test");
    assert.match(stdout, /stamp-notes is at version \d+\n/);
    const sentence = `version ${getLiveVersion()} of stamp-notes has no warm environments, so its first reviews take longer`;
    assert.ok(stderr.includes(`${sentence}; postern deploy starts them\n`), stderr);
    assert.deepEqual(listWarm(), { [versionBefore]: 3 });
    await writeTree("two");
    assert.match(await deploy("{ warm: 3 }"), /release r\d+ is live/);
    assert.deepEqual(listWarm(), { [getLiveVersion()]: 3 });
    const { stderr: disarmed } = await runPostern("disarm", rule, "--for", "5m", "--stage", "test");
    assert.match(disarmed, /version \d+ of stamp-notes has no warm environments/);
    const armed = await runPostern("arm", rule, "--stage", "test");
    assert.equal(armed.code, 0, armed.stderr);
    assert.deepEqual(listWarm(), { [getLiveVersion()]: 3 });
  });

  it("a deployment ends the warm environments that a stopped command left on an old version", async () => {
    const { versions, provisioned } = getFunction();
    const [oldest] = [...versions.keys()];
    provisioned.set(String(oldest), { count: 1, since: 0, failure: undefined, running: 0 });
    assert.deepEqual(await listPlannedChanges("{ warm: 3 }"), [`no longer 1 warm environment on version ${oldest}`]);
    for (const stamp of ["five", "six", "seven", "eight"]) {
      await writeTree(stamp);
      await deploy("{ warm: 1 }");
      assert.deepEqual(listWarm(), { [getLiveVersion()]: 1 });
    }
    assert.ok(listChanges().includes("Delete"));
  });

  it("a rule loses its warm environments if postern.yaml no longer has them, or if the rule is off", async () => {
    const version = getLiveVersion();
    assert.deepEqual(await listPlannedChanges("{ }"), [`no longer 1 warm environment on version ${version}`]);
    assert.match(await deploy("{ }"), /release r\d+ is live/);
    assert.deepEqual([getLiveVersion(), listWarm()], [version, {}]);
    await deploy("{ warm: 1 }");
    assert.deepEqual(listWarm(), { [version]: 1 });
    await deploy("{ warm: 1, mode: off }");
    assert.deepEqual(listWarm(), {});
  });

  it("a stage can be destroyed while a rule has warm environments", async () => {
    await deploy("{ warm: 1 }");
    assert.equal(Object.keys(listWarm()).length, 1);
    const { destroyStage } =
      await checkout.load<typeof import("../../infra/rollout/destroy.ts")>("infra/rollout/destroy.ts");
    await destroyStage({ ...(await openJob("{ }")), forgotten: ["shop"], noticeMilliseconds: 0 });
    assert.equal(account.lambda.functions.size, 0);
  });
});
