import { isUtf8 } from "node:buffer";
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { isIP } from "node:net";
import { networkInterfaces } from "node:os";
import type { TLSSocket } from "node:tls";
import type { Context } from "aws-lambda";
import { failureStatus } from "#lib/failure.ts";
import { Complaint } from "../cli/complaint.ts";
import type { ServerCertificate } from "../keys/keys.ts";
import { type ConnectionLimits, limitConnections } from "./connection-limit.ts";

/** A rule's endpoint, as Lambda would call it. */
export type Handler = (event: unknown, context: Context) => Promise<unknown>;

type Admits = (segment: string) => unknown;

export interface Gateway {
  /** `https://host:port`, as a webhook configuration on this machine names it. */
  url: string;
  /**
   * Serves these from the next request on; those under way end as they began. `admits` reports whether the first segment
   * of a path holds a valid key; without it, every request counts as having one.
   */
  serve(handlers: ReadonlyMap<string, Handler>, admits?: Admits): void;
  /** Takes no new connections, answers what it has begun, and ends. */
  close(): Promise<void>;
}

/** What the HTTP API and Lambda hold a request to. */
const limits = {
  body: 10 * 1024 * 1024,
  event: 6 * 1024 * 1024,
  /** Bodies on their way, of all clients together, so that many slow ones can't fill the memory. */
  held: 256 * 1024 * 1024,
  headers: 10_240,
  function: 10_000,
};

/** How many connections there may be, and how long clients are waited for, in milliseconds. */
interface Patience extends ConnectionLimits {
  /** As they send a request. */
  sending: number;
}
const usual: Patience = {
  sending: 10_000,
  // The API server drops idle connections after 90 s; the client should be the first to close.
  idle: 100_000,
  keyless: 5_000,
  connections: 1024,
  // As many as an API server may open at once.
  keylessConnections: 512,
  // An API server holds at most 25 idle connections to one host; several may share an address.
  reserves: 64,
};

/** Stands where API Gateway stands: TLS, routes, events of HTTP API 2.0, and the same limits. */
export const openGateway = async (
  certificate: ServerCertificate,
  host: string,
  port: number,
  patience: Partial<Patience> = {},
): Promise<Gateway> => {
  const { sending, ...connectionLimits } = { ...usual, ...patience };
  let handlers: ReadonlyMap<string, Handler> = new Map();
  let admits: Admits = () => true;
  const held = { bytes: 0 };
  const server = createServer(
    {
      cert: certificate.cert,
      key: certificate.key,
      minVersion: "TLSv1.2",
      maxHeaderSize: limits.headers,
      headersTimeout: sending,
      requestTimeout: sending,
      connectionsCheckingInterval: sending / 10,
      keepAliveTimeout: connectionLimits.idle,
    },
    (request, response) => {
      const { socket, url = "" } = request;
      if (!connections.hasKey(socket) && admits(url.split("/", 2)[1] ?? "")) connections.admit(socket);
      answer(request, handlers, held).then(
        (reply) => send(response, reply, !server.listening),
        // The client is gone; there is nobody to answer.
        () => response.destroy(),
      );
    },
  );
  const connections = limitConnections(server, connectionLimits);
  // The API server holds connections in reserve. Node counts those that brought no byte yet among the busy ones, and
  // would close them as late, perhaps at the very moment that the first request is sent.
  server.on("clientError", ({ code = "" }: NodeJS.ErrnoException, socket: TLSSocket) => {
    if (code === late && socket.bytesRead === 0) return;
    if (socket.writable) socket.write(`HTTP/1.1 ${faults[code] ?? "400 Bad Request"}\r\nconnection: close\r\n\r\n`);
    socket.destroy();
  });
  await listen(server, host, port);
  const { port: bound } = server.address() as AddressInfo;
  return {
    url: `https://${named(host)}:${bound}`,
    serve: (fresh, admitting = () => true) => {
      handlers = fresh;
      admits = admitting;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
        connections.closeUnused();
        setTimeout(() => server.closeAllConnections(), limits.function).unref();
      }),
  };
};

/** What a client is told whose request can't be read, by Node's code for it. */
const late = "ERR_HTTP_REQUEST_TIMEOUT";
const faults: Record<string, string> = {
  [late]: "408 Request Timeout",
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  HPE_CHUNK_EXTENSIONS_OVERFLOW: "413 Payload Too Large",
};

/** How others name this machine: one that listens everywhere has no name, but addresses. */
const named = (host: string): string => {
  const everywhere = host === "0.0.0.0" || host === "::";
  const addresses = Object.values(networkInterfaces()).flatMap((list = []) => list);
  const outer = everywhere ? addresses.find(({ internal, family }) => !internal && family === "IPv4")?.address : host;
  const name = outer ?? "127.0.0.1";
  return name.includes(":") ? `[${name}]` : name;
};

