import { hash, timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import type { EndpointHost } from "#lib/core/endpoint.ts";
import type { CommandOption } from "../cli/command.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { readOrCreateConsoleToken } from "../keys/keys.ts";
import type { AddedListener, ServedProject } from "../serve/serve.ts";
import { checkManifests, parseCheckQuestion } from "./manifest-check.ts";
import { readPageFile } from "./page-files.ts";
import { describeReview } from "./review-details.ts";
import { createReviewFeed, type ReviewFeed } from "./reviews.ts";
import { describeRule, listRules } from "./rule-details.ts";

/** The options of commands that open the console: a local web page with live reviews. */
export const consoleOptions = {
  "no-console": { type: "boolean", says: "open no console" },
  "console-port": {
    type: "string",
    value: "PORT",
    says: "the port of the console on 127.0.0.1; 0 chooses a free port (default: the port after --port)",
  },
} satisfies Record<string, CommandOption>;

/**
 * Returns a function that adds the console to a gateway. If `port` is undefined, the console gets the next port after
 * the gateway's port.
 */
export const createConsole = (port: number | undefined) => (host: EndpointHost) => {
  const feed = createReviewFeed(host);
  const open = (project: ServedProject) => openConsole(feed, project, port).catch(reportNoConsole);
  return { ...feed, open };
};

const address = "127.0.0.1";
const limits = { bodyBytes: 1024 * 1024, connections: 64, unsentBytes: 20 * 1024 * 1024 };

/** Starts the console's web server. The URL has a secret token. */
const openConsole = async (feed: ReviewFeed, project: ServedProject, wantedPort?: number): Promise<AddedListener> => {
  const token = await readOrCreateConsoleToken(project.state);
  const nextPort = project.port === 0 ? 0 : (project.port + 1) % 65_536;
  const port = wantedPort ?? nextPort;
  const server = createServer({ requestTimeout: 30_000 }, (request, response) => {
    const abortController = new AbortController();
    response.on("close", () => abortController.abort());
    answer(request, response, { feed, project, token, signal: abortController.signal }).catch((error) => {
      if (response.headersSent) response.destroy();
      else send(response, error instanceof Complaint ? 422 : 500, toSentence(error));
    });
  });
  server.maxConnections = limits.connections;
  // Only programs on this machine can connect to 127.0.0.1.
  await once(server.listen(port, address), "listening").catch((error) => {
    const isPortInUse = error.code === "EADDRINUSE";
    throw isPortInUse ? new Error(`port ${port} of ${address} is in use; --console-port takes another`) : error;
  });
  const { port: actualPort } = server.address() as AddressInfo;
  const close = async () => server.close().closeAllConnections();
  return { line: `Console: http://${address}:${actualPort}/${token}/`, close };
};

/** Returns a line that says why there is no console. The gateway still serves the rules. */
const reportNoConsole = (error: unknown): AddedListener => {
  return { line: `There is no console: ${toSentence(error)}`, close: async () => {} };
};

interface ConsoleContext {
  feed: ReviewFeed;
  project: ServedProject;
  token: string;
  /** Aborts when the response is closed: the page was closed, or the gateway ends. */
  signal: AbortSignal;
}

/** The page can't load anything from other hosts, and scripts can't turn a text into HTML. */
const contentSecurityPolicy = `default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;
 base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'`;

/** The headers of each answer. */
const headers = {
  "content-security-policy": contentSecurityPolicy.replaceAll("\n", ""),
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
};

/** Answers a request for `/TOKEN/NAME`. */
const answer = async (request: IncomingMessage, response: ServerResponse, context: ConsoleContext): Promise<void> => {
  const [path = "", query] = (request.url ?? "").split("?");
  // Without a slash after the token, relative links in the page would be wrong: the name "-" gives the code 404.
  const [, token = "", name = "-", ...furtherSegments] = path.split("/");
  const refusal = findRefusal(request, token, context.token);
  if (refusal !== undefined) return send(response, 403, refusal);
  const method = name === "check" ? "POST" : "GET";
  if (request.method !== method) return send(response, 405, `This takes ${method}.`);
  if (name === "reviews") return sendReviews(request, response, context.feed);
  const createAnswer = furtherSegments.length === 0 && Object.hasOwn(answers, name) ? answers[name] : undefined;
  if (createAnswer === undefined) return send(response, 404, "There is nothing here.");
  const [type, content] = await createAnswer(context, new URLSearchParams(query), request);
  send(response, 200, content, type);
};

const send = (response: ServerResponse, code: number, content: string, type = "text/plain"): void => {
  response.writeHead(code, { ...headers, "content-type": `${type}; charset=utf-8` }).end(content);
};

/**
 * Returns why a request is refused: it has no valid token, a page of another origin sent it, or its Host header is
 * another name than that of this machine (an attacker's DNS name can point to 127.0.0.1).
 */
const findRefusal = (
  { headers: { host = "", origin }, socket }: IncomingMessage,
  givenToken: string,
  token: string,
) => {
  const hosts = [address, "localhost"].map((name) => new URL(`http://${name}:${socket.localPort}`).host);
  if (!hosts.includes(host)) return `The host must be ${hosts.join(" or ")}.`;
  if (origin !== undefined && origin !== `http://${host}`) return "Pages of other origins are refused.";
  // timingSafeEqual needs buffers of equal length, such as digests.
  return timingSafeEqual(hash("sha256", givenToken, "buffer"), hash("sha256", token, "buffer"))
    ? undefined
    : "The address has no valid token: open the address that postern serve prints.";
};

type Answer = [type: string, content: string];
const toJson = (content: unknown): Answer => ["application/json", JSON.stringify(content)];

let isChecking = false;

type CreateAnswer = (
  context: ConsoleContext,
  query: URLSearchParams,
  request: IncomingMessage,
) => Answer | Promise<Answer>;

/** The functions that answer requests, by the last part of the request's path. */
const answers: Record<string, CreateAnswer> = {
  "": () => ["text/html", html],
  "page.js": async () => ["text/javascript", await readPageFile("page.js")],
  "page.css": async () => ["text/css", await readPageFile("page.css")],
  rules: async ({ project }) => toJson(await listRules(project.file)),
  rule: async ({ project }, query) => {
    const rule = await describeRule(project.file, query.get("name") ?? "");
    if (rule === undefined) throw new Complaint("There is no rule of this name, or it can't be loaded.");
    return toJson(rule);
  },
  review: async ({ feed, project }, query) => {
    const review = feed.find(query.get("id") ?? "");
    if (review === undefined)
      throw new Complaint("This review is no longer kept: newer ones took its place, or the gateway restarted.");
    return toJson(await describeReview(review, project.getLoaded()));
  },
  check: async ({ project, signal }, _, request) => {
    if (Number(request.headers["content-length"] ?? Number.POSITIVE_INFINITY) > limits.bodyBytes)
      throw new Complaint(`The manifests have more than ${limits.bodyBytes} bytes; postern check takes more.`);
    if (isChecking) throw new Complaint("Another check is running; wait for its end.");
    isChecking = true;
    try {
      return toJson(await checkManifests(parseCheckQuestion(await text(request)), project.file, signal));
    } finally {
      isChecking = false;
    }
  },
};

/** Sends reviews as Server-Sent Events until the page is closed. A page that reads too slowly is disconnected. */
const sendReviews = (request: IncomingMessage, response: ServerResponse, feed: ReviewFeed): void => {
  response.writeHead(200, { ...headers, "content-type": "text/event-stream" }).write("retry: 500\n\n");
  const lastId = request.headers["last-event-id"];
  const unsubscribe = feed.subscribe(String(lastId), (rows) => {
    const id = rows.at(-1)?.id;
    if (response.writableLength > limits.unsentBytes) response.destroy();
    else response.write(`${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(rows)}\n\n`);
  });
  // An empty comment keeps the connection open while there are no reviews.
  const keepAliveTimer = setInterval(() => response.write(":\n\n"), 15_000);
  response.on("close", () => {
    clearInterval(keepAliveTimer);
    unsubscribe();
  });
};

/** The page. Its script builds everything else. */
const html = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Postern</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<script type="module" src="page.js"></script>
</html>
`;
