import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { parseAllDocuments } from "yaml";
import { describeCaseDifferences } from "../../infra/catalogue/case-differences.ts";
import { buildReview, evaluateCase, parseCases } from "../../infra/catalogue/cases.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath, type TestClusterRequest } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";

// Tests the recordings that `postern record` writes for the reviews of a real API server. Some of the rules read the
// cluster.
const program = fileURLToPath(new URL("../../infra/postern.js", import.meta.url));
/** The rules of the recording gateway. Some of them read the cluster. */
const rules = {
  "namespace-lifecycle": {},
  "limit-ranger": {},
  "always-pull-images": { mode: "warn" },
  "default-toleration-seconds": {},
  "pod-security": { mode: "audit", settings: { defaults: { enforce: "baseline" } } },
  "deny-service-external-ips": {},
  "event-rate-limit": {
    settings: { limits: [{ type: "Namespace", qps: 1, burst: 2 }] },
    exempt: { users: ["nobody"] },
  },
  "allowed-registries": { settings: { registries: ["registry.example.com"] } },
};

/** A request, and the code of the answer. */
type Row = TestClusterRequest & { code: number };
/** The requests before and after the test sends three events at the same time. */
const rows = readRows<{ beforeEvents: Row[]; afterEvents: Row[] }>(import.meta.filename);
/** A Pod that the test creates again and again (as a dry run), until the gateway gets a review of it. */
const firstPod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "first" },
  spec: { containers: [{ name: "a", image: "registry.example.com/app:1" }] },
};

describe("recordings of the gateway", await needs("API server"), () => {
  let cluster: TestCluster;
  let folder: string;
  let child: ChildProcess;
  let printed = "";

  before(async () => {
    const binaries = await requireBinaries();
    folder = await mkdtemp(join(tmpdir(), "postern-recorded-"));
    cluster = await bootCluster(binaries, { disable: ["ServiceAccount"] });
    await writeFile(join(folder, "kubeconfig"), buildKubeconfig({ prod: cluster }), { mode: 0o600 });
    const clusters = { prod: { connect: { kubeconfig: join(folder, "kubeconfig") } } };
    await writeFile(join(folder, "postern.yaml"), JSON.stringify({ rules, clusters }));
    const options = [...getConfigOptions(), "--to", join(folder, "to"), "--port", "0"];
    child = spawn(process.execPath, [program, "record", ...options]);
    for (const stream of [child.stdout, child.stderr])
      stream?.on("data", (chunk) => {
        printed += chunk;
      });
    const url = await waitForOutput(/Serving \d+ rules? at (\S+)\. /);
    const words = ["manifests", ...getConfigOptions(), "--url", url, "--ca", join(folder, ".postern/ca.crt")];
    const { stdout } = await promisify(execFile)(process.execPath, [program, ...words]);
    for (const document of parseAllDocuments(stdout)) {
      const body = document.toJS();
      if (!body.kind.endsWith("WebhookConfiguration")) continue;
      assert.equal((await cluster.admin({ method: "POST", path: getCollectionPath(body), body })).code, 201);
    }
    const path = "/api/v1/namespaces/default/pods?dryRun=All";
    for (let tries = 0; tries < 1000 && !printed.includes("Pod default/first"); tries++) {
      await cluster.admin({ method: "POST", path, body: firstPod });
      await wait(100);
    }
  });
  after(async () => {
    child?.kill("SIGKILL");
    await cluster?.stop();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  const getConfigOptions = () => ["--config", join(folder, "postern.yaml")];
  /** Waits until the program has printed a text that matches. Returns the text, or the pattern's group. */
  const waitForOutput = async (pattern: RegExp): Promise<string> => {
    for (let tries = 0; tries < 1000; tries++) {
      const [text, group = text] = pattern.exec(printed) ?? [];
      if (group !== undefined) return group;
      await wait(100);
    }
    return assert.fail(`the program did not print ${pattern}: ${printed}`);
  };
  const buildEvent = (name: string) => ({
    apiVersion: "v1",
    kind: "Event",
    metadata: { name },
    reason: "a",
    type: "Normal",
    involvedObject: { kind: "Pod", name: "good", namespace: "shop" },
  });

  it("recordings of the gateway are cases that pass, and have no secrets of the requests", async () => {
    const path = "/api/v1/namespaces/shop/events";
    const send = async ({ code: _, ...request }: Row) => (await cluster.admin(request)).code;
    for (const row of rows.beforeEvents) assert.equal(await send(row), row.code, row.path);
    const codes = await Promise.all(
      ["a", "b", "c"].map((name) => send({ method: "POST", path, body: buildEvent(name), code: 0 })),
    );
    // Any of the three parallel requests may be the one that exceeds the limit.
    assert.deepEqual(codes.toSorted(), [201, 201, 429]);
    for (const row of rows.afterEvents) assert.equal(await send(row), row.code, row.path);

    child.kill("SIGINT");
    const summary = await waitForOutput(/\d+ reviews recorded in .*/);
    const catalogue = await readCatalogue();
    let count = 0;
    for (const file of await readdir(join(folder, "to/prod"))) {
      const text = await readFile(join(folder, "to/prod", file), "utf8");
      assert.ok(!text.includes("sesame") && !text.includes(Buffer.from("open sesame").toString("base64")), file);
      const listed = catalogue.find(({ name }) => `${name}.yaml` === file);
      assert.ok(listed);
      const cases = parseCases(text, file, listed.phases);
      count += cases.length;
      for (const entry of cases)
        assert.deepEqual(
          describeCaseDifferences(entry, await evaluateCase(listed, entry, buildReview(listed, entry))),
          [],
          entry.name,
        );
    }
    assert.equal(summary, `${count} reviews recorded in ${join(folder, "to")}`);
  });
});
