import { setTimeout as wait } from "node:timers/promises";
import { Failure } from "../failure.ts";
import type { AwsAction, AwsRequest, HttpsRequest, HttpsResponse } from "../needs.ts";
import { queryOf } from "./cloud.ts";
import { tokens } from "./credentials.ts";
import { type Answer, before, exchange, Unanswered, unanswered } from "./exchange.ts";
import type { Memory } from "./memory.ts";

/** Kept back of a review's time, so that its rule can still say what follows from no answer. */
const margin = 100;

/** Services outside the cluster, for one review: asked until its deadline, and answering nothing from before `since`. */
export const outside = (cluster: string, memory: Memory, deadline: number, since?: number) => {
  const started = since ?? Date.now();
  let isRemembered = false;

  const call = async ({ keep, ...request }: HttpsRequest, schemes = ["https:"]): Promise<HttpsResponse> => {
    const { protocol = "", host = request.url } = URL.canParse(request.url) ? new URL(request.url) : {};
    if (!schemes.includes(protocol))
      throw new Failure(500, `could not ask ${host}: its address must begin with ${schemes.join("// or ")}//`);
    const failing = (error: Error) => {
      throw new Failure(503, `could not ask ${host}: ${error.message}`, { cause: error });
    };
    if (keep === undefined) return asSomebody(request, deadline - margin).catch(failing);

    const key = JSON.stringify(["https", cluster, request]);
    const recall = async (earliest: number) => {
      let isOurs = false;
      const search = async () => {
        isOurs = true;
        const content = await asSomebody(request, deadline - margin);
        return { content, bytes: keep(content) > 0 ? key.length + content.body.length : undefined };
      };
      const found = memory.recall(key, earliest, search);
      const content =
        "pending" in found ? (isOurs ? found.pending : before(deadline - margin, found.pending)) : found.content;
      // The memory has it from `search` alone.
      const answer = (await Promise.resolve(content).catch(failing)) as HttpsResponse;
      return { since: found.since, answer };
    };
    const known = await recall(since ?? 0);
    const isOver = known.since < started && known.since + keep(known.answer) * 1000 <= started;
    const found = isOver ? await recall(started) : known;
    if (found.since < started) isRemembered = true;
    return found.answer;
  };
  const either = ["https:", "http:"];
  return {
    https: (request: HttpsRequest) => call(request),
    http: (request: HttpsRequest) => call(request, either),
    aws: async (action: AwsAction, request: AwsRequest) => call(queryOf(action, request, new Date()), either),
    isRemembered: () => isRemembered,
  };
};

/** With the token that the request names; a token that is refused may have been exchanged for another since. */
const asSomebody = async ({ bearer, ...request }: HttpsRequest, deadline: number): Promise<HttpsResponse> => {
  if (bearer === undefined) return ask(request, deadline);
  const place = JSON.stringify(bearer);
  const { token, refused } = holders.get(place) ?? tokens(bearer);
  holders.set(place, { token, refused });
  for (let isAgain = false; ; isAgain = true) {
    const value = await before(deadline, token(deadline));
    const headers = { ...request.headers, authorization: `Bearer ${value}` };
    const answer = await ask({ ...request, headers }, deadline);
    if (answer.status !== 401 || isAgain) return answer;
    await refused(String(value));
  }
};
/** Of this environment: settings name few. */
const holders = new Map<string, ReturnType<typeof tokens>>();

/** Asks until there is no use in asking again; of several answers the last one counts, also where another try is cut off. */
const ask = async (request: HttpsRequest, deadline: number): Promise<HttpsResponse> => {
  const { url, method = "GET", headers = {}, body, ca, tries = 1, pause = 0 } = request;
  const options = { method, headers, ...(ca && { ca }) };
  let last: Answer | undefined;
  for (let attempt = 1, delay = pause; ; attempt++, delay *= 1.5) {
    const answer = await exchange(url, options, body, deadline).catch(unanswered);
    if (!(answer instanceof Unanswered)) last = answer;
    if (attempt < tries && mayBeBetter(answer) && Date.now() + delay < deadline) await wait(delay);
    else if (last === undefined || (answer instanceof Unanswered && Date.now() < deadline)) throw answer;
    else return { status: last.status, body: last.body };
  }
};

/** Whether what went wrong may have passed a moment later. */
const mayBeBetter = (answer: Answer | Unanswered): boolean => {
  if (!(answer instanceof Unanswered))
    return [429, 500, 504].includes(answer.status) || answer.retryAfter !== undefined;
  const { cause } = answer;
  return cause instanceof Error && "code" in cause && cause.code === "ECONNRESET";
};
