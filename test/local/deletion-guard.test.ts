import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, describe, it } from "node:test";
import { createLiveCapabilities } from "#lib/cluster/live.ts";
import { evaluateRule } from "#lib/decide.ts";
import { Failure } from "#lib/failure.ts";
import type { Capabilities } from "#lib/needs.ts";
import { recorded } from "#lib/recorded-answers.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { isAllowed, parseNetwork } from "../../functions/deletion-guard/address.ts";
import deletionGuard from "../../functions/deletion-guard/rule.ts";
import { addressFor } from "../../functions/deletion-guard/template.ts";

const mark = { "deletion-guard.postern.dev/cleans-up": "" };
const standing = (metadata: object = {}, status: object = {}) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "a", namespace: "shop", uid: "u1", labels: mark, ...metadata },
  spec: { nodeName: "n", containers: [] },
  status: { phase: "Running", podIP: "127.0.0.1", ...status },
});
const namespace = (metadata: object = {}) => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name: "shop", ...metadata },
});

describe("a pod that has to clean up", () => {
  const asked: string[] = [];
  let status = 202;
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    response.writeHead(status, { location: "http://127.0.0.1:1/elsewhere" }).end();
  });
  let port: number;
  let clock: number;
  let settings: object;
  before(async () => {
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    // Listening on a port, it has one.
    port = (server.address() as AddressInfo).port;
  });
  beforeEach(() => {
    asked.length = 0;
    status = 202;
    clock = 0;
    settings = { cleanUp: `http://{ip}:${port}/{namespace}/{name}/{uid}`, addresses: ["127.0.0.1"] };
  });
  after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  const around = (...objects: object[]): Capabilities => {
    // What a table of cases would hold.
    const world = recorded({ objects: objects as never });
    return { ...world, http: (request) => createLiveCapabilities({})("local", 5000).http(request) };
  };
  let reviews = 0;
  const judge = async (world: Capabilities, more: Partial<AdmissionRequest> = {}) => {
    reviews++;
    const request: AdmissionRequest = {
      uid: `review-${reviews}`,
      kind: { group: "", version: "v1", kind: "Pod" },
      resource: { group: "", version: "v1", resource: "pods" },
      name: "a",
      namespace: "shop",
      operation: "DELETE",
      userInfo: { username: "jane", groups: ["developers"] },
      oldObject: standing(),
      ...more,
    };
    const { outcome } = await evaluateRule(deletionGuard, "validate", request, {
      name: "deletion-guard",
      mode: "enforce",
      settings: mergeWithDefaults(deletionGuard.settings ?? {}, settings),
      now: new Date(1_800_000_000_000 + clock * 1000),
      world,
    });
    return outcome.allowed ? "goes" : (outcome.audit?.["clean-up"] ?? "stays");
  };
  const eviction = (more: object = {}): Partial<AdmissionRequest> => {
    const object = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: "a", namespace: "shop" }, ...more };
    return { operation: "CREATE", subResource: "eviction", object, oldObject: null };
  };
  const call = "POST /shop/a/u1";

  it("is told once, however often somebody tries", async () => {
    const world = around(standing(), namespace());
    assert.equal(await judge(world), "it was started");
    for (const days of [0, 1, 20, 40]) {
      clock = days * 24 * 3600;
      assert.equal(await judge(world), "it was started before");
      assert.equal(await judge(world, eviction()), "it was started before");
    }
    assert.deepEqual(asked, [call]);
  });
  it("is told once by those who come at once", async () => {
    const world = around(standing(), namespace());
    const said = await Promise.all(Array.from({ length: 20 }, () => judge(world)));
    assert.equal(said.filter((one) => one === "it was started").length, 1);
    assert.deepEqual(asked, [call]);
  });
  it("is told once by those who say that they are the same", async () => {
    const world = around(standing(), namespace());
    const said = await Promise.all(Array.from({ length: 20 }, () => judge(world, { uid: "the same" })));
    assert.equal(said.filter((one) => one === "it was started").length, 1);
    assert.deepEqual(asked, [call]);
  });
  it("is told again where it didn't take it, and nobody goes where it points", async () => {
    const world = around(standing(), namespace());
    for (status of [500, 302, 404]) assert.equal(await judge(world), `it could not be started: ${status}`);
    status = 200;
    assert.equal(await judge(world), "it was started");
    assert.deepEqual(asked, [call, call, call, call]);
  });
  it("is told by somebody else where the one who was about to never did", async () => {
    const world = around(standing(), namespace());
    const lost = { until: 1_800_000_000_000 + 60_000, isDone: false };
    await world.ledger("deletion-guard").change("u1", () => lost);
    assert.equal(await judge(world), "it was started before");
    clock = 60;
    assert.equal(await judge(world), "it was started");
  });
  it("is another one where it has the name only", async () => {
    assert.equal(await judge(around(standing({ uid: "u2" }), namespace())), "goes");
    assert.deepEqual(asked, []);
  });
  it("is none where only the review says so", async () => {
    assert.equal(await judge(around(standing({ labels: {} }), namespace())), "goes");
    assert.equal(await judge(around(namespace())), "goes");
    assert.deepEqual(asked, []);
  });
  it("is known where a whole collection is deleted, too", async () => {
    assert.equal(await judge(around(standing(), namespace()), { name: "" }), "it was started");
    assert.deepEqual(asked, [call]);
  });
  it("is told nothing on a dry run, whoever asks for one", async () => {
    const world = around(standing(), namespace());
    assert.equal(await judge(world, { dryRun: true }), "stays");
    assert.equal(await judge(world, eviction({ deleteOptions: { dryRun: ["All"] } })), "stays");
    assert.deepEqual(asked, []);
  });
  it("is asked on a dry run whether it has finished, and then goes or stays as it would", async () => {
    settings = { ...settings, finished: { annotation: "", check: `http://{ip}:${port}/done` } };
    const world = around(standing(), namespace());
    assert.equal(await judge(world, { dryRun: true }), "goes");
    status = 404;
    assert.equal(await judge(world, { dryRun: true }), "stays");
    assert.deepEqual(asked, ["GET /done", "GET /done"]);
  });
  it("goes when it is being deleted already", async () => {
    const gone = { deletionTimestamp: "2026-01-01T00:00:00Z" };
    assert.equal(await judge(around(standing(gone), namespace()), { oldObject: standing(gone) }), "goes");
    assert.equal(await judge(around(standing(gone), namespace()), eviction()), "goes");
  });
  it("goes with its namespace, unless that has to wait as well", async () => {
    const ending = namespace({ deletionTimestamp: "2026-01-01T00:00:00Z" });
    assert.equal(await judge(around(standing(), ending)), "goes");
    assert.deepEqual(asked, []);
    settings = { ...settings, endingNamespaces: true };
    assert.equal(await judge(around(standing(), ending)), "it was started");
  });
  it("goes where somebody who may forces it", async () => {
    const world = around(standing(), namespace());
    const options = { gracePeriodSeconds: 0 };
    const collector = { userInfo: { username: "system:serviceaccount:kube-system:pod-garbage-collector" } };
    assert.equal(await judge(world, { options, ...collector }), "goes");
    assert.equal(await judge(world, { ...eviction({ deleteOptions: options }), ...collector }), "goes");
    settings = { ...settings, force: { groups: ["operators"] } };
    assert.equal(await judge(world, { options, userInfo: { username: "john", groups: ["operators"] } }), "goes");
    assert.deepEqual(asked, []);
    assert.equal(await judge(world, { options }), "it was started");
    assert.equal(await judge(world, { options: { gracePeriodSeconds: 1 }, ...collector }), "it was started before");
    assert.equal(await judge(world, collector), "it was started before");
  });
  it("leaves it to the failurePolicy where its check can't be asked", async () => {
    settings = { finished: { annotation: "", check: "http://{ip}:1/done" }, addresses: ["127.0.0.1"] };
    await assert.rejects(judge(around(standing(), namespace())), Failure);
  });
  it("has its own names in its address only as names", () => {
    const odd = {
      metadata: { name: "../a?b#c", namespace: "$&", uid: "{name}/{ip}" },
      status: { podIPs: [{ ip: "fd00::1" }] },
    };
    assert.equal(
      addressFor("https://{ip}:1/{namespace}/{name}?of={uid}", odd, ["fd00::/8"]),
      "https://[fd00::1]:1/%24%26/..%2Fa%3Fb%23c?of=%7Bname%7D%2F%7Bip%7D",
    );
  });
});

