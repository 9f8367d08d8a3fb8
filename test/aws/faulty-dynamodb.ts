import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as wait } from "node:timers/promises";
import { close, listen } from "../listen.ts";

/** How a request to DynamoDB goes wrong. */
export type Fault =
  /** The request isn't carried out, and is answered with this error. */
  | { refusal: string; status?: number; reasons?: string[] }
  /** The connection breaks before the request arrives. */
  | "reset"
  /** The request is carried out, and the connection breaks before the answer. */
  | "lost answer"
  /** The request is carried out, and the connection breaks in the middle of the answer. */
  | "half an answer"
  /** The request is carried out, and the answer is an internal error. */
  | "internal error"
  /** The request is carried out, and no answer comes. */
  | "no answer"
  /** The request is carried out, then this function is called, and the connection breaks. */
  | { callAfterwards: () => void }
  /** The connection breaks, and the request is carried out after this many milliseconds. */
  | { carryOutAfter: number }
  /** The answer comes this many milliseconds late. */
  | { answerDelay: number }
  /** DynamoDB's clock, which the answer's date shows, is ahead by this many milliseconds. */
  | { clockSkew: number };

/** The facts by which a fault of a request is chosen. */
export interface RequestFacts {
  /** The items that the request reads, writes or checks. Only items that are written have their content. */
  items: Item[];
  /** Is resolved when the request has been answered. */
  answered: Promise<unknown>;
}

/** Returns the fault of a request by its operation and its number; undefined if the request has no fault. */
export type ChooseFault = (
  operation: string,
  index: number,
  facts: RequestFacts,
) => Fault | undefined | Promise<Fault | undefined>;

/** Read and write units, which DynamoDB's price on demand is for. */
export type Units = Record<"read" | "write", number>;

export type Item = Record<string, { S?: string; N?: string }>;

/**
 * Returns the units of a request for one item by AWS's rules, which DynamoDB Local doesn't follow for transactions: one
 * read unit for 4 KB or one write unit for 1 KB, and twice as many in a transaction.
 */
export const countUnits = (operation: string, item: Item = {}): Units => {
  const bytes = Object.entries(item).reduce(
    (sum, [name, { S = "", N = "" }]) => sum + name.length + Buffer.byteLength(S + N),
    0,
  );
  const factor = operation.startsWith("Transact") ? 2 : 1;
  const count = (kilobytesPerUnit: number) => factor * Math.max(1, Math.ceil(bytes / 1024 / kilobytesPerUnit));
  return operation.includes("Get") ? { read: count(4), write: 0 } : { read: 0, write: count(1) };
};

export interface FaultyDynamoDb {
  url: string;
  /** Forgets the requests so far, and chooses the faults of the next ones. */
  setFaults(choose: ChooseFault): void;
  /** The operations of the requests since the last call of setFaults. */
  readonly operations: string[];
  /** The units of the requests since the last call of setFaults. */
  readonly units: Units;
  stop(): Promise<void>;
}

/** Starts a proxy in front of a server for DynamoDB, which injects faults. */
export const startFaultyDynamoDb = async (serverUrl: string): Promise<FaultyDynamoDb> => {
  let chooseFault: ChooseFault = () => undefined;
  const operations: string[] = [];
  const units: Units = { read: 0, write: 0 };
  const server = createServer(async (request, response) => {
    const operation = String(request.headers["x-amz-target"]).replace(/.*\./, "");
    const index = operations.push(operation) - 1;
    const body = await readText(request);
    const { TransactItems, ...singleAction }: RequestBody = JSON.parse(body);
    const actions = TransactItems?.flatMap((item) => Object.values(item)) ?? [singleAction];
    const items = actions.map(({ Key, Item }) => Item ?? Key ?? {});
    const carryOut = async () => {
      const result = await forward(serverUrl, request, body);
      const { Item, Responses }: AnswerBody = JSON.parse(result.text);
      const readItems = Responses?.map((response) => response.Item) ?? [Item];
      for (const [index, item] of items.entries()) {
        const { read, write } = countUnits(operation, operation.includes("Get") ? readItems[index] : item);
        units.read += read;
        units.write += write;
      }
      return result;
    };
    // By `answered`, chooseFault can later learn that this request is over, for instance to release its items.
    const { promise: answered, resolve: endRequest } = Promise.withResolvers<void>();
    const fault = await chooseFault(operation, index, { items, answered });
    await answerRequest(response, carryOut, fault).catch(() => response.destroy());
    endRequest();
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  const setFaults = (choose: ChooseFault) => {
    operations.length = 0;
    Object.assign(units, { read: 0, write: 0 });
    chooseFault = choose;
  };
  return { url, setFaults, operations, units, stop: () => close(server) };
};

const readText = async (stream: IncomingMessage): Promise<string> => {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
};

interface RequestBody {
  Key?: Item;
  Item?: Item;
  TransactItems?: Record<string, { Key?: Item; Item?: Item }>[];
}

interface AnswerBody {
  Item?: Item;
  Responses?: { Item?: Item }[];
}

interface Answer {
  status: number;
  date: string;
  text: string;
}

/** Sends a request to the server for DynamoDB. */
const forward = async (serverUrl: string, { headers }: IncomingMessage, body: string): Promise<Answer> => {
  const names = ["authorization", "content-type", "x-amz-date", "x-amz-target"];
  const forwardedHeaders = Object.fromEntries(names.map((name) => [name, String(headers[name])]));
  const answer = await fetch(serverUrl, { method: "POST", headers: forwardedHeaders, body });
  return { status: answer.status, date: answer.headers.get("date") ?? "", text: await answer.text() };
};

/**
 * Answers a request with its fault, as the type Fault describes it. `carryOut` sends the request to the server for
 * DynamoDB, and returns the server's answer.
 */
const answerRequest = async (
  response: ServerResponse,
  carryOut: () => Promise<Answer>,
  fault: Fault | undefined,
): Promise<void> => {
  const send = ({ status, text }: Pick<Answer, "status" | "text">, date = new Date().toUTCString()) =>
    response.writeHead(status, { "content-type": "application/x-amz-json-1.0", date }).end(text);
  if (fault === "reset") return void response.destroy();
  if (typeof fault === "object" && "refusal" in fault) {
    const CancellationReasons = fault.reasons?.map((Code) => ({ Code }));
    const __type = `com.amazonaws.dynamodb.v20120810#${fault.refusal}`;
    send({ status: fault.status ?? 400, text: JSON.stringify({ __type, message: "a test", CancellationReasons }) });
    return;
  }
  if (typeof fault === "object" && "carryOutAfter" in fault) {
    // The client can't know that the request is still carried out.
    response.destroy();
    await wait(fault.carryOutAfter);
  }
  const result = await carryOut();
  if (fault === "no answer") return;
  if (fault === "lost answer") return void response.destroy();
  if (typeof fault === "object" && "callAfterwards" in fault) {
    fault.callAfterwards();
    return void response.destroy();
  }
  if (fault === "internal error") return void send({ status: 500, text: "{}" });
  if (fault === "half an answer") {
    response.writeHead(result.status, { "content-length": Buffer.byteLength(result.text), date: result.date });
    response.write(result.text.slice(0, -1));
    await wait(10);
    return void response.destroy();
  }
  if (typeof fault === "object" && "answerDelay" in fault) await wait(fault.answerDelay);
  const clockSkew = typeof fault === "object" && "clockSkew" in fault ? fault.clockSkew : 0;
  send(result, new Date(Date.parse(result.date) + clockSkew).toUTCString());
};
