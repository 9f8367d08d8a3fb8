import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";

/** Has a server, of HTTP or HTTPS, listen on loopback; returns its port. */
export const listen = async (server: Pick<Server, "listen" | "address">): Promise<number> => {
  await once(server.listen(0, "127.0.0.1"), "listening");
  // Listening on a port, it has one.
  return (server.address() as AddressInfo).port;
};

/** Ends every connection of a server, and waits until it is closed. */
export const close = async (server: Pick<Server, "closeAllConnections" | "close">): Promise<void> => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
};
