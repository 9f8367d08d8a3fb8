import type { SuiteStage } from "../stage.ts";
import type { Suite } from "../suite.ts";
import { suiteRule } from "../traffic.ts";
import { type Fact, observe } from "./fact.ts";

// Checks facts about the HTTP API and function URLs: which reviews they pass on, and how they answer if a function
// fails.

const sendToApiAndFunctionUrl = (suite: Suite, send: (stage: SuiteStage) => Promise<{ status: number }>) =>
  Promise.all([suite.http, suite.url].map(send));

/** Observes that both endpoint types answer with this status. */
const observeStatus = (answers: { status: number; isAnswered?: boolean }[], wanted: number) => {
  const [http, url] = answers.map(({ status }) => status);
  return observe(http === wanted && url === wanted, `HTTP API ${http}, function URL ${url}`);
};

/** Returns the statuses of answers to the reviews that made the suite's rule do `action`, except 429 (throttled). */
const listStatuses = ({ traffic }: SuiteStage, action: string) => {
  const reviews = traffic.sent.filter((review) => review.action === action && review.rule === suiteRule);
  return [...new Set(reviews.map(({ status }) => status))].filter((status) => status !== 429);
};

/** Observes that `isWanted` is true for the statuses of all reviews that made the rule do `action`, such as "crash". */
const observeFailure = ({ http, url }: Suite, action: string, isWanted: (status: number) => boolean) => {
  const found = [http, url].map((stage) => listStatuses(stage, action));
  const [first = [], second = []] = found;
  const sentence = `HTTP API ${first.join(", ") || "nothing"}, function URL ${second.join(", ") || "nothing"}`;
  return observe(
    found.every((statuses) => statuses.length > 0 && statuses.every(isWanted)),
    sentence,
  );
};

const isServerError = (status: number) => status >= 500;

export const endpointFacts: Fact[] = [
  {
    id: "wrong-key-404",
    when: "deployed",
    check: async (suite) => {
      // A signature has 86 characters in base64url.
      const changeUrl = (url: string) => url.replace(/\.[\w-]{86}\//, `.${"x".repeat(86)}/`);
      return observeStatus(await sendToApiAndFunctionUrl(suite, ({ traffic }) => traffic.send({ changeUrl })), 404);
    },
  },
  {
    id: "unknown-path-404",
    when: "deployed",
    check: async ({ http }) => {
      const { status, sentence } = await http.traffic.send({ changeUrl: (url) => new URL("/nothing", url).href });
      return observe(status === 404, `${status} ${sentence}`);
    },
  },
  {
    id: "review-fits",
    when: "deployed",
    check: async (suite) =>
      observeStatus(await sendToApiAndFunctionUrl(suite, ({ traffic }) => traffic.send({ bytes: 4_500_000 })), 200),
  },
  {
    id: "review-too-large",
    when: "deployed",
    check: async (suite) =>
      observeStatus(await sendToApiAndFunctionUrl(suite, ({ traffic }) => traffic.send({ bytes: 7_000_000 })), 413),
  },
  {
    id: "error-answer-passes",
    when: "afterwards",
    check: async (suite) => observeFailure(suite, "fail", (status) => status === 500),
  },
  {
    id: "crash-status",
    when: "afterwards",
    check: async (suite) => observeFailure(suite, "crash", isServerError),
  },
  {
    id: "timeout-status",
    when: "afterwards",
    check: async (suite) => observeFailure(suite, "hang", isServerError),
  },
  {
    id: "route-limit-429",
    when: "afterwards",
    check: async ({ http }) => {
      const throttled = http.traffic.sent.filter(({ status }) => status === 429);
      return observe(throttled.length > 0, `${throttled.length} reviews were answered 429`);
    },
  },
];
