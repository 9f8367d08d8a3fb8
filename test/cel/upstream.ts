import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { JsonMap } from "../../lib/json.ts";
import { buildCelEvaluator } from "../bench/peers/cel-go.ts";
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
  /** The cost, with that of the variables of the policy that the expression uses. */
  cost?: number;
  /** Other answers of upstream to the same task: Go has no order for the keys of a map. */
  others?: readonly Answer[];
}

/** A patch of an ApplyConfiguration, and an object of a schema in a file: upstream's OpenAPI or a definition. */
export interface Merging {
  schema: string;
  object: JsonMap;
  patch?: JsonMap;
  /** An expression whose value is the patch, instead of `patch`. */
  expression?: string;
}

/** What upstream makes of a patch. */
export interface MergeAnswer {
  /** The object as kube-apiserver shows it to webhooks. */
  object: JsonMap;
  value?: JsonMap;
  error?: string;
  /** Other errors of upstream for the same patch: Go has no order for the keys of a map. */
  others?: readonly string[];
}

/** A running program that evaluates expressions. */
export interface UpstreamEvaluator {
  /** The minor of Kubernetes whose packages it has. */
  minor: string;
  /** Returns an answer for each task; each task is run `repeat` times. */
  evaluate(tasks: readonly Task[], repeat?: number): Promise<Answer[]>;
  /** Applies patches; those with errors `repeat` times. */
  merge(patches: readonly Merging[], repeat: number): Promise<MergeAnswer[]>;
  stop(): Promise<void>;
}

export const startEvaluator = async (minor: string): Promise<UpstreamEvaluator> => {
  const { program } = await buildCelEvaluator(minor);
  // A task that needs more memory than this is a mistake of the generator.
  const env = { ...process.env, GOMEMLIMIT: "1GiB" };
  const child = spawn(program, { env, stdio: ["pipe", "pipe", "inherit"] });
  const waiting = new Map<number, (answer: never) => void>();
  let fail: ((error: Error) => void) | undefined;
  const failure = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failure.catch(() => undefined);
  child.on("exit", (code) => fail?.(new Error(`the program that evaluates expressions ended with code ${code}`)));
  child.stdin.on("error", () => undefined);
  createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY }).on("line", (line) => {
    const { id, ...answer } = JSON.parse(line) as { id: number };
    // The cast is safe: an answer is what its task asks for.
    waiting.get(id)?.(answer as never);
    waiting.delete(id);
  });
  let last = 0;
  /** Sends tasks, each the members of an object in JSON. */
  const send = <T>(tasks: string[]): Promise<T[]> => {
    const answers = tasks.map((text) => {
      const id = ++last;
      const { promise, resolve } = Promise.withResolvers<T>();
      waiting.set(id, resolve);
      child.stdin.write(`{"id":${id},${text}}\n`);
      return promise;
    });
    return Promise.race([Promise.all(answers), failure]);
  };
  return {
    minor,
    evaluate: (tasks, repeat = 1) =>
      send(
        tasks.map(({ expression, mode, composed, variables }) => {
          const head = JSON.stringify({ expression, mode, composed, repeat }).slice(1, -1);
          return `${head},"variables":${writeValue(variables)}`;
        }),
      ),
    merge: (patches, repeat) => send(patches.map((merging) => JSON.stringify({ merging, repeat }).slice(1, -1))),
    stop: async () => {
      const ended = once(child, "close");
      child.stdin.end();
      await ended;
    },
  };
};
