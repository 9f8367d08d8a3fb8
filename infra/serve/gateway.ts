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
  /** The server's URL, `https://host:port`. The URLs in webhook configurations begin with it. */
  url: string;
  /**
   * Makes the gateway call these handlers for all new requests. Requests that have begun finish with the old handlers.
   * `admits` reports whether the first segment of a path contains a valid key. Without `admits`, all requests count as
   * requests with a valid key.
   */
  serve(handlers: ReadonlyMap<string, GatewayHandler>, admits?: Admits): void;
  /** Answers all open requests with the code 504 and this message. */
  endRequests(message: string): void;
  close(): Promise<void>;
}

/** The time limit of a rule's function, in milliseconds. */
export const functionTimeout = 10_000;

/** Limits in bytes. Those for a body, an event and headers are the limits of API Gateway's HTTP APIs and of Lambda. */
export const messageLimits = {
  body: 10 * 1024 * 1024,
  event: 6 * 1024 * 1024,
  /** The limit for all bodies together that are being received, so that many slow requests can't fill the memory. */
  allBodies: 256 * 1024 * 1024,
  headers: 10_240,
};

/** Limits for connections. */
interface GatewayLimits extends ConnectionLimits {
  /** The time in which a client must send a whole request. */
  sendingMilliseconds: number;
}
const defaultLimits: GatewayLimits = {
  sendingMilliseconds: 10_000,
  // API servers close idle connections after 90 s. The gateway waits longer, so that it doesn't close them first.
  idleMilliseconds: 100_000,
  // A connection is closed after this time if no request on it had a valid key.
  keylessMilliseconds: 5_000,
  // An address may begin a few TLS handshakes in each turn. Its others wait, so that other addresses aren't delayed.
  handshakeTurnMilliseconds: 10,
  connections: 1024,
  // Per address, so many connections may wait for a valid key. An API server may open that many before it sends one.
  keylessConnections: 512,
  // So many unused connections of an address may stay open. An API server keeps up to 25; several may share an address.
  reservesPerAddress: 64,
};

