import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { getInflatedContents, readOwnZip } from "../../infra/build/zip.ts";
import { type FunctionError, type RunningFunction, start } from "../runtime/runtime-api.ts";
import { runtimeClient } from "./tools.ts";

// The processes that run versions of functions. A version has at most `perVersion` processes. If there are too many
// processes in total, the processes that were idle for the longest time are ended.

/** The program of a version. */
export interface Program {
  code: Buffer;
  /** The hash of the code. */
  hash: string;
  environment: Record<string, string>;
  /** Seconds. */
  timeout: number;
}

export interface ProgramResult {
  payload: unknown;
  /** The value of `x-amz-function-error`. */
  fault: string | undefined;
  /** The lines that the function logged. */
  lines: string[];
  milliseconds: number;
}

export interface Processes {
  /** Handles an event in a process of the version that `versionKey` stands for. `qualifier` ends the function's ARN. */
  run(versionKey: object, program: Program, event: unknown, qualifier: string): Promise<ProgramResult>;
  stop(): Promise<void>;
}

interface KillableProcesses extends Processes {
  /** Kills one of the processes that handle an event, chosen by a number from 0 to below 1; false if there is none. */
  kill(choice: number): boolean;
}

/** A process that runs a version, and handles one event at a time. */
interface Slot {
  running: RunningFunction;
  busy: boolean;
  lines: string[];
  /** A number that is larger the later the process was used. */
  lastUse: number;
}

/** The processes of a version. */
interface Pool {
  slots: Slot[];
  /** The number of processes that are being started. */
  starting: number;
  /** Wakes the callers that wait for an idle process. */
  waiting: (() => void)[];
}

/** The maximum number of processes of all versions together, unless more are busy. */
const mostProcesses = 12;
const client = join(runtimeClient, "index.mjs");

export const openProcesses = async (perVersion = 2): Promise<KillableProcesses> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-lambda-"));
  const unpacked = new Map<string, Promise<string>>();
  const pools = new Map<object, Pool>();
  let useCount = 0;

  /** Returns the folder with a program's files. */
  const findTaskFolder = ({ code, hash }: Program): Promise<string> => {
    const taskFolder = unpacked.get(hash) ?? unpack(code, join(folder, Buffer.from(hash, "base64").toString("hex")));
    unpacked.set(hash, taskFolder);
    return taskFolder;
  };
  const startSlot = async (program: Program): Promise<Slot> => {
    const environment = { ...program.environment, LAMBDA_TASK_ROOT: await findTaskFolder(program) };
    const lines: string[] = [];
    const host = { onLine: (line: string) => void slot.lines.push(line), patience: program.timeout * 1000 };
    const slot: Slot = { running: await start(client, environment, host), busy: true, lines, lastUse: ++useCount };
    return slot;
  };
  /** Ends idle processes, so that another one can start. */
  const makeRoom = () => {
    const slots = [...pools.values()].flatMap((pool) => pool.slots.map((slot) => ({ pool, slot })));
    const idle = slots.filter(({ slot }) => !slot.busy).sort((left, right) => left.slot.lastUse - right.slot.lastUse);
    const surplus = Math.max(0, slots.length + 1 - mostProcesses);
    for (const { pool, slot } of idle.slice(0, surplus)) endProcess(pool, slot);
  };
  const endProcess = (pool: Pool, slot: Slot) => {
    pool.slots = pool.slots.filter((other) => other !== slot);
    slot.running.stop().catch(() => {});
  };
  /** Returns an idle process of a version or a new one, and waits if the version has its maximum number. */
  const takeSlot = async (pool: Pool, program: Program): Promise<Slot> => {
    for (;;) {
      for (const slot of pool.slots) if (!slot.busy && slot.running.isOver()) endProcess(pool, slot);
      const idle = pool.slots.find(({ busy }) => !busy);
      if (idle) return Object.assign(idle, { busy: true, lastUse: ++useCount });
      if (pool.slots.length + pool.starting < perVersion) {
        pool.starting += 1;
        makeRoom();
        try {
          const slot = await startSlot(program);
          pool.slots.push(slot);
          return slot;
        } finally {
          pool.starting -= 1;
        }
      }
      await new Promise<void>((resolve) => pool.waiting.push(resolve));
    }
  };

  return {
    run: async (versionKey, program, event, qualifier) => {
      const pool = pools.get(versionKey) ?? { slots: [], starting: 0, waiting: [] };
      pools.set(versionKey, pool);
      const slot = await takeSlot(pool, program);
      const begun = performance.now();
      const answer = await slot.running.invoke(event, qualifier).then(
        (payload) => ({ payload, fault: undefined }),
        (error: FunctionError) => {
          // A process survives an exception, but not a timeout or a crash.
          if (error.reported === undefined || slot.running.isOver()) endProcess(pool, slot);
          return { payload: error.reported ?? describeCrash(error.message, program), fault: "Unhandled" };
        },
      );
      const milliseconds = performance.now() - begun;
      // Lines that were written before the answer arrive in the same turn of the event loop.
      await new Promise(setImmediate);
      const lines = slot.lines.splice(0);
      slot.busy = false;
      pool.waiting.shift()?.();
      return { ...answer, lines, milliseconds };
    },
    kill: (choice) => {
      const busy = [...pools.values()].flatMap(({ slots }) => slots.filter((slot) => slot.busy));
      const killed = busy[Math.floor(choice * busy.length)];
      killed?.running.stop().catch(() => {});
      return killed !== undefined;
    },
    stop: async () => {
      const slots = [...pools.values()].flatMap((pool) => pool.slots);
      await Promise.all(slots.map(({ running }) => running.stop().catch(() => {})));
      await rm(folder, { recursive: true, force: true });
    },
  };
};

const describeCrash = (message: string, { timeout }: Program) =>
  message.startsWith("no answer within")
    ? { errorType: "Sandbox.Timedout", errorMessage: `Task timed out after ${timeout.toFixed(2)} seconds` }
    : { errorType: "Runtime.ExitError", errorMessage: message };

/** Writes the files of a zip into a folder, and returns the folder. */
export const unpack = async (code: Buffer, folder: string): Promise<string> => {
  for (const [file, contents] of Object.entries(readOwnZip(code) ?? {})) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), getInflatedContents(contents));
  }
  return folder;
};
