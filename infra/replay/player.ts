import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Order, Reply } from "./actor.ts";
import type { Scratch } from "./scratch.ts";

/** A process in which the functions of a folder are asked, one question after the other. */
export interface Player {
  ask(order: Order): Promise<Reply>;
}

/** A function that ended its process, or had to be ended, so often isn't asked any more. */
const mostEnds = 3;

/** A process is given so much longer than its functions, to say itself that they took too long. */
const grace = 500;

/** Started when it is needed, and again after it ended. */
export const openPlayer = (folder: string, scratch: Scratch): Player => {
  let actor: ChildProcess | undefined;
  let waiting: ((reply: Reply) => void) | undefined;
  let last: Promise<unknown> = Promise.resolve();
  const ends = new Map<string, number>();

  const start = (): ChildProcess => {
    const { PATH, TZ, LANG } = process.env;
    const started = fork(fileURLToPath(new URL("actor.ts", import.meta.url)), [folder], {
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