describe("an address", () => {
  const fits = (ip: string, ...listed: string[]) =>
    isAllowed(
      ip,
      listed.map(parseNetwork).filter((network) => network !== undefined),
    );

  it("is called in a network that is listed, to the bit", () => {
    assert.deepEqual(
      ["10.0.0.0", "10.0.127.255", "10.0.128.0", "9.255.255.255", "110.0.0.1"].map((ip) => fits(ip, "10.0.0.0/17")),
      [true, true, false, false, false],
    );
    assert.deepEqual(
      ["2001:db8:8000::", "2001:db8:ffff:ffff::1", "2001:db8:7fff::", "2001:db9::"].map((ip) =>
        fits(ip, "2001:db8:8000::/33"),
      ),
      [true, true, false, false],
    );
    assert.ok(fits("1.2.3.4", "0.0.0.0/0") && !fits("1.2.3.4", "::/0") && !fits("2001:db8::1", "0.0.0.0/0"));
    assert.ok(fits("10.1.2.3", "10.1.2.3") && !fits("10.1.2.2", "10.1.2.3"));
    assert.ok(!fits("10.1.2.3"));
  });
  it("of the host, the link or who hands out credentials is called only where it is listed itself", () => {
    const special = [
      "127.0.0.1",
      "169.254.169.254",
      "::1",
      "fe80::1",
      "fd00:ec2::254",
      "0.0.0.0",
      "::",
      "::ffff:169.254.169.254",
      "::169.254.169.254",
      "64:ff9b::169.254.169.254",
      "2002:a9fe:a9fe::1",
    ];
    for (const ip of special)
      assert.equal(fits(ip, "0.0.0.0/0", "::/0", "fd00::/8", "128.0.0.0/1", "fe00::/7", "2000::/3"), false, ip);
    assert.ok(fits("169.254.20.10", "169.254.20.0/24") && !fits("169.254.169.254", "169.254.20.0/24"));
    assert.ok(
      fits("169.254.169.254", "169.254.0.0/16") && fits("::1", "::1") && fits("fd00:ec2::254", "fd00:ec2::254/128"),
    );
    assert.ok(!fits("fd00:ec2:1::1", "fd00::/8") && fits("fd00:ec3::1", "fd00::/8"));
    assert.ok(fits("2002:a01:203::1", "2002:a00::/24") && fits("::a01:203", "::10.0.0.0/104"));
    // The host stays itself among the addresses that IPv4 once had here.
    assert.ok(!fits("::1", "::/96") && !fits("::", "::/96"));
  });
  it("of IPv4 is the same where it is written as one of IPv6", () => {
    assert.ok(
      fits("::ffff:10.1.2.3", "10.0.0.0/8") &&
        fits("::ffff:a01:203", "10.0.0.0/8") &&
        fits("10.1.2.3", "::ffff:10.0.0.0/104"),
    );
  });
  it("is none in any other spelling", () => {
    const wrong = [
      "",
      "10.0.0",
      "10.0.0.256",
      "010.0.0.1",
      "0x0a.0.0.1",
      "10.0.0.1 ",
      "1:2:3:4:5:6:7",
      "1:2:3:4:5:6:7:8:9",
      "::1::",
      ":::",
      "12345::",
      "g::",
      "::1.2.3",
      "fe80::1%eth0",
      "1:2:3:4:5:6:7::8",
      "localhost",
    ];
    for (const text of wrong) {
      assert.equal(parseNetwork(text), undefined, text);
      assert.equal(fits(text, "0.0.0.0/0", "::/0"), false, text);
    }
    for (const text of [
      "10.0.0.1/8",
      "10.0.0.0/33",
      "10.0.0.0/-1",
      "10.0.0.0/8/8",
      "::/129",
      "fd00::1/8",
      "::ffff:10.0.0.0/8",
      "10.0.0.0/",
    ])
      assert.equal(parseNetwork(text), undefined, text);
  });
});

