import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { type Task, writeValue } from "./generate.ts";

/** What an implementation finds for a task. */
export interface Answer {
  /** What is wrong with the expression, as upstream prints it. */
  issues?: string;
  /** Why no program can be made of the expression. */
  creation?: string;
  type?: string;
  /** The type as errors about the type of a whole expression name it, if that is different. */
  printed?: string;
  /** The value as JSON in which values of all types differ. */
  value?: unknown;
  error?: string;
  cost?: number;
  /** The cost of the variables of the policy that the expression uses. */
  composed?: number;
  /** Other answers of upstream to the same task: Go has no order for the keys of a map. */
  others?: readonly Answer[];
}

/** A running program that evaluates expressions. */
export interface UpstreamEvaluator {
  /** Returns an answer for each task; with `repeat`, each task is run so often. */
  evaluate(tasks: readonly Task[], repeat?: number): Promise<Answer[]>;
  stop(): Promise<void>;
}

export const startEvaluator = (program: string): UpstreamEvaluator => {
  // A task that needs more memory than this is a mistake of the generator.
  const env = { ...process.env, GOMEMLIMIT: "1GiB" };
  const child = spawn(program, { env, stdio: ["pipe", "pipe", "inherit"] });
  const waiting = new Map<number, (answer: Answer) => void>();
  let fail: ((error: Error) => void) | undefined;
  const failure = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failure.catch(() => undefined);
  child.on("exit", (code) => fail?.(new Error(`the program that evaluates expressions ended with code ${code}`)));
  child.stdin.on("error", () => undefined);
  createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY }).on("line", (line) => {
    const { id, ...answer } = JSON.parse(line) as Answer & { id: number };
    waiting.get(id)?.(answer);
    waiting.delete(id);
  });
  let last = 0;
  return {
    evaluate: (tasks, repeat = 1) => {
      const answers = tasks.map((task) => {
        const id = ++last;
        const { promise, resolve } = Promise.withResolvers<Answer>();
        waiting.set(id, resolve);
        const { expression, mode, composed } = task;
        const head = JSON.stringify({ id, expression, mode, composed, repeat }).slice(0, -1);
        child.stdin.write(`${head},"variables":${writeValue(task.variables)}}\n`);
        return promise;
      });
      return Promise.race([Promise.all(answers), failure]);
    },
    stop: async () => {
      const ended = once(child, "close");
      child.stdin.end();
      await ended;
    },
  };
};
