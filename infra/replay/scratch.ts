import { type ChildProcess, execFile } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface ProcessResult {
  code: number;
  stdout: string;
  stderr: string;
}

/** The temporary folders and child processes of one command that asks other versions. */
export interface ReplayFoldersAndProcesses {
  folder(): Promise<string>;
  /** Registers a child process, which `remove` will kill. */
  trackChild(child: ChildProcess): void;
  run(program: string, words: string[], place: { cwd: string; env?: NodeJS.ProcessEnv }): Promise<ProcessResult>;
  /** Kills the child processes and deletes the folders. Synchronous: this process may exit right after it. */
  remove(): void;
}

const createReplayFoldersAndProcesses = (): ReplayFoldersAndProcesses => {
  const folders: string[] = [];
  const children = new Set<ChildProcess>();
  const trackChild = (child: ChildProcess) => {
    children.add(child);
    child.once("close", () => children.delete(child));
  };
  return {
    folder: async () => {
      const folder = await mkdtemp(join(tmpdir(), "postern-replay-"));
      folders.push(folder);
      return folder;
    },
    trackChild,
    run: (program, words, place) =>
      new Promise((resolve) => {
        const child = execFile(program, words, { ...place, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
          // The error's `code` is a text such as ENOENT, not an exit code, if the program didn't start.
          const code = error === null ? 0 : typeof error.code === "number" ? error.code : 1;
          resolve({ code, stdout, stderr: stderr || (error?.message ?? "") });
        });
        trackChild(child);
      }),
    remove: () => {
      for (const child of children) child.kill("SIGKILL");
      for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
};

const signals = ["SIGINT", "SIGTERM", "SIGHUP"];

/** Runs a command with temporary folders and child processes, and removes them at its end or when a signal ends it. */
export const runWithScratch = async (act: (scratch: ReplayFoldersAndProcesses) => Promise<number>): Promise<number> => {
  const scratch = createReplayFoldersAndProcesses();
  const createExit = (code: number) => () => {
    scratch.remove();
    process.exit(code);
  };
  // Exits with 3 if standard output is closed early: without a verdict, the exit code must not be 0.
  const [exitOnSignal, exitWithoutReader] = [createExit(130), createExit(3)];
  for (const signal of signals) process.once(signal, exitOnSignal);
  process.stdout.prependListener("error", exitWithoutReader);
  try {
    return await act(scratch);
  } finally {
    for (const signal of signals) process.off(signal, exitOnSignal);
    process.stdout.off("error", exitWithoutReader);
    scratch.remove();
  }
};
