import { type ChildProcess, fork } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { runInNewContext } from "node:vm";
import type { Phase } from "#lib/rule.ts";
import { moduleExtension } from "../cli/roots.ts";
import type { FunctionProcessReply, FunctionProcessRequest } from "./function-process.ts";
import type { ReplayFoldersAndProcesses } from "./scratch.ts";
import { findServingFunctionName, type ReplayableVersion } from "./sides.ts";

/** The time that Lambda gives a function to start. */
const startTimeoutMilliseconds = 10_000;

/** Opens the built functions in a folder as a version that answers reviews. A separate process runs the functions. */
export const openBundledVersion = async (
  name: string,
  folder: string,
  reviewLimitMilliseconds: number,
  scratch: ReplayFoldersAndProcesses,
): Promise<ReplayableVersion> => {
  const configs = await readRuleConfigs(folder);
  const functionProcess = openFunctionProcess(folder, scratch);
  const startReplies = new Map<string, Promise<FunctionProcessReply>>();
  const startOnce = (functionName: string) => {
    const milliseconds = Math.max(reviewLimitMilliseconds, startTimeoutMilliseconds);
    const reply = startReplies.get(functionName) ?? functionProcess.send({ function: functionName, milliseconds });
    startReplies.set(functionName, reply);
    return reply;
  };

  return {
    name,
    find: async (rule: string, phase: Phase) => {
      const functionName = findServingFunctionName(configs, rule, phase);
      if (functionName === undefined) return { absent: "doesn't have the rule, or has it turned off everywhere" };
      const { fault } = await startOnce(functionName);
      if (fault !== undefined) return { fault: `it doesn't start: ${fault}` };
      const config = configs.get(functionName);
      return config === undefined ? { fault: "it contains no settings" } : { name: functionName, config };
    },
    invoke: async (servingFunction, event) => {
      const request = { function: servingFunction.name, event, milliseconds: reviewLimitMilliseconds };
      const reply = await functionProcess.send(request);
      return reply.fault === undefined ? { answer: reply.answer } : { fault: reply.fault };
    },
  };
};

/** Reports whether a folder has bundles that postern build wrote. */
export const hasPosternBundles = async (folder: string): Promise<boolean> => (await readRuleConfigs(folder)).size > 0;

/**
 * Maps the name of each function in a folder of bundles to the function's part of postern.yaml, or to undefined if
 * that part can't be read. The part is in settings.json; older versions of Postern wrote it only into the code.
 */
export const readRuleConfigs = async (folder: string): Promise<Map<string, unknown>> => {
  const configs = new Map<string, unknown>();
  for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
    const bundleFolder = join(folder, entry.name);
    const code = entry.isDirectory() ? await readFile(join(bundleFolder, "index.cjs"), "utf8").catch(() => "") : "";
    if (code === "") continue;
    const settings = await readFile(join(bundleFolder, "settings.json"), "utf8").catch(() => undefined);
    configs.set(entry.name, settings === undefined ? parseBundledConfig(code) : JSON.parse(settings));
  }
  return configs;
};

/**
 * Returns a function's part of postern.yaml from the function's code. Older versions of Postern wrote no settings.json;
 * their bundles contain the part only as a call such as `JSON.parse('{"rule":"trusted-registry",…}')`.
 */
const parseBundledConfig = (code: string): unknown => {
  const [call] = /JSON\.parse\((['"`])\{\\?"rule\\?":.*?\}\1\)/s.exec(code) ?? [];
  return call && JSON.parse(runInNewContext(`JSON.stringify(${call})`));
};

/** A process that runs the functions of a folder, one invocation at a time. */
interface FunctionProcess {
  send(request: FunctionProcessRequest): Promise<FunctionProcessReply>;
}

/** The number of crashes or timeouts after which a function isn't called again. */
const maxProcessEnds = 3;

/** A process gets this much more time than its function, so that the function can report its own timeout. */
const graceMilliseconds = 500;

/** Starts a process that runs bundled functions, and sends it one request after another. */
const openFunctionProcess = (folder: string, scratch: ReplayFoldersAndProcesses): FunctionProcess => {
  let current: ChildProcess | undefined;
  let resolveReply: ((reply: FunctionProcessReply) => void) | undefined;
  let lastReply: Promise<unknown> = Promise.resolve();
  /** How often each function ended its process. */
  const processEnds = new Map<string, number>();

  const start = (): ChildProcess => {
    const { PATH, TZ, LANG } = process.env;
    const started = fork(join(import.meta.dirname, `function-process${moduleExtension}`), [folder], {
      execArgv: [],
      // The environment has no credentials: the code of a version must not be able to use them.
      env: { ...(PATH && { PATH }), ...(TZ && { TZ }), ...(LANG && { LANG }) },
      stdio: ["ignore", "ignore", "ignore", "ipc"],
    });
    scratch.trackChild(started);
    const end = (fault: string) => {
      if (current === started) {
        current = undefined;
        resolveReply?.({ fault });
      }
      started.kill("SIGKILL");
    };
    started.on("message", (reply: FunctionProcessReply) => current === started && resolveReply?.(reply));
    started.on("error", ({ message }) => end(`its process failed: ${message}`));
    started.on("exit", (code, signal) => end(`its process ended with ${signal ?? code}`));
    return started;
  };

  const sendNow = async (request: FunctionProcessRequest): Promise<FunctionProcessReply> => {
    const endCount = processEnds.get(request.function) ?? 0;
    if (endCount >= maxProcessEnds)
      return { fault: `it is not asked any more, for ${endCount} reviews ended its process` };
    current ??= start();
    const child = current;
    const { promise, resolve } = Promise.withResolvers<FunctionProcessReply>();
    resolveReply = resolve;
    const timer = setTimeout(() => {
      current = undefined;
      child.kill("SIGKILL");
      resolve({ fault: `it gave no answer within ${request.milliseconds / 1000} s` });
    }, request.milliseconds + graceMilliseconds);
    // Errors of `send` are ignored: the exit event reports a process that has ended.
    child.send(request, () => {});
    const reply = await promise;
    clearTimeout(timer);
    if (current === undefined) processEnds.set(request.function, endCount + 1);
    return reply;
  };
  return {
    // A request waits until the previous request has its reply.
    send: (request) => {
      const reply = lastReply.then(() => sendNow(request));
      lastReply = reply;
      return reply;
    },
  };
};
