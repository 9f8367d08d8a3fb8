// `postern replay` starts this program to run the functions of one version. A crash or a timeout of a function ends
// only this process, not the replay.
import { createRequire } from "node:module";
import { join } from "node:path";
import { getErrorMessage } from "#lib/failure.ts";

/** Asks the process to load a function and, if there is an event, to invoke it within a time limit. */
export interface FunctionProcessRequest {
  function: string;
  event?: object;
  milliseconds: number;
}

/** The handler's answer, or a fault. The reply is empty if the request was only to load the function. */
export interface FunctionProcessReply {
  answer?: unknown;
  fault?: string;
}

type Handler = (event: object, context: object) => Promise<unknown>;

const [folder = ""] = process.argv.slice(2);
const require = createRequire(import.meta.url);

const load = (name: string): Handler => {
  const { handler } = require(join(folder, name, "index.cjs"));
  if (typeof handler !== "function") throw new Error("it has no handler");
  return handler;
};

/** Runs a function with an event, as Lambda does. Without an event, only loads the function. */
const handleRequest = async ({
  function: name,
  event,
  milliseconds,
}: FunctionProcessRequest): Promise<FunctionProcessReply> => {
  try {
    const handler = load(name);
    if (event === undefined) return {};
    const deadline = Date.now() + milliseconds;
    const context = {
      functionName: name,
      functionVersion: "replayed",
      getRemainingTimeInMillis: () => Math.max(0, deadline - Date.now()),
    };
    return { answer: await handler(event, context) };
  } catch (error) {
    return { fault: getErrorMessage(error) };
  }
};

process.on("message", async (request: FunctionProcessRequest) => {
  process.send?.(await handleRequest(request));
});
