import { createServer, request } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import type { ServerCertificate } from "../../infra/keys/keys.ts";
import type { TestCluster } from "../control-plane/cluster.ts";
import { listen } from "../listen.ts";

/** A fault of a request. */
export type Fault =
  /** The request is late by this many milliseconds. */
  | { milliseconds: number }
  /** The proxy answers in place of the API server. */
  | { status: number; headers?: Record<string, string>; body?: string | Buffer }
  /** The connection breaks before or amid the API server's answer. */
  | { broken: "before" | "amid" };

/** Opens a proxy in front of an API server. The proxy causes faults on demand. */
export const openFaulty = async ({ server, ca }: TestCluster, certificate: ServerCertificate) => {
  const faults: Fault[] = [];
  const openSockets = new Set<object>();
  const staleSockets = new WeakSet<object>();
  const paths: string[] = [];
  const listener = createServer({ cert: certificate.cert, key: certificate.key }, async (incoming, outgoing) => {
    if (staleSockets.has(incoming.socket)) return incoming.socket.destroy();
    openSockets.add(incoming.socket);
    paths.push(`${incoming.method} ${incoming.url}`);
    const fault = faults.shift() ?? { milliseconds: 0 };
    if ("milliseconds" in fault) await wait(fault.milliseconds);
    if ("status" in fault) return outgoing.writeHead(fault.status, fault.headers).end(fault.body);
    if ("broken" in fault && fault.broken === "before") return incoming.socket.destroy();
    const { method, headers } = incoming;
    const forwarded = request(`${server}${incoming.url}`, { method, ca, headers });
    forwarded.on("error", () => incoming.socket.destroy());
    forwarded.on("response", (response) => {
      outgoing.writeHead(response.statusCode ?? 500, response.headers);
      if (!("broken" in fault)) return response.pipe(outgoing);
      response.once("data", (chunk: Buffer) => {
        outgoing.write(chunk.subarray(0, chunk.length / 2), () => incoming.socket.destroy());
      });
    });
    incoming.pipe(forwarded);
  });
  return {
    url: `https://127.0.0.1:${await listen(listener)}`,
    /** The faults of the next requests, in their order. Requests after these succeed. */
    faults,
    /** The requests since a caller emptied this list, such as "GET /api/v1/pods". */
    paths,
    /** Closes idle connections, as a load balancer does. */
    hangUp: () => listener.closeIdleConnections(),
    /** Makes every open connection break at its next request, as after a long idle time behind a NAT. */
    goStale: () => {
      for (const socket of openSockets) staleSockets.add(socket);
    },
    stop: async () => {
      listener.close();
      listener.closeAllConnections();
    },
  };
};
