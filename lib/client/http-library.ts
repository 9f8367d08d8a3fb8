import { Failure } from "../failure.ts";
import { createWriteInterceptor, type GuardContext } from "./interception.ts";
import type { SendWithProgramOptions } from "./program-capabilities.ts";

/** A request that @kubernetes/client-node passes to its HTTP library. */
interface ClientNodeRequestContext {
  getUrl(): string;
  getHttpMethod(): string;
  getHeaders(): Record<string, string>;
  getBody(): unknown;
  getSignal?(): AbortSignal | undefined;
}

/** A response that an HTTP library of @kubernetes/client-node returns. */
interface ClientNodeResponse {
  httpStatusCode: number;
  headers: Record<string, string>;
  body: { text(): Promise<string>; binary(): Promise<Buffer> };
}

/** The part of @kubernetes/client-node's Observable that is used here: a promise with `pipe`. */
interface ClientNodeObservable<T> {
  toPromise(): Promise<T>;
  pipe<U>(next: (value: T) => U | PromiseLike<U>): ClientNodeObservable<U>;
}

/** The part of @kubernetes/client-node's interface HttpLibrary that the client uses. */
export interface HttpLibrary {
  send(request: ClientNodeRequestContext): ClientNodeObservable<ClientNodeResponse>;
}

/** Returns an HTTP library that applies policies and rules to each write before `library` sends it. */
export const applyRulesToHttpLibrary = (library: HttpLibrary, context: GuardContext): HttpLibrary => {
  const intercept = createWriteInterceptor(context);
  const pass = async (request: ClientNodeRequestContext): Promise<ClientNodeResponse> => {
    const response = await intercept({
      method: String(request.getHttpMethod()).toUpperCase(),
      address: request.getUrl(),
      open: () => ({ headers: readHeaders(request), read: async () => toBytes(request.getBody()) }),
      send: createSender(library, request),
    });
    request.getSignal?.()?.throwIfAborted();
    // If no rule matches the request, there is no response yet, and the request is sent unchanged.
    return response === undefined ? library.send(request).toPromise() : toResponseContext(response);
  };
  return { send: (request) => toObservable(pass(request)) };
};

/** Returns the headers of a request. If names differ only in case, the last value counts. */
const readHeaders = (request: ClientNodeRequestContext): Headers => {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.getHeaders())) headers.set(name, value);
  return headers;
};

/**
 * Returns a function that sends requests like `request`, with other methods, URLs, headers and bodies. They inherit its
 * further members, such as the agent.
 */
const createSender =
  (library: HttpLibrary, request: ClientNodeRequestContext): SendWithProgramOptions =>
  async (method, url, headers, body, signal) => {
    const signals = [request.getSignal?.(), signal].filter((value) => value !== undefined);
    const derived: ClientNodeRequestContext = Object.assign(Object.create(request), {
      getUrl: () => url,
      getHttpMethod: () => method,
      getHeaders: () => Object.fromEntries(headers),
      getBody: () => body,
      getSignal: () => (signals.length > 0 ? AbortSignal.any(signals) : undefined),
    });
    const response = await library.send(derived).toPromise();
    const text = await response.body.text();
    const decodedHeaders = new Headers(response.headers);
    // The text is decoded, so headers that describe the encoded body are removed.
    for (const name of ["content-encoding", "content-length", "transfer-encoding"]) decodedHeaders.delete(name);
    const status = response.httpStatusCode;
    return new Response(bodylessCodes.has(status) ? null : text, { status, headers: decodedHeaders });
  };

/** The status codes for which `new Response` accepts no body. */
const bodylessCodes = new Set([204, 205, 304]);

/** Returns a request's body as bytes. @kubernetes/client-node passes JSON as text, so any other object is a form. */
const toBytes = (body: unknown): Uint8Array<ArrayBuffer> => {
  if (body === undefined || body === null) return new Uint8Array();
  if (typeof body === "string") return new Uint8Array(Buffer.from(body));
  if (body instanceof Uint8Array) return new Uint8Array(body);
  throw new Failure(415, "a form can't be evaluated; send JSON");
};

/** Returns a response in the form that the Kubernetes client takes from its HTTP library. */
const toResponseContext = async (response: Response) => {
  const content = Buffer.from(await response.arrayBuffer());
  const headers = Object.fromEntries(response.headers);
  return {
    httpStatusCode: response.status,
    headers,
    body: {
      text: async () => content.toString(),
      binary: async () => content,
      stream: () => new Response(content).body,
    },
    getBodyAsAny: async () => content.toString(),
    getBodyAsFile: async () => ({ data: content, name: "" }),
    // The client reads the value of a header under the key "".
    getParsedHeader: (name: string) => ({ "": headers[name.toLowerCase()] ?? "" }),
  };
};

const toObservable = <T>(promise: Promise<T>): ClientNodeObservable<T> => ({
  toPromise: () => promise,
  pipe: (next) => toObservable(promise.then(next)),
});
