import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import type { Case } from "#lib/recording/recording.ts";
import { bundleRule } from "../../infra/build/bundle.ts";
import { describeCaseDifferences } from "../../infra/catalogue/case-differences.ts";
import { buildReview, evaluateCase, parseCases } from "../../infra/catalogue/cases.ts";
import { type CatalogueRule, readCatalogue } from "../../infra/catalogue/registry.ts";
import type { PosternConfig } from "../../infra/config/config.ts";
import { listRecordingBucketSettings } from "../../infra/config/record-section.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { buildEndpointConfig, listServedRulesAndGroups } from "../../infra/project/served.ts";
import { runProgram } from "../checkout.ts";
import { close, listen } from "../listen.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { needs } from "../parts.ts";
import { launchMoto, type Moto, openStorage } from "./moto.ts";

// Tests functions that record their reviews into a bucket, and the command that fetches the recorded cases.
const root = fileURLToPath(new URL("../..", import.meta.url));
const region = "eu-west-1";
const signer = createTestSigner(1);
const environment = {
  PATH: process.env.PATH ?? "",
  POSTERN_KEYS: signer.publicKey,
  POSTERN_STAGE: "test",
  AWS_REGION: region,
  AWS_ACCESS_KEY_ID: "a",
  AWS_SECRET_ACCESS_KEY: "b",
  AWS_EC2_METADATA_DISABLED: "true",
};
const yaml = `
rules:
  always-pull-images: { record: { bucket: reviews, prefix: team/, share: 1 } }
  default-toleration-seconds: { mode: warn, record: { bucket: reviews, prefix: team/, share: 1 } }
  deny-service-external-ips: { record: { bucket: none, share: 1 } }
  always-deny: { exempt: { users: [] } }
clusters: { prod: }
groups: { defaults: [always-pull-images, default-toleration-seconds] }
`;

let folder: string;
let catalogue: CatalogueRule[];
let config: PosternConfig;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "postern-recorded-"));
  catalogue = await readCatalogue();
  config = parseConfig(yaml, catalogue);
  for (const listed of listServedRulesAndGroups(config, catalogue))
    await bundleRule(listed, buildEndpointConfig(config, listed), folder, {
      connections: {},
      recordingBuckets: listRecordingBucketSettings(config, listed),
    });
});
after(() => rm(folder, { recursive: true, force: true }));

const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqYW5lIn0.c2lnbmF0dXJl";
const buildPod = (name: string, specFields: object = {}) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "shop", annotations: { note: jwt } },
  spec: { containers: [{ name: "a", image: "a", env: [{ name: "API_TOKEN", value: "sesame" }] }], ...specFields },
});
const buildPodReview = (name: string, requestFields: object = {}, specFields: object = {}) => ({
  kind: "AdmissionReview",
  apiVersion: "admission.k8s.io/v1",
  request: {
    uid: `0000-${name}`,
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
    name,
    namespace: "shop",
    operation: "CREATE",
    userInfo: { username: "jane", groups: ["system:authenticated"] },
    object: buildPod(name, specFields),
    oldObject: null,
    dryRun: false,
    ...requestFields,
  },
});
const buildEvent = (path: string, review: object) => ({
  version: "2.0",
  rawPath: `/${signer.segment("prod")}/${path}`,
  headers: { "content-type": "application/json" },
  queryStringParameters: { timeout: "3s" },
  requestContext: { http: { method: "POST" }, timeEpoch: Date.now() },
  body: JSON.stringify(review),
});

/**
 * Calls a function with one event after another. Returns the function's answers, the reasons why it didn't record
 * reviews, and the number of lines that it logged. Its timers take `timeFactor` times as long, so that a bucket on a
 * slow machine answers in time.
 */
