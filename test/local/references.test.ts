import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { createServer as createPlainServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer } from "node:https";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { TLSSocket } from "node:tls";
import { gzipSync } from "node:zlib";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import {
  createPolicyHttpCapabilities,
  defaultHttpSettings,
  type PolicyHttpSettings,
} from "#lib/policy/references/http.ts";
import type { HttpReference, ScriptHttpRequest } from "#lib/policy/types.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { createTestFolder } from "../folders.ts";
import { close, listen } from "../listen.ts";
import { readRows } from "../rows.ts";

interface AnswerRow {
  name: string;
  body?: unknown;
  status?: number;
  headers?: Record<string, string>;
  sentence: string;
}
const rows = readRows<{
  answers: AnswerRow[];
  tokenAnswers: AnswerRow[];
  refused: { name: string; reference: Partial<HttpReference>; sentence: string }[];
  wrongReferences: object[];
  wrongScriptRequests: object[];
}>(import.meta.filename);

interface ReceivedRequest {
  method: string | undefined;
  url: string | undefined;
  headers: IncomingMessage["headers"];
  body: string;
}

/** An answer of 64 MB, compressed here, because the tests have time limits. */
const largeGzip = gzipSync(Buffer.alloc(64 * 1024 * 1024));

const folder = await createTestFolder();

