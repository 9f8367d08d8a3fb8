import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";

/** A function that runs under Lambda's own runtime client. */
export interface RunningFunction {
  /** Invokes the function with an event. Rejects with a FunctionError if the function threw. */
  invoke(event: unknown, qualifier?: string): Promise<unknown>;
  /** Reports whether the function crashed or never started. It can't be invoked any more then. */
  isOver(): boolean;
  stop(): Promise<void>;
}

/** The error of a call. */
export interface FunctionError extends Error {
  /** What the function reported when it threw; undefined if it reported nothing. */
  reported?: unknown;
}

interface StartOptions {
  /** Is called with each line that the function writes. */
  onLine?: (line: string) => void;
  /** Is called once with the process ID, when the function has started and before it gets its first event. */
  ready?: (pid: number) => void;
  /** The milliseconds after which a call without an answer fails. */
  patience?: number;
}

interface Invocation {
  id: string;
  event: string;
  qualifier: string;
  answer: PromiseWithResolvers<unknown>;
}

/** Starts Lambda's runtime client for one function, and a stand-in for the Runtime API, which the client calls. */
export const start = async (
  client: string,
  env: Record<string, string>,
  { onLine, ready, patience = 10_000 }: StartOptions = {},
): Promise<RunningFunction> => {
  const queue: Invocation[] = [];
  /** The invocations that the client has taken and not answered yet, by id. */
  const running = new Map<string, Invocation>();
  /** The response to the client's request for its next event, while there is no event. */
  let nextResponse: ServerResponse | undefined;
  let failure: FunctionError | undefined;
  let isReady = false;

  const fail = (sentence: string, reported?: unknown) => {
    failure ??= createError(sentence, reported);
    for (const { answer } of [...queue.splice(0), ...running.values()]) answer.reject(failure);
    running.clear();
  };
  /** Sends the first event of the queue to the client, if the client waits for one. */
  const sendNextEvent = () => {
    if (nextResponse === undefined) return;
    const next = queue.shift();
    if (next === undefined) return;
    running.set(next.id, next);
    nextResponse.writeHead(200, {
      "content-type": "application/json",
      "lambda-runtime-aws-request-id": next.id,
      "lambda-runtime-deadline-ms": String(Date.now() + patience),
      "lambda-runtime-invoked-function-arn": `arn:aws:lambda:eu-west-1:123456789012:function:${env.AWS_LAMBDA_FUNCTION_NAME}:${next.qualifier}`,
    });
    nextResponse.end(next.event);
    nextResponse = undefined;
  };

  const server = createServer(async (request, response) => {
    // After `/2018-06-01/runtime/` comes `invocation/next`, `invocation/ID/response`, `…/ID/error` or `init/error`.
    const [, , , ...path] = (request.url ?? "").split("/");
    if (path.join("/") === "invocation/next") {
      nextResponse = response;
      if (!isReady && runtime.pid !== undefined) ready?.(runtime.pid);
      isReady = true;
      sendNextEvent();
      return;
    }
    const body = await text(request).catch(() => undefined);
    // The process was killed while it sent this. Its end makes its events fail.
    if (body === undefined) return;
    response.writeHead(202).end();
    const [, id = "", outcome] = path;
    if (path.join("/") === "init/error") fail(`the function did not start: ${body}`, parseReport(body));
    else if (outcome === "response") running.get(id)?.answer.resolve(JSON.parse(body));
    else running.get(id)?.answer.reject(createError(`the function threw: ${body}`, parseReport(body)));
    running.delete(id);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  // The cast is safe: the server listens on a port, not on a pipe.
  const { port } = server.address() as AddressInfo;

  const runtime = spawn(process.execPath, [client], {
    env: { ...env, AWS_LAMBDA_RUNTIME_API: `127.0.0.1:${port}` },
    stdio: ["ignore", onLine ? "pipe" : "ignore", "pipe"],
  });
  let errorOutput = "";
  runtime.stderr?.on("data", (chunk) => {
    errorOutput += chunk;
  });
  if (onLine)
    for (const input of [runtime.stdout, runtime.stderr]) if (input) createInterface({ input }).on("line", onLine);
  const exited = once(runtime, "close").then(([code, signal]) =>
    fail(`the runtime ended with ${code ?? signal}: ${errorOutput}`),
  );

  return {
    invoke: (event, qualifier = "live") => {
      if (failure) return Promise.reject(failure);
      const answer = Promise.withResolvers<unknown>();
      queue.push({ id: randomUUID(), event: JSON.stringify(event), qualifier, answer });
      sendNextEvent();
      return rejectIfLate(answer.promise, patience);
    },
    isOver: () => failure !== undefined,
    stop: async () => {
      killIfRunning(runtime);
      await exited;
      server.closeAllConnections();
      server.close();
    },
  };
};

const createError = (sentence: string, reported: unknown): FunctionError =>
  Object.assign(new Error(sentence), { reported });

const parseReport = (body: string): unknown => {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
};

const text = async (request: IncomingMessage): Promise<string> => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
};

const rejectIfLate = <T>(answer: Promise<T>, patience: number): Promise<T> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${patience} ms`)), patience);
  });
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
};

const killIfRunning = (child: ChildProcess) => {
  if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
};