const runFunction = async (name: string, events: object[], env: Record<string, string>, { timeFactor = 40 } = {}) => {
  const code = `
    const { setTimeout } = globalThis;
    globalThis.setTimeout = (then, milliseconds, ...rest) => setTimeout(then, milliseconds * ${timeFactor}, ...rest);
    const { handler } = require(${JSON.stringify(join(folder, name, "index.cjs"))});
    const context = { getRemainingTimeInMillis: () => 5000 };
    (async () => {
      const answers = [];
      for (const event of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) answers.push(await handler(event, context));
      console.log("ANSWERS " + JSON.stringify(answers));
    })();`;
  const child = spawn(process.execPath, ["--eval", code], {
    env: { ...environment, ...env },
    stdio: ["pipe", "pipe", "inherit"],
  });
  child.stdin.end(JSON.stringify(events));
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) lines.push(line);
  const prefix = "ANSWERS ";
  const result = lines.find((line) => line.startsWith(prefix))?.slice(prefix.length);
  const answers = result === undefined ? assert.fail(lines.join("\n")) : JSON.parse(result);
  const logged = lines.filter((line) => !line.startsWith(prefix)).map((line) => JSON.parse(line));
  return { answers, unrecorded: logged.flatMap(({ unrecorded }) => unrecorded ?? []), lines: logged.length };
};

const runPostern = (...words: string[]) =>
  runProgram([join(root, "infra/postern.js"), ...words], {
    cwd: root,
    env: { ...environment, AWS_ENDPOINT_URL_S3: moto.url },
  });

let moto: Moto;

describe("a function that records into a bucket", await needs("moto"), () => {
  before(async () => {
    // With three elements a page, lists have several pages.
    process.env.MOTO_S3_DEFAULT_MAX_KEYS = "3";
    moto = await launchMoto();
    assert.equal(await openStorage(moto.url, region).createBucket("reviews"), undefined);
  });
  after(() => moto?.stop());

  const names = Array.from({ length: 9 }, (_, index) => `pod-${index}`);

  it("a function that records answers as usual, and records cases that pass", async () => {
    const events = [
      ...names.map((name) => buildEvent("defaults/mutate", buildPodReview(name))),
      buildEvent("defaults/mutate", buildPodReview("dry", { dryRun: true })),
    ];
    const { answers, unrecorded } = await runFunction("defaults", events, { AWS_ENDPOINT_URL_S3: moto.url });
    assert.deepEqual(unrecorded, []);
    for (const { statusCode, body } of answers)
      assert.deepEqual([statusCode, JSON.parse(body).response.allowed], [200, true]);

    const to = join(folder, "fetched");
    const recorded = await runPostern("record", "--from", "s3://reviews/team/", "--to", to, "--since", "1h");
    // Each review is recorded for two rules, but not the dry run.
    assert.deepEqual(recorded, { code: 0, stdout: `${2 * names.length} reviews recorded in ${to}\n`, stderr: "" });
    assert.deepEqual((await readdir(join(to, "prod"))).sort(), [
      "always-pull-images.yaml",
      "default-toleration-seconds.yaml",
    ]);
    for (const name of ["always-pull-images", "default-toleration-seconds"]) {
      const text = await readFile(join(to, `prod/${name}.yaml`), "utf8");
      for (const secret of [jwt, "sesame"]) assert.ok(!text.includes(secret));
      const listed = catalogue.find((listed) => listed.name === name);
      assert.ok(listed);
      const cases: Case[] = parseCases(text, name, listed.phases);
      assert.deepEqual(
        cases.map((entry) => entry.mutate?.metadata?.name),
        names,
      );
      for (const entry of cases) {
        assert.deepEqual(
          describeCaseDifferences(entry, await evaluateCase(listed, entry, buildReview(listed, entry))),
          [],
        );
        assert.ok(entry.becomes, "in mode warn, the recording also has the change that the rule would make");
      }
    }
  });

  it("`postern record` fetches at most the requested number of reviews, and only into an empty folder", async () => {
    const to = join(folder, "some");
    const recorded = await runPostern("record", "--from", "s3://reviews/team/prod/always", "--to", to, "--most", "4");
    const sentence = "prod/always-pull-images.yaml has 4 reviews, and gets no more; --most N takes more\n";
    assert.deepEqual([recorded.code, recorded.stderr], [0, sentence]);
    assert.equal(recorded.stdout, `4 reviews recorded in ${to}; left out: ${names.length - 4} beyond 4 of a rule\n`);
    const again = await runPostern("record", "--from", "s3://reviews", "--to", to);
    assert.deepEqual([again.code, again.stderr.split(";")[0]], [2, `--to ${to} is not empty`]);
    const none = await runPostern("record", "--from", "s3://nowhere", "--to", join(folder, "none"), "--region", region);
    assert.deepEqual([none.code, none.stderr], [3, "AWS: The specified bucket does not exist\n"]);
  });

  it("a function logs that its bucket doesn't exist, and still answers", async () => {
    const event = buildEvent("deny-service-external-ips/validate", buildPodReview("a"));
    const { answers, unrecorded, lines } = await runFunction("deny-service-external-ips", [event, event], {
      AWS_ENDPOINT_URL_S3: moto.url,
    });
    assert.deepEqual(
      answers.map(({ statusCode }: { statusCode: number }) => statusCode),
      [200, 200],
    );
    assert.deepEqual(unrecorded, ["s3 answers 404, NoSuchBucket", "s3 answers 404, NoSuchBucket"]);
    // For each of the two events, the function logs a line for the answer and a line for the failed recording.
    assert.equal(lines, 4);
  });
});

