import { writeSync } from "node:fs";
import { type Debugger, Session } from "node:inspector";
import { relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { parentPort, workerData } from "node:worker_threads";

// The thread that `watchForLoops` starts. It has a session of Node's inspector with the main thread, because only that
// can stop JavaScript that another thread runs.

/** What a process of tests prints to standard error, as a line of JSON, if code of a rule ends it. */
export interface EndedTest {
  /** The names of the running test and of its parents. */
  path: readonly string[];
  sentence: string;
}

export interface RuleLoopsWorkerData {
  /** A counter that the main thread increases several times a second, unless one evaluation blocks it. */
  mainThreadBeats: Int32Array;
  /** For how long code of a rule may block the main thread. */
  maxSilenceMilliseconds: number;
  /** The folders with rules. */
  folders: readonly string[];
  /** The project's folder, for messages. */
  root: string;
  /** Whether the process is killed, and not only the code of the rule is ended. */
  killsProcess: boolean;
}

const { mainThreadBeats, maxSilenceMilliseconds, folders, root, killsProcess } = workerData as RuleLoopsWorkerData;
/** The names of the running test and of its parents; none between tests of rules. */
let running: readonly string[] = [];
parentPort?.on("message", (path: readonly string[]) => {
  running = path;
});

let lastBeat = -1;
let lastBeatTime = performance.now();

setInterval(() => {
  if (Atomics.load(mainThreadBeats, 0) !== lastBeat) {
    lastBeat = Atomics.load(mainThreadBeats, 0);
    lastBeatTime = performance.now();
  } else if (performance.now() - lastBeatTime > maxSilenceMilliseconds) {
    lastBeatTime = performance.now();
    endCodeOfRule();
  }
}, 100);

/** Pauses the main thread. If the same code of a rule still runs, ends it or, with `killsProcess`, the process. */
const endCodeOfRule = () => {
  const session = new Session();
  const urls = new Map<string, string>();
  const describeCode = (frames: Debugger.CallFrame[]): string | undefined => {
    for (const { location } of frames) {
      const url = urls.get(location.scriptId) ?? "";
      const file = url.startsWith("file:") ? fileURLToPath(url) : "";
      if (!folders.some((folder) => file.startsWith(folder))) continue;
      const place = `${relative(root, file).split(sep).join("/")}:${location.lineNumber + 1}`;
      return `${place} ran for ${maxSilenceMilliseconds / 1000} seconds without a pause, and was ended`;
    }
    return undefined;
  };
  session.connectToMainThread();
  session.on("Debugger.scriptParsed", ({ params: { scriptId, url } }) => urls.set(scriptId, url));
  session.on("Debugger.paused", ({ params }) => {
    const sentence = Atomics.load(mainThreadBeats, 0) === lastBeat ? describeCode(params.callFrames) : undefined;
    if (sentence !== undefined && killsProcess && running.length > 0) {
      writeSync(2, `${JSON.stringify({ path: running, sentence } satisfies EndedTest)}\n`);
      process.kill(process.pid, "SIGKILL");
    }
    if (sentence !== undefined && !killsProcess) session.post("Runtime.terminateExecution");
    session.post("Debugger.resume", () => {
      session.disconnect();
      // The message may end the process, but the main thread closes the session only a moment later. Until then,
      // Node.js would print a line about the open session.
      if (sentence !== undefined) setTimeout(() => parentPort?.postMessage(sentence), 100);
    });
  });
  session.post("Debugger.enable");
  session.post("Debugger.pause");
};
