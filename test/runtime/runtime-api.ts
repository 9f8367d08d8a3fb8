import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";

/** A function under Lambda's own runtime client. */
export interface Running {
  /** Rejects with an Outcome where the function threw. */
  invoke(event: unknown, qualifier?: string): Promise<unknown>;
  /** Whether it crashed or never started: nothing is asked of it any more. */
  isOver(): boolean;
  stop(): Promise<void>;
}

/** What a function reported of itself when it threw, as Lambda hands it on. */
export interface Outcome extends Error {
  reported?: unknown;
}

interface Surroundings {
  /** Gets each line that the function writes. */
  hear?: (line: string) => void;
  /** Called once, when the function has started, before it gets its first event. */
  ready?: (pid: number) => void;
  /** For how many milliseconds an answer is waited for. */
  patience?: number;
}

interface Invocation {
  id: string;
  event: string;
  qualifier: string;
  answer: PromiseWithResolvers<unknown>;
}

/** The Runtime API that Lambda offers its runtimes on loopback, for one function, and the client that asks it. */
export const start = async (
  client: string,
  env: Record<string, string>,
  { hear, ready, patience = 10_000 }: Surroundings = {},
): Promise<Running> => {
  const queue: Invocation[] = [];
  const open = new Map<string, Invocation>();
  let idle: ServerResponse | undefined;
  let broken: Outcome | undefined;
  let isReady = false;

  const fail = (sentence: string, reported?: unknown) => {
    broken ??= outcomeOf(sentence, reported);
    for (const { answer } of [...queue.splice(0), ...open.values()]) answer.reject(broken);
    open.clear();
  };
  const hand = () => {
    if (idle === undefined) return;
    const next = queue.shift();
    if (next === undefined) return;
    open.set(next.id, next);
    idle.writeHead(200, {
      "content-type": "application/json",
      "lambda-runtime-aws-request-id": next.id,
      "lambda-runtime-deadline-ms": String(Date.now() + patience),
      "lambda-runtime-invoked-function-arn": `arn:aws:lambda:eu-west-1:123456789012:function:${env.AWS_LAMBDA_FUNCTION_NAME}:${next.qualifier}`,
    });
    idle.end(next.event);
    idle = undefined;
  };

  const server = createServer(async (request, response) => {
    const [, , , ...path] = (request.url ?? "").split("/");
    if (path.join("/") === "invocation/next") {
      idle = response;
      if (!isReady && runtime.pid !== undefined) ready?.(runtime.pid);
      isReady = true;
      hand();
      return;
    }
    const body = await text(request);
    response.writeHead(202).end();
    const [, id = "", outcome] = path;
    if (path.join("/") === "init/error") fail(`the function did not start: ${body}`, reportedIn(body));
    else if (outcome === "response") open.get(id)?.answer.resolve(JSON.parse(body));
    else open.get(id)?.answer.reject(outcomeOf(`the function threw: ${body}`, reportedIn(body)));
    open.delete(id);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  // The server listens on a port, not on a pipe.
  const { port } = server.address() as AddressInfo;

  const runtime = spawn(process.execPath, [client], {
    env: { ...env, AWS_LAMBDA_RUNTIME_API: `127.0.0.1:${port}` },
    stdio: ["ignore", hear ? "pipe" : "ignore", "pipe"],
  });
  let complaints = "";
  runtime.stderr?.on("data", (chunk) => {
    complaints += chunk;
  });
  if (hear)
    for (const input of [runtime.stdout, runtime.stderr]) if (input) createInterface({ input }).on("line", hear);
  const exited = once(runtime, "close").then(([code, signal]) =>
    fail(`the runtime ended with ${code ?? signal}: ${complaints}`),
  );

  return {
    invoke: (event, qualifier = "live") => {
      if (broken) return Promise.reject(broken);
      const answer = Promise.withResolvers<unknown>();
      queue.push({ id: randomUUID(), event: JSON.stringify(event), qualifier, answer });
      hand();
      return inTime(answer.promise, patience);
    },
    isOver: () => broken !== undefined,
    stop: async () => {
      end(runtime);
      await exited;
      server.closeAllConnections();
      server.close();
    },
  };
};

const outcomeOf = (sentence: string, reported: unknown): Outcome => Object.assign(new Error(sentence), { reported });

const reportedIn = (body: string): unknown => {
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

const inTime = <T>(answer: Promise<T>, patience: number): Promise<T> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${patience} ms`)), patience);
  });
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
};

const end = (child: ChildProcess) => {
  if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
};
