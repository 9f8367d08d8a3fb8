/** Updates the progress bar of a step. */
export type ReportProgress = (done: number, total: number) => void;

/** Tells the user what a command does, step by step. */
export interface Progress {
  /** Runs a step. Prints a line with the time that the step took, and the sentence that `act` returns. */
  step(name: string, act: (report: ReportProgress) => Promise<string>): Promise<void>;
  say(line: string): void;
}

/** Prints a line after each step. On a terminal outside CI, also shows a progress bar during the step. */
export const createProgressPrinter = (stream: NodeJS.WriteStream = process.stderr): Progress => {
  const hasBar = showsProgressBar(stream);
  return {
    say: (line) => void stream.write(`${hasBar ? eraseLine : ""}${line}\n`),
    step: async (name, act) => {
      const start = performance.now();
      const formatSeconds = () => `${((performance.now() - start) / 1000).toFixed(1)} s`;
      let progress: [done: number, total: number] | undefined;
      const draw = () => {
        const bar = progress ? ` ${formatBar(...progress)}` : "";
        stream.write(`${eraseLine}${name}${bar} ${formatSeconds()}`);
      };
      const timer = hasBar ? setInterval(draw, 200) : undefined;
      const end = (sentence: string) => {
        clearInterval(timer);
        stream.write(`${hasBar ? eraseLine : ""}${formatSeconds().padStart(8)}  ${name}: ${sentence}\n`);
      };
      try {
        end(
          await act((done, total) => {
            progress = [done, total];
          }),
        );
      } catch (error) {
        end("failed");
        throw error;
      }
    },
  };
};

/** Removes the progress bar before other text is printed to the terminal. The bar's next update draws it again. */
export const clearLine = (stream: NodeJS.WriteStream = process.stderr): void => {
  if (showsProgressBar(stream)) stream.write(eraseLine);
};

/** Moves the cursor to the start of the line and erases the line. */
const eraseLine = "\r\u001b[K";

const showsProgressBar = ({ isTTY }: NodeJS.WriteStream) => isTTY === true && process.env.CI === undefined;

const barWidth = 24;

/** Returns a progress bar such as `[######..................] 1 of 4`. */
const formatBar = (done: number, total: number): string => {
  const full = Math.round((barWidth * Math.min(done, total)) / Math.max(total, 1));
  return `[${"#".repeat(full)}${".".repeat(barWidth - full)}] ${done} of ${total}`;
};

/** Returns a count with its noun, such as "1 rule" or "2 rules". */
export const formatCount = (count: number, what: string) => `${count} ${what}${count === 1 ? "" : "s"}`;

/**
 * Runs an action for each item, at most `maxConcurrent` at the same time. Returns the results in the order of the
 * items. If an action fails, starts no further actions, waits for the running ones, and throws the error.
 */
export const runInParallel = async <T, R>(
  maxConcurrent: number,
  items: readonly T[],
  act: (item: T) => Promise<R>,
): Promise<R[]> => {
  const results: R[] = [];
  let next = 0;
  let hasFailed = false;
  const runNext = async () => {
    while (next < items.length && !hasFailed) {
      const index = next++;
      try {
        results[index] = await act(items[index] as T);
      } catch (error) {
        hasFailed = true;
        throw error;
      }
    }
  };
  const workers = Array.from({ length: Math.min(maxConcurrent, items.length) }, runNext);
  const settled = await Promise.allSettled(workers);
  const rejected = settled.find((outcome) => outcome.status === "rejected");
  if (rejected) throw rejected.reason;
  return results;
};
