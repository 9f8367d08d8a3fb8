// A process of its own in which the functions of one version run, as Lambda would start them: what they do to it, or how
// long they take, is nobody else's affair.
import { createRequire } from "node:module";
import { join } from "node:path";

/** A function to load, or with an event, one to ask. */
export interface Order {
  function: string;
  event?: object;
  milliseconds: number;
}

/** What came of it: its share of postern.yaml, what it answered, or why there is neither. */
export interface Reply {
  share?: unknown;
  answer?: unknown;
  fault?: string;
}

type Handler = (event: object, context: object) => Promise<unknown>;

const [folder = ""] = process.argv.slice(2);
const require = createRequire(import.meta.url);
const loaded = new Map<string, { share: unknown; handler: Handler }>();

/** What postern.yaml put into a bundle is parsed when it loads, and known by no other way. */
const load = (name: string): { share: unknown; handler: Handler } => {
  const known = loaded.get(name);
  if (known !== undefined) return known;
  const { parse } = JSON;
  let share: unknown;
  JSON.parse = (...given: Parameters<typeof parse>) => {
    const value = parse(...given);
    if (Object(value).rule === name && "clusters" in value) share = structuredClone(value);
    return value;
  };
  try {
    const { handler } = require(join(folder, name, "index.cjs"));
    if (typeof handler !== "function") throw new Error("it has no handler");
    loaded.set(name, { share, handler });
    return { share, handler };
  } finally {
    JSON.parse = parse;
  }
};

const obey = async ({ function: name, event, milliseconds }: Order): Promise<Reply> => {
  try {
    const { share, handler } = load(name);
    if (event === undefined) return { share };
    const until = Date.now() + milliseconds;
    const context = {
      functionName: name,
      functionVersion: "replayed",
      getRemainingTimeInMillis: () => Math.max(0, until - Date.now()),
    };
    return { answer: await handler(event, context) };
  } catch (error) {
    return { fault: error instanceof Error ? error.message : String(error) };
  }
};

process.on("message", async (order: Order) => {
  process.send?.(await obey(order));
});
