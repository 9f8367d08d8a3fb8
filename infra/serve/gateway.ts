import { isUtf8 } from "node:buffer";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { isIP } from "node:net";
import type { TLSSocket } from "node:tls";
import { toFailureStatus } from "#lib/failure.ts";
import { Complaint } from "../cli/complaint.ts";
import { listAddressesOfWildcardHost, type ServerCertificate } from "../keys/keys.ts";
import { type ConnectionLimits, limitKeylessConnections } from "./connection-limit.ts";

/** A request that the gateway received. */
export interface GatewayRequest {
  method: string;
  path: string;
  query: string;
  headers: Record<string, string>;
  body: Buffer;
}

interface GatewayAnswer {
  statusCode: number;
  headers: Record<string, string>;
  body: string;
}

/** Answers the requests for one rule. */
export type GatewayHandler = (request: GatewayRequest) => Promise<GatewayAnswer>;

type Admits = (segment: string) => unknown;

/** The HTTPS server of `postern serve`, which imitates API Gateway in front of the rules' handlers. */
export interface ImitatedApiGateway {
  /** The server's own URL, `https://host:port`, with which the URLs in webhook configurations begin. */
  url: string;
  /**
   * Makes the gateway call these handlers from the next request on; requests under way finish with the old handlers.
   * `admits` reports whether
   * the first segment of a path holds a valid key; without it, every request counts as having one.
   */
  serve(handlers: ReadonlyMap<string, GatewayHandler>, admits?: Admits): void;
  close(): Promise<void>;
}

/** The longest time that a function of a rule takes, in milliseconds. */
export const functionTimeout = 10_000;

/** The limits of API Gateway's HTTP APIs and of Lambda, in bytes. */
const limits = {
  body: 10 * 1024 * 1024,
  event: 6 * 1024 * 1024,
  /** The most bytes of all bodies that are being received, so that many slow requests can't fill the memory. */
  held: 256 * 1024 * 1024,
  headers: 10_240,
};

/** Limits for connections; times are in milliseconds. */
interface GatewayLimits extends ConnectionLimits {
  /** The time in which a client must have sent a whole request, in milliseconds. */
  sending: number;
}
const usual: GatewayLimits = {
  sending: 10_000,
  // API servers drop idle connections after 90 s; the client should be the first to close.
  idle: 100_000,
  keyless: 5_000,
  turn: 10,
  connections: 1024,
  // The limit is 512 because an API server may open this many connections at once, before any of them shows a key.
  keylessConnections: 512,
  // The connections in reserve for one address: an API server holds at most 25; several may share an address.
  reserves: 64,
};

/** Opens a server that imitates AWS API Gateway: TLS, routes, events of HTTP API 2.0, and the same limits. */
export const openImitatedApiGateway = async (
  certificate: ServerCertificate,
  host: string,
  port: number,
  changes: Partial<GatewayLimits> = {},
): Promise<ImitatedApiGateway> => {
  const { sending, ...connectionLimits } = { ...usual, ...changes };
  let handlers: ReadonlyMap<string, GatewayHandler> = new Map();
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
      answerRequest(request, handlers, held).then(
        (reply) => sendReply(response, reply, !server.listening),
        // answerRequest rejects only if the client has disconnected before its request was read.
        () => response.destroy(),
      );
    },
  );
  const connections = limitKeylessConnections(server, connectionLimits);
  // API servers hold unused connections in reserve. Node counts a connection without any bytes as a late request, and
  // would close it, perhaps at the moment when the first request is sent.
  server.on("clientError", ({ code = "" }: NodeJS.ErrnoException, socket: TLSSocket) => {
    if (code === late && socket.bytesRead === 0) return;
    if (socket.writable) socket.write(`HTTP/1.1 ${faults[code] ?? "400 Bad Request"}\r\nconnection: close\r\n\r\n`);
    socket.destroy();
  });
  await startListening(server, host, port);
  const { port: bound } = server.address() as AddressInfo;
  return {
    url: `https://${getUrlHost(host)}:${bound}`,
    serve: (fresh, admitting = () => true) => {
      handlers = fresh;
      admits = admitting;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
        connections.closeUnused();
        setTimeout(() => server.closeAllConnections(), functionTimeout).unref();
      }),
  };
};

