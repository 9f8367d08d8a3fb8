import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { buildKubeconfig } from "../checkout.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath, type TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { findFreePort, type RunningProgram } from "../control-plane/process.ts";
import { parsePage } from "../pages.ts";
import { serveTestRules, waitUntil } from "../parity/rule-server.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { needs } from "../parts.ts";
import { runVerb } from "../verb.ts";
import { type RelaySurroundings, relayObjects, startRelay } from "./relay.ts";

// Tests the relay of docs/relay.yaml between an API server and the gateway. The Service of the relay has a loopback
// address, which is in the API server's range of Service addresses. The API server connects to this address itself, so
// no kube-proxy is needed.

const address = "127.53.0.10";
const segment = createTestSigner(1).segment("local");
const yaml = "rules: { always-pull-images: { failurePolicy: Fail }, deny-service-external-ips: }";

const buildPod = (name: string, args: string[] = [], namespace = "default") => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace },
  spec: { containers: [{ name: "a", image: "a:1", args }] },
});
const buildService = (name: string, externalIPs: string[] = []) => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name, namespace: "default" },
  spec: { externalIPs, ports: [{ port: 80 }] },
});
const readMessage = ({ body }: TestClusterResponse) => String(body.message);

describe("a relay between an API server and the gateway", await needs("API server", "relay"), () => {
  let folder = "";
  let port = 0;
  let cluster: TestCluster;
  let gateway: Awaited<ReturnType<typeof openGateway>>;
  let surroundings: RelaySurroundings;
  /** The relays: proxies in the cluster that forward the API server's reviews to Postern's gateway. */
  let relays: RunningProgram[] = [];
  /** A promise for which each review waits. */
  let reviewGate: Promise<unknown> = Promise.resolve();

  const openGateway = async (keys: string) => {
    const catalogue = (await readCatalogue()).filter(({ name }) => yaml.includes(`${name}:`));
    const certificate = await readOrCreateServerCertificate(join(folder, keys), "127.0.0.1");
    return serveTestRules(catalogue, yaml, {
      certificate,
      wrapHandler: (_, handler) => async (review) => {
        await reviewGate;
        return handler(review);
      },
    });
  };
  /** Stops the relays, and starts this number of relays, with other surroundings in part. */
  const replaceRelays = async (count: number, changed: Partial<RelaySurroundings> = {}) => {
    await Promise.all(relays.map(({ stop }) => stop()));
    relays = [];
    while (relays.length < count) relays.push(await startRelay(folder, { ...surroundings, ...changed }));
  };
  const createObject = (object: { apiVersion: string; kind: string; metadata: { name: string } }, query = "") =>
    cluster.admin({ method: "POST", path: `${getCollectionPath(object)}${query}`, body: object });
  const runPostern = async (...words: string[]) => {
    const { code, stdout, stderr } = await runVerb(folder, [...words, "--config", join(folder, "postern.yaml")]);
    assert.equal(code, 0, stdout + stderr);
    return stdout;
  };
  const printManifests = () =>
    runPostern("manifests", "--service", `postern-relay/postern-relay:${port}`, "--ca", "relay.crt", "-o", "json");
  /** Sends only the head of a review directly to the relay, and returns the code of the answer. */
  const sendHead = async (headers: Record<string, string | number>): Promise<number | undefined> => {
    const ca = await readFile(join(folder, "relay.crt"));
    const options = { method: "POST", ca, headers, servername: "postern-relay.postern-relay.svc" };
    const reviewHead = request(`https://${address}:${port}/always-pull-images/mutate`, options);
    reviewHead.flushHeaders();
    const [response]: IncomingMessage[] = await once(reviewHead, "response");
    reviewHead.destroy();
    return response?.statusCode;
  };

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-relay-"));
    port = await findFreePort();
    const page = await readFile(new URL("../../docs/how-to/relay.md", import.meta.url), "utf8");
    const commands = parsePage(page).flatMap((block) => block.commands);
    const command = commands.find((text) => text.startsWith("openssl req ")) ?? assert.fail("no command");
    execFileSync("sh", ["-c", command], { cwd: folder, stdio: "ignore" });
    await writeFile(join(folder, "postern.yaml"), yaml);
    gateway = await openGateway("keys");
    surroundings = {
      service: `${address}:${port}`,
      certificate: join(folder, "relay.crt"),
      systemCa: join(folder, "keys/ca.crt"),
      postern: new URL(gateway.url).host,
      host: "localhost",
      key: segment,
    };
    cluster = await bootCluster(await requireBinaries(), { flags: ["--service-cluster-ip-range=127.53.0.0/24"] });
    for (const object of relayObjects) {
      const isService = object.kind === "Service";
      const spec = { ...object.spec, clusterIP: address, ports: [{ port, targetPort: "reviews" }] };
      const { code, body } = await createObject(isService ? { ...object, spec } : object);
      assert.equal(code, 201, JSON.stringify(body));
    }
    await replaceRelays(2);
    for (const object of JSON.parse(await printManifests()).items)
      assert.equal((await createObject(object)).code, 201, object.kind);
    await waitUntil("the API server does not call the relay", async () => {
      const { code } = await createObject(buildService("first", ["192.0.2.1"]), "?dryRun=All");
      return code === 403;
    });
  });
  after(async () => {
    await cluster?.stop();
    await replaceRelays(0);
    await gateway?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it("webhook entries for the relay have no URL and no key, and exempt the relay's namespace", async () => {
    const text = await printManifests();
    assert.ok(!text.includes(segment.split(".")[1] ?? ""));
    const entries = JSON.parse(text).items.flatMap(({ webhooks = [] }) => webhooks);
    const paths = ["always-pull-images/mutate", "always-pull-images/validate", "deny-service-external-ips/validate"];
    assert.deepEqual(
      entries.map(({ clientConfig }: { clientConfig: { service: object } }) => clientConfig.service),
      paths.map((path) => ({ namespace: "postern-relay", name: "postern-relay", port, path: `/${path}` })),
    );
    for (const { name, clientConfig, namespaceSelector } of entries) {
      assert.deepEqual(Object.keys(clientConfig), ["service", "caBundle"], name);
      assert.ok(namespaceSelector.matchExpressions[0].values.includes("postern-relay"), name);
    }
  });

  it("the relay has a manifest, docs/relay.yaml, that postern check allows", async () => {
    const manifest = fileURLToPath(new URL("../../docs/relay.yaml", import.meta.url));
    assert.match(await runPostern("check", manifest), /\n7 objects: 6 allowed, 1 changed\n$/);
  });

  it("the relay is named in the output of postern status", async () => {
    await writeFile(join(folder, "kubeconfig"), buildKubeconfig({ local: cluster }));
    const stdout = await runPostern("status", "--kubeconfig", "kubeconfig");
    assert.match(stdout, new RegExp(`, calls the relay postern-relay/postern-relay:${port}\n`));
    assert.match(stdout, /\nnothing is missing or left over\n/);
  });

  it("the relay forwards reviews, so that rules change, deny and admit objects", async () => {
    const { code, body } = await createObject(buildPod("changed"));
    assert.equal(code, 201, JSON.stringify(body));
    assert.match(JSON.stringify(body.spec), /"imagePullPolicy":"Always"/);
    const denied = await createObject(buildService("denied", ["192.0.2.1"]));
    assert.equal(denied.code, 403);
    assert.match(
      readMessage(denied),
      /denied the request: services "denied" is forbidden: Use of external IPs is denied/,
    );
    assert.equal((await createObject(buildService("admitted"))).code, 201);
  });

  it("the relay forwards a review with an object of almost 3 MB, as large as the API server accepts", async () => {
    const [{ code, body }, reports] = await gateway.during(() =>
      createObject(buildPod("large", ["x".repeat(2_900_000)]), "?dryRun=All"),
    );
    assert.equal(code, 201, JSON.stringify(body).slice(0, 500));
    assert.deepEqual(
      reports.map(({ phase }) => phase),
      ["mutate"],
    );
  });

  it("the relay refuses reviews of more than 10 MiB, and reviews of unknown length", async () => {
    const largestLength = 10 * 1024 * 1024;
    const [codes, reports] = await gateway.during(() =>
      Promise.all([sendHead({ "content-length": largestLength + 1 }), sendHead({ "transfer-encoding": "chunked" })]),
    );
    assert.deepEqual(codes, [413, 413]);
    assert.deepEqual(reports, []);
  });

  it("the relay still forwards all reviews if one of two replicas stops", async () => {
    await relays.shift()?.stop();
    for (let number = 0; number < 20; number++)
      assert.equal((await createObject(buildPod(`one-${number}`), "?dryRun=All")).code, 201);
  });

  it("the relay answers before the API server's own timeout if Postern is slow", async () => {
    const { promise, resolve } = Promise.withResolvers();
    reviewGate = promise;
    try {
      // The entry of always-pull-images has the failurePolicy Fail, the entry of the other rule has Ignore.
      const { code, body } = await createObject(buildPod("slow"));
      assert.equal(code, 500);
      assert.match(
        String(body.message),
        /"always-pull-images\.postern\.dev": .*: Postern did not answer the relay in time$/,
      );
      assert.equal((await createObject(buildService("slow", ["192.0.2.1"]), "?dryRun=All")).code, 201);
    } finally {
      resolve(undefined);
      reviewGate = Promise.resolve();
    }
  });

  it("the relay forwards nothing to a server whose certificate has another CA or another name", async () => {
    const otherGateway = await openGateway("other");
    try {
      for (const changed of [{ postern: new URL(otherGateway.url).host }, { host: "rules.example.com" }]) {
        await replaceRelays(1, changed);
        const [refused, reports] = await gateway.during(() => createObject(buildPod("unknown")));
        assert.equal(refused.code, 500);
        assert.match(readMessage(refused), /: the relay reached no Postern$/);
        assert.deepEqual([...reports, ...otherGateway.reports], []);
        const readLog = () => relays[0]?.tail() ?? "";
        await waitUntil("the relay logs nothing", () => readLog().includes("/always-pull-images/mutate?timeout=3s"));
        assert.ok(!readLog().includes(segment));
      }
    } finally {
      await otherGateway.stop();
    }
  });

  it("the relay isn't called if its own certificate has expired", async () => {
    const words = ["x509", "-in", "relay.crt", "-signkey", "relay.key", "-days", "-1", "-out", "expired.crt"];
    execFileSync("openssl", words, { cwd: folder, stdio: "ignore" });
    await copyFile(join(folder, "relay.key"), join(folder, "expired.key"));
    await replaceRelays(1, { certificate: join(folder, "expired.crt") });
    const [refused, reports] = await gateway.during(() => createObject(buildPod("expired")));
    assert.match(readMessage(refused), /tls: failed to verify certificate: x509: certificate has expired/);
    assert.deepEqual(reports, []);
  });

  it("the relay's pods can be started if no replica runs: they need no relay, and meet Pod Security", async () => {
    await replaceRelays(0);
    const refused = await createObject(buildPod("down"));
    assert.equal(refused.code, 500);
    assert.match(
      readMessage(refused),
      /failed calling webhook "always-pull-images\.postern\.dev": failed to call webhook: Post "https:\/\/postern-relay\.postern-relay\.svc:\d+\/always-pull-images\/mutate\?timeout=3s": .*connection refused$/,
    );
    assert.equal((await createObject(buildService("open", ["192.0.2.1"]))).code, 201);
    const { spec } = relayObjects.find(({ kind }) => kind === "Deployment").spec.template;
    const metadata = { name: "relay", namespace: "postern-relay" };
    const replica = { apiVersion: "v1", kind: "Pod", metadata, spec };
    const answer = await createObject(replica);
    assert.equal(answer.code, 201, readMessage(answer));
    assert.deepEqual(answer.warnings, []);
    assert.equal((await createObject(buildPod("lax", [], "postern-relay"))).code, 403);
    await replaceRelays(2);
    assert.equal((await createObject(buildPod("up"))).code, 201);
  });
});
