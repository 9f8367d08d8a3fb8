import { type ChildProcess, type ExecFileException, execFile } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface ProcessResult {
  code: number;
  stdout: string;
  stderr: string;
}

/** The temporary folders and child processes of one command that runs other versions of the rules. */
export interface ReplayFoldersAndProcesses {
  /** Creates a temporary folder, which `remove` will delete. */
  folder(): Promise<string>;
  /** Registers a child process, which `remove` will kill. */
  trackChild(child: ChildProcess): void;
  run(program: string, words: string[], options: { cwd: string; env?: NodeJS.ProcessEnv }): Promise<ProcessResult>;
  /** Kills the child processes and deletes the folders. Synchronous, because the process may exit right after it. */
  remove(): void;
}

const maxOutputBytes = 64 * 1024 * 1024;

/** If a program didn't start, the error's `code` is a text such as ENOENT: this counts as exit code 1. */
const getExitCode = (error: ExecFileException | null): number => {
  if (error === null) return 0;
  return typeof error.code === "number" ? error.code : 1;
};

/** Creates folders and processes for a replay. `remove` deletes and ends them all. */
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
    run: (program, words, options) =>
      new Promise((resolve) => {
        const child = execFile(program, words, { ...options, maxBuffer: maxOutputBytes }, (error, stdout, stderr) => {
          resolve({ code: getExitCode(error), stdout, stderr: stderr || (error?.message ?? "") });
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

/**
 * Runs a command that uses temporary folders and child processes. Removes them when the command ends, or when a signal
 * ends this process.
 */
export const runWithScratch = async (act: (scratch: ReplayFoldersAndProcesses) => Promise<number>): Promise<number> => {
  const scratch = createReplayFoldersAndProcesses();
  const createExit = (code: number) => () => {
    scratch.remove();
    process.exit(code);
  };
  // Exits with 3 if the reader closes standard output early, because exit code 0 would mean that no answers differ.
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
