import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { getInflatedContents, readOwnZip } from "../../infra/build/zip.ts";
import { type Outcome, type Running, start } from "../runtime/runtime-api.ts";
import { runtimeClient } from "./tools.ts";

// The processes in which versions of functions run. Each version has a few; those unused for the longest time end
// first.

/** The program of an environment; one version is always the same object. */
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
  /** The lines that the function wrote meanwhile. */
  lines: string[];
  milliseconds: number;
}

export interface Processes {
  run(of: object, program: Program, event: unknown, qualifier: string): Promise<ProgramResult>;
  stop(): Promise<void>;
}

interface Slot {
  running: Running;
  busy: boolean;
  lines: string[];
  used: number;
}

interface Pool {
  slots: Slot[];
  starting: number;
  waiting: (() => void)[];
}

/** Environments of one version at most, and of all versions together if no more are busy. */
const [each, most] = [2, 12];
const client = join(runtimeClient, "index.mjs");

export const openProcesses = async (): Promise<Processes> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-lambda-"));
  const unpacked = new Map<string, Promise<string>>();
  const pools = new Map<object, Pool>();
  let clock = 0;

  const findTask = ({ code, hash }: Program): Promise<string> => {
    const task = unpacked.get(hash) ?? unpack(code, join(folder, Buffer.from(hash, "base64").toString("hex")));
    unpacked.set(hash, task);
    return task;
  };
  const launch = async (program: Program): Promise<Slot> => {
    const environment = { ...program.environment, LAMBDA_TASK_ROOT: await findTask(program) };
    const lines: string[] = [];
    const surroundings = { hear: (line: string) => void slot.lines.push(line), patience: program.timeout * 1000 };
    const slot: Slot = { running: await start(client, environment, surroundings), busy: true, lines, used: ++clock };
    return slot;
  };
  const makeRoom = () => {
    const all = [...pools.values()].flatMap((pool) => pool.slots.map((slot) => ({ pool, slot })));
    const idle = all.filter(({ slot }) => !slot.busy).sort((one, other) => one.slot.used - other.slot.used);
    for (const { pool, slot } of idle.slice(0, Math.max(0, all.length + 1 - most))) drop(pool, slot);
  };
  const drop = (pool: Pool, slot: Slot) => {
    pool.slots = pool.slots.filter((one) => one !== slot);
    slot.running.stop().catch(() => {});
  };
  const takeSlot = async (pool: Pool, program: Program): Promise<Slot> => {
    for (;;) {
      for (const slot of pool.slots) if (!slot.busy && slot.running.isOver()) drop(pool, slot);
      const idle = pool.slots.find(({ busy }) => !busy);
      if (idle) return Object.assign(idle, { busy: true, used: ++clock });
      if (pool.slots.length + pool.starting < each) {
        pool.starting += 1;
        makeRoom();
        try {
          const slot = await launch(program);
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
    run: async (of, program, event, qualifier) => {
      const pool = pools.get(of) ?? { slots: [], starting: 0, waiting: [] };
      pools.set(of, pool);
      const slot = await takeSlot(pool, program);
      const begun = performance.now();
      const answer = await slot.running.invoke(event, qualifier).then(
        (payload) => ({ payload, fault: undefined }),
        (error: Outcome) => {
          // One that threw lives on; one that was late or crashed doesn't.
          if (error.reported === undefined || slot.running.isOver()) drop(pool, slot);
          return { payload: error.reported ?? describeCrash(error.message, program), fault: "Unhandled" };
        },
      );
      const milliseconds = performance.now() - begun;
      // Lines that it wrote before the answer have arrived by now: they are read in the same turn as the answer.
      await new Promise(setImmediate);
      const lines = slot.lines.splice(0);
      slot.busy = false;
      pool.waiting.shift()?.();
      return { ...answer, lines, milliseconds };
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

const unpack = async (code: Buffer, task: string): Promise<string> => {
  for (const [file, contents] of Object.entries(readOwnZip(code) ?? {})) {
    await mkdir(dirname(join(task, file)), { recursive: true });
    await writeFile(join(task, file), getInflatedContents(contents));
  }
  return task;
};
