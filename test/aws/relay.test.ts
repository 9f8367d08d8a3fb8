import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import type { WebhookEntry } from "../../infra/webhooks/configurations.ts";
import { buildKubeconfig, type Checkout, openCheckout } from "../checkout.ts";
import { type RelaySurroundings, relayObjects, startRelay } from "../cluster/relay.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { findFreePort, type RunningProgram } from "../control-plane/process.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { loadJob, recordProgress } from "../trees.ts";
import { type Account, openAccount } from "./account.ts";

// Tests a stage whose cluster has a relay, from its first deployment to its deletion. test/cluster/relay.test.ts tests
// the relay itself.

const address = "127.53.0.20";

// A relay runs in a cluster. The API server calls it without a key, and it calls the functions with the cluster's key.
describe("a stage with a relay", await needs("moto", "API server", "relay"), () => {
  let account: Account;
  let cluster: TestCluster;
  let checkout: Checkout;
  let options: string[];
  let port: number;
  let relay: RunningProgram | undefined;
  /** The settings of the relay, but for the key. */
  let relaySettings: Omit<RelaySurroundings, "key">;

  const buildConfig = (failurePolicy: string, clusterYaml = "") =>
    `rules: { always-pull-images: { failurePolicy: ${failurePolicy} } }
clusters: { shop: { service: { name: "postern-relay/postern-relay:${port}", ca: relay/ca.crt }${clusterYaml} } }
`;
  /** Returns the options without `--ca`. */
  const getClusterOptions = () => options.slice(0, 4);
  const runPostern = (...words: string[]) => checkout.postern(account.actAs("pipeline").env, ...words);
  const succeed = async (...words: string[]) => {
    const { code, stdout, stderr } = await runPostern(...words);
    assert.equal(code, 0, stdout + stderr);
    return stdout + stderr;
  };
  const readKey = async () => (await succeed("key", "shop", "--stage", "test")).trim();
  const replaceRelay = async () => {
    await relay?.stop();
    relay = await startRelay(join(checkout.folder, "relay"), { ...relaySettings, key: await readKey() });
  };
  const configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/postern";
  const readEntries = async (): Promise<WebhookEntry[]> =>
    Object((await cluster.admin({ method: "GET", path: configurations })).body).webhooks ?? [];
  const createPod = async () => {
    const body = { metadata: { generateName: "a-" }, spec: { containers: [{ name: "a", image: "a:1" }] } };
    const answer = await cluster.admin({ method: "POST", path: "/api/v1/namespaces/default/pods", body });
    return { ...answer, policy: Object(answer.body).spec?.containers[0].imagePullPolicy };
  };
  /**
   * Starts to replace the key of the stage or of the cluster, and gives up after `patience` milliseconds. Returns the
   * steps so far, and a promise for the final sentence.
   */
  const rotate = async (keyOwner: "stage" | "cluster", patience: number) => {
    const { rotateStageKey, rotateClusterKey } =
      await checkout.load<typeof import("../../infra/rollout/rotate.ts")>("infra/rollout/rotate.ts");
    const steps: string[] = [];
    const text = await readFile(join(checkout.folder, "postern.yaml"), "utf8");
    const progress = recordProgress(steps);
    const job = await loadJob(checkout.folder, "functions", text, { ca: account.ca, progress });
    const waits = { unusedMilliseconds: 1000, maxMilliseconds: patience, pollMilliseconds: 300 };
    const rotation = keyOwner === "stage" ? rotateStageKey(job, waits) : rotateClusterKey(job, "shop", waits);
    return { steps, outcome: rotation.catch((error: Error) => error.message) };
  };

  before(async () => {
    port = await findFreePort();
    [account, cluster, checkout] = await Promise.all([
      openAccount("eu-west-1", { isInProcess: true }),
      bootCluster(await requireBinaries(), { flags: ["--service-cluster-ip-range=127.53.0.0/24"] }),
      openCheckout(["always-pull-images"]),
    ]);
    const folder = join(checkout.folder, "relay");
    await readOrCreateServerCertificate(folder, "postern-relay.postern-relay.svc");
    const ca = await checkout.write("ca.pem", account.ca);
    relaySettings = {
      service: `${address}:${port}`,
      certificate: join(folder, "server.crt"),
      systemCa: ca,
      postern: new URL(account.baseUrl).host,
      host: "localhost",
    };
    for (const object of relayObjects.filter(({ kind }) => ["Namespace", "Service"].includes(kind))) {
      const isService = object.kind === "Service";
      const spec = { ...object.spec, clusterIP: address, ports: [{ port, targetPort: "reviews" }] };
      const path = isService ? "/api/v1/namespaces/postern-relay/services" : "/api/v1/namespaces";
      const { code } = await cluster.admin({ method: "POST", path, body: isService ? { ...object, spec } : object });
      assert.equal(code, 201);
    }
    await checkout.write("postern.yaml", buildConfig("Fail"));
    const kubeconfig = await checkout.write("kubeconfig", buildKubeconfig({ shop: cluster }));
    options = ["--stage", "test", "--kubeconfig", kubeconfig, "--ca", ca];
    Object.assign(process.env, account.actAs("deployer").env);
  });
  after(async () => {
    await Promise.all([account?.stop(), cluster?.stop(), relay?.stop()]);
    await checkout?.remove();
  });

  it("the plan names the relay, and requires one address for all rules", async () => {
    const file = join(checkout.folder, "serverless.yml");
    const text = await readFile(file, "utf8");
    await writeFile(file, text.replace(/endpoint: http\b/, "endpoint: url"));
    const { code, stdout } = await runPostern("deploy", ...options, "--plan-only");
    await writeFile(file, text);
    assert.equal(code, 1);
    assert.match(
      stdout,
      /\n {2}its API server calls the relay postern-relay\/postern-relay, which must call .* the key /,
    );
    assert.match(stdout, /\nlimits\n {2}! the relay of cluster shop calls one address, and each function has a URL/);
  });

  it("`--write` writes entries that call the relay, without a key", async () => {
    await succeed("deploy", ...options, "--write", "written");
    const text = await readFile(join(checkout.folder, "written/shop.entries.yaml"), "utf8");
    assert.match(text, /service:\n +namespace: postern-relay\n +name: postern-relay\n +port: \d+\n +path: \/always-/);
    assert.doesNotMatch(text, /url:|\{key\}|relay:/);
  });

  it("a stage with a relay is deployed, and a second deployment has nothing to do", async () => {
    await replaceRelay();
    await succeed("deploy", ...options);
    const [entry] = await readEntries();
    const ca = await readFile(join(checkout.folder, "relay/ca.crt"));
    assert.deepEqual(entry?.clientConfig, {
      service: { namespace: "postern-relay", name: "postern-relay", path: "/always-pull-images/mutate", port },
      caBundle: ca.toString("base64"),
    });
    await waitUntil("pods were not changed in time", async () => (await createPod()).policy === "Always");
    assert.match(await succeed("deploy", ...options), /nothing to do: release r\d+ is live/);
    assert.match(await succeed("status", ...getClusterOptions()), /cluster shop, .*: 2 entries, all answer/);
  });

  it("status reports and deploy repairs a change of an entry that calls the relay", async () => {
    const body = [{ op: "replace", path: "/webhooks/0/clientConfig/service/port", value: 1 }];
    await cluster.admin({ method: "PATCH", path: configurations, body, contentType: "application/json-patch+json" });
    const { code, stdout } = await runPostern("status", ...getClusterOptions());
    assert.equal(code, 1);
    assert.match(stdout, new RegExp(`mutating entry .*: clientConfig.service.port is 1, not ${port}\n`));
    await succeed("deploy", ...options);
    await succeed("status", ...getClusterOptions());
  });

  it("a rollback restores entries that call the relay", async () => {
    const changedRule = ", rules: { always-pull-images: { timeoutSeconds: 5 } }";
    await checkout.write("postern.yaml", buildConfig("Ignore", changedRule));
    await succeed("deploy", ...options, "--soften", "always-pull-images");
    assert.equal((await readEntries())[0]?.timeoutSeconds, 5);
    await succeed("rollback", "--all", "--to", "r2", ...getClusterOptions());
    const [entry] = await readEntries();
    assert.deepEqual([entry?.timeoutSeconds, Object.keys(entry?.clientConfig ?? {})], [3, ["service", "caBundle"]]);
    await checkout.write("postern.yaml", buildConfig("Fail"));
    await succeed("deploy", ...options);
  });

  it("the old key is kept until a review with the new key has come through the relay", async () => {
    const { outcome } = await rotate("stage", 2000);
    assert.match(await outcome, /^no review with the new key came through the relay of shop; once it has the new key/);
    assert.equal((await createPod()).code, 201);
  });

  for (const keyOwner of ["stage", "cluster"] as const)
    it(`the key of a ${keyOwner} is replaced once the relay has the new key`, async () => {
      const { steps, outcome } = await rotate(keyOwner, 60_000);
      const advice = /^cluster shop: give its relay the new key now, which postern key shop --stage test prints/m;
      await waitUntil("nothing was said about the relay in time", () => advice.test(steps.join("\n")));
      assert.equal((await createPod()).policy, "Always");
      await replaceRelay();
      let isOver = false;
      outcome.then(() => {
        isOver = true;
      });
      while (!isOver) assert.equal((await createPod()).policy, "Always");
      assert.match(await outcome, /^the key(?: of shop)? is replaced/);
      assert.equal((await createPod()).policy, "Always");
    });

  it("the deletion of a stage with a relay deletes the entries", async () => {
    await succeed("destroy", ...getClusterOptions(), "--yes");
    assert.deepEqual(await readEntries(), []);
  });
});
