import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A function under Lambda's own runtime client. */
export interface Running {
  invoke(event: unknown): Promise<unknown>;
  stop(): Promise<void>;
}

interface Invocation {
  id: string;
  event: string;
  settle: PromiseWithResolvers<unknown>;
}

const patience = 10_000;

/** The Runtime API that Lambda offers its runtimes on loopback, for one function, and the client that asks it. */
export const start = async (client: string, env: Record<string, string>): Promise<Running> => {
  const queue: Invocation[] = [];
  const open = new Map<string, Invocation>();
  let idle: ServerResponse | undefined;
  let broken: Error | undefined;

  const fail = (sentence: string) => {
    broken ??= new Error(sentence);
    for (const { settle } of [...queue.splice(0), ...open.values()]) settle.reject(broken);
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
      "lambda-runtime-invoked-function-arn": `arn:aws:lambda:eu-west-1:123456789012:function:${env.AWS_LAMBDA_FUNCTION_NAME}:live`,
    });
    idle.end(next.event);
    idle = undefined;
  };

  const server = createServer(async (request, response) => {
    const [, , , ...path] = (request.url ?? "").split("/");
    if (path.join("/") === "invocation/next") {
      idle = response;
      hand();
      return;
    }
    const body = await text(request);
    response.writeHead(202).end();
    const [, id = "", outcome] = path;
    if (path.join("/") === "init/error") fail(`the function did not start: ${body}`);
    else if (outcome === "response") open.get(id)?.settle.resolve(JSON.parse(body));
    else open.get(id)?.settle.reject(new Error(`the function threw: ${body}`));
    open.delete(id);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  // The server listens on a port, not on a pipe.
  const { port } = server.address() as AddressInfo;

  const runtime = spawn(process.execPath, [client], {
    env: { ...env, AWS_LAMBDA_RUNTIME_API: `127.0.0.1:${port}` },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let complaints = "";
  runtime.stderr.on("data", (chunk) => {
    complaints += chunk;
  });
  const exited = once(runtime, "close").then(([code, signal]) =>
    fail(`the runtime ended with ${code ?? signal}: ${complaints}`),
  );

  return {
    invoke: (event) => {
      if (broken) return Promise.reject(broken);
      const invocation = { id: randomUUID(), event: JSON.stringify(event), settle: Promise.withResolvers<unknown>() };
      queue.push(invocation);
      hand();
      return inTime(invocation.settle.promise);
    },
    stop: async () => {
      end(runtime);
      await exited;
      server.closeAllConnections();
      server.close();
    },
  };
};

const text = async (request: IncomingMessage): Promise<string> => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
};

const inTime = <T>(answer: Promise<T>): Promise<T> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${patience} ms`)), patience);
  });
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
};

const end = (child: ChildProcess) => {
  if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
};
