import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import type { GatewayHandler } from "../../infra/serve/gateway.ts";
import { listen } from "../listen.ts";

/** The faults that all endpoints can have. Each name says what the endpoints do. */
export const endpointFaults = ["hang", "reset connections", "answer after 2.9 s", "are down", "answer 500"] as const;
export type EndpointFault = (typeof endpointFaults)[number];

/** Opens a proxy in front of a gateway. The proxy can give all endpoints of the gateway the same fault. */
export const openFaultyEndpoints = async (getGatewayUrl: () => string) => {
  let fault: EndpointFault | undefined;
  const openSockets = new Set<Socket>();
  const forward = (incoming: Socket) => {
    openSockets.add(incoming.on("close", () => openSockets.delete(incoming)).on("error", () => {}));
    if (fault === "reset connections") incoming.resetAndDestroy();
    if (fault === "reset connections" || fault === "hang") return;
    const outgoing = connect(Number(new URL(getGatewayUrl()).port), "127.0.0.1");
    outgoing.on("error", () => incoming.destroy()).on("close", () => incoming.destroy());
    incoming.on("close", () => outgoing.destroy());
    incoming.pipe(outgoing).pipe(incoming);
  };
  const server = createServer({ pauseOnConnect: true }, forward);
  const port = await listen(server);

  return {
    url: `https://127.0.0.1:${port}`,
    /** Ends the present fault, and begins the next fault, if any. */
    begin: async (nextFault?: EndpointFault) => {
      if (fault === "are down") await once(server.listen(port, "127.0.0.1"), "listening");
      fault = nextFault;
      if (fault === "are down") server.close();
      for (const socket of openSockets)
        if (fault === "hang") socket.unpipe().pause();
        else socket.resetAndDestroy();
    },
    /** Returns a handler that answers as the given one, but late or with 500 if this is the present fault. */
    wrap:
      (handler: GatewayHandler): GatewayHandler =>
      async (request) => {
        const isLate = fault === "answer after 2.9 s";
        if (fault === "answer 500") return { statusCode: 500, headers: {}, body: "" };
        const [answer] = await Promise.all([handler(request), isLate && wait(2900)]);
        return answer;
      },
    stop: async () => {
      server.close();
      for (const socket of openSockets) socket.destroy();
    },
  };
};
