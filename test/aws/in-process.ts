import { AsyncLocalStorage } from "node:async_hooks";
import fs from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Processes, type Program, unpack } from "./processes.ts";

// Runs functions in this process, for stages with many functions and many calls. A crash or an endless loop of a
// function would stop this process, too, so only tests with rules that do neither use it.

type Handler = (event: unknown, context: object) => Promise<unknown>;

/** Opens an implementation of `Processes` that runs functions in this process. */
export const openInProcess = async (): Promise<Processes> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-lambda-"));
  const loaded = new WeakMap<object, Promise<Handler>>();
  /** The log lines of the running call. */
  const log = new AsyncLocalStorage<string[]>();
  /** Node's fs for functions. The standard output of a function goes to the log of its call. */
  const filesAndLog = {
    ...fs,
    writeSync: (fileDescriptor: number, text: string) => {
      if (fileDescriptor === 1) log.getStore()?.push(text.trimEnd());
    },
  };

  const load = async ({ code, hash, environment }: Program): Promise<Handler> => {
    const taskFolder = await unpack(code, join(folder, Buffer.from(hash, "base64").toString("hex")));
    const file = join(taskFolder, "index.cjs");
    const requireFromFunction = createRequire(file);
    const requireForFunction = (name: string) => (name === "node:fs" ? filesAndLog : requireFromFunction(name));
    const env = { ...environment, LAMBDA_TASK_ROOT: taskFolder };
    const functionProcess = Object.create(process, { env: { value: env } });
    const module: { exports: { handler?: Handler } } = { exports: {} };
    const wrap = new Function("module", "exports", "require", "process", "__dirname", fs.readFileSync(file, "utf8"));
    wrap(module, module.exports, requireForFunction, functionProcess, taskFolder);
    if (module.exports.handler === undefined) throw new Error("index.handler is undefined or not exported");
    return module.exports.handler;
  };

  return {
    run: async (version, program, event) => {
      const lines: string[] = [];
      const start = performance.now();
      const loading = loaded.get(version) ?? load(program);
      loaded.set(version, loading);
      const { AWS_LAMBDA_FUNCTION_NAME: functionName, AWS_LAMBDA_FUNCTION_VERSION: functionVersion } =
        program.environment;
      const end = Date.now() + program.timeout * 1000;
      const context = { functionName, functionVersion, getRemainingTimeInMillis: () => end - Date.now() };
      const result = await log.run(lines, async () => {
        try {
          const handler = await loading;
          return { payload: await handler(event, context), fault: undefined };
        } catch (error) {
          const { name, message } = error as Error;
          return { payload: { errorType: name, errorMessage: message }, fault: "Unhandled" };
        }
      });
      return { ...result, lines, milliseconds: performance.now() - start };
    },
    stop: () => rm(folder, { recursive: true, force: true }),
  };
};