describe("a function that can't record", () => {
  const buildServiceEvent = () => buildEvent("deny-service-external-ips/validate", buildPodReview("a"));
  const name = "deny-service-external-ips";

  it("a function waits for a silent bucket only as long as the review's time allows", async () => {
    const silent = createServer(() => {});
    const port = await listen(silent);
    const { answers, unrecorded } = await runFunction(
      name,
      [buildServiceEvent()],
      { AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${port}` },
      { timeFactor: 1 },
    );
    await close(silent);
    assert.deepEqual([answers[0].statusCode, unrecorded], [200, ["it did not answer in time"]]);
  });

  it("a function answers if it has no AWS identity, or can't reach the bucket", async () => {
    const unreachable = { AWS_ENDPOINT_URL_S3: "http://127.0.0.1:1" };
    const closed = await runFunction(name, [buildServiceEvent()], unreachable);
    assert.deepEqual([closed.answers[0].statusCode, closed.unrecorded], [200, ["connect ECONNREFUSED 127.0.0.1:1"]]);
    const { unrecorded } = await runFunction(name, [buildServiceEvent()], { ...unreachable, AWS_ACCESS_KEY_ID: "" });
    assert.match(unrecorded[0], /^there is no AWS identity/);
  });

  it("a function does not record reviews that are too large", async () => {
    const large = { numbers: Array(150_000).fill(1_234_567) };
    const huge = { hostAliases: [{ hostnames: ["x".repeat(3_000_000)] }] };
    const events = [large, huge].map((spec) => buildEvent(`${name}/validate`, buildPodReview("a", {}, spec)));
    const { answers, unrecorded } = await runFunction(name, events, { AWS_ENDPOINT_URL_S3: "http://127.0.0.1:1" });
    assert.deepEqual([answers[0].statusCode, answers[1].statusCode], [200, 200]);
    assert.match(unrecorded[0], /^it has 12\d{5} bytes, but a recording may have at most 1048576$/);
    assert.equal(unrecorded[1], "it is too large to be recorded");
  });

  it("a function does not record if postern.yaml has no section record", async () => {
    const { answers, lines } = await runFunction(
      "always-deny",
      [buildEvent("always-deny/mutate", buildPodReview("a"))],
      {},
    );
    assert.deepEqual([answers[0].statusCode, lines], [200, 1]);
  });
});