/** The HTTP status lines of answers to requests that Node can't parse, by Node's error code. */
const late = "ERR_HTTP_REQUEST_TIMEOUT";
const faults: Record<string, string> = {
  [late]: "408 Request Timeout",
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  HPE_CHUNK_EXTENSIONS_OVERFLOW: "413 Payload Too Large",
};

/** Returns the host for URLs: one address of this machine if the server listens on all of them. */
const getUrlHost = (host: string): string => {
  const addresses = listAddressesOfWildcardHost(host);
  const outer = addresses?.find(({ internal, family }) => !internal && family === "IPv4")?.address;
  const name = addresses ? (outer ?? "127.0.0.1") : host;
  return name.includes(":") ? `[${name}]` : name;
};

const createRefusal = (code: number, message: string): GatewayAnswer => {
  return {
    statusCode: code,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(toFailureStatus(code, message)),
  };
};

const tooLarge = createRefusal(413, `the review is larger than the ${limits.event} bytes that Lambda takes`);

const answerRequest = async (
  request: IncomingMessage,
  handlers: ReadonlyMap<string, GatewayHandler>,
  held: { bytes: number },
): Promise<GatewayAnswer> => {
  const [path = "", query = ""] = (request.url ?? "").split("?", 2);
  const [, , name = ""] = path.split("/");
  const handler = handlers.get(name);
  if (handler === undefined) return createRefusal(404, "there is nothing here");
  const body = await readBody(request, held);
  if (body === undefined) return tooLarge;
  const headers = Object.fromEntries(Object.entries(request.headers).map(([key, value]) => [key, String(value)]));
  if (body.length > limits.event / 2 && measureEvent(headers, body) > limits.event) return tooLarge;
  return handler({ method: request.method ?? "", path, query, headers, body });
};

/**
 * Returns the body; undefined if it is larger than API Gateway takes, or if all bodies together exceed `held`. A body
 * that is too large is still received to the end, because the client reads no response before that, but it isn't kept.
 */
const readBody = (request: IncomingMessage, held: { bytes: number }): Promise<Buffer | undefined> => {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer | undefined>();
  const chunks: Buffer[] = [];
  let kept = 0;
  let large = false;
  // A request's body is read by `data` events, because async iteration (`for await`) takes longer than a small rule.
  request.on("data", (chunk: Buffer) => {
    large ||= kept + chunk.length > limits.body || held.bytes + chunk.length > limits.held;
    const growth = large ? -kept : chunk.length;
    held.bytes += growth;
    kept += growth;
    if (large) chunks.length = 0;
    else chunks.push(chunk);
  });
  const release = (act: () => void) => {
    held.bytes -= kept;
    kept = 0;
    act();
  };
  request.on("end", () => {
    const body = chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks);
    release(() => resolve(large ? undefined : body));
  });
  request.on("error", (error) => release(() => reject(error)));
  return promise;
};

/** Returns the bytes of a request's event in Lambda: a UTF-8 body as text in JSON, any other as base64. */
const measureEvent = (headers: Record<string, string>, body: Buffer): number =>
  Buffer.byteLength(JSON.stringify({ headers, body: body.toString(isUtf8(body) ? "utf8" : "base64") }));

const sendReply = (response: ServerResponse, { statusCode, headers, body }: GatewayAnswer, closing: boolean) => {
  const close = (closing || statusCode === 413) && { connection: "close" };
  response.writeHead(statusCode, { ...headers, "content-length": Buffer.byteLength(body), ...close });
  // The body is passed as a string: Node sends a string in one piece with the headers.
  response.end(body);
};

const startListening = (server: Server, host: string, port: number): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const taken = error.code === "EADDRINUSE";
      const sentence = taken ? "is in use; --port takes another" : `can't be listened on: ${error.message}`;
      reject(new Complaint(`port ${port} of ${host} ${sentence}`, 1));
    });
    // A host name may stand for any address of this machine, so the server listens on all of them.
    server.listen(port, isIP(host) || host === "localhost" ? host : undefined, resolve);
  });