// Tests the HTTP requests of policies, with servers on this machine.
describe("a policy's request", () => {
  let certificate: { ca: string; cert: string; key: string };
  let received: ReceivedRequest[] = [];
  let connections = 0;
  let answer: (response: ServerResponse, request: ReceivedRequest) => void;
  const handleRequest = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { method, url, headers } = request;
    const receivedRequest = { method, url, headers, body: Buffer.concat(chunks).toString() };
    received.push(receivedRequest);
    answer(response, receivedRequest);
  };
  const secureServer = createServer(handleRequest);
  const plainServer = createPlainServer(handleRequest);
  let host: string;
  let plainHost: string;
  let createCapabilities: ReturnType<typeof createLiveCapabilities>;

  const respondWith =
    (body: unknown, status = 200, headers: Record<string, string | string[]> = {}) =>
    (response: ServerResponse) =>
      response.writeHead(status, headers).end(typeof body === "string" ? body : JSON.stringify(body));

  before(async () => {
    certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    secureServer.setSecureContext(certificate);
    for (const server of [secureServer, plainServer]) {
      server.on("connection", () => {
        connections += 1;
      });
    }
    host = `localhost:${await listen(secureServer)}`;
    plainHost = `localhost:${await listen(plainServer)}`;
  });
  beforeEach(() => {
    received = [];
    connections = 0;
    answer = respondWith({ ok: true });
    createCapabilities = createLiveCapabilities({});
  });
  after(() => Promise.all([secureServer, plainServer].map(close)));

  const buildSettings = (changes: Partial<PolicyHttpSettings> = {}): PolicyHttpSettings => ({
    ...defaultHttpSettings,
    hosts: [host, plainHost],
    ca: certificate.ca,
    addresses: ["127.0.0.1/32"],
    ...changes,
  });
  const createTestCapabilities = (changes: Partial<PolicyHttpSettings> = {}, milliseconds = 8000, cluster = "one") =>
    createPolicyHttpCapabilities(buildSettings(changes), createCapabilities(cluster, milliseconds).http);
  const fetchReference = (reference: Partial<HttpReference> = {}, changes: Partial<PolicyHttpSettings> = {}) =>
    createTestCapabilities(changes).fetchReference({ url: `https://${host}/a`, ...reference });
  const sendScriptRequest = (request: Partial<ScriptHttpRequest> = {}, changes: Partial<PolicyHttpSettings> = {}) =>
    createTestCapabilities(changes).sendScriptRequest({ method: "GET", url: `https://${host}/a`, ...request });

  describe("a reference's request", () => {
    it("the response to a reference's request has body, headers and trailers", async () => {
      answer = (response) => {
        response.writeHead(200, {
          "content-type": "text/plain; charset=utf-8",
          "x-many": ["a", "b"],
          trailer: "x-end",
        });
        response.write('{"data":{"name":"hn"}}');
        response.addTrailers({ "x-end": "over" });
        response.end();
      };
      const { body, header, trailer } = await fetchReference();
      assert.deepEqual(body, { data: { name: "hn" } });
      assert.deepEqual(header["Content-Type"], ["text/plain; charset=utf-8"]);
      assert.deepEqual(header["X-Many"], ["a", "b"]);
      assert.deepEqual(trailer, { "X-End": ["over"] });
      assert.equal(Object.hasOwn(header, "Transfer-Encoding"), false);
    });

    it("a reference sends the request that the policy states", async () => {
      await fetchReference({
        url: `http://${plainHost}/a?z=1`,
        method: "post",
        params: { q: "a b", b: "ä&=~*" },
        header: { "X-A": "b {{metadata.name}}" },
        body: { a: "{{metadata.name}}" },
        auth: { staticToken: "st", token: "tt", authUrl: `http://${plainHost}/auth` },
      });
      const [{ method, url, headers, body } = assert.fail()] = received;
      assert.deepEqual([method, url], ["POST", "/a?z=1&b=%C3%A4%26%3D~%2A&q=a+b"]);
      assert.equal(headers["x-a"], "b {{metadata.name}}");
      assert.equal(headers["content-type"], "application/json");
      assert.equal(headers.authorization, "Bearer st");
      assert.equal(body, '{"a":"{{metadata.name}}"}');
      assert.equal(received.length, 1);
    });

    it("a reference sends a body with its length, even with the method GET", async () => {
      await fetchReference({ body: [1], header: { "content-type": "text/x" } });
      const [{ method, headers, body } = assert.fail()] = received;
      assert.deepEqual(
        [method, headers["content-type"], headers["content-length"], body],
        ["GET", "text/x", "3", "[1]"],
      );
    });

    it("a reference trusts only the certificate of its settings", async () => {
      await assert.rejects(fetchReference({}, { ca: "" }), /could not ask localhost:\d+: .*certificate/i);
      await assert.rejects(fetchReference({}, { ca: "none" }), /http\.ca can't be used|certificate/i);
      assert.equal(received.length, 0);
    });

    const wrongAnswers: Record<string, [answer: () => typeof answer, sentence: RegExp]> = {
      "an answer that is too large": [
        () => respondWith({ a: "x".repeat(1024 * 1024) }),
        /its answer has more than 1048576 bytes$/,
      ],
      "a compressed answer that is too large": [
        () => (response) => response.writeHead(200, { "content-encoding": "gzip" }).end(largeGzip),
        /its answer has more than 1048576 bytes$/,
      ],
      "broken gzip": [
        () => (response) => response.writeHead(200, { "content-encoding": "gzip" }).end("xx"),
        /could not ask localhost/,
      ],
      "an endless answer": [
        () => (response) => {
          const writeMore = () =>
            void (response.write(" ".repeat(1024)) && !response.destroyed && setTimeout(writeMore, 20));
          writeMore();
        },
        /could not ask localhost:\d+: it did not answer in time$/,
      ],
      "an answer that comes byte by byte": [
        () => (response) => {
          response.writeHead(200).write("{");
          const spaces = setInterval(() => response.write(" "), 100);
          response.on("close", () => clearInterval(spaces));
        },
        /it did not answer in time$/,
      ],
      nothing: [() => () => {}, /it did not answer in time$/],
      "half an answer": [
        () => (response) => {
          response.writeHead(200, { "content-length": "100" }).write("{");
          setTimeout(() => response.destroy(), 20);
        },
        /could not ask localhost/,
      ],
      "another protocol": [
        () => (response) => response.writeHead(101, { connection: "upgrade", upgrade: "x" }).end(),
        /it did not answer in time$/,
      ],
    };
    for (const { name, body = "", status, headers, sentence } of rows.answers)
      wrongAnswers[name] = [
        () => respondWith(body, status, JSON.parse(JSON.stringify(headers ?? {}).replace("HOST", host))),
        new RegExp(sentence),
      ];
    for (const [what, [createAnswer, sentence]] of Object.entries(wrongAnswers))
      it(`a reference's request fails for ${what}`, async () => {
        answer = createAnswer();
        await assert.rejects(fetchReference(), { message: sentence });
        assert.equal(received.length, 1);
      });

    it("a reference reads compressed JSON", async () => {
      answer = (response) => response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync('{"a":1}'));
      assert.deepEqual((await fetchReference()).body, { a: 1 });
    });

    it("a reference's request fails at the timeout of the review", async () => {
      answer = () => {};
      const fetching = createTestCapabilities({}, 400).fetchReference({ url: `https://${host}/a` });
      await assert.rejects(fetching, /did not answer in time$/);
    });

    it("a reference treats keys named as members of prototypes as usual keys", async () => {
      answer = respondWith('{"__proto__":{"a":1},"constructor":2}', 200, { constructor: "c" });
      const { body, header } = await fetchReference({
        params: JSON.parse('{"__proto__":"p"}'),
        header: JSON.parse('{"__proto__":"h"}'),
      });
      assert.deepEqual(Object.keys(body), ["__proto__", "constructor"]);
      assert.deepEqual(header.Constructor, ["c"]);
      assert.equal(received[0]?.url, "/a?__proto__=p");
    });
  });

  describe("a request to a forbidden address", () => {
    const getPort = () => host.split(":")[1];
    /** Each row has a URL, the allowed hosts, and the allowed private addresses. */
    const forbiddenUrls: Record<string, () => [url: string, hosts: string[], addresses?: string[]]> = {
      "to a host that isn't listed": () => [`https://127.0.0.1:${getPort()}/`, [host], ["127.0.0.1"]],
      "to another port of a listed host": () => [`https://localhost/`, [host], ["127.0.0.1"]],
      "to a port that isn't listed": () => [`https://${host}/`, ["localhost"], ["127.0.0.1"]],
      "if no host is listed": () => [`https://${host}/`, [], ["127.0.0.1"]],
      "to a name of this machine": () => [`https://${host}/`, [host], []],
      "to a name with an address that isn't listed": () => [`https://${host}/`, [host], ["127.0.0.2", "10.0.0.0/8"]],
      "to an address of this machine": () => [`https://127.0.0.1:${getPort()}/`, [`127.0.0.1:${getPort()}`]],
      "to the unspecified address": () => [`https://0.0.0.0:${getPort()}/`, [`0.0.0.0:${getPort()}`]],
      "to the metadata service of a cloud": () => ["http://169.254.169.254/latest/meta-data", ["169.254.169.254"]],
      "to the metadata service, even if all private addresses are allowed": () => [
        "http://169.254.169.254/",
        ["169.254.169.254"],
        ["0.0.0.0/0", "::/0"],
      ],
      "to the metadata service of EKS": () => ["http://[fd00:ec2::23]/", ["[fd00:ec2::23]"], ["::/0"]],
    };
    for (const [what, getUrlAndHosts] of Object.entries(forbiddenUrls))
      it(`a request to a forbidden address is not sent ${what}`, async () => {
        const [url, hosts, addresses = []] = getUrlAndHosts();
        const sentence =
          /must not be called: http\.(hosts|addresses)|it has no address that may be called, but .*127\.0\.0\.1/;
        await assert.rejects(fetchReference({ url }, { hosts, addresses }), { message: sentence });
        await assert.rejects(sendScriptRequest({ url }, { hosts, addresses }), { message: sentence });
        const auth = { authUrl: url, username: "u", password: "p" };
        await assert.rejects(fetchReference({ auth }, { hosts: [...hosts, plainHost], addresses, ca: "" }), {
          message: sentence,
        });
        assert.deepEqual([connections, received.length], [0, 0]);
      });

    for (const { name, reference, sentence } of rows.refused)
      it(`a request is not sent with ${name}`, async () => {
        await assert.rejects(fetchReference(reference), { message: new RegExp(sentence) });
        assert.equal(received.length, 0);
      });

    it("a request is not sent with values of a wrong type", async () => {
      for (const wrongReference of rows.wrongReferences)
        await assert.rejects(fetchReference(JSON.parse(JSON.stringify(wrongReference))), /must be/);
      for (const wrongRequest of rows.wrongScriptRequests)
        await assert.rejects(sendScriptRequest(JSON.parse(JSON.stringify(wrongRequest))), /must be/);
      assert.equal(received.length, 0);
    });
  });

  describe("a request with a token", () => {
    let count = 0;
    let isAccepted: (token: string) => boolean;
    let tokenFields: object;
    beforeEach(() => {
      [count, isAccepted, tokenFields] = [0, () => true, {}];
      answer = (response, { url, headers }) => {
        if (url === "/auth") respondWith({ token: `T${++count}`, ...tokenFields })(response);
        else
          respondWith(
            { n: headers.authorization },
            isAccepted(headers.authorization?.slice(7) ?? "") ? 200 : 401,
          )(response);
      };
    });
    const buildAuth = () => ({ authUrl: `https://${host}/auth`, username: "u", password: "p w" });
    const fetchToken = async (authFields: object = {}) =>
      (await fetchReference({ auth: { ...buildAuth(), ...authFields } })).body.n;
    const countRequests = (path: string) => received.filter(({ url }) => url === path).length;

    it("the token is requested with name and password, and only once", async () => {
      assert.deepEqual([await fetchToken(), await fetchToken()], ["Bearer T1", "Bearer T1"]);
      assert.deepEqual([countRequests("/auth"), countRequests("/a")], [1, 2]);
      const [{ method, headers, body } = assert.fail()] = received;
      assert.deepEqual([method, body, headers["content-length"]], ["POST", "", "0"]);
      assert.equal(headers.authorization, `Basic ${Buffer.from("u:p w").toString("base64")}`);
    });

    it("the token is requested once for parallel reviews", async () => {
      const tokens = await Promise.all([fetchToken(), fetchToken(), fetchToken(), fetchToken()]);
      assert.deepEqual(tokens, new Array(4).fill("Bearer T1"));
      assert.deepEqual([countRequests("/auth"), countRequests("/a")], [1, 4]);
    });

    it("each combination of name, password, service and cluster has a separate token", async () => {
      await fetchToken();
      assert.equal(await fetchToken({ username: "v" }), "Bearer T2");
      assert.equal(await fetchToken({ password: "q" }), "Bearer T3");
      const { body } = await createTestCapabilities({}, 8000, "two").fetchReference({
        url: `https://${host}/a`,
        auth: buildAuth(),
      });
      assert.equal(body.n, "Bearer T4");
    });

    it("a token is kept a little shorter than the service or the policy states", async (test) => {
      test.mock.timers.enable({ apis: ["Date"], now: Date.now() });
      const advanceMinutes = (count: number) => test.mock.timers.setTime(Date.now() + count * 60_000);
      for (const [createTokenFields, authFields, minutes] of [
        [() => ({}), {}, 5],
        [() => ({}), { expireDuration: "1h40m" }, 100],
        [() => ({ expireAt: Date.now() + 10 * 60_000 }), { expireDuration: "1h" }, 10],
      ] as const) {
        createCapabilities = createLiveCapabilities({});
        tokenFields = createTokenFields();
        const first = await fetchToken(authFields);
        // A token is kept for 90 % of its time.
        advanceMinutes(minutes * 0.89);
        assert.equal(await fetchToken(authFields), first);
        advanceMinutes(minutes * 0.02);
        assert.notEqual(await fetchToken(authFields), first);
      }
    });

    it("a token that expires immediately is not kept", async () => {
      tokenFields = { expireAt: Date.now() + 3000 };
      assert.deepEqual([await fetchToken(), await fetchToken()], ["Bearer T1", "Bearer T2"]);
    });

    it("a policy's own token is used until it expires", async () => {
      assert.equal(await fetchToken({ token: "own" }), "Bearer own");
      assert.equal(await fetchToken({ token: "own", expireAt: "2999-01-01T00:00:00Z" }), "Bearer own");
      assert.equal(countRequests("/auth"), 0);
      assert.equal(await fetchToken({ token: "own", expireAt: "2001-01-01T00:00:00Z" }), "Bearer T1");
    });

    it("a new token is requested once after a refusal", async () => {
      await fetchToken();
      isAccepted = (token) => token === "T2";
      assert.equal(await fetchToken(), "Bearer T2");
      assert.equal(await fetchToken(), "Bearer T2");
      assert.equal(await fetchToken({ token: "own" }), "Bearer T2");
      assert.equal(count, 2);
      isAccepted = () => false;
      await assert.rejects(fetchToken(), { message: /^localhost:\d+ answers 401$/ });
      assert.equal(count, 3);
    });

    it("one new token is requested after parallel refusals", async () => {
      await fetchToken();
      isAccepted = (token) => token !== "T1";
      const tokens = await Promise.all([fetchToken(), fetchToken(), fetchToken()]);
      assert.deepEqual(tokens, new Array(3).fill("Bearer T2"));
      assert.equal(count, 2);
    });

    it("no token is requested after the refusal of a static token", async () => {
      isAccepted = () => false;
      await assert.rejects(fetchToken({ staticToken: "s" }), /answers 401$/);
      assert.deepEqual([countRequests("/auth"), countRequests("/a")], [0, 1]);
    });

    it("no new token is requested when a policy's refusal is evaluated a second time", async () => {
      await fetchToken();
      const review = createCapabilities("one", 8000);
      await createPolicyHttpCapabilities(buildSettings(), review.http).fetchReference({
        url: `https://${host}/a`,
        auth: buildAuth(),
      });
      assert.equal(review.anew?.(), undefined);
    });

    const wrongAnswers: Record<string, [answer: typeof answer, sentence: RegExp]> = {
      "an answer that is too large": [
        respondWith({ token: "t".repeat(70_000) }),
        /its answer has more than 65536 bytes$/,
      ],
      nothing: [() => {}, /it did not answer in time$/],
    };
    for (const { name, body = "", status, headers, sentence } of rows.tokenAnswers)
      wrongAnswers[name] = [respondWith(body, status, headers), new RegExp(sentence)];
    for (const [what, [createAnswer, sentence]] of Object.entries(wrongAnswers))
      it(`the request fails without secrets in the message if the token service answers with ${what}`, async () => {
        answer = createAnswer;
        await assert.rejects(fetchToken(), (error: Error) => {
          assert.match(error.message, sentence);
          assert.doesNotMatch(error.message, /p w|Basic/);
          return true;
        });
        assert.equal(countRequests("/a"), 0);
      });

    it("the request fails if no token can be requested", async () => {
      const sentence =
        /^auth must have a staticToken, a token or an authUrl, or http\.credentials must list localhost:\d+$/;
      for (const auth of [{}, { username: "u", password: "p" }, { staticToken: "", token: "", authUrl: "" }])
        await assert.rejects(fetchReference({ auth }), { message: sentence });
      const over = { token: "t", expireAt: "2001-01-01T00:00:00Z" };
      await assert.rejects(
        fetchReference({ auth: over }),
        /^Error: auth must have a token that has not expired or an authUrl/,
      );
      await fetchReference({ auth: undefined });
    });

    it("a request over http:// has no secret of the settings", async () => {
      const credentials = [{ host: plainHost, secret: "s", region: "eu-west-1" }];
      const rejected = fetchReference({ url: `http://${plainHost}/a`, auth: {} }, { credentials });
      await assert.rejects(rejected, /gets a credential of http\.credentials only over https:\/\/$/);
      assert.equal(received.length, 0);
    });
  });

  describe("a script's request", () => {
    it("a script's request returns the object of the response", async () => {
      answer = respondWith({ token: "tk" });
      assert.deepEqual(await sendScriptRequest(), { token: "tk" });
      const [{ method, headers } = assert.fail()] = received;
      assert.deepEqual([method, headers["content-type"]], ["GET", "application/json"]);
    });

    it("a script's request sends only the headers and the body that the script states", async () => {
      await sendScriptRequest({ method: "PUT", request: { header: { "X-A": "b" }, body: "{}" } });
      await sendScriptRequest({
        method: "POST",
        request: { body: Buffer.from([0x61, 0xc3, 0xa4]).toString("base64"), bodyIsBytes: true },
      });
      const [first = assert.fail(), second = assert.fail()] = received;
      assert.deepEqual(
        [first.method, first.headers["x-a"], first.headers["content-type"], first.body],
        ["PUT", "b", undefined, "{}"],
      );
      assert.deepEqual([second.body, second.headers["content-length"]], ["aä", "3"]);
    });

    it("a script's request has a longer timeout than a reference's request", async () => {
      answer = (response) => void wait(1300).then(() => respondWith({ a: 1 })(response));
      assert.deepEqual(await sendScriptRequest(), { a: 1 });
      await assert.rejects(fetchReference(), /did not answer in time$/);
    });

    it("a script's request fails for an invalid response", async () => {
      for (const [createAnswer, sentence] of [
        [respondWith({ token: "tk" }, 503), /answers 503$/],
        [respondWith("xx"), /must answer a JSON object$/],
        [respondWith({}, 301, { location: "/" }), /redirects are not followed$/],
      ] as const) {
        answer = createAnswer;
        await assert.rejects(sendScriptRequest(), { message: sentence });
      }
    });

    it("a script's request trusts the CA of the script and presents the script's client certificate", async () => {
      const { ca, cert, key } = certificate;
      assert.deepEqual(await sendScriptRequest({ tls_config: { ca } }, { ca: "" }), { ok: true });
      // The client certificate is a server certificate, so the test server accepts any certificate.
      const options = { cert, key, ca, requestCert: true, rejectUnauthorized: false };
      const server = createServer(options, ({ socket }, response) => {
        const { fingerprint256 } = socket instanceof TLSSocket ? socket.getPeerCertificate() : {};
        respondWith({ fingerprint256 })(response);
      });
      const otherHost = `localhost:${await listen(server)}`;
      try {
        const sendWithTls = (tls_config?: ScriptHttpRequest["tls_config"]) =>
          sendScriptRequest(
            { url: `https://${otherHost}/`, ...(tls_config && { tls_config }) },
            { hosts: [otherHost] },
          );
        assert.deepEqual(await sendWithTls({ ca, client_crt: cert, client_key: key }), {
          fingerprint256: new X509Certificate(cert).fingerprint256,
        });
        assert.deepEqual(await sendWithTls({ ca }), {});
        await assert.rejects(sendWithTls({ ca, client_crt: "x", client_key: key }), (error: Error) => {
          assert.match(error.message, /^tls_config can't be used: /);
          assert.doesNotMatch(error.message, /PRIVATE/);
          return true;
        });
      } finally {
        await close(server);
      }
    });

    it("a script's request trusts only the CA of the script", async () => {
      const otherCertificate = await readOrCreateServerCertificate(join(folder, "other"), "127.0.0.1");
      await assert.rejects(sendScriptRequest({ tls_config: { ca: otherCertificate.ca } }), /could not ask localhost/);
      assert.equal(received.length, 0);
    });
  });
});
