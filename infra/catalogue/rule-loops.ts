import { dirname, join, sep } from "node:path";
import { Worker } from "node:worker_threads";
import { getProjectRoot, moduleExtension } from "../cli/roots.ts";
import type { RuleLoopsWorkerData } from "./rule-loops-worker.ts";
import { getFunctionsFolder } from "./sources.ts";

/** For how long code of a rule may run without a pause, in milliseconds: the time limit of a rule's function. */
const loopLimit = 10_000;

/**
 * Watches whether code of the project's rules, or of the catalogues of these rules, blocks this thread for longer than a
 * function may run, as an endless loop does. Such code is ended, and `handleEnd` gets a sentence about it; promises that
 * wait for its result are never settled. Without `handleEnd`, in a process of tests, the process is killed after it has
 * printed an EndedTest with the test from `setRunning`; if no test runs, nothing is ended. `noteProgress` says that
 * another evaluation begins: several may block the thread for longer. The watch keeps the process alive until `stop`.
 */
export const watchForLoops = (
  rules: readonly { folder: string }[],
  handleEnd?: (sentence: string) => void,
): { noteProgress(): void; stop(): void; setRunning(path: readonly string[]): void } => {
  const workerData: RuleLoopsWorkerData = {
    mainThreadBeats: new Int32Array(new SharedArrayBuffer(4)),
    maxSilenceMilliseconds: loopLimit,
    folders: [...new Set([getFunctionsFolder(), ...rules.map(({ folder }) => join(dirname(folder), sep))])],
    root: getProjectRoot(),
    killsProcess: handleEnd === undefined,
  };
  const beat = () => void Atomics.add(workerData.mainThreadBeats, 0, 1);
  const timer = setInterval(beat, 100);
  const file = new URL(`./rule-loops-worker${moduleExtension}`, import.meta.url);
  const worker = new Worker(file, { name: "rule-loops", workerData, env: {}, execArgv: [] });
  if (handleEnd) worker.on("message", handleEnd);
  return {
    noteProgress: beat,
    stop: () => {
      clearInterval(timer);
      void worker.terminate();
    },
    setRunning: (path) => worker.postMessage(path),
  };
};
