import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { Browser } from "playwright-core";
import { parseAllDocuments } from "yaml";
import { buildKubeconfig, runProgram } from "../checkout.ts";
import { type ConsoleGateway, openBrowser, program, serveWithConsole } from "../console.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { createTestFolder } from "../folders.ts";
import { applyObject } from "../parity/policy-fixtures.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";

const folder = await createTestFolder();

describe("the console beside a real API server", await needs("API server", "chromium"), () => {
  let cluster: TestCluster;
  let gateway: ConsoleGateway;
  let browser: Browser;

  before(async () => {
    cluster = await bootCluster(await requireBinaries(), { disable: ["ServiceAccount"] });
    const kubeconfig = join(folder, "kubeconfig");
    await writeFile(kubeconfig, buildKubeconfig({ local: cluster }), { mode: 0o600 });
    gateway = await serveWithConsole(folder, {
      rules: { "always-pull-images": {}, "allowed-registries": { settings: { registries: ["ghcr.io"] } } },
      groups: { defaults: ["always-pull-images"] },
      clusters: { local: { connect: { kubeconfig } } },
    });
    const words = ["--config", join(folder, "postern.yaml"), "--url", gateway.url, "--kubeconfig", kubeconfig];
    words.push("--ca", join(folder, ".postern/ca.crt"));
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const { stdout, stderr } = await runProgram([program, "manifests", ...words], { env });
    const manifests = parseAllDocuments(stdout).map((document) => document.toJS());
    assert.ok(manifests.length > 0, stderr);
    for (const manifest of manifests) {
      const { code, body } = await applyObject(cluster.admin, manifest);
      assert.ok(code < 300, JSON.stringify(body));
    }
    browser = await openBrowser();
  });
  after(async () => {
    await browser?.close();
    await gateway?.stop();
    await cluster?.stop();
  });

  const create = async (name: string, image: string) => {
    const pod = { apiVersion: "v1", kind: "Pod", metadata: { name }, spec: { containers: [{ name: "a", image }] } };
    return cluster.admin({ method: "POST", path: "/api/v1/namespaces/default/pods", body: pod });
  };

  it("the console shows a review as soon as it was answered, with the change by a rule of a group", async (test) => {
    const page = await browser.newPage();
    page.setDefaultTimeout(60_000);
    await page.goto(gateway.console);
    await page.getByText("connected", { exact: true }).waitFor();
    // The API server calls new webhooks only some time after they were registered.
    await waitUntil(
      "the API server did not call the validating webhook",
      async () => (await create("first", "docker.io/nginx:1")).code === 403,
    );
    let probes = 0;
    await waitUntil("the API server did not call the mutating webhook", async () =>
      /"imagePullPolicy":"Always"/.test(JSON.stringify((await create(`probe-${probes++}`, "ghcr.io/app:1")).body)),
    );
    const sent = performance.now();
    assert.equal((await create("second", "ghcr.io/app:1")).code, 201);
    const review = page.getByRole("link", { name: /defaults mutate \S+ CREATE Pod default\/second changed/ });
    await review.waitFor();
    test.diagnostic(`shown after ${Math.round(performance.now() - sent)} ms`);
    const denial = /allowed-registries validate \S+ CREATE Pod default\/first denied/;
    await page.getByRole("link", { name: denial }).first().waitFor();
    await review.click();
    // The added line of the diff names the rule that added it.
    const addedLine = page.locator("tr:has(td.added)").first();
    await addedLine.waitFor();
    assert.match(String(await addedLine.textContent()), /imagePullPolicy: Always.*always-pull-images$/);
    // The name of the group's matchCondition.
    await page.getByText("concerns-a-member").waitFor();
    await page.close();
  });
});
