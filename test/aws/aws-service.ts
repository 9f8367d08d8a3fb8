import { createServer, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { close, listen } from "../listen.ts";

/** A call to AWS, which a test can count, refuse or make fail. */
export interface RecordedCall {
  /** The service in the signature: `lambda`, `s3`, `monitoring`, … */
  service: string;
  /** The action as policies name it: `lambda:UpdateAlias`, `s3:ListBucket`, … */
  action: string;
  /** The function, parameter, stack, or `bucket/key`. */
  name: string;
  /** The access key of the caller. */
  caller: string | undefined;
  /** The values of condition keys, if the call has any. */
  context?: Record<string, string | string[]>;
  /** The rights that a call of DynamoDB needs. */
  rights?: TableRight[];
}

/** A right to a table in DynamoDB, or to the item with this partition key. */
export interface TableRight {
  action: string;
  table: string;
  key?: string;
}

/** A fault of a call: AWS answers with an error, or the connection ends without an answer. */
export type Fault = { status: number; error: string } | "cut";

/** Records calls, and can refuse them or make them fail. */
export interface CallRecorder {
  recordedCalls: RecordedCall[];
  /** Returns the fault that a call gets before or after its action runs; undefined if the call doesn't fail. */
  fault: ((call: RecordedCall, when: "before" | "after") => Fault | undefined) | undefined;
  /** Returns false for a call that must be refused because its caller has no right to it. */
  allow: ((call: RecordedCall) => boolean) | undefined;
}

export interface AwsRequest {
  method: string;
  /** The path, still percent-encoded. */
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

/** A service of AWS: it names a call's action, answers the call, and formats errors in its own protocol. */
export interface AwsService {
  identify(request: AwsRequest): Pick<RecordedCall, "action" | "name" | "rights" | "context">;
  answer(request: AwsRequest): Promise<AwsReply>;
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

class CutConnection extends Error {}

/** Records a call, and runs it unless the recorder refuses it or makes it fail. */
export const recordCall = async <T>(recorder: CallRecorder, call: RecordedCall, act: () => Promise<T>): Promise<T> => {
  const injectFault = (when: "before" | "after") => {
    const fault = recorder.fault?.(call, when);
    if (fault === "cut") throw new CutConnection("the connection ended");
    if (fault) throw new AwsError(fault.status, fault.error, "as the test wants it");
  };
  recorder.recordedCalls.push(call);
  requireAllowed(recorder, call);
  injectFault("before");
  const answer = await act();
  injectFault("after");
  return answer;
};

/** Throws if the caller has no right to the call. */
export const requireAllowed = ({ allow }: CallRecorder, call: RecordedCall): void => {
  if (!allow || allow(call)) return;
  const sentence = `User: arn:aws:iam::123456789012:user/${call.caller} is not authorized to perform: ${call.action}`;
  throw new AwsError(403, "AccessDenied", `${sentence} on resource: ${call.name}`);
};

/** Matches the access key and the service in a call's signature: `Credential=KEY/20260101/eu-west-1/lambda/…`. */
const matchSignature = ({ headers, query }: AwsRequest) =>
  /Credential=([^/,]+)\/\d+\/[^/]+\/([^/]+)\//.exec(
    headers.authorization ?? `Credential=${query.get("X-Amz-Credential") ?? ""}`,
  );

export const readCaller = (request: AwsRequest): string | undefined => matchSignature(request)?.[1];

/**
 * Starts an HTTP server on loopback for services. Calls without a signature have no service name, and aren't recorded.
 */
export const startServer = async (
  findService: (name: string | undefined, request: AwsRequest) => AwsService,
  recorder: CallRecorder,
): Promise<{ url: string; stop(): Promise<void> }> => {
  const server = createServer(async (incoming, response) => {
    const request = await readRequest(incoming);
    const [, caller, name] = matchSignature(request) ?? [];
    const service = findService(name, request);
    const answerCall = async (): Promise<AwsReply> => {
      if (name === undefined) return service.answer(request);
      return recordCall(recorder, { service: name, ...service.identify(request), caller }, () =>
        service.answer(request),
      );
    };
    const reply = await answerCall().catch((error: unknown) => {
      if (error instanceof CutConnection) return undefined;
      if (error instanceof AwsError) return service.refuse(error);
      return service.refuse(
        new AwsError(500, "ServiceException", String(error instanceof Error ? error.stack : error)),
      );
    });
    if (reply === undefined) incoming.socket.destroy();
    else response.writeHead(reply.status, { "x-amzn-requestid": "stand-in", ...reply.headers }).end(reply.body);
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  return { url, stop: () => close(server) };
};

const readRequest = async (incoming: IncomingMessage): Promise<AwsRequest> => {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const { method = "", url: target = "", headers } = incoming;
  const [path = "", query] = target.split("?", 2);
  return { method, path, query: new URLSearchParams(query), headers, body: Buffer.concat(chunks), target };
};

/** Formats an error as Lambda and other REST services do. */
export const refuseInRest = ({ status, kind, message }: AwsError): AwsReply => {
  const name = kind === "AccessDenied" ? "AccessDeniedException" : kind;
  const body = JSON.stringify({ Type: status < 500 ? "User" : "Service", message, Message: message });
  return { status, headers: { "content-type": "application/json", "x-amzn-errortype": name }, body };
};

/** Formats an error for services whose calls have the header `x-amz-target`. */
export const refuseInJson = ({ status, kind, message }: AwsError): AwsReply => {
  const name = kind === "AccessDenied" ? "AccessDeniedException" : kind;
  const headers = { "content-type": "application/x-amz-json-1.1", "x-amzn-errortype": name };
  return { status, headers, body: JSON.stringify({ __type: name, message, Message: message }) };
};

/** Formats an error for services whose calls are forms. */
export const refuseInQuery = ({ status, kind, message }: AwsError): AwsReply => {
  const error = { Type: status < 500 ? "Sender" : "Receiver", Code: kind, Message: message };
  return { status, headers: xmlType, body: toXml("ErrorResponse", { Error: error, RequestId: "stand-in" }) };
};

/** Formats an error as S3 does. */
export const refuseInS3 = ({ status, kind, message }: AwsError): AwsReply => {
  return { status, headers: xmlType, body: toXml("Error", { Code: kind, Message: message, RequestId: "stand-in" }) };
};

export const xmlType = { "content-type": "text/xml" };

/**
 * Formats a value as XML: a list becomes `member` elements, a date has AWS's format, and undefined values are left out.
 */
export const toXml = (name: string, value: unknown): string => {
  if (value === undefined) return "";
  if (Array.isArray(value)) return `<${name}>${value.map((item) => toXml("member", item)).join("")}</${name}>`;
  if (value instanceof Date) return `<${name}>${value.toISOString()}</${name}>`;
  if (value === null || typeof value !== "object") return `<${name}>${escapeXml(String(value))}</${name}>`;
  const inner = Object.entries(value).map(([key, item]) => toXml(key, item));
  return `<${name}>${inner.join("")}</${name}>`;
};

const escapeXml = (text: string) => text.replace(/[&<>"\r]/g, (character) => `&#${character.charCodeAt(0)};`);
