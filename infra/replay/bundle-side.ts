import { type ChildProcess, fork } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runInNewContext } from "node:vm";
import type { Phase } from "#lib/rule.ts";
import type { Order, Reply } from "./function-process.ts";
import type { Scratch } from "./scratch.ts";
import { findPart, type Version } from "./sides.ts";

/** As long as Lambda gives a function to start, in milliseconds. */
const starting = 10_000;

/** The version that a folder of bundles is, each review within so many milliseconds. */
export const openBundles = async (
  name: string,
  folder: string,
  milliseconds: number,
  scratch: Scratch,
): Promise<Version> => {
  const shares = await readShares(folder);
  const player = openPlayer(folder, scratch);
  const started = new Map<string, Promise<Reply>>();
  const start = (name: string) => {
    const known = started.get(name) ?? player.ask({ function: name, milliseconds: Math.max(milliseconds, starting) });
    started.set(name, known);
    return known;
  };

  return {
    name,
    find: async (rule: string, phase: Phase) => {
      const part = findPart(shares, rule, phase);
      if (part === undefined) return { absent: "doesn't have it, or has it off everywhere" };
      const { fault } = await start(part);
      if (fault !== undefined) return { fault: `it doesn't start: ${fault}` };
      const share = shares.get(part);
      return share === undefined ? { fault: "it holds no settings" } : { name: part, share };
    },
    invoke: async (part, event) => {
      const reply = await player.ask({ function: part.name, event, milliseconds });
      return reply.fault === undefined ? { answer: reply.answer } : { fault: reply.fault };
    },
  };
};

/** Whether a folder is one that `build` wrote. */
export const isBuilt = async (folder: string): Promise<boolean> => (await readShares(folder)).size > 0;

/** The functions in a folder of bundles, each with its share of postern.yaml; undefined where that isn't known. */
const readShares = async (folder: string): Promise<Map<string, unknown>> => {
  const shares = new Map<string, unknown>();
  for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
    const place = join(folder, entry.name);
    const code = entry.isDirectory() ? await readFile(join(place, "index.cjs"), "utf8").catch(() => "") : "";
    if (code === "") continue;
    const settings = await readFile(join(place, "settings.json"), "utf8").catch(() => undefined);
    shares.set(entry.name, settings === undefined ? shareIn(code) : JSON.parse(settings));
  }
  return shares;
};

/** A version whose build wrote no settings.json yet has its share in the code alone, as a call that parses it. */
const shareIn = (code: string): unknown => {
  const [call] = /JSON\.parse\((['"`])\{\\?"rule\\?":.*?\}\1\)/s.exec(code) ?? [];
  return call && JSON.parse(runInNewContext(`JSON.stringify(${call})`));
};

/** A process in which the functions of a folder are asked, one question after the other. */
interface Player {
  ask(order: Order): Promise<Reply>;
}

/** A function that ended its process, or had to be ended, so often isn't asked any more. */
const mostEnds = 3;

/** A process is given so much longer than its functions, to say itself that they took too long. */
const grace = 500;

/** Started when it is needed, and again after it ended. */
const openPlayer = (folder: string, scratch: Scratch): Player => {
  let actor: ChildProcess | undefined;
  let waiting: ((reply: Reply) => void) | undefined;
  let last: Promise<unknown> = Promise.resolve();
  const ends = new Map<string, number>();

  const start = (): ChildProcess => {
    const { PATH, TZ, LANG } = process.env;
    const started = fork(fileURLToPath(new URL("function-process.ts", import.meta.url)), [folder], {
      execArgv: [],
      // Nobody's credentials, for whatever a version would do with them.
      env: { ...(PATH && { PATH }), ...(TZ && { TZ }), ...(LANG && { LANG }) },
      stdio: ["ignore", "ignore", "ignore", "ipc"],
    });
    scratch.mind(started);
    const end = (fault: string) => {
      if (actor === started) {
        actor = undefined;
        waiting?.({ fault });
      }
      started.kill("SIGKILL");
    };
    started.on("message", (reply: Reply) => actor === started && waiting?.(reply));
    started.on("error", ({ message }) => end(`its process failed: ${message}`));
    started.on("exit", (code, signal) => end(`its process ended with ${signal ?? code}`));
    return started;
  };

  const ask = async (order: Order): Promise<Reply> => {
    const before = ends.get(order.function) ?? 0;
    if (before >= mostEnds) return { fault: `it is not asked any more, for ${before} reviews ended its process` };
    actor ??= start();
    const asked = actor;
    const { promise, resolve } = Promise.withResolvers<Reply>();
    waiting = resolve;
    const timer = setTimeout(() => {
      actor = undefined;
      asked.kill("SIGKILL");
      resolve({ fault: `it gave no answer within ${order.milliseconds / 1000} s` });
    }, order.milliseconds + grace);
    // One that has ended says so itself.
    asked.send(order, () => {});
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