/** Opens a server that imitates AWS API Gateway: TLS, routes, events in format 2.0, and the same limits. */
export const openImitatedApiGateway = async (
  certificate: ServerCertificate,
  host: string,
  port: number,
  changes: Partial<GatewayLimits> = {},
): Promise<ImitatedApiGateway> => {
  const { sendingMilliseconds, ...connectionLimits } = { ...defaultLimits, ...changes };
  let handlers: ReadonlyMap<string, GatewayHandler> = new Map();
  let admits: Admits = () => true;
  const received = { bytes: 0 };
  /** The responses that are not yet sent. */
  const openResponses = new Set<ServerResponse>();
  const server = createServer(
    {
      cert: certificate.cert,
      key: certificate.key,
      minVersion: "TLSv1.2",
      maxHeaderSize: messageLimits.headers,
      headersTimeout: sendingMilliseconds,
      requestTimeout: sendingMilliseconds,
      connectionsCheckingInterval: sendingMilliseconds / 10,
      keepAliveTimeout: connectionLimits.idleMilliseconds,
    },
    (request, response) => {
      const { socket, url = "" } = request;
      // The first segment of the path contains a cluster's key. Connections are limited until a key on them is valid.
      const [, segmentWithKey = ""] = url.split("/", 2);
      if (!connections.hasKey(socket) && admits(segmentWithKey)) connections.admit(socket);
      openResponses.add(response);
      answerRequest(request, handlers, received).then(
        (reply) => openResponses.delete(response) && sendReply(response, reply, server.listening ? "keep" : "close"),
        // answerRequest rejects only if the client disconnects before its whole request is read.
        () => openResponses.delete(response) && response.destroy(),
      );
    },
  );
  const connections = limitKeylessConnections(server, connectionLimits);
  // API servers hold unused connections in reserve. For Node.js, an unused connection is a request that comes too late.
  // If the gateway closed it, a first request could be lost that is sent at the same moment.
  server.on("clientError", ({ code = "" }: NodeJS.ErrnoException, socket: TLSSocket) => {
    if (code === requestTimeoutCode && socket.bytesRead === 0) return;
    if (socket.writable)
      socket.write(`HTTP/1.1 ${statusLines[code] ?? "400 Bad Request"}\r\nconnection: close\r\n\r\n`);
    socket.destroy();
  });
  await startListening(server, host, port);
  const { port: actualPort } = server.address() as AddressInfo;
  return {
    url: `https://${getUrlHost(host)}:${actualPort}`,
    serve: (newHandlers, newAdmits = () => true) => {
      handlers = newHandlers;
      admits = newAdmits;
    },
    endRequests: (message) => {
      for (const response of openResponses) sendReply(response, createRefusal(504, message), "close");
      openResponses.clear();
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

const requestTimeoutCode = "ERR_HTTP_REQUEST_TIMEOUT";
/** The HTTP status for requests that Node.js can't parse, by the error code of Node.js. */
const statusLines: Record<string, string> = {
  [requestTimeoutCode]: "408 Request Timeout",
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  HPE_CHUNK_EXTENSIONS_OVERFLOW: "413 Payload Too Large",
};

/** Returns the host for URLs. If the server listens on all addresses of this machine, returns one of them. */
const getUrlHost = (host: string): string => {
  const addresses = listAddressesOfWildcardHost(host);
  const externalAddress = addresses?.find(({ internal, family }) => !internal && family === "IPv4")?.address;
  const name = addresses ? (externalAddress ?? "127.0.0.1") : host;
  return name.includes(":") ? `[${name}]` : name;
};

const createRefusal = (code: number, message: string): GatewayAnswer => ({
  statusCode: code,
  headers: { "content-type": "application/json" },
  body: JSON.stringify(toFailureStatus(code, message)),
});

const tooLarge = createRefusal(413, `the review is larger than the ${messageLimits.event} bytes that Lambda takes`);

/** Reads a request, and passes it to the handler that the third part of its path names. */
const answerRequest = async (
  request: IncomingMessage,
  handlers: ReadonlyMap<string, GatewayHandler>,
  received: { bytes: number },
): Promise<GatewayAnswer> => {
  const [path = "", query = ""] = (request.url ?? "").split("?", 2);
  const [, , name = ""] = path.split("/");
  const handler = handlers.get(name);
  if (handler === undefined) return createRefusal(404, "there is nothing here");
  const body = await readBody(request, received);
  if (body === undefined) return tooLarge;
  const headers = Object.fromEntries(Object.entries(request.headers).map(([key, value]) => [key, String(value)]));
  // Measuring takes time, so the event of a body below half of the limit isn't measured.
  if (body.length > messageLimits.event / 2 && measureEvent(headers, body) > messageLimits.event) return tooLarge;
  return handler({ method: request.method ?? "", path, query, headers, body });
};

/**
 * Returns the body. Returns undefined if it is larger than API Gateway accepts, or if all bodies together exceed
 * `messageLimits.allBodies`. `received` counts the bytes of all bodies. A body that is too large is received to its end,
 * because the client reads no response before, but it isn't kept in memory.
 */
const readBody = (request: IncomingMessage, received: { bytes: number }): Promise<Buffer | undefined> => {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer | undefined>();
  const chunks: Buffer[] = [];
  let kept = 0;
  let isTooLarge = false;
  // Reading with `for await` would take longer than the evaluation of a small rule, so `data` events are used.
  request.on("data", (chunk: Buffer) => {
    isTooLarge ||= kept + chunk.length > messageLimits.body || received.bytes + chunk.length > messageLimits.allBodies;
    const growth = isTooLarge ? -kept : chunk.length;
    received.bytes += growth;
    kept += growth;
    if (isTooLarge) chunks.length = 0;
    else chunks.push(chunk);
  });
  const release = (act: () => void) => {
    received.bytes -= kept;
    kept = 0;
    act();
  };
  request.on("end", () => {
    const body = chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks);
    release(() => resolve(isTooLarge ? undefined : body));
  });
  request.on("error", (error) => release(() => reject(error)));
  return promise;
};

/** Returns the size of a request's event in Lambda. The event contains a body in UTF-8 as text, others in base64. */
const measureEvent = (headers: Record<string, string>, body: Buffer): number =>
  Buffer.byteLength(JSON.stringify({ headers, body: body.toString(isUtf8(body) ? "utf8" : "base64") }));

const sendReply = (response: ServerResponse, reply: GatewayAnswer, connection: "keep" | "close") => {
  const { statusCode, headers, body } = reply;
  const close = (connection === "close" || statusCode === 413) && { connection: "close" };
  response.writeHead(statusCode, { ...headers, "content-length": Buffer.byteLength(body), ...close });
  // The body is a string, because Node.js sends a string together with the headers in one piece.
  response.end(body);
};

/** Resolves once the server listens. A port in use is a Complaint. */
const startListening = (server: Server, host: string, port: number): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const isInUse = error.code === "EADDRINUSE";
      const sentence = isInUse ? "is in use; --port takes another" : `can't be listened on: ${error.message}`;
      reject(new Complaint(`port ${port} of ${host} ${sentence}`, 1));
    });
    // A host name can mean any address of this machine. With a host name, the server listens on all addresses.
    server.listen(port, isIP(host) || host === "localhost" ? host : undefined, resolve);
  });
