import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import { Failure } from "postern/failure";
import type { Capabilities } from "postern/needs";
import type { AdmissionRequest } from "postern/review";
import { createRecordedCapabilities, openRule, readRows } from "postern/test";
import { buildPodUrl, parseNetwork } from "./pod-address.ts";

type AddressRow = { ip: string; network: string; expected: boolean };
const rows = readRows<{ unreserved: AddressRow[]; reserved: AddressRow[] }>(import.meta.filename);

const { decide } = await openRule(import.meta.dirname);

const buildPod = (metadata: object = {}) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    name: "a",
    namespace: "shop",
    uid: "u1",
    labels: { "deletion-guard.postern.dev/cleans-up": "" },
    ...metadata,
  },
  spec: { nodeName: "n", containers: [] },
  status: { phase: "Running", podIP: "127.0.0.1" },
});
const buildNamespace = (metadata: object = {}) => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name: "shop", ...metadata },
});

describe("deletion-guard", () => {
  const sent: string[] = [];
  let status: number;
  let seconds: number;
  let settings: object;
  beforeEach(() => {
    sent.length = 0;
    status = 202;
    seconds = 0;
    settings = { cleanUp: "http://{ip}/{namespace}/{name}/{uid}", addresses: ["127.0.0.1"] };
  });

  const buildCapabilities = (...objects: { metadata: { name: string } }[]): Capabilities => ({
    ...createRecordedCapabilities({ objects }),
    http: async ({ method = "GET", url }) => {
      sent.push(`${method} ${url}`);
      return { status, body: "" };
    },
  });
  /** Returns the outcome of the clean-up for a refusal, or whether the pod is deleted or kept. */
  const deletePod = async (capabilities: Capabilities, overrides: Partial<AdmissionRequest> = {}) => {
    const userInfo = { username: "jane", groups: ["developers"] };
    const request: AdmissionRequest = {
      uid: "review",
      kind: { group: "", version: "v1", kind: "Pod" },
      resource: { group: "", version: "v1", resource: "pods" },
      name: "a",
      namespace: "shop",
      operation: "DELETE",
      userInfo,
      oldObject: buildPod(),
      ...overrides,
    };
    const now = new Date(1_800_000_000_000 + seconds * 1000);
    const { outcome } = await decide("validate", request, { settings, now, capabilities });
    return outcome.allowed ? "deleted" : (outcome.audit?.["clean-up"] ?? "kept");
  };
  const buildEviction = (overrides: object = {}): Partial<AdmissionRequest> => {
    const object = {
      apiVersion: "policy/v1",
      kind: "Eviction",
      metadata: { name: "a", namespace: "shop" },
      ...overrides,
    };
    return { operation: "CREATE", subResource: "eviction", object, oldObject: null };
  };
  const call = "POST http://127.0.0.1/shop/a/u1";

  it("deletion-guard starts the clean-up once for any number of deletions and evictions", async () => {
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    assert.equal(await deletePod(capabilities), "it was started");
    for (const days of [0, 1, 20, 40]) {
      seconds = days * 24 * 3600;
      assert.equal(await deletePod(capabilities), "it was started before");
      assert.equal(await deletePod(capabilities, buildEviction()), "it was started before");
    }
    assert.deepEqual(sent, [call]);
  });
  it("deletion-guard starts the clean-up once for concurrent requests", async () => {
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, (_, index) => deletePod(capabilities, { uid: `${index}` })),
    );
    assert.equal(outcomes.filter((outcome) => outcome === "it was started").length, 1);
    assert.deepEqual(sent, [call]);
  });
  it("deletion-guard starts the clean-up once for concurrent requests with the same uid", async () => {
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => deletePod(capabilities)));
    assert.equal(outcomes.filter((outcome) => outcome === "it was started").length, 1);
    assert.deepEqual(sent, [call]);
  });
  it("deletion-guard repeats the call after every answer other than 2xx, also after a redirect", async () => {
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    for (status of [500, 302, 404]) assert.equal(await deletePod(capabilities), `it could not be started: ${status}`);
    status = 200;
    assert.equal(await deletePod(capabilities), "it was started");
    assert.deepEqual(sent, [call, call, call, call]);
  });
  it("deletion-guard repeats another review's call after a minute if the ledger has no result for it", async () => {
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    const unfinished = { until: 1_800_000_000_000 + 60_000, isDone: false };
    await capabilities.ledger("deletion-guard").change(["u1"], () => [unfinished]);
    assert.equal(await deletePod(capabilities), "it was started before");
    seconds = 60;
    assert.equal(await deletePod(capabilities), "it was started");
  });
  it("deletion-guard keeps the pod if the ledger fails, and repeats the call after a minute", async () => {
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    const ledger = capabilities.ledger("deletion-guard");
    // The first change stores the call, and the second one stores its result.
    let changes = 0;
    const change: typeof ledger.change = async (...change) => {
      if (++changes === 2) throw new Failure(503, "the time is up");
      return ledger.change(...change);
    };
    const failing = { ...capabilities, ledger: () => ({ change }) };
    const http = async () => {
      throw new Failure(503, "it did not answer in time");
    };
    assert.equal(await deletePod({ ...failing, http }), "it could not be started: it did not answer in time");
    assert.equal(await deletePod(capabilities), "it was started before");
    seconds = 60;
    changes = 0;
    assert.equal(await deletePod(failing), "it was started");
    assert.equal(await deletePod(capabilities), "it was started before");
    seconds = 120;
    assert.equal(await deletePod(capabilities), "it was started");
    assert.deepEqual(sent, [call, call]);
  });
  it("deletion-guard admits the deletion of a pod that was replaced by a pod with the same name", async () => {
    assert.equal(await deletePod(buildCapabilities(buildPod({ uid: "u2" }), buildNamespace())), "deleted");
    assert.deepEqual(sent, []);
  });
  it("deletion-guard admits the deletion of a pod that is marked only in the review", async () => {
    assert.equal(await deletePod(buildCapabilities(buildPod({ labels: {} }), buildNamespace())), "deleted");
    assert.equal(await deletePod(buildCapabilities(buildNamespace())), "deleted");
    assert.deepEqual(sent, []);
  });
  it("deletion-guard starts the clean-up when a collection is deleted by a request without a name", async () => {
    assert.equal(await deletePod(buildCapabilities(buildPod(), buildNamespace()), { name: "" }), "it was started");
    assert.deepEqual(sent, [call]);
  });
  it("deletion-guard starts no clean-up on a dry run", async () => {
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    assert.equal(await deletePod(capabilities, { dryRun: true }), "kept");
    assert.equal(await deletePod(capabilities, buildEviction({ deleteOptions: { dryRun: ["All"] } })), "kept");
    assert.deepEqual(sent, []);
  });
  it("deletion-guard calls the URL of `check` on a dry run, and decides by its answer", async () => {
    settings = { ...settings, finished: { annotation: "", check: "http://{ip}/done" } };
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    assert.equal(await deletePod(capabilities, { dryRun: true }), "deleted");
    status = 404;
    assert.equal(await deletePod(capabilities, { dryRun: true }), "kept");
    assert.deepEqual(sent, ["GET http://127.0.0.1/done", "GET http://127.0.0.1/done"]);
  });
  it("deletion-guard admits the deletion and the eviction of a pod that is already being deleted", async () => {
    const pod = buildPod({ deletionTimestamp: "2026-01-01T00:00:00Z" });
    assert.equal(await deletePod(buildCapabilities(pod, buildNamespace()), { oldObject: pod }), "deleted");
    assert.equal(await deletePod(buildCapabilities(pod, buildNamespace()), buildEviction()), "deleted");
  });
  it("deletion-guard admits deletions in an ending namespace, unless endingNamespaces is set", async () => {
    const namespace = buildNamespace({ deletionTimestamp: "2026-01-01T00:00:00Z" });
    assert.equal(await deletePod(buildCapabilities(buildPod(), namespace)), "deleted");
    assert.deepEqual(sent, []);
    settings = { ...settings, endingNamespaces: true };
    assert.equal(await deletePod(buildCapabilities(buildPod(), namespace)), "it was started");
  });
  it("deletion-guard admits a forced deletion by the users and groups of its settings only", async () => {
    const capabilities = buildCapabilities(buildPod(), buildNamespace());
    const options = { gracePeriodSeconds: 0 };
    // The default settings allow this user.
    const byCollector = { userInfo: { username: "system:serviceaccount:kube-system:pod-garbage-collector" } };
    assert.equal(await deletePod(capabilities, { options, ...byCollector }), "deleted");
    assert.equal(
      await deletePod(capabilities, { ...buildEviction({ deleteOptions: options }), ...byCollector }),
      "deleted",
    );
    settings = { ...settings, force: { groups: ["operators"] } };
    assert.equal(
      await deletePod(capabilities, { options, userInfo: { username: "john", groups: ["operators"] } }),
      "deleted",
    );
    assert.deepEqual(sent, []);
    assert.equal(await deletePod(capabilities, { options }), "it was started");
    assert.equal(
      await deletePod(capabilities, { options: { gracePeriodSeconds: 1 }, ...byCollector }),
      "it was started before",
    );
    assert.equal(await deletePod(capabilities, byCollector), "it was started before");
  });
  it("deletion-guard throws if the URL of `check` can't be called, so that the failurePolicy decides", async () => {
    settings = { finished: { annotation: "", check: "http://{ip}/done" }, addresses: ["127.0.0.1"] };
    const http = async () => assert.fail("unreachable");
    await assert.rejects(deletePod({ ...buildCapabilities(buildPod(), buildNamespace()), http }), /unreachable/);
  });
  it("deletion-guard escapes the name, namespace and uid of a pod in a URL", () => {
    const pod = {
      metadata: { name: "../a?b#c", namespace: "$&", uid: "{name}/{ip}" },
      status: { podIPs: [{ ip: "fd00::1" }] },
    };
    assert.equal(
      buildPodUrl("https://{ip}:1/{namespace}/{name}?of={uid}", pod, ["fd00::/8"]),
      "https://[fd00::1]:1/%24%26/..%2Fa%3Fb%23c?of=%7Bname%7D%2F%7Bip%7D",
    );
  });
});

