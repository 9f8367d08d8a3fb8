// This program runs one version's functions for a replay, in a separate process: a crash or a timeout ends only that.
import { createRequire } from "node:module";
import { join } from "node:path";
import { getErrorMessage } from "#lib/failure.ts";

/** An order to a process that runs functions: load this function, and invoke it if there is an event. */
export interface FunctionProcessRequest {
  function: string;
  event?: object;
  milliseconds: number;
}

/**
 * The reply of the process that runs functions: the handler's answer, or the fault. The reply is empty if the order
 * was only to load the function.
 */
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

const handleOrder = async ({
  function: name,
  event,
  milliseconds,
}: FunctionProcessRequest): Promise<FunctionProcessReply> => {
  try {
    const handler = load(name);
    if (event === undefined) return {};
    const until = Date.now() + milliseconds;
    const context = {
      functionName: name,
      functionVersion: "replayed",
      getRemainingTimeInMillis: () => Math.max(0, until - Date.now()),
    };
    return { answer: await handler(event, context) };
  } catch (error) {
    return { fault: getErrorMessage(error) };
  }
};

process.on("message", async (order: FunctionProcessRequest) => {
  process.send?.(await handleOrder(order));
});
