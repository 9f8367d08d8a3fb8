import { createAnswerCache } from "../cluster/answer-cache.ts";
import { maximumHttpsAnswerBytes, type sendRequest, UnansweredError } from "../cluster/https-request.ts";
import { createLiveCapabilities } from "../cluster/live-capabilities.ts";
import { Failure } from "../failure.ts";
import { toMap } from "../json.ts";
import { createMemoryLedger } from "../ledger.ts";
import type { Capabilities } from "../needs.ts";
import { readBody } from "./request-body.ts";

/**
 * Sends a request as a program sends its write, which rules check: with the same connections, abort signal and other
 * options, such as `redirect`. `signal` aborts the request, too.
 */
export type SendWithProgramOptions = (
  method: string,
  url: string,
  headers: Headers,
  body?: string | Uint8Array<ArrayBuffer>,
  signal?: AbortSignal,
) => Promise<Response>;

/**
 * The headers of the program's write that are not copied to the requests that the guard sends itself, such as the reads
 * of rules: headers that describe the body, ask for a special response, or make the write conditional.
 */
const headersNotCopied = /^(content-.*|transfer-encoding|accept|accept-encoding|if-.*|range|expect)$/i;

/** Copies headers, such as credentials, except those for one request only, such as content-length. Adds `more`. */
export const addProgramHeaders = (programHeaders: Headers, more: Record<string, string> = {}): Headers => {
  const kept = new Headers([...programHeaders].filter(([name]) => !headersNotCopied.test(name)));
  for (const [name, value] of Object.entries(more)) kept.set(name, value);
  return kept;
};

/** Returns a key for the server and the user of a request, so that an answer for one user isn't given to another. */
const getIdentity = (server: string, headers: Headers): string =>
  JSON.stringify([server, ...[...headers].filter(([name]) => /^(authorization|cookie|impersonate-.*)$/.test(name))]);

/** The most identities whose answers are cached. A renewed token makes a new identity. */
const maxIdentities = 16;

/** Makes functions by which rules ask the clusters that a program writes to, with its credentials and connections. */
export const createProgramCapabilitiesFactory = () => {
  /** By identity, in the order of their last use. */
  const caches = new Map<string, ReturnType<typeof createAnswerCache>>();
  const ledger = createMemoryLedger();
  const getCache = (identity: string) => {
    const cache = caches.get(identity) ?? createAnswerCache();
    caches.delete(identity);
    caches.set(identity, cache);
    for (const oldest of caches.keys()) if (caches.size > maxIdentities) caches.delete(oldest);
    return cache;
  };
  return (server: string, headers: Headers, send: SendWithProgramOptions) => {
    const { host } = new URL(server);
    // The token is empty, because the credentials are in the program's headers, which `createSender` adds.
    const connection = { server, credentials: { token: "" } };
    const cache = getCache(getIdentity(server, headers));
    const sendAsProgram = createSender(headers, send);
    const open = createLiveCapabilities(
      { [host]: connection },
      { cache, openLedger: () => ledger, print: () => {}, send: sendAsProgram },
    );
    return (timeoutMilliseconds: number): Capabilities => open(host, timeoutMilliseconds);
  };
};

/** Returns a function to send rules' requests with headers of the write that they check, such as its credentials. */
const createSender =
  (programHeaders: Headers, send: SendWithProgramOptions): typeof sendRequest =>
  async (url, { method = "GET", headers: sentHeaders }, body, deadline, limit = maximumHttpsAnswerBytes) => {
    const { accept, "content-type": type } = toMap(sentHeaders);
    const ownHeaders = { accept: String(accept), ...(type !== undefined && { "content-type": String(type) }) };
    const headers = addProgramHeaders(programHeaders, ownHeaders);
    // Node's timers accept at most 2^31 - 1 milliseconds.
    const signal = AbortSignal.timeout(Math.max(0, Math.min(deadline - Date.now(), 2 ** 31 - 1)));
    const bytes = typeof body === "string" || body === undefined ? body : new Uint8Array(body);
    try {
      const response = await send(method, url, headers, bytes, signal);
      const text = new TextDecoder().decode(await readBody(response.body, limit));
      const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
      return { status: response.status, body: text, retryAfter: Number.isFinite(seconds) ? seconds : undefined };
    } catch (error) {
      if (signal.aborted) throw new UnansweredError("it did not answer in time");
      // Only `readBody` throws a Failure.
      if (error instanceof Failure) throw new UnansweredError(`its answer has more than ${limit} bytes`);
      throw new UnansweredError(describeError(error), "other", { cause: error });
    }
  };

/**
 * Describes an error of `fetch`. Its message says only that it failed; the cause says why, such as a bad certificate.
 */
const describeError = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
};
