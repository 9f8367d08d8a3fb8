import { syncBuiltinESMExports } from "node:module";
import promises from "node:timers/promises";

/**
 * Slows the clocks and timers of this process down by a factor. A program that imitates waiting times by timers then
 * takes longer, so the time that this machine needs for the program's work matters less. Returns a function that reads
 * by how many milliseconds the process's clock is behind the real time.
 */
export const slowClocks = (factor: number): (() => number) => {
  const { now } = Date;
  const [start, startOfProcess] = [now(), performance.now()];
  const readProcessTime = performance.now.bind(performance);
  const readTime = () => start + (now() - start) / factor;
  const [startTimer, waitFor] = [globalThis.setTimeout, promises.setTimeout];
  class SlowDate extends Date {
    static override now = () => Math.floor(readTime());
    constructor(...parts: unknown[]) {
      // The cast is safe: Date gets the same arguments.
      super(...((parts.length > 0 ? parts : [SlowDate.now()]) as [number]));
    }
  }
  performance.now = () => startOfProcess + (readProcessTime() - startOfProcess) / factor;
  promises.setTimeout = (milliseconds, ...rest) => waitFor((milliseconds ?? 1) * factor, ...rest);
  const setTimeout = (run: (...values: unknown[]) => void, milliseconds = 1, ...values: unknown[]) =>
    startTimer(run, milliseconds * factor, ...values);
  Object.assign(globalThis, { Date: SlowDate, setTimeout });
  syncBuiltinESMExports();
  return () => now() - readTime();
};
