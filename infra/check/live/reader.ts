import { Agent } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import { type Answer, exchange, Unanswered, unanswered } from "#lib/cluster/https-request.ts";
import { parseJson } from "#lib/json.ts";
import { clean } from "../../cli/terminal.ts";
import type { Way } from "../../clusters/api.ts";

/** Asks the API server for what is under a path, again where that may help; what it says in the end, or why it says nothing. */
export type Read = (path: string, accept?: string) => Promise<Answer | Unanswered>;

/** Why what it says is no use, in words. */
export type Why = (answer: Answer | Unanswered) => string;

export interface Reader {
  read: Read;
  /** Ends what is under way. */
  close(): void;
}

/** Of one answer, in milliseconds. */
const patience = 30_000;
/** Of one answer, in bytes; a page that has more is asked for in parts. */
const largest = 8 * 1024 * 1024;
const tries = 5;
/** Where it never said a word, it may be nobody. */
const firstTries = 2;
/** However long the API server wants to be left alone, in seconds. */
const longestBreak = 30;

/** Reads one page after the other, until `signal`. `breath` is how long it waits before a second try, in milliseconds. */
export const openReader = (way: Way, signal: AbortSignal, breath = 500): Reader => {
  const { server, ca, cert, key } = way;
  const trust = { ...(ca && { ca }), ...(cert && key && { cert, key }) };
  const agent = new Agent({ keepAlive: true, maxSockets: 4, ...trust });
  let most = firstTries;
  const ask = async (path: string, accept: string, isFresh: boolean) => {
    const token = await way.token();
    const headers = {
      ...{ accept, "accept-encoding": "gzip", "user-agent": "postern" },
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    };
    // Where one connection was dead, the others that were kept may be.
    const options = { headers, ...(isFresh ? { agent: false as const, signal, ...trust } : { agent }) };
    return exchange(`${server}${path}`, options, undefined, Date.now() + patience, largest).catch(unanswered);
  };
  return {
    read: async (path, accept = "application/json") => {
      for (let attempt = 1, pause = breath; ; attempt++, pause *= 2) {
        const answer = await ask(path, accept, attempt > 1);
        if (!(answer instanceof Unanswered)) most = tries;
        if (attempt >= most || signal.aborted || !mayHelpAgain(answer, attempt)) {
          // Who is gone now may be gone for the next question as well.
          if (answer instanceof Unanswered && !isTooLarge(answer)) most = firstTries;
          return answer;
        }
        const said = answer instanceof Unanswered ? undefined : answer.retryAfter;
        const milliseconds = said === undefined ? pause : Math.min(Math.max(said, 0), longestBreak) * 1000;
        await wait(milliseconds, undefined, { signal }).catch(() => {});
      }
    },
    close: () => agent.destroy(),
  };
};

const mayHelpAgain = (answer: Answer | Unanswered, attempt: number): boolean => {
  if (answer instanceof Unanswered) return !isTooLarge(answer);
  // A token may have ended just now.
  if (answer.status === 401) return attempt === 1;
  return [429, 500, 502, 503, 504].includes(answer.status);
};

/** Whether an answer was more than is taken at once. */
export const isTooLarge = (answer: Answer | Unanswered): boolean =>
  answer instanceof Unanswered && answer.message.startsWith("its answer has more than ");

/** An answer as JSON; undefined where it is none. */
export const contentOf = ({ body }: Answer): unknown => parseJson(body);

/** Why something could not be read, in a sentence. */
export const refusalIn = (
  answer: Answer | Unanswered,
  { server, unknown }: Pick<Way, "server" | "unknown">,
): string => {
  if (answer instanceof Unanswered) {
    const remedy = /self-signed|unable to (get|verify)/.test(answer.message)
      ? "; its ca must be the one that signed its certificate"
      : "";
    return `the API server at ${server} can't be reached: ${answer.message}${remedy}`;
  }
  const { message } = Object(contentOf(answer));
  const said = typeof message === "string" ? message : answer.body.slice(0, 200);
  const words = clean(said.replace(/\s+/g, " ").trim());
  const remedy = answer.status === 401 ? `; ${unknown}` : "";
  return `the API server answers ${answer.status}${words === "" ? "" : `: ${words}`}${remedy}`;
};
