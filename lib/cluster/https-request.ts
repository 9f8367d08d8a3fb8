import type { IncomingMessage } from "node:http";
import type { RequestOptions } from "node:https";
import { messageOf } from "../failure.ts";
import { inTime } from "../needs.ts";

/** What a server said over HTTPS. */
export interface Answer {
  status: number;
  body: string;
  /** Seconds, where the server says when to come again. */
  retryAfter: number | undefined;
  /** By name in lower case. */
  headers?: NodeJS.Dict<string[]>;
  trailers?: NodeJS.Dict<string[]>;
}

/** A request that got no answer. `unsent` are those that never reached the server, on a connection that was dead. */
export class Unanswered extends Error {
  readonly unsent: boolean;
  constructor(sentence: string, unsent = false, options?: ErrorOptions) {
    super(sentence, options);
    this.unsent = unsent;
  }
}

/** What stands in an answer's place; whatever else was thrown is a fault of ours. */
export const unanswered = (error: unknown): Unanswered => {
  if (error instanceof Unanswered) return error;
  throw error;
};

/** Of one answer, or of all pages of a list, in bytes. */
export const longest = 32 * 1024 * 1024;

/** Node's own modules for it, loaded when somebody asks: they are a third of a cold start. */
export const https = () => process.getBuiltinModule("node:https");
const http = () => process.getBuiltinModule("node:http");
const zlib = () => process.getBuiltinModule("node:zlib");

/**
 * One request and its whole answer of at most so many bytes, until `deadline` (as Date.now() has it). Whatever goes wrong
 * is `Unanswered`. No redirect is followed.
 */
export const exchange = async (
  url: string,
  options: RequestOptions,
  body: string | Uint8Array | undefined,
  deadline: number,
  most = longest,
): Promise<Answer> => {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const request = begun(url, options);
  const fail = (error: Error) => {
    const unsent = request.reusedSocket && "code" in error && error.code === "ECONNRESET";
    reject(error instanceof Unanswered ? error : new Unanswered(error.message, unsent, { cause: error }));
    // What is left of an answer that is not wanted any more would keep its connection.
    request.destroy();
  };
  // A request that was given up for another protocol would say nothing of its own any more.
  const timer = setTimeout(() => fail(late()), Math.max(0, deadline - Date.now()));
  request.on("error", fail);
  request.on("response", (response) => {
    whole(response, most).then((text) => {
      const { statusCode = 0, headersDistinct: headers, trailersDistinct: trailers } = response;
      const seconds = Number(headers["retry-after"]?.[0]);
      const retryAfter = Number.isFinite(seconds) ? seconds : undefined;
      resolve({ status: statusCode, body: text, retryAfter, headers, trailers });
    }, fail);
  });
  request.end(body);
  return promise.finally(() => clearTimeout(timer));
};

/** Node refuses at once what can't be sent: a header with a line break, a certificate that is none. */
const begun = (url: string, options: RequestOptions) => {
  try {
    return url.startsWith("http:") ? http().request(url, options) : https().request(url, options);
  } catch (error) {
    throw new Unanswered(`it can't be asked: ${messageOf(error)}`, false, {
      cause: error,
    });
  }
};

/** An answer that others may wait for, too; we only do until then. */
export const before = <T>(deadline: number, answer: Promise<T>): Promise<T> =>
  inTime(answer, deadline - Date.now(), late);

const late = () => new Unanswered("it did not answer in time");

const whole = async (response: IncomingMessage, most: number): Promise<string> => {
  const isPacked = response.headers["content-encoding"] === "gzip";
  const chunks: Buffer[] = [];
  let bytes = 0;
  // What is packed small may be large.
  const source = isPacked ? response.pipe(zlib().createGunzip()) : response;
  response.on("error", (error) => source.destroy(error));
  response.on("aborted", () => source.destroy(new Unanswered("it broke off its answer")));
  for await (const chunk of source) {
    bytes += chunk.length;
    if (bytes > most) {
      response.destroy();
      throw new Unanswered(`its answer has more than ${most} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
};
