import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** Opens a TCP proxy to a URL of this machine. It passes on all bytes after a delay, which is in milliseconds. */
export const openDelayProxy = async (target: string, getDelay: () => number) => {
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(Number(new URL(target).port), "127.0.0.1");
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from.setNoDelay());
      const pass = (act: () => void) => (getDelay() === 0 ? act() : setTimeout(act, getDelay()));
      from.on("data", (bytes) => pass(() => to.write(bytes)));
      from.on("end", () => pass(() => to.end()));
      from.on("error", () => to.destroy());
      from.on("close", () => sockets.delete(from));
    }
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
};
