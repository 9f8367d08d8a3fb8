import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { toMap } from "../json.ts";
import { type ApiServerRequest, createApiServerRequester } from "./api-server.ts";
import { createRenewedSource } from "./credentials.ts";
import { type HttpsAnswer, type sendRequest, UnansweredError } from "./https-request.ts";

const answer = (status: number, retryAfter?: number): HttpsAnswer => ({ status, body: "", retryAfter });
const unanswered = (reason: UnansweredError["reason"]) => new UnansweredError("no answer", reason);

/**
 * Sends a request to a server that gives `answers`. Returns each try's token, followed by "anew" if its connection was
 * new, and the last answer's status or why there was no answer.
 */
const ask = async (
  answers: (HttpsAnswer | UnansweredError)[],
  repeat?: ApiServerRequest["repeat"],
  deadline = Date.now() + 60_000,
  signal?: AbortSignal,
) => {
  const tries: string[] = [];
  let tokens = 0;
  const send: typeof sendRequest = async (_, { headers, agent }) => {
    tries.push(`${String(toMap(headers).authorization).slice("Bearer ".length)}${agent === false ? " anew" : ""}`);
    const next = answers[tries.length - 1] ?? answer(200);
    if (next instanceof UnansweredError) throw next;
    return next;
  };
  const source = createRenewedSource(async () => {
    return { value: { token: `t${++tokens}` }, until: Number.POSITIVE_INFINITY };
  });
  const request = createApiServerRequester(
    { server: "https://a", credentials: source },
    { send, pause: 1, ...(signal && { signal }) },
  );
  const result = await request("/x", deadline, { body: {}, ...(repeat && { repeat }) }).catch((error) => error);
  return { tries, last: result instanceof UnansweredError ? result.reason : result.status };
};

describe("a request to an API server", () => {
  // `repeat` says when a request may be sent again: "failed" after any temporary failure, "unsent" if it didn't reach
  // the server, "never" not at all. After the answers 401 and 429, it may be sent again with any `repeat`.
  const rows: [
    name: string,
    answers: (HttpsAnswer | UnansweredError)[],
    repeat: ApiServerRequest["repeat"],
    tries: string[],
    last: unknown,
  ][] = [
    ["is repeated once with a new token after 401", [answer(401)], "never", ["t1", "t2"], 200],
    ["is not repeated after a second 401", Array(9).fill(answer(401)), "failed", ["t1", "t2"], 401],
    ["is repeated after 429", [answer(429, 0)], "never", ["t1", "t1"], 200],
    ["is repeated after 429 with a time in the past", [answer(429, -5)], "never", ["t1", "t1"], 200],
    ["has three tries", Array(9).fill(answer(429, 0)), "never", ["t1", "t1", "t1"], 429],
    ["is not repeated after 404", [answer(404, 0)], "failed", ["t1"], 404],
    ...[500, 502, 503, 504].flatMap((status): (typeof rows)[number][] => [
      [`is repeated after ${status} with \`failed\``, [answer(status)], "failed", ["t1", "t1"], 200],
      [`is not repeated after ${status} with \`unsent\``, [answer(status)], "unsent", ["t1"], status],
    ]),
    ["is repeated on a new connection if it was not sent", [unanswered("unsent")], "unsent", ["t1", "t1 anew"], 200],
    ["is not repeated with `never`, even if it was not sent", [unanswered("unsent")], "never", ["t1"], "unsent"],
    ["is repeated on a new connection if its answer is lost", [unanswered("lost")], "failed", ["t1", "t1 anew"], 200],
    ["is not repeated with `unsent` if its answer is lost", [unanswered("lost")], "unsent", ["t1"], "lost"],
    ["is not repeated if the answer is too large", [unanswered("large")], "failed", ["t1"], "large"],
    ["is not repeated if it can't be sent", [unanswered("other")], "failed", ["t1"], "other"],
  ];
  for (const [name, answers, repeat, tries, last] of rows)
    it(name, async () => assert.deepEqual(await ask(answers, repeat), { tries, last }));

  it("a request to an API server is not repeated if the deadline would pass", async () => {
    assert.deepEqual(await ask([answer(429, 30)], "failed", Date.now() + 20_000), { tries: ["t1"], last: 429 });
  });
  it("a request to an API server is not repeated after its signal was aborted", async () => {
    const { tries } = await ask([answer(503)], "failed", undefined, AbortSignal.abort());
    assert.deepEqual(tries, ["t1"]);
  });
});
