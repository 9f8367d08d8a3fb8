import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { setTimeout as wait } from "node:timers/promises";

/** A child program, such as etcd, that runs beside this process and is killed when this process ends. */
export interface RunningProgram {
  stop(): Promise<void>;
  /** Returns the program's last output, which has the reason if it failed. */
  tail(): string;
  readonly ended: Promise<unknown>;
}

/**
 * Starts a program inside a shell that reads from this process: when this process ends for any reason, the pipe closes
 * and the shell kills the program. A kill loses only temporary data. A softer signal isn't enough, because an API
 * server that refuses all requests would not end: it would wait for answers to its own requests.
 */
export const startProgram = (program: string, args: string[], env: Record<string, string> = {}): RunningProgram => {
  // Descriptor 3 is the pipe from this process, which the program doesn't inherit. `cat` ends when the pipe closes;
  // then the shell kills the program.
  const guard = `exec 3<&0; "$@" </dev/null 3<&- & child=$!
    { cat <&3; kill -9 "$child"; } >/dev/null 2>&1 & wait "$child"`;
  const child: ChildProcess = spawn("sh", ["-c", guard, "sh", program, ...args], {
    env: { ...process.env, ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
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

/** Waits until a program that serves this URL answers; throws if the program ends. */
export const waitForAnswer = async (url: string, { ended, tail }: RunningProgram): Promise<void> => {
  let isOver = false;
  ended.then(() => {
    isOver = true;
  });
  while (!(await fetch(url).then(Boolean, () => false))) {
    if (isOver) throw new Error(`the program that should serve ${url} ended: ${tail()}`);
    await wait(100);
  }
};

/**
 * Returns a port without a listener, below the range of outgoing connections. No port is returned twice, and each
 * process begins at a different one, because a server may listen on its port only later.
 */
export const findFreePort = async (): Promise<number> => {
  for (;;) {
    const port = 20_000 + (next++ % 12_000);
    if (await isFree(port)) return port;
  }
};
let next = process.pid * 50;

const isFree = (port: number) =>
  new Promise<boolean>((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
