import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import type { RequestListener } from "node:http";
import { createServer } from "node:https";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import imagePolicyWebhook from "../../functions/image-policy-webhook/rule.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { generateCertificate } from "../../infra/keys/certificates.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { readConfig } from "../../infra/project/project.ts";
import { createTestFolder } from "../folders.ts";
import { close, listen } from "../listen.ts";
import { buildPodRequest } from "../requests.ts";

const folder = await createTestFolder();

describe("image-policy-webhook", () => {
  type Reply = { status: number; body: string; headers?: Record<string, string> } | "reset" | "silence";

  const received: object[] = [];
  /** The next replies of the service. The last one is repeated. */
  let replies: Reply[] = [];
  const answer: RequestListener = async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { method, url, headers } = request;
    const { authorization } = headers;
    received.push({ method, url, type: headers["content-type"], ...(authorization && { authorization }), body });
    const reply = replies.length > 1 ? replies.shift() : replies[0];
    if (reply === undefined || reply === "silence") return;
    if (reply === "reset") request.socket.destroy();
    else response.writeHead(reply.status, reply.headers).end(reply.body);
  };
  const server = createServer(answer);
  /** A server that requires a client certificate from its CA. */
  const serverForCertificates = createServer({ requestCert: true }, answer);
  const approval = { status: 200, body: '{"status": {"allowed": true}}' };
  const denial = { status: 200, body: '{"status": {"allowed": false, "reason": "unsigned"}}' };
  const failure = { status: 500, body: "" };

  let backend: { url: string; ca: string };
  let otherCa: string;
  let urlForCertificates: string;
  const readFrom = (name: string) => readFile(join(folder, name), "utf8");
  let getCapabilities: ReturnType<typeof createLiveCapabilities>;
  before(async () => {
    const { ca, cert, key } = await readOrCreateServerCertificate(join(folder, "own"), "127.0.0.1");
    otherCa = (await readOrCreateServerCertificate(join(folder, "other"), "127.0.0.1")).ca;
    server.setSecureContext({ key, cert });
    serverForCertificates.setSecureContext({ key, cert, ca });
    urlForCertificates = `https://127.0.0.1:${await listen(serverForCertificates)}/policy`;
    for (const issuer of ["own", "other"]) {
      const [caCertificate, caKey] = [await readFrom(`${issuer}/ca.crt`), await readFrom(`${issuer}/ca.key`)];
      const client = await generateCertificate(caCertificate, caKey, ["client"], "clientAuth");
      await writeFile(join(folder, `${issuer}.crt`), client.certificate);
      await writeFile(join(folder, `${issuer}.key`), client.key);
    }
    backend = { url: `https://127.0.0.1:${await listen(server)}/policy`, ca };
  });
  beforeEach(() => {
    received.length = 0;
    getCapabilities = createLiveCapabilities({});
  });
  after(async () => {
    await Promise.all([server, serverForCertificates].map(close));
  });

  const buildRequest = (image: string) =>
    buildPodRequest({
      name: "a",
      namespace: "shop",
      object: { metadata: { name: "a" }, spec: { containers: [{ name: "c", image }] } },
    });
  /** Evaluates a pod in a review that ends after `milliseconds`. Returns a refusal's message, or the annotations. */
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

  it("image-policy-webhook sends the service the ImageReview that upstream sends", async () => {
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
    const refusal = `${forbidden}image policy webhook backend denied one or more images: unsigned`;
    assert.equal(await evaluatePod("bad:1"), refusal);
  });

  it("image-policy-webhook sends a request up to five times after 500, 504, Retry-After or a reset", async () => {
    const retryLater = { status: 503, body: "", headers: { "retry-after": "1" } };
    replies = [failure, { ...failure, status: 504 }, retryLater, "reset", approval];
    assert.deepEqual(await evaluatePod("ok:1", quickRetries), {});
    assert.equal(received.length, 5);

    received.length = 0;
    replies = [failure];
    assert.equal(await evaluatePod("ok:2", quickRetries), `${forbidden}the image policy webhook backend answers 500`);
    assert.equal(received.length, 5);
  });

  it("image-policy-webhook does not retry after 404, 401 and 503", async () => {
    for (const status of [404, 401, 503]) {
      received.length = 0;
      replies = [{ status, body: "" }];
      const refusal = `${forbidden}the image policy webhook backend answers ${status}`;
      assert.equal(await evaluatePod("ok:1", quickRetries), refusal);
      assert.equal(received.length, 1);
    }
  });

  it("image-policy-webhook decides before the review ends, even if the service fails or hangs", async () => {
    const refusal = `${forbidden}the image policy webhook backend answers 500`;
    replies = [failure];
    const oneSecond = 1000;
    assert.equal(await evaluatePod("ok:1", { imagePolicy: { retryBackoff: 250 } }, oneSecond), refusal);
    assert.ok(received.length < 5, "five tries take longer");

    const halfSecond = 500;
    replies = [failure, "silence"];
    assert.equal(await evaluatePod("ok:1", quickRetries, halfSecond), refusal);

    replies = ["silence"];
    const message = String(await evaluatePod("ok:1", {}, halfSecond));
    assert.match(message, /could not ask 127\.0\.0\.1:\d+: it did not answer in time$/);
    const openSettings = { imagePolicy: { defaultAllow: true } };
    assert.deepEqual(await evaluatePod("ok:1", openSettings, halfSecond), { "failed-open": "true" });
  });

  for (const [setting, seconds, kept, other] of [
    ["allowTTL", 0, approval, denial],
    ["allowTTL", 3, approval, denial],
    ["denyTTL", 0, denial, approval],
    ["denyTTL", 3, denial, approval],
  ] as const)
    it(`image-policy-webhook reuses an answer for the time of ${setting}: ${seconds}`, async (test) => {
      test.mock.timers.enable({ apis: ["Date"], now: Date.now() });
      const settings = { imagePolicy: { [setting]: seconds } };
      replies = [kept];
      const first = await evaluatePod("a:1", settings);
      replies = [other];
      assert.notDeepEqual(await evaluatePod("a:2", settings), first);
      const usual = { allowTTL: 300, denyTTL: 30 }[setting];
      test.mock.timers.setTime(Date.now() + 1000 * (seconds || usual) - 1);
      assert.deepEqual(await evaluatePod("a:1", settings), first);
      assert.equal(received.length, 2);
      test.mock.timers.setTime(Date.now() + 1);
      assert.notDeepEqual(await evaluatePod("a:1", settings), first);
      assert.equal(received.length, 3);
    });

  it("image-policy-webhook reuses no answer if allowTTL and denyTTL are -1", async () => {
    const settings = { imagePolicy: { allowTTL: -1, denyTTL: -1 } };
    for (const reply of [approval, approval, denial, denial]) {
      replies = [reply];
      await evaluatePod("ok:1", settings);
    }
    assert.equal(received.length, 4);
  });

  it("image-policy-webhook does not retry if Retry-After is longer than the rest of the review's time", async () => {
    replies = [{ status: 503, body: "", headers: { "retry-after": "600" } }, approval];
    assert.equal(await evaluatePod("ok:1", quickRetries), `${forbidden}the image policy webhook backend answers 503`);
    assert.equal(received.length, 1);
  });

  it("image-policy-webhook calls the service again after an invalid answer", async () => {
    replies = [{ status: 200, body: "<html>" }];
    const settings = { imagePolicy: { defaultAllow: true } };
    assert.deepEqual(await evaluatePod("ok:1", settings), { "failed-open": "true" });
    replies = [denial];
    assert.match(String(await evaluatePod("ok:1", settings)), /unsigned/);
  });

  describe("image-policy-webhook with a kubeconfig", () => {
    /** Evaluates a pod with the settings from a postern.yaml that names a kubeconfig. Also returns the settings. */
    const evaluateWith = async (user: object, cluster: object = {}) => {
      const kubeconfig = {
        "current-context": "images",
        contexts: [{ name: "images", context: { cluster: "images", user: "postern" } }],
        clusters: [
          {
            name: "images",
            cluster: { server: urlForCertificates, "certificate-authority": "own/ca.crt", ...cluster },
          },
        ],
        users: [{ name: "postern", user }],
      };
      await writeFile(join(folder, "images.kubeconfig"), stringify(kubeconfig));
      const file = join(folder, "postern.yaml");
      const settings = { imagePolicy: { kubeConfigFile: "images.kubeconfig", retryBackoff: 1 } };
      await writeFile(file, stringify({ rules: { ImagePolicyWebhook: { settings } } }));
      const listed = await readRule(
        fileURLToPath(new URL("../../functions/image-policy-webhook", import.meta.url)),
        "image-policy-webhook",
      );
      const { rules } = await readConfig(file, [listed]);
      const knownSettings = rules.get("image-policy-webhook")?.settings ?? {};
      return { said: await evaluatePod("ok:1", knownSettings), known: knownSettings };
    };
    const clientFiles = { "client-certificate": "own.crt", "client-key": "own.key" };

    it("image-policy-webhook shows the service its client certificate and its token", async () => {
      replies = [approval];
      await writeFile(join(folder, "token"), "t0ken\n");
      const { said, known } = await evaluateWith({ ...clientFiles, tokenFile: "token" });
      assert.deepEqual(said, {});
      assert.partialDeepStrictEqual(received, [{ authorization: "Bearer t0ken" }]);
      assert.doesNotMatch(JSON.stringify(known), /t0ken|PRIVATE KEY/);
    });

    it("image-policy-webhook uses the certificates and the server's name from the kubeconfig", async () => {
      replies = [approval];
      const data = Buffer.from(await readFrom("own.crt")).toString("base64");
      const user = { "client-certificate-data": data, "client-key": "own.key" };
      assert.deepEqual((await evaluateWith(user, { "tls-server-name": "localhost" })).said, {});
      assert.match(
        String((await evaluateWith(clientFiles, { "tls-server-name": "images.example" })).said),
        /could not ask 127\.0\.0\.1:\d+: .*images\.example/,
      );
    });

    it("the service refuses image-policy-webhook without its client certificate", async () => {
      replies = [approval];
      const otherClient = { "client-certificate": "other.crt", "client-key": "other.key" };
      for (const user of [{}, otherClient])
        assert.match(String((await evaluateWith(user)).said), /^pods "a" is forbidden: could not ask 127\.0\.0\.1/);
      assert.match(
        String((await evaluateWith({ ...clientFiles, "client-key": "none.key" })).said),
        /the key of its client certificate could not be read$/,
      );
      assert.deepEqual(received, []);
    });
  });

  it("image-policy-webhook refuses, or admits with defaultAllow, if the service can't be reached", async () => {
    replies = [approval];
    const untrusted = { backend: { ca: otherCa } };
    const refusal = String(await evaluatePod("ok:1", untrusted));
    assert.match(refusal, /^pods "a" is forbidden: could not ask 127\.0\.0\.1:\d+: /);
    const openSettings = { ...untrusted, imagePolicy: { defaultAllow: true } };
    assert.deepEqual(await evaluatePod("ok:1", openSettings), { "failed-open": "true" });
    const unreachable = String(await evaluatePod("ok:1", { backend: { url: "https://127.0.0.1:1/" } }));
    assert.match(unreachable, /could not ask 127\.0\.0\.1:1: connect ECONNREFUSED/);
    assert.deepEqual(received, []);
  });
});
