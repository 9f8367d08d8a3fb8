import type { Worker } from "node:worker_threads";
import { Failure, getErrorMessage } from "../failure.ts";
import { type CueRuntimePaths, locateOrUnpackCueFiles } from "./cue-files.ts";

/** The settings of the thread that runs CUE. */
export interface CueWorkerSettings {
  /** The path of the CUE program, a WebAssembly file. */
  wasm: string;
  /** The path of Go's wasm_exec script: the JavaScript that runs a Go program in WebAssembly. */
  glue: string;
  /** CUE's memory limit; a multiple of a page of WebAssembly's memory. */
  megabytes: number;
  /** The most characters of JSON that the evaluation of a script may return. */
  longest: number;
}

/** A message from the thread that runs CUE: that the thread is ready, or the outcome of a script. */
export interface MessageFromCueWorker {
  /** True in the first message: the worker can evaluate scripts from now on. */
  ready?: true;
  /** The JSON that the script was evaluated to. */
  value?: string;
  /** CUE's message if the script has no value. */
  error?: string;
  /** Why the worker ends: the script has crashed CUE. */
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

/** A thread that runs CUE. */
interface EvaluationThread {
  /** Whether the thread has loaded CUE. */
  isReady: boolean;
  /** Whether the thread has evaluated a script. */
  isUsed: boolean;
  evaluate(source: string): void;
  end(): void;
}

/** The most bytes of a script and characters of its result. CUE needs about 200 MiB of memory for 1 MB of an object. */
const maximumLength = 4_194_304;
/** The default time limit of an evaluation, in milliseconds: an API server waits at most this long for an answer. */
const defaultTimeout = 30_000;

/**
 * Runs CUE in a worker thread, because an evaluation can be stopped only by ending its thread. The thread evaluates one
 * script at a time. If a script ends the thread, that script fails, and a new thread evaluates the waiting scripts. The
 * new thread starts at once, even if no script waits: its start takes up to two seconds, which the next review may not
 * have. An idle thread doesn't keep the process alive.
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

  /** Rejects one evaluation because the CUE thread ended: the current evaluation, or else the first that waits. */
  const fail = (why: Error) => {
    // If the CUE thread never became ready, no other is started: that could repeat without end.
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
    // `unref` lets the process end while the worker is idle. It comes last, because adding a listener undoes it.
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

/** Starts the shared CUE engine, so that the first evaluation doesn't wait for its start. */
export const warmUpCueEngine = () => getSharedEngine().warmUp();
