import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { S3 } from "@aws-sdk/client-s3";
import { SSM } from "@aws-sdk/client-ssm";
import { sendRequest } from "#lib/cluster/https-request.ts";
import { probeEntries } from "../../infra/clusters/probe.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import type { WebhookEntry } from "../../infra/webhooks/configurations.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { needs } from "../parts.ts";
import { type Account, openAccount } from "./account.ts";
import { type LightClusters, openLightClusters } from "./light-clusters.ts";

// Two stages have the same name and the same clusters, but different accounts and regions. The tests use the
// credentials of the wrong account, move clusters between the stages, and lose a bucket and a signing key.
const rules = ["always-pull-images", "deny-service-external-ips"];
const guardEntry = "deny-service-external-ips.postern.dev";
const clusterNames = ["east", "west"] as const;
type ClusterName = (typeof clusterNames)[number];
const identities = { first: "aws:111111111111:eu-west-1:prod", second: "aws:222222222222:us-east-1:prod" };
type AccountName = keyof typeof identities;

describe("a stage is one account and one region:", await needs("moto", "runtime client"), () => {
  let accounts: Record<AccountName, Account>;
  let clusters: LightClusters;
  let certificate: ServerCertificate;
  let checkout: Checkout;
  let kubeconfig: string;
  const caFiles: Record<string, string> = {};

  before(async () => {
    const [first, second, opened] = await Promise.all([
      openAccount("eu-west-1", { accountId: "111111111111" }),
      openAccount("us-east-1", { accountId: "222222222222" }),
      openCheckout(rules),
    ]);
    [accounts, checkout] = [{ first, second }, opened];
    certificate = await readOrCreateServerCertificate(`${checkout.folder}/.postern`, "127.0.0.1");
    clusters = await openLightClusters(certificate);
    for (const name of clusterNames) clusters.clustersWithPolicies.add(name);
    const entries = clusterNames.map((name) => [
      name,
      { server: clusters.url, ca: certificate.ca, getToken: () => name },
    ]);
    kubeconfig = await checkout.write("kubeconfig", buildKubeconfig(Object.fromEntries(entries)));
    for (const [name, { ca }] of Object.entries(accounts)) caFiles[name] = await checkout.write(`${name}.pem`, ca);
    await writeConfig();
  });
  after(async () => {
    await Promise.all([accounts?.first.stop(), accounts?.second.stop(), clusters?.stop()]);
    await checkout?.remove();
  });

  const writeConfig = (extraYaml = "", timeoutSeconds = 3, mode = "enforce") =>
    checkout.write(
      "postern.yaml",
      `rules:\n  always-pull-images: { timeoutSeconds: ${timeoutSeconds}, mode: ${mode} }\n  deny-service-external-ips:\nclusters: { east: {}, west: {} }\n${extraYaml}`,
    );
  /** Runs postern with the credentials of one of the accounts. Returns the exit code and the output. */
  const run = async (account: AccountName, verb: string, ...words: string[]) => {
    const isRuleVerb = ["arm", "disarm"].includes(verb);
    const clusterWords = isRuleVerb ? [] : ["--kubeconfig", kubeconfig];
    const caWords = ["deploy", "rotate"].includes(verb) ? ["--ca", String(caFiles[account])] : [];
    const allWords = [verb, "--stage", "prod", ...clusterWords, ...caWords, ...words];
    const { code, stdout, stderr } = await checkout.postern(accounts[account].actAs("operator").env, ...allWords);
    return { code, stdout, text: `${stdout}${stderr}` };
  };
  const requireSuccess = async (account: AccountName, verb: string, ...words: string[]) => {
    const { code, text, stdout } = await run(account, verb, ...words);
    assert.equal(code, 0, text);
    return { text, stdout };
  };
  const callCluster = async (name: ClusterName, method: string, kind: string, body?: object) => {
    const headers = { authorization: `Bearer ${name}`, "content-type": "application/json" };
    const url = `${clusters.url}/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/postern`;
    const text = body && JSON.stringify(body);
    const answer = await sendRequest(url, { method, headers, ca: certificate.ca }, text, Date.now() + 10_000);
    return Object(JSON.parse(answer.body));
  };
  const kinds = ["mutating", "validating"];
  const readConfigurations = (name: ClusterName) => Promise.all(kinds.map((kind) => callCluster(name, "GET", kind)));
  const readEntries = async (name: ClusterName): Promise<WebhookEntry[]> =>
    (await readConfigurations(name)).flatMap(({ webhooks = [] }) => webhooks);
  const readOwners = async (name: ClusterName) =>
    (await readConfigurations(name)).flatMap(({ metadata }) => metadata.annotations?.["postern.dev/identity"] ?? []);
  /** Edits the webhook configurations in a cluster, as kubectl would. */
  const editConfigurations = async (
    name: ClusterName,
    change: (object: { metadata: Record<string, object>; webhooks: WebhookEntry[] }) => void,
  ) => {
    for (const kind of kinds) {
      const object = await callCluster(name, "GET", kind);
      change(object);
      await callCluster(name, "PUT", kind, object);
    }
  };
  const readFailurePolicies = async (name: ClusterName) =>
    Object.fromEntries((await readEntries(name)).map((entry) => [entry.name, entry.failurePolicy]));
  const readAllConfigurations = () => Promise.all(clusterNames.map(readConfigurations));

  it("the plan, the status and their JSON begin with account and region", async () => {
    const line = "partition aws, account 111111111111, region eu-west-1, stage prod";
    const plan = await requireSuccess("first", "deploy", "--plan-only");
    assert.equal(plan.stdout.split("\n")[0], line);
    await requireSuccess("first", "deploy", "--harden");
    for (const name of clusterNames) assert.deepEqual(await readOwners(name), [identities.first, identities.first]);
    const status = await run("first", "status");
    assert.equal(status.stdout.split("\n")[0], line);
    for (const words of [["deploy", "--plan-only"], ["status"]]) {
      const [verb = "", ...more] = words;
      const { stdout } = await run("first", verb, ...more, "-o", "json");
      assert.deepEqual(Object.entries(JSON.parse(stdout)).slice(0, 4), [
        ["partition", "aws"],
        ["account", "111111111111"],
        ["region", "eu-west-1"],
        ["stage", "prod"],
      ]);
    }
  });

  it("commands with the credentials of the second account change and delete no entry of the first", async () => {
    const before = await readAllConfigurations();
    const refusal = `cluster east has its entries from ${identities.first}, not from ${identities.second}; `;
    const refused = await run("second", "deploy");
    assert.deepEqual([refused.code, refused.text.startsWith(refusal)], [1, true], refused.text);
    assert.deepEqual([...accounts.second.cloudformation.stacks], []);

    await requireSuccess("second", "deploy", "--write", join(checkout.folder, "entries"));
    for (const [verb, ...words] of [
      ["deploy"],
      ["destroy", "--yes"],
      ["destroy", "--configs-only", "--yes"],
      ["rotate"],
    ] as const) {
      const { code, text } = await run("second", verb, ...words);
      assert.deepEqual([code === 0, text.includes(refusal)], [false, true], `${verb}: ${text}`);
    }
    await requireSuccess("second", "destroy", "--yes", "--with-data", "--forget", "east", "--forget", "west");
    const { code, text } = await run("second", "arm", "always-pull-images");
    assert.deepEqual([code, text], [1, "stage prod has no function for always-pull-images, or none that is live\n"]);
    assert.deepEqual(await readAllConfigurations(), before);
  });

  it("a command for another account or region than postern.yaml states fails at once", async () => {
    await writeConfig(`stages: { prod: { account: "111111111111", region: eu-west-1 } }\n`);
    const { recordedCalls } = accounts.second;
    recordedCalls.length = 0;
    const words = [["deploy"], ["deploy", "--plan-only"], ["destroy", "--yes"], ["rotate"], ["status"]];
    for (const [verb = "", ...more] of [
      ...words,
      ["arm", "always-pull-images"],
      ["disarm", "always-pull-images", "--for=2m"],
    ]) {
      const { code, text } = await run("second", verb, ...more);
      const sentence =
        "stage prod is in region eu-west-1, as stages.prod in postern.yaml says, and this command runs in region us-east-1\n";
      assert.deepEqual([code, text], [2, sentence]);
    }
    assert.deepEqual(recordedCalls, []);
    await writeConfig(`stages: { prod: { account: "111111111111", region: us-east-1 } }\n`);
    const { code, text } = await run("second", "deploy");
    assert.match(
      text,
      /^stage prod is in account 111111111111, as .* says, and this command runs in account 222222222222\n$/,
    );
    assert.deepEqual([code, recordedCalls.map(({ action }) => action)], [2, ["sts:GetCallerIdentity"]]);
    await writeConfig(`stages: { prod: { account: "111111111111", region: eu-west-1 } }\n`);
    await requireSuccess("first", "deploy", "--plan-only");
    await writeConfig();
  });

  it("entries without the annotation of their stage are adopted only if they call this stage", async () => {
    const dropAnnotation = ({ metadata }: { metadata: Record<string, object> }) => {
      metadata.annotations = {};
    };
    await editConfigurations("east", dropAnnotation);
    const refused = await run("second", "deploy", "--cluster", "east");
    assert.match(
      refused.text,
      /cluster east has entries that call https:\S+ without the annotation postern\.dev\/identity, /,
    );
    assert.doesNotMatch(refused.text, /\.[\w-]{86}/);
    assert.deepEqual(await readOwners("east"), []);
    await requireSuccess("first", "deploy");
    assert.deepEqual(await readOwners("east"), [identities.first, identities.first]);
  });

  it("entries can be removed without access to AWS, but not entries of another region or stage name", async () => {
    const closedEndpoints = { AWS_ENDPOINT_URL: "https://127.0.0.1:9", AWS_ENDPOINT_URL_STS: "https://127.0.0.1:9" };
    const { env } = accounts.first.actAs("operator");
    const removeEntries = async (variables: Record<string, string>, cluster: ClusterName, stage = "prod") => {
      const words = ["--configs-only", "--yes", "--stage", stage, "--cluster", cluster, "--kubeconfig", kubeconfig];
      const allVariables = { ...env, ...closedEndpoints, ...variables };
      const { code, stdout, stderr } = await checkout.postern(allVariables, "destroy", ...words);
      return { code, text: `${stdout}${stderr}` };
    };
    for (const [variables, stage] of [
      [{ AWS_REGION: "us-east-1" }, "prod"],
      [{}, "test"],
    ] as const) {
      const { code, text } = await removeEntries(variables, "east", stage);
      assert.deepEqual([code, text.includes(`from ${identities.first}, not from aws::`)], [1, true], text);
    }
    assert.equal((await removeEntries({}, "east")).code, 0);
    await writeConfig(`stages: { prod: { account: "111111111111", region: eu-west-1 } }\n`);
    assert.equal((await removeEntries({ AWS_ACCESS_KEY_ID: "", AWS_SECRET_ACCESS_KEY: "" }, "west")).code, 0);
    await writeConfig();
    for (const name of clusterNames) assert.deepEqual(await readEntries(name), []);
    await requireSuccess("first", "deploy");
    for (const name of clusterNames) assert.equal((await readFailurePolicies(name))[guardEntry], "Fail");
  });

  it("clusters move to another stage without a moment in which an entry is missing", async () => {
    await requireSuccess("second", "deploy", "--write", `${checkout.folder}/moved`);
    assert.deepEqual(await readOwners("east"), [identities.first, identities.first]);
    for (const name of clusterNames) {
      await editConfigurations(name, ({ metadata }) => {
        metadata.annotations = { ...metadata.annotations, "postern.dev/identity": identities.second };
      });
      const output = (await run("first", "deploy")).text;
      assert.match(output, new RegExp(`has its entries from ${identities.second}, not from ${identities.first}`));
      await requireSuccess("second", "deploy", "--cluster", name);
      assert.equal((await readFailurePolicies(name))[guardEntry], "Fail");
    }
    const forget = clusterNames.flatMap((name) => ["--forget", name]);
    assert.match((await requireSuccess("first", "destroy", "--yes", ...forget)).text, /stage prod is deleted/);
    assert.deepEqual(await readOwners("west"), [identities.second, identities.second]);
    assert.equal((await run("second", "status")).code, 0);
  });

  /** Deletes the bucket of the second stage with its objects, as a person would by mistake. */
  const deleteBucket = async () => {
    const { region, endpoint, credentials } = accounts.second.actAs("operator");
    const s3 = new S3({ region, endpoint, credentials, forcePathStyle: true });
    const [Bucket = ""] = (await s3.listBuckets({})).Buckets?.flatMap(({ Name = "" }) => Name) ?? [];
    const { Contents = [] } = await s3.listObjectsV2({ Bucket });
    for (const { Key } of Contents) await s3.deleteObject({ Bucket, Key });
    await s3.deleteBucket({ Bucket });
    return { s3, Bucket };
  };

  it("rules that fail closed in a cluster still fail closed after the bucket is lost", async () => {
    const { s3, Bucket } = await deleteBucket();
    const before = await readAllConfigurations();
    const refused = await run("second", "rotate", "--unused-for=1m");
    assert.match(refused.text, /has no bucket: .*; postern deploy creates it\n/);
    const plan = await requireSuccess("second", "deploy", "--plan-only");
    assert.match(plan.text, /cluster east\n {2}~ no release records its entries; postern deploy compares them/);
    assert.doesNotMatch(plan.text, /is missing/);
    const { text } = await requireSuccess("second", "deploy");
    assert.match(text, /the bucket of this stage was deleted, with all its releases; it is created again/);
    assert.match(text, /rollbacks to earlier releases are not possible any more/);
    assert.match(text, /release r1 is live in east, west/);
    assert.deepEqual(await readAllConfigurations(), before);
    const { Policy = "" } = await s3.getBucketPolicy({ Bucket });
    assert.match(Policy, /aws:SecureTransport/);
    assert.match((await requireSuccess("second", "deploy")).text, /nothing to do: release r1 is live/);
  });

  it("after the bucket is lost, the new releases begin with the live versions, so rollbacks are possible", async () => {
    await deleteBucket();
    await writeConfig("", 4, "audit");
    await requireSuccess("second", "deploy");
    assert.equal((await readFailurePolicies("east"))[guardEntry], "Fail");
    assert.match((await requireSuccess("second", "rollback", "always-pull-images")).text, /is at version 1/);
    await writeConfig();
    await requireSuccess("second", "deploy");
  });

  it("`--soften` lets a rule fail open again only in the named cluster, and refuses unknown rules", async () => {
    await requireSuccess("second", "deploy", "--cluster", "east", "--soften", "deny-service-external-ips");
    assert.deepEqual(
      await Promise.all(clusterNames.map(async (name) => (await readFailurePolicies(name))[guardEntry])),
      ["Ignore", "Fail"],
    );
    const { code, text } = await run("second", "deploy", "--soften", "deny-service-external-ip");
    assert.deepEqual(
      [code, /, not "deny-service-external-ip"; did you mean deny-service-external-ips\?$/m.test(text)],
      [2, true],
      text,
    );
  });

  it("URLs of a lost key are accepted until all clusters have new ones", async () => {
    const { region, endpoint, credentials } = accounts.second.actAs("operator");
    await new SSM({ region, endpoint, credentials }).deleteParameter({ Name: "/postern/prod/keys" });
    const readUrls = async (name: ClusterName) => (await readEntries(name)).map(({ clientConfig }) => clientConfig.url);
    const listFailures = async (entries: WebhookEntry[]) =>
      (await probeEntries(entries)).flatMap(({ ok, sentence }) => (ok ? [] : [sentence]));
    const oldEastUrls = await readUrls("east");
    const oldWestEntries = await readEntries("west");
    const { text } = await requireSuccess("second", "deploy", "--cluster", "east");
    assert.match(text, /keys: URLs in clusters are signed by a key that this stage doesn't have any more/);
    assert.notDeepEqual(await readUrls("east"), oldEastUrls);
    assert.deepEqual(await readEntries("west"), oldWestEntries);
    const readAllEntries = async () =>
      [(await Promise.all(clusterNames.map(readEntries))).flat(), oldWestEntries].flat();
    assert.deepEqual(await listFailures(await readAllEntries()), []);
    await requireSuccess("second", "deploy");
    assert.notDeepEqual(await readEntries("west"), oldWestEntries);
    assert.deepEqual(await listFailures(await readAllEntries()), []);
    // No cluster uses the lost key any more, so the next deployment drops this key.
    await requireSuccess("second", "deploy");
    assert.equal((await listFailures(oldWestEntries)).length, oldWestEntries.length);
    assert.deepEqual(await listFailures(await readEntries("west")), []);
    assert.match((await requireSuccess("second", "deploy")).text, /nothing to do/);
  });
});