interface Reply {
  statusCode: number;
  headers: Record<string, string>;
  body: string;
}

const refusal = (code: number, message: string): Reply => {
  return {
    statusCode: code,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(failureStatus(code, message)),
  };
};

const tooLarge = refusal(413, `the review is larger than the ${limits.event} bytes that Lambda takes`);

const answer = async (
  request: IncomingMessage,
  handlers: ReadonlyMap<string, Handler>,
  held: { bytes: number },
): Promise<Reply> => {
  const [path = "", query = ""] = (request.url ?? "").split("?", 2);
  const [, , name = ""] = path.split("/");
  const handler = handlers.get(name);
  if (handler === undefined) return refusal(404, "there is nothing here");
  const body = await read(request, held);
  if (body === undefined) return tooLarge;
  const event = eventOf(request, path, query, name, body);
  if (body.length > limits.event / 2 && Buffer.byteLength(JSON.stringify(event)) > limits.event) return tooLarge;
  // An endpoint answers in this shape, whatever it is asked.
  return (await handler(event, contextOf(name))) as Reply;
};

/**
 * The body, or undefined where it is larger than API Gateway takes, or all that are on their way are. Such a one is
 * heard out, or its client would never hear us, but not kept.
 */
const read = (request: IncomingMessage, held: { bytes: number }): Promise<Buffer | undefined> => {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer | undefined>();
  const chunks: Buffer[] = [];
  let kept = 0;
  let large = false;
  // Events: to iterate over a request costs more than a small rule does.
  request.on("data", (chunk: Buffer) => {
    large ||= kept + chunk.length > limits.body || held.bytes + chunk.length > limits.held;
    const more = large ? -kept : chunk.length;
    held.bytes += more;
    kept += more;
    if (large) chunks.length = 0;
    else chunks.push(chunk);
  });
  const settle = (act: () => void) => {
    held.bytes -= kept;
    kept = 0;
    act();
  };
  request.on("end", () => {
    const body = chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks);
    settle(() => resolve(large ? undefined : body));
  });
  request.on("error", (error) => settle(() => reject(error)));
  return promise;
};

/** As the HTTP API makes it: text where the body is text, base64 where it isn't. */
const eventOf = (request: IncomingMessage, path: string, query: string, rule: string, body: Buffer) => {
  const headers = Object.fromEntries(Object.entries(request.headers).map(([key, value]) => [key, String(value)]));
  const routeKey = `POST /{cluster}/${rule}/{phase+}`;
  const text = isUtf8(body);
  const now = Date.now();
  return {
    version: "2.0",
    routeKey,
    rawPath: path,
    rawQueryString: query,
    headers,
    ...(query && { queryStringParameters: Object.fromEntries(new URLSearchParams(query)) }),
    requestContext: {
      accountId: "anonymous",
      apiId: "local",
      domainName: headers.host ?? "",
      domainPrefix: "local",
      http: {
        method: request.method ?? "",
        path,
        protocol: `HTTP/${request.httpVersion}`,
        sourceIp: request.socket.remoteAddress ?? "",
        userAgent: headers["user-agent"] ?? "",
      },
      requestId: randomUUID(),
      routeKey,
      stage: "$default",
      time: new Date(now).toUTCString(),
      timeEpoch: now,
    },
    body: body.toString(text ? "utf8" : "base64"),
    isBase64Encoded: !text,
  };
};

const contextOf = (name: string): Context => {
  const end = performance.now() + limits.function;
  const context: Partial<Context> = {
    functionName: name,
    functionVersion: "local",
    getRemainingTimeInMillis: () => end - performance.now(),
  };
  // Endpoints look at no more of it.
  return context as Context;
};

const send = (response: ServerResponse, { statusCode, headers, body }: Reply, closing: boolean) => {
  const close = (closing || statusCode === 413) && { connection: "close" };
  response.writeHead(statusCode, { ...headers, "content-length": Buffer.byteLength(body), ...close });
  // A text leaves in one piece with the headers before it.
  response.end(body);
};

const listen = (server: Server, host: string, port: number): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const taken = error.code === "EADDRINUSE";
      const sentence = taken ? "is in use; --port takes another" : `can't be listened on: ${error.message}`;
      reject(new Complaint(`port ${port} of ${host} ${sentence}`, 1));
    });
    // A name stands for every address of this machine: the one who calls knows which.
    server.listen(port, isIP(host) || host === "localhost" ? host : undefined, resolve);
  });
