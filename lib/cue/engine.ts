import type { Worker } from "node:worker_threads";
import { Failure, getErrorMessage } from "../failure.ts";
import { type CueRuntimePaths, locateOrUnpackCueFiles } from "./cue-files.ts";

export interface CueWorkerSettings {
  wasm: string;
  glue: string;
  /** CUE's memory limit; a multiple of a page of WebAssembly's memory. */
  megabytes: number;
  /** The most characters of JSON that the evaluation of a script may return. */
  longest: number;
}

export interface MessageFromCueWorker {
  ready?: true;
  value?: string;
  error?: string;
  fatal?: string;
  /** The memory that CUE uses after the evaluation, in bytes. */
  memory?: number;
}

export interface CueEngine {
  /** Evaluates CUE source to JSON; rejects with CUE's message, or at `deadline` (milliseconds since the epoch). */
  evaluate(source: string, deadline?: number): Promise<string>;
  warmUp(): void;
}

interface Evaluation {
  source: string;
  resolve(value: string): void;
  reject(error: Error): void;
  timer?: NodeJS.Timeout;
}

interface EvaluationThread {
  isReady: boolean;
  isUsed: boolean;
  evaluate(source: string): void;
  end(): void;
}

/** The most bytes of a script, and characters of its result. CUE needs some 200 MiB of memory per MB of object. */
const maximumLength = 4_194_304;
/** The default milliseconds per evaluation: the longest that a cluster waits for an answer. */
const defaultTimeout = 30_000;

/**
 * Runs CUE in a thread of its own, because an evaluation can only be ended together with its thread. The thread
 * evaluates one script at a time. When it ends, the script that ended it fails, and waiting scripts get a new thread,
 * which starts at once: a start takes up to two seconds, which the next review may not have. An idle thread doesn't
 * keep the process alive.
 */
export const createEngine = (megabytes = 512): CueEngine => {
  const waiting: Evaluation[] = [];
  let current: Evaluation | undefined;
  let thread: EvaluationThread | undefined;

  const start = (): EvaluationThread => {
    thread?.end();
    thread = openThread(megabytes, handleMessage, fail);
    return thread;
  };

  const handleMessage = ({ ready, value, error, fatal, memory = 0 }: MessageFromCueWorker) => {
    if (!thread) return;
    if (fatal !== undefined) {
      if (!thread.isUsed) return fail(new Error(fatal));
      // Memory that earlier evaluations used up may have caused the crash: a new thread evaluates the script again.
      start();
      if (current) waiting.unshift(current);
      current = undefined;
    } else if (ready) thread.isReady = true;
    else if (current) {
      thread.isUsed = true;
      const job = finish(current);
      if (value === undefined) job.reject(new Error(error ?? "CUE has no value"));
      else job.resolve(value);
      // Go never returns memory of a WebAssembly instance, so a new CUE thread starts once half of the limit is used.
      if (memory > (megabytes * 2 ** 20) / 2 && waiting.length === 0) start();
    }
    evaluateNext();
  };

  /** Rejects one evaluation because the CUE thread ended: the evaluation under way, or else the next one. */
  const fail = (why: Error) => {
    // A CUE thread that never became ready isn't restarted, which could repeat without end.
    if (thread?.isReady) start();
    else {
      thread?.end();
      thread = undefined;
    }
    const job = current ?? waiting.shift();
    if (job) finish(job).reject(why);
    evaluateNext();
  };

  const finish = (job: Evaluation): Evaluation => {
    clearTimeout(job.timer);
    if (job === current) current = undefined;
    return job;
  };

  const expire = (job: Evaluation) => {
    if (job === current) start();
    else waiting.splice(waiting.indexOf(job), 1);
    finish(job).reject(new Failure(504, "the script did not end in time"));
    evaluateNext();
  };

  const evaluateNext = () => {
    if (current || waiting.length === 0 || !(thread ?? start()).isReady) return;
    current = waiting.shift();
    if (current) thread?.evaluate(current.source);
  };

  return {
    evaluate: (source, deadline = Date.now() + defaultTimeout) =>
      new Promise((resolve, reject) => {
        if (Buffer.byteLength(source) > maximumLength)
          return reject(new Error(`the script and its object have more than ${maximumLength} bytes`));
        const job: Evaluation = { source, resolve, reject };
        // Node's timers accept at most 2^31 - 1 milliseconds.
        job.timer = setTimeout(expire, Math.min(Math.max(deadline - Date.now(), 0), 2 ** 31 - 1), job);
        waiting.push(job);
        evaluateNext();
      }),
    warmUp: () => void (thread ?? start()),
  };
};

/** Starts a worker thread for CUE. After `end`, its messages and failures are ignored. */
const openThread = (
  megabytes: number,
  handleMessage: (message: MessageFromCueWorker) => void,
  fail: (why: Error) => void,
): EvaluationThread => {
  let worker: Worker | undefined;
  let isEnded = false;
  const failWith = (sentence: string) => {
    if (!isEnded) fail(new Failure(500, sentence));
  };
  const run = ({ worker: file, wasm, glue }: CueRuntimePaths) => {
    if (isEnded) return;
    const workerData: CueWorkerSettings = { wasm, glue, megabytes, longest: maximumLength };
    // worker_threads is loaded at the first evaluation of CUE, not at every cold start.
    const { Worker } = process.getBuiltinModule("node:worker_threads");
    // The CUE thread needs neither this process's environment variables nor its Node options.
    worker = new Worker(file, { workerData, env: {}, execArgv: [] });
    worker.on("message", (message) => isEnded || handleMessage(message));
    worker.on("error", ({ message }) => failWith(`CUE failed: ${message}`));
    worker.on("exit", () => failWith("CUE ended before it had a value"));
    // `unref` is called after adding the listeners, because adding them would undo it.
    worker.unref();
  };
  locateOrUnpackCueFiles()
    .then(run)
    .catch((error) => failWith(`CUE can't be started: ${getErrorMessage(error)}`));
  return {
    isReady: false,
    isUsed: false,
    evaluate: (source) => worker?.postMessage(source),
    end: () => {
      isEnded = true;
      worker?.terminate();
    },
  };
};

let shared: CueEngine | undefined;
const getSharedEngine = () => {
  shared ??= createEngine();
  return shared;
};

export const evaluateCue: CueEngine["evaluate"] = (source, deadline) => getSharedEngine().evaluate(source, deadline);
/** Starts the shared CUE engine, so that the first evaluation needs not wait for it. */
export const warmUpCueEngine = () => getSharedEngine().warmUp();
