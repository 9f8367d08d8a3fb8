import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { JsonMap } from "../../lib/json.ts";
import { buildCelEvaluator } from "../bench/peers/cel-go.ts";
import { type Task, writeValue } from "./generate.ts";

/** The answer of an implementation (upstream or Postern) to a task. */
export interface Answer {
  /** The errors of the parser or the checker, as upstream prints them. */
  issues?: string;
  /** The error if a valid expression can't be compiled to a program. */
  creation?: string;
  type?: string;
  /**
   * The type as some errors print it, if that differs from `type`: `google.protobuf.Duration` instead of `duration`.
   */
  printed?: string;
  /** The value as JSON. Values of different types have different JSON. */
  value?: unknown;
  error?: string;
  /** The cost, including the cost of the policy's variables that the expression uses. */
  cost?: number;
  /** Other answers of upstream to the same task. Upstream's answer may depend on the random order of a Go map. */
  others?: readonly Answer[];
}

/**
 * A task for a merge. `schema` is the file of the object's schema: an OpenAPI document or a CustomResourceDefinition.
 */
export interface Merging {
  schema: string;
  object: JsonMap;
  patch?: JsonMap;
  /** An expression whose value is the patch, instead of `patch`. */
  expression?: string;
}

/** The answer of upstream to a merge. */
export interface MergeAnswer {
  /** The object in the form in which kube-apiserver sends it to webhooks. */
  object: JsonMap;
  /** The merged object; absent if there is an error. */
  value?: JsonMap;
  error?: string;
  /** Other errors of upstream for the same patch. Upstream's error may depend on the random order of a Go map. */
  others?: readonly string[];
}

/** The running Go program with upstream's packages. */
export interface UpstreamEvaluator {
  /** The minor version of Kubernetes whose packages it has. */
  minor: string;
  /** Returns an answer for each task. Each task is evaluated `repeat` times. */
  evaluate(tasks: readonly Task[], repeat?: number): Promise<Answer[]>;
  /** Applies patches: a wrong one `mergesPerPatch` times, because each time one of its errors is reported at random. */
  merge(patches: readonly Merging[], mergesPerPatch: number): Promise<MergeAnswer[]>;
  stop(): Promise<void>;
}

/**
 * Starts the Go program with the packages of this minor. The program reads tasks and writes answers as lines of JSON.
 */
export const startEvaluator = async (minor: string): Promise<UpstreamEvaluator> => {
  const { program } = await buildCelEvaluator(minor);
  // Above 1 GiB, Go frees memory as often as it can. Only an expression that is too large by mistake needs so much.
  const env = { ...process.env, GOMEMLIMIT: "1GiB" };
  const child = spawn(program, { env, stdio: ["pipe", "pipe", "inherit"] });
  const waitingById = new Map<number, (answer: never) => void>();
  let fail: ((error: Error) => void) | undefined;
  const failure = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failure.catch(() => undefined);
  child.on("exit", (code) => fail?.(new Error(`the program that evaluates expressions ended with code ${code}`)));
  child.stdin.on("error", () => undefined);
  createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY }).on("line", (line) => {
    const { id, ...answer } = JSON.parse(line) as { id: number };
    // The cast is safe: the program's answer has the type that the task with this id expects.
    waitingById.get(id)?.(answer as never);
    waitingById.delete(id);
  });
  let lastId = 0;
  /** Sends tasks. A task is the text of a JSON object without its braces, because the id is added. */
  const send = <T>(tasks: string[]): Promise<T[]> => {
    const answers = tasks.map((text) => {
      const id = ++lastId;
      const { promise, resolve } = Promise.withResolvers<T>();
      waitingById.set(id, resolve);
      child.stdin.write(`{"id":${id},${text}}\n`);
      return promise;
    });
    return Promise.race([Promise.all(answers), failure]);
  };
  return {
    minor,
    evaluate: (tasks, repeat = 1) =>
      send(
        tasks.map(({ expression, mode, policyVariables, variables }) => {
          const head = JSON.stringify({ expression, mode, composed: policyVariables, repeat }).slice(1, -1);
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
