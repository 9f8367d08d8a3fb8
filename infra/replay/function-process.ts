// A process of its own in which the functions of one version run, as Lambda would start them: what they do to it, or how
// long they take, is nobody else's affair.
import { createRequire } from "node:module";
import { join } from "node:path";
import { messageOf } from "#lib/failure.ts";

/** A function to load, or with an event, one to ask. */
export interface Order {
  function: string;
  event?: object;
  milliseconds: number;
}

/** What it answered, or why it didn't. */
export interface Reply {
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

const obey = async ({ function: name, event, milliseconds }: Order): Promise<Reply> => {
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
    return { fault: messageOf(error) };
  }
};

process.on("message", async (order: Order) => {
  process.send?.(await obey(order));
});
