import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { freePort } from "../parity/control-plane/process.ts";
import type { Manifests } from "../parity/postern.ts";

/** A server in a process of its own, so that the CPU time it uses is nobody else's. */
export interface Server {
  /** Where it is, and whatever else it says when it is ready. */
  readonly said: unknown;
  /** The CPU time it has used so far, in milliseconds. */
  cpu(): Promise<number>;
  stop(): Promise<void>;
}

/** Starts a program that says a line of JSON when it serves, and its CPU time for each line it is sent. */
const startServer = async (program: string, args: string[]): Promise<Server> => {
  const child = spawn(program, args, { stdio: "pipe" });
  let complaint = "";
  child.stderr.on("data", (chunk) => {
    complaint = (complaint + chunk).slice(-2000);
  });
  const ended = once(child, "close");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<unknown> => {
    const { value, done } = await lines.next();
    if (!done) return JSON.parse(value);
    await ended;
    throw new Error(`${[program, ...args].join(" ")} ended: ${complaint}`);
  };
  return {
    said: await next(),
    cpu: async () => {
      child.stdin.write("\n");
      return Number(await next());
    },
    // It ends with its standard input, even if we end by surprise.
    stop: async () => {
      child.stdin.end();
      await ended;
    },
  };
};

/** One of the programs beside this file. */
const startNode = (file: string, ...args: string[]) =>
  startServer(process.execPath, [fileURLToPath(new URL(file, import.meta.url)), ...args]);

/** Postern for a postern.yaml, with its webhook configurations by the rule's or the group's name. */
export const startPostern = async (folder: string, config: string) => {
  const server = await startNode("gateway.ts", folder, config);
  // gateway.ts says no less.
  return { ...server, manifests: server.said as Record<string, Manifests> };
};

/** The webhook by hand, with its URL. */
export const startBare = async (folder: string) => {
  const server = await startNode("bare.ts", folder);
  return { ...server, url: String(server.said) };
};

/** The webhook in Go, with its URL. */
export const startGo = async (program: string, folder: string) => {
  const port = await freePort();
  const server = await startServer(program, [String(port), folder]);
  return { ...server, url: String(server.said) };
};

/** The other end, of those that run in Node. */
export const ready = (said: unknown): void => {
  const say = (what: unknown) => process.stdout.write(`${JSON.stringify(what)}\n`);
  createInterface({ input: process.stdin })
    .on("line", () => {
      const { user, system } = process.cpuUsage();
      say((user + system) / 1000);
    })
    .on("close", () => process.exit());
  say(said);
};
