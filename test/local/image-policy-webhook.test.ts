import assert from "node:assert/strict";
import { createServer } from "node:https";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { evaluateRule } from "#lib/evaluation.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import imagePolicyWebhook from "../../functions/image-policy-webhook/rule.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { createTestFolder } from "../folders.ts";
import { close, listen } from "../listen.ts";
import { buildPodRequest } from "../requests.ts";

const folder = await createTestFolder();

describe("image-policy-webhook", () => {
  type Reply = { status: number; body: string; headers?: Record<string, string> } | "reset" | "silence";

  const received: object[] = [];
  /** The next replies; the last one repeats. */
  let replies: Reply[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { method, url, headers } = request;
    received.push({ method, url, type: headers["content-type"], body });
    const reply = replies.length > 1 ? replies.shift() : replies[0];
    if (reply === undefined || reply === "silence") return;
    if (reply === "reset") request.socket.destroy();
    else response.writeHead(reply.status, reply.headers).end(reply.body);
  });
  const approval = { status: 200, body: '{"status": {"allowed": true}}' };
  const denial = { status: 200, body: '{"status": {"allowed": false, "reason": "unsigned"}}' };
  const failure = { status: 500, body: "" };

  let backend: { url: string; ca: string };
  let otherCa: string;
  let getCapabilities: ReturnType<typeof createLiveCapabilities>;
  before(async () => {
    const { ca, cert, key } = await readOrCreateServerCertificate(join(folder, "own"), "127.0.0.1");
    otherCa = (await readOrCreateServerCertificate(join(folder, "other"), "127.0.0.1")).ca;
    server.setSecureContext({ key, cert });
    backend = { url: `https://127.0.0.1:${await listen(server)}/policy`, ca };
  });
  beforeEach(() => {
    received.length = 0;
    getCapabilities = createLiveCapabilities({});
  });
  after(async () => {
    await close(server);
  });

  const buildRequest = (image: string) =>
    buildPodRequest({
      name: "a",
      namespace: "shop",
      object: { metadata: { name: "a" }, spec: { containers: [{ name: "c", image }] } },
    });
  const evaluatePod = async (image: string, settings: object = {}, milliseconds = 5000) => {
    const { outcome } = await evaluateRule(imagePolicyWebhook, "validate", buildRequest(image), {
      name: "image-policy-webhook",
      mode: "enforce",
      settings: mergeWithDefaults(imagePolicyWebhook.settings ?? {}, mergeWithDefaults({ backend }, settings)),
      now: new Date(),
      capabilities: getCapabilities("local", milliseconds),
    });
    return outcome.status?.message ?? outcome.audit;
  };
  const forbidden = 'pods "a" is forbidden: ';
  const quickRetries = { imagePolicy: { retryBackoff: 1 } };

  it("sends the ImageReview that upstream sends", async () => {
    replies = [approval];
    assert.deepEqual(await evaluatePod("ok:1"), {});
    assert.deepEqual(received, [
      {
        method: "POST",
        url: "/policy?timeout=10s",
        type: "application/json",
        body: '{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","metadata":{},"spec":{"containers":[{"image":"ok:1"}],"namespace":"shop"},"status":{"allowed":false}}',
      },
    ]);
    replies = [denial];
    assert.equal(
      await evaluatePod("bad:1"),
      `${forbidden}image policy webhook backend denied one or more images: unsigned`,
    );
  });

  it("retries up to five times after 500, 504, Retry-After and a reset connection", async () => {
    const retryLater = { status: 503, body: "", headers: { "retry-after": "1" } };
    replies = [failure, { ...failure, status: 504 }, retryLater, "reset", approval];
    assert.deepEqual(await evaluatePod("ok:1", quickRetries), {});
    assert.equal(received.length, 5);

    received.length = 0;
    replies = [failure];
    assert.equal(await evaluatePod("ok:2", quickRetries), `${forbidden}the image policy webhook backend answers 500`);
    assert.equal(received.length, 5);
  });

  it("does not retry after 404, 401 and 503", async () => {
    for (const status of [404, 401, 503]) {
      received.length = 0;
      replies = [{ status, body: "" }];
      assert.equal(
        await evaluatePod("ok:1", quickRetries),
        `${forbidden}the image policy webhook backend answers ${status}`,
      );
      assert.equal(received.length, 1);
    }
  });

  it("decides in time if the service does not answer", async () => {
    replies = [failure];
    assert.equal(
      await evaluatePod("ok:1", { imagePolicy: { retryBackoff: 250 } }, 1000),
      `${forbidden}the image policy webhook backend answers 500`,
    );
    assert.ok(received.length < 5, "five tries take longer");

    replies = [failure, "silence"];
    assert.equal(
      await evaluatePod("ok:1", quickRetries, 500),
      `${forbidden}the image policy webhook backend answers 500`,
    );

    replies = ["silence"];
    assert.match(
      String(await evaluatePod("ok:1", {}, 500)),
      /could not ask 127\.0\.0\.1:\d+: it did not answer in time$/,
    );
    assert.deepEqual(await evaluatePod("ok:1", { imagePolicy: { defaultAllow: true } }, 500), {
      "failed-open": "true",
    });
  });

  it("reuses approvals for allowTTL, and never reuses denials", async () => {
    replies = [approval];
    const settings = { imagePolicy: { allowTTL: 3 } };
    await evaluatePod("ok:1", settings);
    replies = [denial];
    assert.deepEqual(await evaluatePod("ok:1", settings), {});
    assert.match(String(await evaluatePod("ok:2", settings)), /unsigned/);
    replies = [approval];
    assert.deepEqual(await evaluatePod("ok:2", settings), {});
    assert.equal(received.length, 3);

    await wait(3100);
    replies = [denial];
    assert.match(String(await evaluatePod("ok:1", settings)), /unsigned/);
  });

  it("reuses no approval if allowTTL is -1", async () => {
    replies = [approval];
    const settings = { imagePolicy: { allowTTL: -1 } };
    await evaluatePod("ok:1", settings);
    await evaluatePod("ok:1", settings);
    assert.equal(received.length, 2);
  });

  it("calls the service again after an invalid answer", async () => {
    replies = [{ status: 200, body: "<html>" }];
    const settings = { imagePolicy: { defaultAllow: true } };
    assert.deepEqual(await evaluatePod("ok:1", settings), { "failed-open": "true" });
    replies = [denial];
    assert.match(String(await evaluatePod("ok:1", settings)), /unsigned/);
  });

  it("sends nothing to a service with another certificate or an unreachable service", async () => {
    replies = [approval];
    const untrusted = { backend: { ca: otherCa } };
    assert.match(
      String(await evaluatePod("ok:1", untrusted)),
      /^pods "a" is forbidden: could not ask 127\.0\.0\.1:\d+: /,
    );
    assert.deepEqual(await evaluatePod("ok:1", { ...untrusted, imagePolicy: { defaultAllow: true } }), {
      "failed-open": "true",
    });
    assert.match(
      String(await evaluatePod("ok:1", { backend: { url: "https://127.0.0.1:1/" } })),
      /could not ask 127\.0\.0\.1:1: connect ECONNREFUSED/,
    );
    assert.deepEqual(received, []);
  });
});