describe("the settings of deletion-guard", () => {
  const wrong = (given: object) =>
    deletionGuard.checkSettings?.(mergeWithDefaults(deletionGuard.settings ?? {}, given));
  const addresses = ["10.0.0.0/8"];
  const template = "http:// or https://, a host, and a path with {name}, {namespace} and {uid} where they belong";
  const named = "a host, or {ip} in its place, and nothing else before the path";
  const mistakes: [string | undefined, object][] = [
    [undefined, {}],
    [undefined, { cleanUp: "https://{ip}/{name}", addresses }],
    [undefined, { cleanUp: "https://tidy.example:8443/{namespace}?pod={name}&uid={uid}" }],
    ["must have a label or an annotation as mark", { mark: { label: "" } }],
    [
      "must have an annotation, a condition or a check that says when a pod is finished",
      { finished: { annotation: "" } },
    ],
    ["must say under addresses where pods may be called, for cleanUp calls them", { cleanUp: "http://{ip}/" }],
    ['must have networks such as 10.0.0.0/8 or fd00::/8 as addresses, not "10.0.0.1/8"', { addresses: ["10.0.0.1/8"] }],
    ["must have networks such as 10.0.0.0/8 or fd00::/8 as addresses, not 10", { addresses: [10] }],
    ["must have a certificate in PEM as ca, or nothing", { ca: "no" }],
    ...[
      "ftp://tidy.example/",
      "tidy.example",
      "https:///x",
      "http://tidy.example/{pod}",
      "http://tidy.example/{ip",
      "http://tidy.example/{ip}",
      "http://tidy.example?of={ip}",
      "http://{ip}/{ip}",
    ].map((cleanUp): [string, object] => [`must have ${template} as cleanUp, not "${cleanUp}"`, { cleanUp }]),
    ...[
      "http://{name}.example/",
      "http://a{ip}/",
      "http://me:secret@tidy.example/",
      "http://{ip}@tidy.example/",
      "http://{ip}:{uid}/",
    ].map((check): [string, object] => [
      `must have ${named} as finished.check, not "${check}"`,
      { finished: { check }, addresses },
    ]),
  ];
  for (const [sentence, given] of mistakes)
    it(sentence ?? `may be ${JSON.stringify(given)}`, () => assert.equal(wrong(given), sentence));
});
