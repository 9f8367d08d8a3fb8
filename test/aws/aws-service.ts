import { createServer, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { close, listen } from "../listen.ts";

/** A call of AWS, for a test that counts calls, breaks them or forbids them. */
export interface RecordedCall {
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
export interface CallRecorder {
  heard: RecordedCall[];
  /** Breaks a call before or after it is done, once for each that says so. */
  fault: ((heard: RecordedCall, when: "before" | "after") => Fault | undefined) | undefined;
  /** Returns false for a call to refuse, as AWS refuses a caller without rights. */
  allow: ((heard: RecordedCall) => boolean) | undefined;
}

export interface AwsRequest {
  method: string;
  /** Undecoded. */
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** The path and the query, as received. */
  target: string;
}

export interface AwsReply {
  status: number;
  headers?: Record<string, string | string[]>;
  body?: string | Buffer;
}

/** One of AWS's services: it knows what a call is about, answers it, and refuses in its own protocol. */
export interface AwsService {
  about(asked: AwsRequest): { action: string; name: string };
  answer(asked: AwsRequest): Promise<AwsReply>;
  refuse(refusal: AwsError): AwsReply;
}

/** An error that AWS answers with. */
export class AwsError extends Error {
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
export const recordCall = async <T>(ear: CallRecorder, heard: RecordedCall, act: () => Promise<T>): Promise<T> => {
  const injectFault = (when: "before" | "after") => {
    const fault = ear.fault?.(heard, when);
    if (fault === "cut") throw new Cut("the connection ended");
    if (fault) throw new AwsError(fault.status, fault.error, "as the test wants it");
  };
  ear.heard.push(heard);
  if (ear.allow && !ear.allow(heard)) {
    const sentence = `User: arn:aws:iam::123456789012:user/${heard.caller} is not authorized to perform: ${heard.action}`;
    throw new AwsError(403, "AccessDenied", `${sentence} on resource: ${heard.name}`);
  }
  injectFault("before");
  const answer = await act();
  injectFault("after");
  return answer;
};

/** Matches the access key and the service in a call's signature. */
const matchSignature = ({ headers, query }: AwsRequest) =>
  /Credential=([^/,]+)\/\d+\/[^/]+\/([^/]+)\//.exec(
    headers.authorization ?? `Credential=${query.get("X-Amz-Credential") ?? ""}`,
  );

export const readCaller = (asked: AwsRequest): string | undefined => matchSignature(asked)?.[1];

/**
 * An HTTP server on loopback for services. Calls without a signature go to services without a name, and aren't
 * recorded.
 */
export const startServer = async (
  find: (scope: string | undefined, asked: AwsRequest) => AwsService,
  ear: CallRecorder,
): Promise<{ url: string; stop(): Promise<void> }> => {
  const server = createServer(async (request, response) => {
    const asked = await read(request);
    const [, caller, scope] = matchSignature(asked) ?? [];
    const service = find(scope, asked);
    const answered = async (): Promise<AwsReply> => {
      if (scope === undefined) return service.answer(asked);
      return recordCall(ear, { service: scope, ...service.about(asked), caller }, () => service.answer(asked));
    };
    const reply = await answered().catch((error: unknown) => {
      if (error instanceof Cut) return undefined;
      if (error instanceof AwsError) return service.refuse(error);
      return service.refuse(
        new AwsError(500, "ServiceException", String(error instanceof Error ? error.stack : error)),
      );
    });
    if (reply === undefined) request.socket.destroy();
    else response.writeHead(reply.status, reply.headers).end(reply.body);
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  return { url, stop: () => close(server) };
};

const read = async (request: IncomingMessage): Promise<AwsRequest> => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const { method = "", url: target = "", headers } = request;
  const [path = "", query] = target.split("?", 2);
  return { method, path, query: new URLSearchParams(query), headers, body: Buffer.concat(chunks), target };
};

/** Formats an error as Lambda and other REST services do. */
export const refuseInRest = ({ status, kind, message }: AwsError): AwsReply => {
  const name = kind === "AccessDenied" ? "AccessDeniedException" : kind;
  const body = JSON.stringify({ Type: status < 500 ? "User" : "Service", message, Message: message });
  return { status, headers: { "content-type": "application/json", "x-amzn-errortype": name }, body };
};

/** Formats an error as services do that are called by `x-amz-target`. */
export const refuseInJson = ({ status, kind, message }: AwsError): AwsReply => {
  const name = kind === "AccessDenied" ? "AccessDeniedException" : kind;
  const headers = { "content-type": "application/x-amz-json-1.1", "x-amzn-errortype": name };
  return { status, headers, body: JSON.stringify({ __type: name, message, Message: message }) };
};

/** Formats an error as services do that are called by forms. */
export const refuseInQuery = ({ status, kind, message }: AwsError): AwsReply => {
  const error = { Type: status < 500 ? "Sender" : "Receiver", Code: kind, Message: message };
  return { status, headers: xmlType, body: toXml("ErrorResponse", { Error: error, RequestId: "stand-in" }) };
};

/** Formats an error as S3 does. */
export const refuseInS3 = ({ status, kind, message }: AwsError): AwsReply => {
  return { status, headers: xmlType, body: toXml("Error", { Code: kind, Message: message, RequestId: "stand-in" }) };
};

export const xmlType = { "content-type": "text/xml" };

/** Lists become members, dates are written as AWS does, what is undefined is left out. */
export const toXml = (name: string, value: unknown): string => {
  if (value === undefined) return "";
  if (Array.isArray(value)) return `<${name}>${value.map((one) => toXml("member", one)).join("")}</${name}>`;
  if (value instanceof Date) return `<${name}>${value.toISOString()}</${name}>`;
  if (value === null || typeof value !== "object") return `<${name}>${escapeXml(String(value))}</${name}>`;
  const inner = Object.entries(value).map(([key, one]) => toXml(key, one));
  return `<${name}>${inner.join("")}</${name}>`;
};

const escapeXml = (text: string) => text.replace(/[&<>"\r]/g, (one) => `&#${one.charCodeAt(0)};`);
