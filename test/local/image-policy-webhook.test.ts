import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { createLiveCapabilities } from "#lib/cluster/live.ts";
import { evaluateRule } from "#lib/decide.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import imagePolicyWebhook from "../../functions/image-policy-webhook/rule.ts";
import { openCertificate } from "../../infra/keys/keys.ts";

describe("an image policy backend", () => {
  const folders: string[] = [];
  const certificate = async () => {
    const folder = await mkdtemp(join(tmpdir(), "postern-images-"));
    folders.push(folder);
    return openCertificate(folder, "127.0.0.1");
  };
  interface Asked {
    method: string | undefined;
    url: string | undefined;
    type: string | undefined;
    body: string;
  }
  type Reply = { status: number; body: string; headers?: Record<string, string> } | "reset" | "silence";

  const asked: Asked[] = [];
  /** The next answers; the last one stays. */
  let replies: Reply[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { method, url, headers } = request;
    asked.push({ method, url, type: headers["content-type"], body });
    const reply = replies.length > 1 ? replies.shift() : replies[0];
    if (reply === undefined || reply === "silence") return;
    if (reply === "reset") request.socket.destroy();
    else response.writeHead(reply.status, reply.headers).end(reply.body);
  });
  const yes = { status: 200, body: '{"status": {"allowed": true}}' };
  const no = { status: 200, body: '{"status": {"allowed": false, "reason": "unsigned"}}' };
  const broken = { status: 500, body: "" };

  let backend: { url: string; ca: string };
  let otherCa: string;
  let world: ReturnType<typeof createLiveCapabilities>;
  before(async () => {
    const own = await certificate();
    otherCa = (await certificate()).ca;
    server.setSecureContext({ key: own.key, cert: own.cert });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    // Listening on a port, it has one.
    backend = { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}/policy`, ca: own.ca };
  });
  beforeEach(() => {
    asked.length = 0;
    world = createLiveCapabilities({});
  });
  after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  });

  const resource = { group: "", version: "v1", resource: "pods" };
  const review = (image: string): AdmissionRequest => ({
    uid: "u",
    kind: { group: "", version: "v1", kind: "Pod" },
    resource,
    name: "a",
    namespace: "shop",
    operation: "CREATE",
    userInfo: {},
    object: { metadata: { name: "a" }, spec: { containers: [{ name: "c", image }] } },
  });
  const judge = async (image: string, settings: object = {}, milliseconds = 5000) => {
    const { outcome } = await evaluateRule(imagePolicyWebhook, "validate", review(image), {
      name: "image-policy-webhook",
      mode: "enforce",
      settings: mergeWithDefaults(imagePolicyWebhook.settings ?? {}, mergeWithDefaults({ backend }, settings)),
      now: new Date(),
      world: world("local", milliseconds),
    });
    return outcome.status?.message ?? outcome.audit;
  };
  const denial = 'pods "a" is forbidden: ';
  const quick = { imagePolicy: { retryBackoff: 1 } };

  it("is asked as upstream asks", async () => {
    replies = [yes];
    assert.deepEqual(await judge("ok:1"), {});
    assert.deepEqual(asked, [
      {
        method: "POST",
        url: "/policy?timeout=10s",
        type: "application/json",
        body: '{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","metadata":{},"spec":{"containers":[{"image":"ok:1"}],"namespace":"shop"},"status":{"allowed":false}}',
      },
    ]);
    replies = [no];
    assert.equal(await judge("bad:1"), `${denial}image policy webhook backend denied one or more images: unsigned`);
  });

  it("is asked again after what may pass, up to five times", async () => {
    const later = { status: 503, body: "", headers: { "retry-after": "1" } };
    replies = [broken, { ...broken, status: 504 }, later, "reset", yes];
    assert.deepEqual(await judge("ok:1", quick), {});
    assert.equal(asked.length, 5);

    asked.length = 0;
    replies = [broken];
    assert.equal(await judge("ok:2", quick), `${denial}the image policy webhook backend answers 500`);
    assert.equal(asked.length, 5);
  });

  it("is asked once where that would be no use", async () => {
    for (const status of [404, 401, 503]) {
      asked.length = 0;
      replies = [{ status, body: "" }];
      assert.equal(await judge("ok:1", quick), `${denial}the image policy webhook backend answers ${status}`);
      assert.equal(asked.length, 1);
    }
  });

  it("is waited for no longer than the review has time, and then the rule still decides", async () => {
    replies = [broken];
    assert.equal(
      await judge("ok:1", { imagePolicy: { retryBackoff: 250 } }, 1000),
      `${denial}the image policy webhook backend answers 500`,
    );
    assert.ok(asked.length < 5, "it would have been asked five times");

    replies = [broken, "silence"];
    assert.equal(await judge("ok:1", quick, 500), `${denial}the image policy webhook backend answers 500`);

    replies = ["silence"];
    assert.match(String(await judge("ok:1", {}, 500)), /could not ask 127\.0\.0\.1:\d+: it did not answer in time$/);
    assert.deepEqual(await judge("ok:1", { imagePolicy: { defaultAllow: true } }, 500), { "failed-open": "true" });
  });

  it("approves the same images for a while, and refuses every pod anew", async () => {
    replies = [yes];
    const settings = { imagePolicy: { allowTTL: 3 } };
    await judge("ok:1", settings);
    replies = [no];
    assert.deepEqual(await judge("ok:1", settings), {});
    assert.match(String(await judge("ok:2", settings)), /unsigned/);
    replies = [yes];
    assert.deepEqual(await judge("ok:2", settings), {});
    assert.equal(asked.length, 3);

    await wait(3100);
    replies = [no];
    assert.match(String(await judge("ok:1", settings)), /unsigned/);
  });

  it("approves nothing for longer where it is set to", async () => {
    replies = [yes];
    const settings = { imagePolicy: { allowTTL: -1 } };
    await judge("ok:1", settings);
    await judge("ok:1", settings);
    assert.equal(asked.length, 2);
  });

  it("of which nothing could be heard is asked again by the next pod", async () => {
    replies = [{ status: 200, body: "<html>" }];
    const settings = { imagePolicy: { defaultAllow: true } };
    assert.deepEqual(await judge("ok:1", settings), { "failed-open": "true" });
    replies = [no];
    assert.match(String(await judge("ok:1", settings)), /unsigned/);
  });

  it("is told nothing where it isn't who it should be, or nobody is there", async () => {
    replies = [yes];
    const stranger = { backend: { ca: otherCa } };
    assert.match(String(await judge("ok:1", stranger)), /^pods "a" is forbidden: could not ask 127\.0\.0\.1:\d+: /);
    assert.deepEqual(await judge("ok:1", { ...stranger, imagePolicy: { defaultAllow: true } }), {
      "failed-open": "true",
    });
    assert.match(
      String(await judge("ok:1", { backend: { url: "https://127.0.0.1:1/" } })),
      /could not ask 127\.0\.0\.1:1: connect ECONNREFUSED/,
    );
    assert.deepEqual(asked, []);
  });
});

describe("settings of image-policy-webhook", () => {
  const unfit = (imagePolicy: object, backend: object = { url: "https://images.example/policy" }) =>
    imagePolicyWebhook.checkSettings?.(mergeWithDefaults(imagePolicyWebhook.settings ?? {}, { imagePolicy, backend }));

  it("are fit with an address, and numbers in upstream's bounds", () => {
    for (const number of [-1, 0, 1, 1800]) assert.equal(unfit({ allowTTL: number, denyTTL: number }), undefined);
    assert.equal(unfit({ kubeConfigFile: "/etc/kubernetes/images.yaml", retryBackoff: 300_000 }), undefined);
  });

  it("are not, without", () => {
    for (const url of ["", "images.example", "http://images.example"])
      assert.equal(unfit({}, { url }), `must have an https:// address as url of the backend, not "${url}"`);
    for (const known of ["me:secret", "me", ":secret"])
      assert.equal(
        unfit({}, { url: `https://${known}@images.example` }),
        "must have no name and no password in the url of the backend: settings hold no secrets",
      );
    assert.match(
      String(unfit({}, { url: "https://images.example", ca: "/etc/ca.crt" })),
      /^must have a certificate in PEM/,
    );
    const url = "https://images.example";
    for (const region of ["eu-west-1", ""])
      assert.match(
        String(unfit({}, { url, tokenSecret: "a", tokenParameter: "b", region })),
        /^must have one of tokenSecret and tokenParameter for the backend, or none$/,
      );
    assert.match(String(unfit({}, { url, tokenSecret: "a" })), /^must have a region beside the token for the backend/);
    assert.equal(unfit({}, { url, tokenSecret: "arn:aws:secretsmanager:eu-west-1:1:secret:a-AbCdEf" }), undefined);
    assert.equal(unfit({ allowTTL: 1801 }), "must have -1, 0 or a number up to 1800 as allowTTL, not 1801");
    assert.equal(unfit({ denyTTL: -2 }), "must have -1, 0 or a number up to 1800 as denyTTL, not -2");
    assert.equal(
      unfit({ retryBackoff: 300_001 }),
      "must have -1, 0 or a number up to 300000 as retryBackoff, not 300001",
    );
  });
});
