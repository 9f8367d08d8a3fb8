import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { findFreePort } from "../../control-plane/process.ts";
import type { WebhookManifests } from "../../parity/rule-server.ts";

const getFile = (file: string) => fileURLToPath(new URL(file, import.meta.url));

/** Runs a program of this folder to its end, and returns the JSON that it wrote to file descriptor 3. */
export const runNodeAndParseOutput = async (
  file: string,
  {
    args = [],
    options = [],
    env = {},
    worstExitCode = 1,
  }: { args?: string[]; options?: string[]; env?: Record<string, string>; worstExitCode?: number },
): Promise<unknown> => {
  const child = spawn(process.execPath, [...options, getFile(file), ...args], {
    stdio: ["ignore", "ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  const [, , errors, output] = child.stdio;
  const [answer, error] = await Promise.all([
    text(output as NodeJS.ReadableStream),
    text(errors as NodeJS.ReadableStream),
    once(child, "close"),
  ]);
  // By default, exit code 1 is accepted: a check ends with it, because the rules refuse some of the measured manifests.
  if (answer === "" || (child.exitCode ?? 3) > worstExitCode) throw new Error(`${file} ended: ${error.slice(-2000)}`);
  return JSON.parse(answer);
};

/** A process that answers each line of its input with a line of JSON. */
export interface ChildProgram extends AsyncDisposable {
  /** Returns the next line that the process prints, as parsed JSON. */
  next(): Promise<unknown>;
  ask(question?: unknown): Promise<unknown>;
}

/** Starts a program. It ends when its standard input is closed, which also happens if this process is killed. */
export const startChild = (program: string, ...args: string[]): ChildProgram => {
  const child = spawn(program, args, { stdio: "pipe" });
  let errors = "";
  child.stderr.on("data", (chunk) => {
    errors = (errors + chunk).slice(-2000);
  });
  const closed = once(child, "close");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const readNext = async (): Promise<unknown> => {
    const { value, done } = await lines.next();
    if (!done) return JSON.parse(value);
    await closed;
    throw new Error(`${[program, ...args].join(" ")} ended: ${errors}`);
  };
  return {
    next: readNext,
    ask: (question = "") => {
      child.stdin.write(`${JSON.stringify(question)}\n`);
      return readNext();
    },
    [Symbol.asyncDispose]: async () => {
      child.stdin.end();
      await closed;
    },
  };
};

/** Runs a file of this folder in a Node process of its own. */
export const startNodeProcess = (file: string, ...args: string[]) =>
  startChild(process.execPath, getFile(file), ...args);

/** A webhook server in a process of its own, so that its CPU time can be measured. */
export interface MeasuredServer extends AsyncDisposable {
  /** Returns the CPU time that the server has used so far, in milliseconds. */
  cpu(): Promise<number>;
}

const toServer = (child: ChildProgram): MeasuredServer => ({
  cpu: async () => Number(await child.ask()),
  [Symbol.asyncDispose]: () => child[Symbol.asyncDispose](),
});

/** Starts Postern with a postern.yaml; returns its webhook configurations by the rule's or the group's name. */
export const startBenchPostern = async (folder: string, config: string) => {
  const child = startNodeProcess("postern-process.ts", folder, config);
  return { ...toServer(child), manifests: (await child.next()) as Record<string, WebhookManifests> };
};

/** Starts a minimal webhook server written for Node without Postern, as a baseline of the bench. */
export const startMinimalWebhook = async (folder: string) => {
  const child = startNodeProcess("bare-process.ts", folder);
  return { ...toServer(child), url: String(await child.next()) };
};

/** Starts the webhook in Go with which Postern is compared. */
export const startGoWebhook = async (program: string, folder: string) => {
  const child = startChild(program, String(await findFreePort()), folder);
  return { ...toServer(child), url: String(await child.next()) };
};

/**
 * Writes `first` as JSON. Then writes this process's CPU time in milliseconds after each line of input, and ends the
 * process at the end of the input.
 */
export const printThenAnswerWithCpuTime = (first: unknown): void => {
  const write = (value: unknown) => process.stdout.write(`${JSON.stringify(value)}\n`);
  createInterface({ input: process.stdin })
    .on("line", () => {
      const { user, system } = process.cpuUsage();
      write((user + system) / 1000);
    })
    .on("close", () => process.exit());
  write(first);
};
