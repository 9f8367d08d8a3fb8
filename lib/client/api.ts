import { Failure } from "../failure.ts";
import { gate } from "./gate.ts";
import type { Send } from "./world.ts";
import type { Setup } from "./write.ts";

/** A request as @kubernetes/client-node passes it to its HTTP library. */
export interface RequestContext {
  getUrl(): string;
  getHttpMethod(): string;
  getHeaders(): Record<string, string>;
  getBody(): unknown;
  getSignal?(): AbortSignal | undefined;
}

export interface ResponseContext {
  httpStatusCode: number;
  headers: Record<string, string>;
  body: { text(): Promise<string>; binary(): Promise<Buffer> };
}

export interface Observable<T> {
  toPromise(): Promise<T>;
  pipe<U>(next: (value: T) => U | PromiseLike<U>): Observable<U>;
}

export interface HttpLibrary {
  send(request: RequestContext): Observable<ResponseContext>;
}

export const guardedLibrary = (library: HttpLibrary, setup: Setup): HttpLibrary => {
  const judged = gate(setup);
  const pass = async (request: RequestContext): Promise<ResponseContext> => {
    const untouched = () => library.send(request).toPromise();
    const response = await judged({
      ...{ method: String(request.getHttpMethod()).toUpperCase(), address: request.getUrl() },
      open: () => ({ headers: headersOf(request), read: async () => bytesOf(request.getBody()) }),
      send: sender(library, request),
    });
    request.getSignal?.()?.throwIfAborted();
    return response === undefined ? untouched() : contextOf(response);
  };
  return { send: (request) => observable(pass(request)) };
};

/** Header names that differ only in case are one header; the last value wins. */
const headersOf = (request: RequestContext): Headers => {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.getHeaders())) headers.set(name, value);
  return headers;
};

/** Sends another request in place of `request`, and inherits its other members, such as the agent. */
const sender =
  (library: HttpLibrary, request: RequestContext): Send =>
  async (method, url, headers, body, signal) => {
    const signals = [request.getSignal?.(), signal].filter((one) => one !== undefined);
    const derived: RequestContext = Object.assign(Object.create(request), {
      getUrl: () => url,
      getHttpMethod: () => method,
      getHeaders: () => Object.fromEntries(headers),
      getBody: () => body,
      getSignal: () => (signals.length > 0 ? AbortSignal.any(signals) : undefined),
    });
    const { httpStatusCode: status, headers: said, body: content } = await library.send(derived).toPromise();
    const text = await content.text();
    return new Response(bodiless.has(status) ? null : text, { status, headers: unpacked(said) });
  };

/** Status codes for which `new Response` accepts no body. */
const bodiless = new Set([204, 205, 304]);

/** Removes the headers that describe the encoded body: the text has been decoded. */
const unpacked = (headers: Record<string, string>): Headers => {
  const kept = new Headers(headers);
  for (const name of ["content-encoding", "content-length", "transfer-encoding"]) kept.delete(name);
  return kept;
};

const bytesOf = (body: unknown): Uint8Array<ArrayBuffer> => {
  if (body === undefined || body === null) return new Uint8Array();
  if (typeof body === "string") return new Uint8Array(Buffer.from(body));
  if (body instanceof Uint8Array) return new Uint8Array(body);
  throw new Failure(415, "a form can't be judged before it leaves; send JSON");
};

const contextOf = async (response: Response): Promise<ResponseContext> => {
  const content = Buffer.from(await response.arrayBuffer());
  const body = {
    ...{ text: async () => content.toString(), binary: async () => content },
    stream: () => new Response(content).body,
  };
  const headers = Object.fromEntries(response.headers);
  return Object.assign(
    { httpStatusCode: response.status, headers, body },
    {
      getBodyAsAny: () => body.text(),
      getBodyAsFile: async () => ({ data: content, name: "" }),
      getParsedHeader: (name: string) => ({ "": headers[name.toLowerCase()] ?? "" }),
    },
  );
};

const observable = <T>(promise: Promise<T>): Observable<T> => ({
  toPromise: () => promise,
  pipe: (next) => observable(promise.then(next)),
});
