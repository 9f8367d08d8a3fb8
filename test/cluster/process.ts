import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";

/** A program that runs beside the tests, and never longer than they do. */
export interface Running {
  stop(): Promise<void>;
  /** What it printed last, for whoever has to find out why it failed. */
  tail(): string;
  readonly ended: Promise<unknown>;
}

/**
 * Its standard input is ours: when we end, however that comes, the pipe closes and the shell around it ends it. At once:
 * nothing that it keeps is wanted any more, and an API server that refuses everything waits for itself as it ends.
 */
export const run = (program: string, args: string[]): Running => {
  const guard = '"$@" </dev/null & child=$!; cat >/dev/null; kill -9 "$child"; wait "$child"';
  const child: ChildProcess = spawn("sh", ["-c", guard, "sh", program, ...args], { stdio: ["pipe", "pipe", "pipe"] });
  let printed = "";
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (chunk) => {
      printed = (printed + chunk).slice(-4000);
    });
  const ended = once(child, "exit");
  return {
    ended,
    tail: () => printed,
    stop: async () => {
      child.stdin?.destroy();
      await ended;
    },
  };
};

/** Ports that nobody listens on now. */
export const freePorts = async (count: number): Promise<number[]> => {
  const servers = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  const ports = servers.map((server) => {
    const address = server.address();
    return typeof address === "object" && address ? address.port : 0;
  });
  await Promise.all(servers.map((server) => new Promise((closed) => server.close(closed))));
  return ports;
};