describe("an address of a pod", () => {
  const isCallable = (ip: string, ...networks: string[]) =>
    buildPodUrl("http://{ip}/", { status: { podIP: ip } }, networks) !== undefined;

  it("an address of a pod is allowed within a listed network", () => {
    for (const { ip, network, expected } of rows.unreserved)
      assert.equal(isCallable(ip, network), expected, `${ip} in ${network}`);
    assert.ok(!isCallable("10.1.2.3"));
  });
  it("an address of a pod is refused in a reserved range, unless a network within that range is listed", () => {
    const reserved =
      "127.0.0.1 169.254.169.254 ::1 fe80::1 fd00:ec2::254 0.0.0.0 :: ::ffff:169.254.169.254 ::169.254.169.254 " +
      "64:ff9b::169.254.169.254 2002:a9fe:a9fe::1";
    for (const ip of reserved.split(" "))
      assert.equal(isCallable(ip, "0.0.0.0/0", "::/0", "fd00::/8", "128.0.0.0/1", "fe00::/7", "2000::/3"), false, ip);
    for (const { ip, network, expected } of rows.reserved)
      assert.equal(isCallable(ip, network), expected, `${ip} in ${network}`);
  });
  it("an address of a pod is allowed in the notation of IPv4 and of IPv6, by a network in either notation", () => {
    assert.ok(isCallable("::ffff:10.1.2.3", "10.0.0.0/8"));
    assert.ok(isCallable("::ffff:a01:203", "10.0.0.0/8"));
    assert.ok(isCallable("10.1.2.3", "::ffff:10.0.0.0/104"));
  });
  it("an address of a pod is refused in any other notation", () => {
    const addresses =
      "10.0.0 10.0.0.256 010.0.0.1 0x0a.0.0.1 1:2:3:4:5:6:7 1:2:3:4:5:6:7:8:9 ::1:: ::: 12345:: g:: ::1.2.3 " +
      "fe80::1%eth0 1:2:3:4:5:6:7::8 localhost";
    for (const text of ["", "10.0.0.1 ", ...addresses.split(" ")]) {
      assert.equal(parseNetwork(text), undefined, text);
      assert.equal(isCallable(text, "0.0.0.0/0", "::/0"), false, text);
    }
    const networks = "10.0.0.1/8 10.0.0.0/33 10.0.0.0/-1 10.0.0.0/8/8 ::/129 fd00::1/8 ::ffff:10.0.0.0/8 10.0.0.0/";
    for (const text of networks.split(" ")) assert.equal(parseNetwork(text), undefined, text);
  });
});
