import type { Worker } from "node:worker_threads";
import { Failure, getErrorMessage } from "../failure.ts";
import { type Place, place } from "./cue-files.ts";

export interface Orders {
  wasm: string;
  glue: string;
  /** CUE's memory limit; a multiple of a page of WebAssembly's memory. */
  megabytes: number;
  /** The most characters of a value. */
  longest: number;
}

export interface Message {
  ready?: true;
  value?: string;
  error?: string;
  fatal?: string;
  /** Bytes that CUE holds. */
  memory?: number;
}

export interface Engine {
  /** Evaluates CUE source to JSON; rejects with CUE's message, or at `deadline` (milliseconds since the epoch). */
  evaluate(source: string, deadline?: number): Promise<string>;
  warm(): void;
}

interface Job {
  source: string;
  resolve(value: string): void;
  reject(error: Error): void;
  timer?: NodeJS.Timeout;
}

interface Thread {
  worker?: Worker;
  isReady: boolean;
  isUsed: boolean;
}

/** Bytes of source and characters of value, 4 MiB; a megabyte of object takes CUE some 200 MiB. */
const longest = 4_194_304;
/** The default milliseconds per evaluation: the longest that a cluster waits for an answer. */
const patience = 30_000;

/**
 * Runs CUE in a thread of its own, because an evaluation can only be ended together with its thread. The thread
 * evaluates one script at a time. When it ends, the script that ended it fails, and waiting scripts get a new thread,
 * which starts at once: a start takes up to two seconds, which the next review may not have. An idle thread doesn't
 * keep the process alive.
 */
export const engine = (megabytes = 512): Engine => {
  const waiting: Job[] = [];
  let current: Job | undefined;
  let thread: Thread | undefined;

  const start = (): Thread => {
    const own: Thread = { isReady: false, isUsed: false };
    const over = (sentence: string) => lost(own, new Failure(500, sentence));
    place()
      .then((files) => {
        if (thread === own) own.worker = startWorker(files, megabytes, (message) => heard(own, message), over);
      })
      .catch((error) => over(`CUE can't be started: ${getErrorMessage(error)}`));
    return own;
  };

  const drop = () => {
    thread?.worker?.terminate();
    thread = undefined;
  };

  const restart = () => {
    drop();
    thread = start();
  };

  const heard = (from: Thread, { ready, value, error, fatal, memory = 0 }: Message) => {
    if (from !== thread) return;
    if (fatal !== undefined) return from.isUsed ? again() : lost(from, new Error(fatal));
    if (ready) from.isReady = true;
    else if (current) {
      from.isUsed = true;
      const job = finished(current);
      if (value === undefined) job.reject(new Error(error ?? "CUE has no value"));
      else job.resolve(value);
      // Go never gives memory back.
      if (memory > (megabytes * 2 ** 20) / 2 && waiting.length === 0) restart();
    }
    next();
  };

  /** Retries in a new thread: memory of earlier evaluations may have been the cause. */
  const again = () => {
    restart();
    if (current) waiting.unshift(current);
    current = undefined;
    next();
  };

  /** Fails one evaluation for a thread that ended: the current one, else the next. */
  const lost = (from: Thread, why: Error) => {
    if (from !== thread) return;
    // A thread that never became ready isn't restarted, which could repeat without end.
    if (from.isReady) restart();
    else drop();
    const job = current ?? waiting.shift();
    if (job) finished(job).reject(why);
    next();
  };

  const finished = (job: Job): Job => {
    clearTimeout(job.timer);
    if (job === current) current = undefined;
    return job;
  };

  const late = (job: Job) => {
    if (job === current) restart();
    else waiting.splice(waiting.indexOf(job), 1);
    finished(job).reject(new Failure(504, "the script did not end in time"));
    next();
  };

  const next = () => {
    if (current || waiting.length === 0) return;
    thread ??= start();
    if (!thread.isReady) return;
    current = waiting.shift();
    if (current === undefined) return;
    thread.worker?.postMessage(current.source);
  };

  return {
    evaluate: (source, deadline = Date.now() + patience) =>
      new Promise((resolve, reject) => {
        if (Buffer.byteLength(source) > longest)
          return reject(new Error(`the script and its object have more than ${longest} bytes`));
        const job: Job = { source, resolve, reject };
        // Timers take no more than 31 bits.
        job.timer = setTimeout(late, Math.min(Math.max(deadline - Date.now(), 0), 2 ** 31 - 1), job);
        waiting.push(job);
        next();
      }),
    warm: () => {
      thread ??= start();
    },
  };
};

const startWorker = (
  { worker: file, wasm, glue }: Place,
  megabytes: number,
  heard: (message: Message) => void,
  over: (sentence: string) => void,
): Worker => {
  const workerData: Orders = { wasm, glue, megabytes, longest };
  // Loaded at the first evaluation, not at every cold start.
  const { Worker } = process.getBuiltinModule("node:worker_threads");
  // The thread needs neither our environment nor our flags.
  const worker = new Worker(file, { workerData, env: {}, execArgv: [] });
  worker.on("message", heard);
  worker.on("error", ({ message }) => over(`CUE failed: ${message}`));
  worker.on("exit", () => over("CUE ended before it had a value"));
  // Comes after the listeners, which would undo it.
  worker.unref();
  return worker;
};

let shared: Engine | undefined;
const openShared = () => {
  shared ??= engine();
  return shared;
};

export const evaluate: Engine["evaluate"] = (source, deadline) => openShared().evaluate(source, deadline);
export const warm = () => openShared().warm();
