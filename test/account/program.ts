import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import type { ProgramOutput } from "../checkout.ts";

/**
 * Runs a program with this Node until it ends. The signal asks it to stop, and this function still waits for its end: a
 * command that ends by itself gives up the stage's lock.
 */
export const runStoppable = async (words: string[], cwd: string, signal?: AbortSignal): Promise<ProgramOutput> => {
  const env = { ...process.env, CI: "true" };
  // In a process group of its own, it gets no Ctrl-C from the terminal: a second one would end it at once.
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
