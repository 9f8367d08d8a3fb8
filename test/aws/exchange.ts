import { createServer, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { close, listen } from "../listen.ts";

/** A call of AWS, for a test that counts calls, breaks them or forbids them. */
export interface Heard {
  /** The service in the signature: `lambda`, `s3`, `monitoring`, … */
  service: string;
  /** The action as policies name it: `lambda:UpdateAlias`, `s3:ListBucket`, … */
  action: string;
  /** The function, parameter, stack, or `bucket/key`. */
  name: string;
  /** The access key of the caller. */
  caller: string | undefined;
}

/** An error of AWS's, or a connection that ends. */
export type Fault = { status: number; error: string } | "cut";

/** A recorder of calls, which can break or refuse them. */
export interface Ear {
  heard: Heard[];
  /** Breaks a call before or after it is done, once for each that says so. */
  fault: ((heard: Heard, when: "before" | "after") => Fault | undefined) | undefined;
  /** Returns false for a call to refuse, as AWS refuses a caller without rights. */
  allow: ((heard: Heard) => boolean) | undefined;
}

export interface Asked {
  method: string;
  /** Undecoded. */
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** The path and the query, as received. */
  target: string;
}

export interface Reply {
  status: number;
  headers?: Record<string, string | string[]>;
  body?: string | Buffer;
}

/** One of AWS's services: it knows what a call is about, answers it, and refuses in its own protocol. */
export interface Service {
  about(asked: Asked): { action: string; name: string };
  answer(asked: Asked): Promise<Reply>;
  refuse(refusal: Refusal): Reply;
}

/** An error that AWS answers with. */
export class Refusal extends Error {
  readonly status: number;
  readonly kind: string;
  constructor(status: number, kind: string, message: string) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

class Cut extends Error {}

/** Does a call as far as the ear lets it. */
export const heardBy = async <T>(ear: Ear, heard: Heard, act: () => Promise<T>): Promise<T> => {
  const broken = (when: "before" | "after") => {
    const fault = ear.fault?.(heard, when);
    if (fault === "cut") throw new Cut("the connection ended");
    if (fault) throw new Refusal(fault.status, fault.error, "as the test wants it");
  };
  ear.heard.push(heard);
  if (ear.allow && !ear.allow(heard)) {
    const sentence = `User: arn:aws:iam::123456789012:user/${heard.caller} is not authorized to perform: ${heard.action}`;
    throw new Refusal(403, "AccessDenied", `${sentence} on resource: ${heard.name}`);
  }
  broken("before");
  const answer = await act();
  broken("after");
  return answer;
};

/** Matches the access key and the service in a call's signature. */
const signatureOf = ({ headers, query }: Asked) =>
  /Credential=([^/,]+)\/\d+\/[^/]+\/([^/]+)\//.exec(
    headers.authorization ?? `Credential=${query.get("X-Amz-Credential") ?? ""}`,
  );

export const callerOf = (asked: Asked): string | undefined => signatureOf(asked)?.[1];

/** An HTTP server on loopback for services. Calls without a signature go to services without a name, and aren't recorded. */
export const serve = async (
  find: (scope: string | undefined, asked: Asked) => Service,
  ear: Ear,
): Promise<{ url: string; stop(): Promise<void> }> => {
  const server = createServer(async (request, response) => {
    const asked = await read(request);
    const [, caller, scope] = signatureOf(asked) ?? [];
    const service = find(scope, asked);
    const answered = async (): Promise<Reply> => {
      if (scope === undefined) return service.answer(asked);
      return heardBy(ear, { service: scope, ...service.about(asked), caller }, () => service.answer(asked));
    };
    const reply = await answered().catch((error: unknown) => {
      if (error instanceof Cut) return undefined;
      if (error instanceof Refusal) return service.refuse(error);
      return service.refuse(new Refusal(500, "ServiceException", String(error instanceof Error ? error.stack : error)));
    });
    if (reply === undefined) request.socket.destroy();
    else response.writeHead(reply.status, reply.headers).end(reply.body);
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  return { url, stop: () => close(server) };
};

const read = async (request: IncomingMessage): Promise<Asked> => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const { method = "", url: target = "", headers } = request;
  const [path = "", query] = target.split("?", 2);
  return { method, path, query: new URLSearchParams(query), headers, body: Buffer.concat(chunks), target };
};

/** Formats an error as Lambda and other REST services do. */
export const refuseInRest = ({ status, kind, message }: Refusal): Reply => {
  const name = kind === "AccessDenied" ? "AccessDeniedException" : kind;
  const body = JSON.stringify({ Type: status < 500 ? "User" : "Service", message, Message: message });
  return { status, headers: { "content-type": "application/json", "x-amzn-errortype": name }, body };
};

/** Formats an error as services do that are called by `x-amz-target`. */
export const refuseInJson = ({ status, kind, message }: Refusal): Reply => {
  const name = kind === "AccessDenied" ? "AccessDeniedException" : kind;
  const headers = { "content-type": "application/x-amz-json-1.1", "x-amzn-errortype": name };
  return { status, headers, body: JSON.stringify({ __type: name, message, Message: message }) };
};

/** Formats an error as services do that are called by forms. */
export const refuseInQuery = ({ status, kind, message }: Refusal): Reply => {
  const error = { Type: status < 500 ? "Sender" : "Receiver", Code: kind, Message: message };
  return { status, headers: xmlType, body: xml("ErrorResponse", { Error: error, RequestId: "stand-in" }) };
};

/** Formats an error as S3 does. */
export const refuseInS3 = ({ status, kind, message }: Refusal): Reply => {
  return { status, headers: xmlType, body: xml("Error", { Code: kind, Message: message, RequestId: "stand-in" }) };
};

export const xmlType = { "content-type": "text/xml" };

/** Lists become members, dates are written as AWS does, what is undefined is left out. */
export const xml = (name: string, value: unknown): string => {
  if (value === undefined) return "";
  if (Array.isArray(value)) return `<${name}>${value.map((one) => xml("member", one)).join("")}</${name}>`;
  if (value instanceof Date) return `<${name}>${value.toISOString()}</${name}>`;
  if (value === null || typeof value !== "object") return `<${name}>${escaped(String(value))}</${name}>`;
  const inner = Object.entries(value).map(([key, one]) => xml(key, one));
  return `<${name}>${inner.join("")}</${name}>`;
};

const escaped = (text: string) => text.replace(/[&<>"\r]/g, (one) => `&#${one.charCodeAt(0)};`);
