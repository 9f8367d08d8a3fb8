import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { Agent, request as httpsRequest, type RequestOptions } from "node:https";
import { type AddressInfo, connect as connectPlain, createServer as createPlainServer } from "node:net";
import { afterEach, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { createEndpoint } from "#lib/core/endpoint.ts";
import { createUrlKeyVerifier } from "#lib/core/url-key.ts";
import { rule } from "#lib/rule.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { readOrCreateServerCertificate, type ServerCertificate } from "../../infra/keys/keys.ts";
import {
  type GatewayHandler,
  type GatewayRequest,
  type ImitatedApiGateway,
  openImitatedApiGateway,
} from "../../infra/serve/gateway.ts";
import { createGatewayHandler } from "../../infra/serve/handlers.ts";
import { buildGatewayEvent } from "../aws/gateways.ts";
import { createTestFolder } from "../folders.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { buildPodReview } from "../requests.ts";
import { readRows } from "../rows.ts";

// Tests the gateway, over real TLS and on a free port.
const folder = await createTestFolder();
let certificate: ServerCertificate;
before(async () => {
  certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
});

const gateways: ImitatedApiGateway[] = [];
afterEach(async () => void (await Promise.all(gateways.splice(0).map((gateway) => gateway.close()))));

const nameRule = rule({
  summary: "Refuses objects named bad.",
  match: [],
  validate: ({ metadata }) => (metadata?.name === "bad" ? "it is bad" : undefined),
});
const signer = createTestSigner(1);
const nameEndpoint = createGatewayHandler(
  createEndpoint(
    nameRule,
    { rule: "check-name", clusters: { local: { keyVersions: [1], mode: "enforce", settings: {} } } },
    { publicKeys: signer.publicKey, openCapabilities: createUnconnectedCapabilities, writeLogLine: () => {} },
  ),
);

const buildReply = (body: string) => ({ statusCode: 200, headers: { "content-type": "text/plain" }, body });
/** Returns a handler that answers only after `release` is called. */
const createWaitingHandler = () => {
  const [started, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const handler: GatewayHandler = async () => {
    started.resolve();
    await released.promise;
    return buildReply("slow");
  };
  return { handler, started: started.promise, release: () => released.resolve() };
};

/** The milliseconds in which a client must send a request, and in which a connection must have used a valid key. */
const longTimeouts = { sendingMilliseconds: 120_000, keylessMilliseconds: 120_000 };

/** Opens a gateway. Its time limits are long, for slow machines, unless a test shortens them. */
const openTestGateway = async (
  handlers: Record<string, GatewayHandler> = {},
  timeouts: Parameters<typeof openImitatedApiGateway>[3] = longTimeouts,
) => {
  const gateway = await openImitatedApiGateway(certificate, "127.0.0.1", 0, timeouts);
  gateways.push(gateway);
  const acceptedKeyVersions = [1];
  const hasValidKey = createUrlKeyVerifier(signer.publicKey, () => acceptedKeyVersions);
  gateway.serve(new Map(Object.entries({ "check-name": nameEndpoint, ...handlers })), hasValidKey);
  return {
    gateway,
    port: Number(new URL(gateway.url).port),
    path: `/${signer.segment("local")}/check-name/validate?timeout=3s`,
  };
};

interface Answer {
  code: number | undefined;
  headers: IncomingMessage["headers"];
  body: string;
  /** Whether the request was sent on the connection of an earlier request. */
  isOnOldConnection: boolean;
}

/** Sends a POST with a body, whole or in chunks, and returns the answer. */
const post = (url: string, body: string | Buffer | AsyncIterable<Buffer>, options: RequestOptions = {}) =>
  new Promise<Answer>((resolve, reject) => {
    const client = httpsRequest(
      url,
      {
        method: "POST",
        ca: certificate.ca,
        ...options,
        headers: { "content-type": "application/json", ...options.headers },
      },
      async (response) => {
        const body = Buffer.concat(await Array.fromAsync(response)).toString();
        const { statusCode: code, headers } = response;
        resolve({ code, headers, body, isOnOldConnection: client.reusedSocket });
      },
    );
    client.on("error", reject);
    if (typeof body === "string" || Buffer.isBuffer(body)) client.end(body);
    else void sendChunks(client, body);
  });

/** Sends chunks until the connection closes. After a chunk that fills the buffer, waits until the buffer is empty. */
const sendChunks = async (client: ReturnType<typeof httpsRequest>, chunks: AsyncIterable<Buffer>) => {
  for await (const chunk of chunks) {
    if (client.destroyed) return;
    if (client.write(chunk)) continue;
    await new Promise<void>((resolve) => {
      const proceed = () => {
        client.off("drain", proceed).off("close", proceed);
        resolve();
      };
      client.on("drain", proceed).on("close", proceed);
    });
  }
  client.end();
};

/** Returns the first bytes that a TLS client sends. */
const captureClientHello = async (): Promise<Buffer> => {
  const server = createPlainServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connectTls((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
  const [socket] = await once(server, "connection");
  const [hello] = await once(socket, "data");
  client.destroy();
  server.close();
  return hello;
};

const printReview = (name: string, uid = "1", fields: object = {}) =>
  JSON.stringify(buildPodReview({ uid, userInfo: {}, object: { metadata: { name }, ...fields } }));

const getVerdict = ({ code, body }: Answer) => [code, JSON.parse(body).response?.allowed];
const getMessage = ({ body }: Answer) => JSON.parse(body).message;
const tooLarge = "the review is larger than the 6291456 bytes that Lambda takes";

/** Opens a TLS connection on which the test writes HTTP itself. */
const openRawConnection = async (
  port: number,
): Promise<{ socket: TLSSocket; readText: () => string; closed: Promise<unknown> }> => {
  const socket = connectTls({ port, host: "127.0.0.1", ca: certificate.ca });
  let text = "";
  socket.on("data", (chunk) => {
    text += chunk;
  });
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.on("close", resolve));
  await once(socket, "secureConnect");
  return { socket, readText: () => text, closed };
};

describe("the gateway", () => {
  it("the gateway answers reviews, and keeps the connection open", async () => {
    const { gateway, path } = await openTestGateway();
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const first = await post(gateway.url + path, printReview("good"), { agent });
    const second = await post(gateway.url + path, printReview("bad"), { agent });
    agent.destroy();
    assert.deepEqual([...getVerdict(first), ...getVerdict(second)], [200, true, 200, false]);
    assert.deepEqual([first.isOnOldConnection, second.isOnOldConnection], [false, true]);
    assert.equal(first.headers["content-type"], "application/json");
  });

  it("the gateway passes a request to the handler with all parts that the event of an HTTP API needs", async () => {
    const requests: GatewayRequest[] = [];
    const { gateway, port } = await openTestGateway({
      tell: async (request) => {
        requests.push(request);
        return buildReply("");
      },
    });
    await post(`${gateway.url}/local.key/tell/mutate?timeout=3s&a=b%20c`, "ä", {
      headers: { "X-Odd": "1", "user-agent": "test" },
    });
    const [request] = requests;
    assert.ok(request);
    const event = buildGatewayEvent(request, "tell");
    const { time, timeEpoch, requestId, ...context } = event.requestContext;
    assert.ok(Date.parse(time) > 0 && timeEpoch > 0 && requestId.length === 36);
    const text = JSON.stringify(readRows(import.meta.filename)).replaceAll("PORT", String(port));
    assert.deepEqual({ event: { ...event, requestContext: context } }, JSON.parse(text));
  });

  it("the gateway sends the same response to an unknown rule and to a wrong key", async () => {
    const { gateway, path } = await openTestGateway();
    const unknownRule = await post(gateway.url + path.replace("check-name", "unknown"), printReview("good"));
    // The wrong key has a new first letter, and lacks the last one.
    const pathWithWrongKey = path.replace("local.", "local.A").replace(/.\/check-name/, "/check-name");
    const wrongKey = await post(gateway.url + pathWithWrongKey, printReview("good"));
    const { date: _, ...headers } = unknownRule.headers;
    const { date: __, ...headersOfWrongKey } = wrongKey.headers;
    assert.deepEqual([unknownRule.code, headers, unknownRule.body], [404, headersOfWrongKey, wrongKey.body]);
    assert.equal(getMessage(wrongKey), "there is nothing here");
  });

  it("the gateway accepts a review of 5 MB", async () => {
    const { gateway, path } = await openTestGateway();
    const answer = await post(gateway.url + path, printReview("good", "1", { data: "x".repeat(5_000_000) }));
    assert.deepEqual(getVerdict(answer), [200, true]);
  });

  const largeBodies: [name: string, body: () => string | AsyncIterable<Buffer>][] = [
    ["7 MB", () => printReview("good", "1", { data: "x".repeat(7_000_000) })],
    ["5 MB that become larger as an event", () => printReview("good", "1", { data: '"'.repeat(2_500_000) })],
    ["20 MB", () => " ".repeat(20_000_000)],
    ["20 MB in chunks", () => generateChunks(20)],
  ];
  for (const [name, body] of largeBodies)
    it(`the gateway refuses ${name} with 413, and continues to serve`, async () => {
      const { gateway, path } = await openTestGateway();
      const answer = await post(gateway.url + path, body());
      assert.deepEqual([answer.code, getMessage(answer)], [413, tooLarge]);
      assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
    });

  it("the gateway reads a body that is too large until its end", async () => {
    const { port, path } = await openTestGateway();
    const { socket, readText, closed } = await openRawConnection(port);
    const body = Buffer.alloc(20 * 1024 * 1024, "x");
    socket.pause();
    socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n`);
    await new Promise((resolve) => socket.write(body, resolve));
    socket.resume();
    await closed;
    assert.match(readText(), /^HTTP\/1\.1 413 /);
  });

  it("the gateway doesn't keep a body of 300 MB in memory", async () => {
    const { gateway, path } = await openTestGateway();
    const buffersBefore = process.memoryUsage().arrayBuffers;
    let largestBuffers = 0;
    const measureChunks = async function* () {
      for await (const chunk of generateChunks(300)) {
        largestBuffers = Math.max(largestBuffers, process.memoryUsage().arrayBuffers - buffersBefore);
        yield chunk;
      }
    };
    assert.equal((await post(gateway.url + path, measureChunks())).code, 413);
    assert.ok(largestBuffers < 100 * 1024 * 1024, `${largestBuffers} bytes`);
  });

  it("the gateway refuses headers over 10,240 bytes with 431, and continues to serve", async () => {
    const { gateway, path } = await openTestGateway();
    const sendHeaders = (length: number) =>
      post(gateway.url + path, printReview("good"), { headers: { "x-long": "x".repeat(length) } });
    assert.equal((await sendHeaders(10_240)).code, 431);
    assert.deepEqual(getVerdict(await sendHeaders(9000)), [200, true]);
  });

  it("the gateway answers 400 for a body that is not UTF-8, and continues to serve", async () => {
    const { gateway, path } = await openTestGateway();
    const answer = await post(gateway.url + path, Buffer.from([0x7b, 0xff, 0x7d]));
    assert.deepEqual(
      [answer.code, getMessage(answer)],
      [400, "the body is not UTF-8; an AdmissionReview as JSON is expected"],
    );
    assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
  });

  const unfinishedRequests: [string, string][] = [
    ["in the middle of its headers", "POST / HTTP/1.1\r\nhost: "],
    ["in the middle of its body", "POST /a/check-name/validate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"],
    [
      "in the middle of a chunk",
      "POST /a/check-name/validate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{",
    ],
  ];
  for (const [name, text] of unfinishedRequests)
    it(`the gateway closes the connection of a client that stops ${name}, and continues to serve`, async () => {
      const { gateway, port, path } = await openTestGateway({}, { sendingMilliseconds: 200 });
      const { socket, closed } = await openRawConnection(port);
      socket.write(text);
      await closed;
      assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
    });

  it("the gateway waits long for a connection's first request if its address has used a valid key", async () => {
    const { gateway, port, path } = await openTestGateway(
      {},
      { sendingMilliseconds: 100, keylessMilliseconds: 2000, idleMilliseconds: 30_000 },
    );
    const agent = new Agent({ keepAlive: true });
    await post(gateway.url + path, printReview("good"), { agent });
    const { socket, closed, readText } = await openRawConnection(port);
    // This pause is longer than the time limits for a request and for a client without a key.
    await wait(3000);
    const body = printReview("good");
    const headers = ["content-type: application/json", "host: x", `content-length: ${body.length}`];
    socket.write(`POST ${path} HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n${body}`);
    while (!readText().includes("\r\n\r\n")) await once(socket, "data");
    assert.match(readText(), /^HTTP\/1\.1 200 /);
    // A later request on the connection has the usual time limit.
    socket.write("POST / HTTP/1.1\r\n");
    await closed;
    assert.match(readText(), /HTTP\/1\.1 408 .*connection: close\r\n\r\n$/s);
    agent.destroy();
  });

  it("the gateway closes an unused connection without an answer, also one of an address with a valid key", async () => {
    const { gateway, port, path } = await openTestGateway(
      {},
      { sendingMilliseconds: 100, keylessMilliseconds: 2000, idleMilliseconds: 2500 },
    );
    const agent = new Agent({ keepAlive: true });
    await post(gateway.url + path, printReview("good"), { agent });
    const { closed, readText } = await openRawConnection(port);
    // The gateway closes the connection after the limit `idle`, because another one of the address has used a key.
    await closed;
    assert.equal(readText(), "");
    agent.destroy();
  });

  it("the gateway keeps only `reserves` unused connections of an IP address that has used a valid key", async () => {
    const { gateway, port, path } = await openTestGateway({}, { keylessMilliseconds: 2000, reservesPerAddress: 1 });
    const agent = new Agent({ keepAlive: true });
    await post(gateway.url + path, printReview("good"), { agent });
    const [first, second] = [await openRawConnection(port), await openRawConnection(port)];
    await second.closed;
    assert.equal(first.socket.destroyed, false);
    agent.destroy();
  });

  it("the gateway closes an unused connection of such an IP address if its first request never ends", async () => {
    const limits = { keylessMilliseconds: 2000, idleMilliseconds: 5000 };
    const { gateway, port, path } = await openTestGateway({}, limits);
    const agent = new Agent({ keepAlive: true });
    await post(gateway.url + path, printReview("good"), { agent });
    const { socket, closed } = await openRawConnection(port);
    await wait(3000);
    assert.equal(socket.destroyed, false);
    socket.write("POST / HTTP/1.1\r\nhost: ");
    await closed;
    agent.destroy();
  });

  const connectionsWithoutKey: [string, string, RegExp][] = [
    ["is silent", "", /^$/],
    ["stops in the middle of its headers", "POST / HTTP/1.1\r\nhost: ", /^$/],
    [
      "sends a wrong key",
      "POST /local.key/check-name/validate HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
      /^HTTP\/1\.1 404 .*there is nothing here/s,
    ],
  ];
  for (const [name, text, answer] of connectionsWithoutKey)
    it(`the gateway closes a connection without a key that ${name}`, async () => {
      const { port } = await openTestGateway({}, { keylessMilliseconds: 1000 });
      const { socket, closed, readText } = await openRawConnection(port);
      socket.write(text);
      await closed;
      assert.match(readText(), answer);
    });
  for (const [name, bytes] of [
    ["never begins", ""],
    ["doesn't end", "\u0016\u0003\u0001\u0002\u0000"],
  ])
    it(`the gateway closes a connection whose handshake ${name}`, async () => {
      const { port } = await openTestGateway({}, { keylessMilliseconds: 1000 });
      const socket = connectPlain(port, "127.0.0.1", () => socket.write(String(bytes)));
      socket.on("error", () => {}).resume();
      await once(socket, "close");
    });

  it("the gateway answers a client with a key while 600 connections have used no key", async () => {
    const { gateway, port, path } = await openTestGateway();
    const sockets = await Promise.all(
      Array.from({ length: 600 }, async () => {
        const socket = connectPlain(port, "127.0.0.1").on("error", () => {});
        await once(socket, "connect");
        return socket;
      }),
    );
    assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
    for (const socket of sockets) socket.destroy();
  });

  it("the gateway begins a handshake for one IP address although another has opened many connections", async () => {
    // In a turn, which lasts for this whole test, the gateway begins at most four handshakes for each address.
    const { port } = await openTestGateway({}, { ...longTimeouts, handshakeTurnMilliseconds: 120_000 });
    const hello = await captureClientHello();
    let answered = 0;
    const flood = Array.from({ length: 400 }, () => {
      const socket = connectPlain({ port, host: "127.0.0.1", localAddress: "127.0.0.1" }, () => socket.write(hello));
      return socket.on("error", () => {}).once("data", () => answered++);
    });
    const otherClient = connectPlain({ port, host: "127.0.0.1", localAddress: "127.0.0.2" }, () =>
      otherClient.write(hello),
    );
    await once(otherClient, "data");
    const answeredBefore = answered;
    for (const socket of [...flood, otherClient]) socket.resetAndDestroy();
    assert.equal(answeredBefore, 4);
  });

  it("the gateway closes an IP address's oldest connections without a key if it has too many connections", async () => {
    const { gateway, port, path } = await openTestGateway({}, { keylessConnections: 2, keylessMilliseconds: 600_000 });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const postReview = () => post(gateway.url + path, printReview("good"), { agent });
    assert.equal((await postReview()).isOnOldConnection, false);
    const [first, second, third, fourth] = [
      await openRawConnection(port),
      await openRawConnection(port),
      await openRawConnection(port),
      await openRawConnection(port),
    ];
    await Promise.all([first.closed, second.closed]);
    assert.deepEqual([third.socket.destroyed, fourth.socket.destroyed], [false, false]);
    assert.equal((await postReview()).isOnOldConnection, true);
    assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
    agent.destroy();
  });

  it("the gateway closes a new connection only if all connections up to the limit have used a valid key", async () => {
    const { gateway, port, path } = await openTestGateway({}, { connections: 2, keylessMilliseconds: 600_000 });
    const agent = new Agent({ keepAlive: true, maxSockets: 2 });
    const postReview = (options: RequestOptions = {}) => post(gateway.url + path, printReview("good"), options);
    await postReview({ agent });
    const { closed } = await openRawConnection(port);
    // Two parallel requests: one of them replaces the connection without a key.
    await Promise.all([postReview({ agent }), postReview({ agent })]);
    await closed;
    await assert.rejects(postReview(), { code: "ECONNRESET" });
    for (let request = 0; request < 2; request++) assert.equal((await postReview({ agent })).isOnOldConnection, true);
    agent.destroy();
  });

  it("the gateway survives a client that disconnects during its request", async () => {
    const { gateway, port, path } = await openTestGateway();
    for (const [, text] of unfinishedRequests) {
      const { socket, closed } = await openRawConnection(port);
      socket.write(text);
      await new Promise((resolve) => socket.write("", resolve));
      socket.destroy();
      await closed;
    }
    assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
  });

  it("the gateway survives a client that disconnects before its response", async () => {
    const { handler, started, release } = createWaitingHandler();
    const { gateway, port, path } = await openTestGateway({ slow: handler });
    const { socket, closed } = await openRawConnection(port);
    socket.write("POST /a/slow/validate HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    await started;
    socket.destroy();
    await closed;
    release();
    assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
  });

  it("the gateway survives a client that disconnects during its response", async () => {
    const { gateway, port, path } = await openTestGateway({ long: async () => buildReply("x".repeat(20_000_000)) });
    const { socket, closed } = await openRawConnection(port);
    socket.write("POST /a/long/validate HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    await once(socket, "data");
    socket.destroy();
    await closed;
    assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
  });

  it("the gateway survives a handler that fails", async () => {
    const { gateway, path } = await openTestGateway({
      broken: async () => {
        throw new Error("broken");
      },
    });
    await assert.rejects(post(gateway.url + path.replace("check-name", "broken"), printReview("good")), {
      code: "ECONNRESET",
    });
    assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
  });

  for (const text of [
    "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "\u0000\u0001\u0002",
    "\u0016\u0003\u0001\u0002\u0000\u0001",
  ])
    it(`the gateway survives ${JSON.stringify(text)} instead of TLS`, async () => {
      const { gateway, port, path } = await openTestGateway({}, { sendingMilliseconds: 500 });
      const socket = connectPlain(port, "127.0.0.1", () => socket.write(text));
      socket.on("error", () => {}).resume();
      await once(socket, "close");
      assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
    });

  it("the gateway survives text that is not HTTP inside TLS", async () => {
    const { gateway, port, path } = await openTestGateway();
    const { socket, readText, closed } = await openRawConnection(port);
    socket.write("hello\r\n\r\n");
    await closed;
    assert.match(readText(), /^HTTP\/1\.1 400 /);
    assert.deepEqual(getVerdict(await post(gateway.url + path, printReview("good"))), [200, true]);
  });

  it("the gateway answers 200 parallel requests, each with its own response", async () => {
    const { gateway, path } = await openTestGateway();
    const uids = Array.from({ length: 200 }, (_, index) => `uid-${index}`);
    const answers = await Promise.all(uids.map((uid) => post(gateway.url + path, printReview("good", uid))));
    assert.deepEqual(
      answers.map(({ body }) => JSON.parse(body).response.uid),
      uids,
    );
  });

  it("the gateway answers 200 pipelined requests in their order", async () => {
    const { port, path } = await openTestGateway();
    const { socket, readText, closed } = await openRawConnection(port);
    const uids = Array.from({ length: 200 }, (_, index) => `uid-${index}`);
    const requests = uids.map((uid, index) => {
      const body = printReview("good", uid);
      const end = index === 199 ? "connection: close\r\n" : "";
      return `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n${end}content-length: ${body.length}\r\n\r\n${body}`;
    });
    socket.write(requests.join(""));
    await closed;
    assert.deepEqual(
      [...readText().matchAll(/"uid":"([^"]+)"/g)].map(([, uid]) => uid),
      uids,
    );
  });

  it("the gateway answers a begun request by its old handler, and later requests by the new one", async () => {
    const { handler, started, release } = createWaitingHandler();
    const { gateway, port } = await openTestGateway({ swapped: handler });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const url = `https://127.0.0.1:${port}/a/swapped/validate`;
    const slowAnswer = post(url, "", { agent });
    await started;
    gateway.serve(new Map([["swapped", async () => buildReply("new")]]));
    const answers = [await post(url, "")];
    release();
    answers.push(await slowAnswer, await post(url, "", { agent }));
    agent.destroy();
    assert.deepEqual(
      answers.map(({ body, isOnOldConnection }) => [body, isOnOldConnection]),
      [
        ["new", false],
        ["slow", false],
        ["new", true],
      ],
    );
  });

  it("the gateway answers the requests that it has when it closes, and accepts no new requests", async () => {
    const { handler, started, release } = createWaitingHandler();
    const { gateway, port } = await openTestGateway({ slow: handler });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const idle = new Agent({ keepAlive: true, maxSockets: 1 });
    await post(`${gateway.url}/a/check-name/validate`, "", { agent: idle });
    const slowRequest = post(`${gateway.url}/a/slow/validate`, "", { agent });
    await started;
    const closing = gateway.close();
    await assert.rejects(post(`https://127.0.0.1:${port}/a/slow/validate`, ""), { code: "ECONNREFUSED" });
    release();
    const { body, headers } = await slowRequest;
    assert.deepEqual([body, headers.connection], ["slow", "close"]);
    await closing;
    agent.destroy();
    idle.destroy();
  });

  it("the closing gateway closes unused connections at once, and the others after their response", async () => {
    const { gateway, port, path } = await openTestGateway();
    const [unused, busy] = [await openRawConnection(port), await openRawConnection(port)];
    busy.socket.write(`POST ${path} HTTP/1.1\r\n`);
    await new Promise((resolve) => busy.socket.write("", resolve));
    const closing = gateway.close();
    await unused.closed;
    const body = printReview("good");
    const headers = ["content-type: application/json", "host: x", `content-length: ${body.length}`];
    busy.socket.write(`${headers.join("\r\n")}\r\n\r\n${body}`);
    await busy.closed;
    assert.match(busy.readText(), /^HTTP\/1\.1 200 /);
    await closing;
  });

  it("the gateway reports that its port is in use", async () => {
    const { port } = await openTestGateway();
    await assert.rejects(openImitatedApiGateway(certificate, "127.0.0.1", port), (error) => {
      assert.ok(error instanceof Complaint);
      assert.deepEqual(
        [error.message, error.exitCode],
        [`port ${port} of 127.0.0.1 is in use; --port takes another`, 1],
      );
      return true;
    });
  });

  it("the gateway reports an address that is not this machine's", async () => {
    await assert.rejects(
      openImitatedApiGateway(certificate, "192.0.2.1", 0),
      /^Error: port 0 of 192\.0\.2\.1 can't be listened on: /,
    );
  });
});

const generateChunks = async function* (megabytes: number) {
  const chunk = Buffer.alloc(1024 * 1024, 32);
  for (let index = 0; index < megabytes; index++) yield chunk;
};
