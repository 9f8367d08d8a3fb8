import type { IncomingMessage } from "node:http";
import type { RequestOptions } from "node:https";
import { rejectWhenLate } from "../core/deadline.ts";
import { getErrorMessage } from "../failure.ts";

/** A server's answer to an HTTPS request. */
export interface HttpsAnswer {
  status: number;
  body: string;
  /** Seconds to wait before a retry, from the header Retry-After; undefined without this header. */
  retryAfter: number | undefined;
  headers?: NodeJS.Dict<string[]>;
  trailers?: NodeJS.Dict<string[]>;
}

/**
 * Why a request has no answer. `unsent`: it never reached the server, because a reused connection was dead. `lost`: the
 * connection failed, or the answer was late. `large`: the answer is larger than the limit. `credentials`: the
 * credentials to send could not be read.
 */
type UnansweredReason = "unsent" | "lost" | "large" | "credentials" | "other";

export class UnansweredError extends Error {
  readonly reason: UnansweredReason;
  constructor(sentence: string, reason: UnansweredReason = "other", options?: ErrorOptions) {
    super(sentence, options);
    this.reason = reason;
  }
}

/** Returns the error if it is an `UnansweredError`; throws any other error, which is a fault of Postern. */
export const requireUnansweredError = (error: unknown): UnansweredError => {
  if (error instanceof UnansweredError) return error;
  throw error;
};

/** The most bytes of one answer, or of all pages of a list. */
export const maximumHttpsAnswerBytes = 32 * 1024 * 1024;

/** Loads a module of Node at its first use: to load these modules at the start takes a third of a cold start. */
export const loadHttps = () => process.getBuiltinModule("node:https");
const loadHttp = () => process.getBuiltinModule("node:http");
const loadZlib = () => process.getBuiltinModule("node:zlib");

/**
 * Sends one request and reads the answer of at most `maximumBytes` bytes, until `deadline` (in milliseconds since the
 * epoch). Every failure is an `UnansweredError`. No redirect is followed.
 */
export const sendRequest = async (
  url: string,
  options: RequestOptions,
  body: string | Uint8Array | undefined,
  deadline: number,
  maximumBytes = maximumHttpsAnswerBytes,
): Promise<HttpsAnswer> => {
  const { promise, resolve, reject } = Promise.withResolvers<HttpsAnswer>();
  const request = beginRequest(url, options);
  const fail = (error: Error) => {
    const code = "code" in error ? String(error.code) : "";
    const isUnsent = request.reusedSocket && code === "ECONNRESET";
    // Error codes of the operating system, such as ECONNREFUSED, are letters. Codes of TLS and zlib contain a "_";
    // these errors are lasting.
    const reason = isUnsent ? "unsent" : /^E[A-Z]+$/.test(code) ? "lost" : "other";
    reject(error instanceof UnansweredError ? error : new UnansweredError(error.message, reason, { cause: error }));
    // The request is destroyed, because a response that isn't read to its end keeps its connection open.
    request.destroy();
  };
  // A separate timer, because a request emits no more events if its connection changes to another protocol.
  const timer = setTimeout(() => fail(createTimeout()), Math.max(0, deadline - Date.now()));
  request.on("error", fail);
  request.on("response", (response) => {
    readBody(response, maximumBytes).then((text) => {
      const { statusCode = 0, headersDistinct: headers, trailersDistinct: trailers } = response;
      const seconds = Number(headers["retry-after"]?.[0]);
      const retryAfter = Number.isFinite(seconds) ? seconds : undefined;
      resolve({ status: statusCode, body: text, retryAfter, headers, trailers });
    }, fail);
  });
  request.end(body);
  return promise.finally(() => clearTimeout(timer));
};

/** Begins a request. Node throws if it can't be sent, such as with a line break in a header or a bad certificate. */
const beginRequest = (url: string, options: RequestOptions) => {
  try {
    return url.startsWith("http:") ? loadHttp().request(url, options) : loadHttps().request(url, options);
  } catch (error) {
    throw new UnansweredError(`it can't be asked: ${getErrorMessage(error)}`, "other", {
      cause: error,
    });
  }
};

/** Waits for an answer until the deadline. The request goes on, as other callers may wait longer for its answer. */
export const awaitUntil = <T>(deadline: number, answer: Promise<T>): Promise<T> =>
  deadline === Number.POSITIVE_INFINITY ? answer : rejectWhenLate(answer, deadline - Date.now(), createTimeout);

const createTimeout = () => new UnansweredError("it did not answer in time", "lost");

/** Reads an answer's body as text. More bytes than the limit are an error. */
const readBody = async (response: IncomingMessage, maximumBytes: number): Promise<string> => {
  const isCompressed = response.headers["content-encoding"] === "gzip";
  const chunks: Buffer[] = [];
  let bytes = 0;
  // The limit for an answer's size counts bytes after decompression.
  const source = isCompressed ? response.pipe(loadZlib().createGunzip()) : response;
  response.on("error", (error) => source.destroy(error));
  response.on("aborted", () => source.destroy(new UnansweredError("it broke off its answer", "lost")));
  for await (const chunk of source) {
    bytes += chunk.length;
    if (bytes > maximumBytes) {
      response.destroy();
      throw new UnansweredError(`its answer has more than ${maximumBytes} bytes`, "large");
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
};
