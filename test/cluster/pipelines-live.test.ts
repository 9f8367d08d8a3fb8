import assert from "node:assert/strict";
import { chmod, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseAllDocuments } from "yaml";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getObjectApiPath } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";
import { type GitLabJob, readPipeline, runBash, toGitHubScript, toGitLabScript, type Workflow } from "../pipelines.ts";
import { readRows } from "../rows.ts";

// Tests the nightly job `live` of the pipelines. It fails if there is a new denial, or if something can't be read.
const github = toGitHubScript(await readPipeline<Workflow>("github"), "live");
const { live: gitlabJob = {} } = await readPipeline<Record<string, GitLabJob>>("gitlab");
const gitlab = toGitLabScript(gitlabJob, { LIVE: gitlabJob.variables?.LIVE ?? "" });
const { config, objects, newcomer } = readRows<{ config: string; objects: object[]; newcomer: object }>(
  import.meta.filename,
);
const reader = await readFile(fileURLToPath(new URL("../../infra/pipelines/live-reader.yml", import.meta.url)), "utf8");

describe("the nightly check of a cluster", await needs("API server"), () => {
  let cluster: TestCluster;
  let checkout: Checkout;
  /** The file with the findings of earlier runs. */
  let knownFindings: string;

  const apply = async (object: object) => {
    const path = `${getObjectApiPath(object)}?fieldManager=test&fieldValidation=Strict`;
    const contentType = "application/apply-patch+yaml";
    const { code, body } = await cluster.admin({ method: "PATCH", path, contentType, body: object });
    assert.ok(code === 200 || code === 201, JSON.stringify(body));
  };
  const pods = "/api/v1/namespaces/shop/pods";
  /** Waits until the controller has created a Pod, and returns its name. A Pod named `ignored` doesn't count. */
  const waitForPod = async (ignored?: string): Promise<string> => {
    const { body } = await cluster.admin({ method: "GET", path: pods });
    const names = Object(body).items.map(({ metadata }: { metadata: { name: string } }) => metadata.name);
    const podName = names.find((name: string) => name !== ignored);
    return podName ?? wait(100).then(() => waitForPod(ignored));
  };

  before(async () => {
    const controllers = ["deployment-controller", "replicaset-controller", "serviceaccount-controller"];
    [cluster, checkout] = await Promise.all([
      bootCluster(await requireBinaries(), { rbac: true, controllers, users: { nightly: ["postern-live"] } }),
      openCheckout(["allowed-registries", "deny-service-external-ips"]),
    ]);
    knownFindings = join(checkout.folder, "postern-check/known.sarif");
    await chmod(await checkout.write("bin/npm", "#!/bin/sh\n"), 0o755);
    await checkout.write("postern.yaml", config);
    const unreachable = { ...cluster, server: "https://127.0.0.1:1" };
    await checkout.write("kubeconfig", buildKubeconfig({ shop: cluster, gone: unreachable }, "nightly"));
    await checkout.write("janes", buildKubeconfig({ closed: cluster }, "jane"));
    for (const document of parseAllDocuments(reader)) await apply(document.toJS());
    for (const object of objects) await apply(object);
    await waitForPod();
  });
  after(async () => {
    await cluster?.stop();
    await checkout?.remove();
  });

  /** Runs the job of GitHub. Returns its exit code, the lines of its summary, and the reports in its folder. */
  const run = async (name = "shop") => {
    const summary = await checkout.write("summary", "");
    const env = { GITHUB_STEP_SUMMARY: summary, PATH: `${checkout.folder}/bin:${process.env.PATH}`, CLUSTER: name };
    const { code, stdout } = await runBash(checkout.folder, github, env);
    const lines = (await readFile(summary, "utf8")).split("\n").map((line) => line.trim());
    const errors = stdout.match(/^::error .*$/gm) ?? [];
    return { code, lines, errors, files: (await readdir(join(checkout.folder, "postern-check"))).sort() };
  };
  const assertLastLine = (lines: string[], expected: string) => assert.equal(lines.filter(Boolean).at(-1), expected);
  const readResults = async (name: string) => {
    const { runs } = JSON.parse(await readFile(join(checkout.folder, "postern-check", name), "utf8"));
    return runs[0].results;
  };

  it("the nightly check reports every denial as new in its first run, and writes all reports", async () => {
    const { code, lines, errors, files } = await run();
    assert.equal(code, 1);
    assert.equal(lines[0], "### What is new in shop");
    assert.ok(lines.includes("postern-check/known.sarif doesn't exist, so every finding is new"), lines.join("\n"));
    assertLastLine(lines, "5 objects: 3 allowed, 2 denied (2 new)");
    assert.equal(errors.length, 2);
    const reports = ["github", "json", "reports.json", "sarif", "txt", "xml"].map((name) => `check.${name}`);
    assert.deepEqual(files, [...reports, "known.sarif"]);
    const { items } = JSON.parse(await readFile(join(checkout.folder, "postern-check/check.reports.json"), "utf8"));
    const shop = items.find(({ metadata }: { metadata: { namespace: string } }) => metadata.namespace === "shop");
    assert.equal(shop.summary.fail, 2);
  });

  it("the nightly check passes if all denials are known, and shows them only in the reports", async () => {
    const { code, lines, errors } = await run();
    assert.equal(code, 0, lines.join("\n"));
    assertLastLine(lines, "5 objects: 3 allowed, 2 denied (0 new)");
    assert.ok(!lines.some((line) => line.includes("denied by")));
    assert.deepEqual(errors, []);
    assert.equal((await readResults("check.sarif")).length, 2);
  });

  it("the nightly check recognizes a known finding after a controller has replaced the Pod", async () => {
    const pod = await waitForPod();
    await cluster.admin({ method: "DELETE", path: `${pods}/${pod}?gracePeriodSeconds=0` });
    assert.notEqual(await waitForPod(pod), pod);
    const { code, lines } = await run();
    assert.equal(code, 0, lines.join("\n"));
    assertLastLine(lines, "5 objects: 3 allowed, 2 denied (0 new)");
  });

  it("the nightly check fails with a reason for an unreadable cluster, and keeps the known findings", async () => {
    await apply(newcomer);
    const before = await readFile(knownFindings, "utf8");
    for (const [name, sentence] of [
      ["gone", /^the kinds of the cluster can't be read: .*ECONNREFUSED/],
      ["closed", /^services could not be read whole: the API server answers 403: .*User "jane" cannot list/],
    ] as const) {
      const { code, lines } = await run(name);
      assert.equal(code, 1);
      assert.ok(
        lines.some((line) => sentence.test(line)),
        lines.join("\n"),
      );
      assert.equal(await readFile(knownFindings, "utf8"), before);
    }
  });

  it("the nightly check fails for a new denial, shows no other denials, and passes in the next run", async () => {
    const { code, lines, errors } = await run();
    assert.equal(code, 1);
    const denied = lines.filter((line) => line.endsWith(" denied") && !line.includes(": "));
    assert.deepEqual(denied, ["Service shop/till denied"]);
    assertLastLine(lines, "6 objects: 3 allowed, 3 denied (1 new)");
    assert.equal(errors.length, 1);
    assert.equal((await run()).code, 0);
  });

  for (const [text, why] of [
    ["", "is empty"],
    ["{", "is not a SARIF report of postern check"],
    ['{"runs":[{"tool":{"driver":{"name":"Other"}},"results":[]}]}', "is not a SARIF report of postern check"],
  ] as const)
    it(`the check reports every denial as new, and why, for the known findings ${JSON.stringify(text)}`, async () => {
      await writeFile(knownFindings, text);
      const { code, lines } = await run();
      assert.equal(code, 1);
      assert.ok(lines.includes(`postern-check/known.sarif ${why}, so every finding is new`), lines.join("\n"));
      assertLastLine(lines, "6 objects: 3 allowed, 3 denied (3 new)");
      assert.equal((await run()).code, 0);
    });

  it("in GitLab's pipeline, too, the nightly check fails for new denials, and passes in the next run", async () => {
    const env = { PATH: `${checkout.folder}/bin:${process.env.PATH}`, CLUSTER: "shop" };
    await rm(knownFindings);
    const codes = [];
    for (const _ of ["first", "again"]) codes.push((await runBash(checkout.folder, gitlab, env)).code);
    assert.deepEqual(codes, [1, 0]);
    assert.deepEqual(gitlabJob.allow_failure, { exit_codes: [3] });
  });
});
