import { once } from "node:events";
import type { Server as HttpServer } from "node:http";
import type { AddressInfo, Server } from "node:net";

/** Starts a server on a free port of loopback, and returns the port. */
export const listen = async (server: Pick<Server, "listen" | "address">): Promise<number> => {
  await once(server.listen(0, "127.0.0.1"), "listening");
  // A server that listens on a port has this kind of address.
  return (server.address() as AddressInfo).port;
};

/** Closes a server and all its connections. */
export const close = async (server: Pick<HttpServer, "closeAllConnections" | "close">): Promise<void> => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
};
