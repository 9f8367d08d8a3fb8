import { type ChildProcess, fork } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { runInNewContext } from "node:vm";
import type { Phase } from "#lib/rule.ts";
import { moduleExtension } from "../cli/roots.ts";
import type { FunctionProcessReply, FunctionProcessRequest } from "./function-process.ts";
import type { ReplayFoldersAndProcesses } from "./scratch.ts";
import { findServingFunctionName, type ReplayableVersion } from "./sides.ts";

/** The time that Lambda gives a function to start, in milliseconds. */
const starting = 10_000;

/** Opens the built functions in a folder as a version that answers reviews, in a process of its own. */
export const openBundledVersion = async (
  name: string,
  folder: string,
  reviewLimitMilliseconds: number,
  scratch: ReplayFoldersAndProcesses,
): Promise<ReplayableVersion> => {
  const configs = await readRuleConfigs(folder);
  const functionProcess = openFunctionProcess(folder, scratch);
  const started = new Map<string, Promise<FunctionProcessReply>>();
  const start = (name: string) => {
    const known =
      started.get(name) ??
      functionProcess.ask({ function: name, milliseconds: Math.max(reviewLimitMilliseconds, starting) });
    started.set(name, known);
    return known;
  };

  return {
    name,
    find: async (rule: string, phase: Phase) => {
      const part = findServingFunctionName(configs, rule, phase);
      if (part === undefined) return { absent: "doesn't have the rule, or has it turned off everywhere" };
      const { fault } = await start(part);
      if (fault !== undefined) return { fault: `it doesn't start: ${fault}` };
      const config = configs.get(part);
      return config === undefined ? { fault: "it contains no settings" } : { name: part, config };
    },
    invoke: async (part, event) => {
      const reply = await functionProcess.ask({ function: part.name, event, milliseconds: reviewLimitMilliseconds });
      return reply.fault === undefined ? { answer: reply.answer } : { fault: reply.fault };
    },
  };
};

/** Reports whether a folder has bundles that postern build wrote. */
export const hasPosternBundles = async (folder: string): Promise<boolean> => (await readRuleConfigs(folder)).size > 0;

/** Returns the functions in a folder of bundles, each with its part of postern.yaml; undefined if that is unknown. */
export const readRuleConfigs = async (folder: string): Promise<Map<string, unknown>> => {
  const configs = new Map<string, unknown>();
  for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
    const place = join(folder, entry.name);
    const code = entry.isDirectory() ? await readFile(join(place, "index.cjs"), "utf8").catch(() => "") : "";
    if (code === "") continue;
    const settings = await readFile(join(place, "settings.json"), "utf8").catch(() => undefined);
    configs.set(entry.name, settings === undefined ? parseBundledConfig(code) : JSON.parse(settings));
  }
  return configs;
};

/**
 * Returns an older build's part of postern.yaml. Older builds wrote no settings.json: the part is only in the code,
 * as a call of JSON.parse.
 */
const parseBundledConfig = (code: string): unknown => {
  const [call] = /JSON\.parse\((['"`])\{\\?"rule\\?":.*?\}\1\)/s.exec(code) ?? [];
  return call && JSON.parse(runInNewContext(`JSON.stringify(${call})`));
};

/** A process that runs the functions of a folder, one invocation at a time. */
interface FunctionProcess {
  ask(order: FunctionProcessRequest): Promise<FunctionProcessReply>;
}

/** The number of crashes or timeouts after which a function isn't called again. */
const mostEnds = 3;

/** The milliseconds that a process gets beyond its functions' time limit, so that these can report a timeout. */
const grace = 500;

const openFunctionProcess = (folder: string, scratch: ReplayFoldersAndProcesses): FunctionProcess => {
  let actor: ChildProcess | undefined;
  let waiting: ((reply: FunctionProcessReply) => void) | undefined;
  let last: Promise<unknown> = Promise.resolve();
  const ends = new Map<string, number>();

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
      if (actor === started) {
        actor = undefined;
        waiting?.({ fault });
      }
      started.kill("SIGKILL");
    };
    started.on("message", (reply: FunctionProcessReply) => actor === started && waiting?.(reply));
    started.on("error", ({ message }) => end(`its process failed: ${message}`));
    started.on("exit", (code, signal) => end(`its process ended with ${signal ?? code}`));
    return started;
  };

  const ask = async (order: FunctionProcessRequest): Promise<FunctionProcessReply> => {
    const before = ends.get(order.function) ?? 0;
    if (before >= mostEnds) return { fault: `it is not asked any more, for ${before} reviews ended its process` };
    actor ??= start();
    const child = actor;
    const { promise, resolve } = Promise.withResolvers<FunctionProcessReply>();
    waiting = resolve;
    const timer = setTimeout(() => {
      actor = undefined;
      child.kill("SIGKILL");
      resolve({ fault: `it gave no answer within ${order.milliseconds / 1000} s` });
    }, order.milliseconds + grace);
    // Errors of `send` are ignored: the exit event reports a process that has ended.
    child.send(order, () => {});
    const reply = await promise;
    clearTimeout(timer);
    if (actor === undefined) ends.set(order.function, before + 1);
    return reply;
  };

  return {
    ask: (order) => {
      const reply = last.then(() => ask(order));
      last = reply;
      return reply;
    },
  };
};
