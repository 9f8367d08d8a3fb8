import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import type { ProgramOutput } from "../checkout.ts";

/**
 * Runs a program with this Node until it ends. When `signal` is aborted, the program gets SIGINT, and this function
 * waits for its end: a command that ends after SIGINT releases the stage's lock.
 */
export const runStoppable = async (words: string[], cwd: string, signal?: AbortSignal): Promise<ProgramOutput> => {
  const env = { ...process.env, CI: "true" };
  // `detached` gives the program its own process group. So a Ctrl-C in the terminal doesn't reach it: together with the
  // SIGINT below, it would be the second one, which ends the program at once.
  const child = spawn(process.execPath, words, { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  const stop = () => void child.kill("SIGINT");
  signal?.addEventListener("abort", stop, { once: true });
  const ended = new Promise<number>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve(code ?? 1));
  });
  try {
    const [stdout, stderr, code] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
    return { code, stdout, stderr };
  } finally {
    signal?.removeEventListener("abort", stop);
  }
};
