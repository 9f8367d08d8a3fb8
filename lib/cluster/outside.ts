import { setTimeout as wait } from "node:timers/promises";
import { Failure } from "../failure.ts";
import type { HttpsRequest, HttpsResponse } from "../needs.ts";
import { type Answer, before, exchange, Unanswered } from "./exchange.ts";
import type { Memory } from "./memory.ts";

/** Kept back of a review's time, so that its rule can still say what follows from no answer. */
const margin = 100;

/** Services outside the cluster, for one review: asked until its deadline, and answering nothing from before `since`. */
export const outside = (cluster: string, memory: Memory, deadline: number, since?: number) => {
  const started = since ?? Date.now();
  let isRemembered = false;

  const https = async ({ keep, ...request }: HttpsRequest): Promise<HttpsResponse> => {
    if (keep === undefined) return ask(request, deadline - margin);

    const key = JSON.stringify(["https", cluster, request]);
    const search = async () => {
      const content = await ask(request, deadline - margin);
      return { content, bytes: keep(content) > 0 ? key.length + content.body.length : undefined };
    };
    const recall = async (earliest: number) => {
      const found = memory.recall(key, earliest, search);
      // The memory has it from `search` alone.
      const pending = "pending" in found ? before(deadline - margin, found.pending) : found.content;
      const answer = (await pending) as HttpsResponse;
      return { since: found.since, answer };
    };
    const known = await recall(since ?? 0);
    const isOver = known.since < started && known.since + keep(known.answer) * 1000 <= started;
    const found = isOver ? await recall(started) : known;
    if (found.since < started) isRemembered = true;
    return found.answer;
  };
  return { https, isRemembered: () => isRemembered };
};

const ask = async (request: HttpsRequest, deadline: number): Promise<HttpsResponse> => {
  const { url, method = "GET", headers = {}, body, ca, tries = 1, pause = 0 } = request;
  const options = { method, headers, ...(ca && { ca }) };
  for (let attempt = 1, delay = pause; ; attempt++, delay *= 1.5) {
    const answer = await exchange(url, options, body, deadline).catch((error: unknown) => {
      if (error instanceof Unanswered) return error;
      throw error;
    });
    const again = attempt < tries && mayBeBetter(answer) && Date.now() + delay < deadline;
    if (again) await wait(delay);
    else if (!(answer instanceof Unanswered)) return { status: answer.status, body: answer.body };
    else throw new Failure(503, `could not ask ${new URL(url).host}: ${answer.message}`, { cause: answer });
  }
};

/** Whether what went wrong may have passed a moment later. */
const mayBeBetter = (answer: Answer | Unanswered): boolean => {
  if (!(answer instanceof Unanswered))
    return [429, 500, 504].includes(answer.status) || answer.retryAfter !== undefined;
  const { cause } = answer;
  return cause instanceof Error && "code" in cause && cause.code === "ECONNRESET";
};
