export type ReportProgress = (done: number, total: number) => void;

/** Tells the user what a command does, step by step. */
export interface Progress {
  /** Runs a step and prints a line with its time and the sentence that `act` returns. */
  step(name: string, act: (tell: ReportProgress) => Promise<string>): Promise<void>;
  say(line: string): void;
}

/** Prints a line for each step; on a terminal outside CI, with a progress bar meanwhile. */
export const createProgressPrinter = (stream: NodeJS.WriteStream = process.stderr): Progress => {
  const isWatched = isWatchedBy(stream);
  return {
    say: (line) => void stream.write(`${isWatched ? "\r\u001b[K" : ""}${line}\n`),
    step: async (name, act) => {
      const start = performance.now();
      const formatSeconds = () => `${((performance.now() - start) / 1000).toFixed(1)} s`;
      let far: [done: number, total: number] | undefined;
      const draw = () => {
        const bar = far ? ` ${formatBar(...far)}` : "";
        stream.write(`\r\u001b[K${name}${bar} ${formatSeconds()}`);
      };
      const timer = isWatched ? setInterval(draw, 200) : undefined;
      const end = (sentence: string) => {
        clearInterval(timer);
        stream.write(`${isWatched ? "\r\u001b[K" : ""}${formatSeconds().padStart(8)}  ${name}: ${sentence}\n`);
      };
      try {
        end(
          await act((done, total) => {
            far = [done, total];
          }),
        );
      } catch (error) {
        end("failed");
        throw error;
      }
    },
  };
};

/** Removes the progress bar, before a caller prints to the same terminal; the next update draws it again. */
export const clearLine = (stream: NodeJS.WriteStream = process.stderr): void => {
  if (isWatchedBy(stream)) stream.write("\r\u001b[K");
};

const isWatchedBy = ({ isTTY }: NodeJS.WriteStream) => isTTY === true && process.env.CI === undefined;

const width = 24;

const formatBar = (done: number, total: number): string => {
  const full = Math.round((width * Math.min(done, total)) / Math.max(total, 1));
  return `[${"#".repeat(full)}${".".repeat(width - full)}] ${done} of ${total}`;
};

export const formatCount = (count: number, what: string) => `${count} ${what}${count === 1 ? "" : "s"}`;

/**
 * Runs at most `atOnce` actions at a time; results are in order. If one fails, throws after those under way have ended.
 */
export const runInParallel = async <T, R>(
  atOnce: number,
  items: readonly T[],
  act: (item: T) => Promise<R>,
): Promise<R[]> => {
  const results: R[] = [];
  let next = 0;
  let failed = false;
  const runNext = async () => {
    while (next < items.length && !failed) {
      const index = next++;
      try {
        results[index] = await act(items[index] as T);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const workers = Array.from({ length: Math.min(atOnce, items.length) }, runNext);
  const settled = await Promise.allSettled(workers);
  const broken = settled.find((outcome) => outcome.status === "rejected");
  if (broken) throw broken.reason;
  return results;
};
