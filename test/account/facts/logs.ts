import { getAccessLogGroup } from "../../../infra/aws/log-queries.ts";
import { listPoliciesNaming, listSavedQueries, sumMetric } from "../aws.ts";
import { poll, readKeySegment, readLogRows } from "../steps.ts";
import { notSeen, type Suite } from "../suite.ts";
import { ordinaryRule, suiteRule } from "../traffic.ts";
import { type Fact, observe } from "./fact.ts";
import { buildPayload } from "./lambda.ts";

// Checks facts about logs, metrics and alarms in CloudWatch.

const logFacts: Fact[] = [
  {
    id: "log-delay",
    when: "afterwards",
    check: async ({ measured: { logDelay } }) =>
      logDelay === undefined
        ? notSeen("no review was found in the log")
        : observe(logDelay < 120_000, `found after ${logDelay} ms at most`),
  },
  {
    id: "one-log-group",
    when: "afterwards",
    check: async ({ http, start }) => {
      const rows = await readLogRows(http, "filter ispresent(uid) | stats count(*) as reviews by Rule", start);
      const rules = rows.map(({ Rule }) => Rule).sort();
      return observe([ordinaryRule, suiteRule].sort().join() === rules.join(), `it has lines of ${rules.join(", ")}`);
    },
  },
  {
    id: "no-platform-lines",
    when: "afterwards",
    check: async ({ http, start }) => {
      const platform = "filter @message like /START RequestId|REPORT RequestId|platform.start|platform.report/";
      // At the level WARN, Lambda still writes reports of calls that failed.
      const query = `${platform} and @message not like /error|timeout|failure/ | stats count(*) as lines`;
      const [row = {}] = await readLogRows(http, query, start);
      const lines = Number(row.lines ?? 0);
      return observe(lines === 0, `${lines} lines`);
    },
  },
  ...(["crash", "timeout"] as const).map(
    (kind): Fact => ({
      id: `${kind}-leaves-a-line`,
      when: "afterwards",
      check: async ({ http, start }) => {
        const pattern = kind === "crash" ? "/Runtime.ExitError/" : "/[Tt]imed ?out|timeout/";
        const [row = {}] = await readLogRows(http, `filter @message like ${pattern} | stats count(*) as lines`, start);
        const lines = Number(row.lines ?? 0);
        return observe(lines > 0, `${lines} lines match ${pattern}`);
      },
    }),
  ),
  {
    id: "every-review-is-logged",
    when: "afterwards",
    check: async (suite) => {
      const missing = await Promise.all(
        [suite.http, suite.url].map(async (stage) => {
          // While a rule is disarmed, it writes no line, so the reviews of that time don't count.
          const disarmed = suite.measured.during.get(`disarm ${stage.name}`) ?? [];
          const [first = Number.POSITIVE_INFINITY, last = 0] = [disarmed[0]?.at, disarmed.at(-1)?.at];
          const answered = stage.traffic.sent
            .filter(({ isAnswered, at }) => isAnswered && (at < first || at > last))
            .map(({ uid }) => uid);
          const countUnlogged = async () => {
            const rows = await readLogRows(stage, 'filter name = "suite-review" | fields uid', suite.start);
            const logged = new Set(rows.map(({ uid }) => uid));
            return answered.filter((uid) => !logged.has(uid)).length;
          };
          const readComplete = async () => ((await countUnlogged()) === 0 ? 0 : undefined);
          const unlogged =
            (await poll(suite, { maxSeconds: 300, pauseMilliseconds: 5000 }, readComplete)) ?? (await countUnlogged());
          return `${unlogged} of ${answered.length} are missing in ${stage.name}`;
        }),
      );
      return observe(
        missing.every((text) => text.startsWith("0 ")),
        missing.join(", "),
      );
    },
  },
  {
    id: "saved-queries",
    when: "afterwards",
    check: async ({ http, clients, start }) => {
      const saved = await listSavedQueries(clients, `postern-${http.name}/`);
      const rows = await Promise.all(saved.map(({ query }) => readLogRows(http, query, start)));
      const errors = rows[saved.findIndex(({ name }) => name.endsWith("/errors by rule"))] ?? [];
      const errorsOfSuite = errors.filter((row) => row.function === http.aws.functions.getFunctionName(suiteRule));
      const isTimed = errorsOfSuite.every(({ last }) => Number(last) >= start && Number(last) <= Date.now());
      const isSeen =
        isTimed && errorsOfSuite.some(({ Rule }) => Rule === suiteRule) && errorsOfSuite.some(({ Rule }) => !Rule);
      return observe(isSeen, `${saved.length} queries; errors by rule: ${JSON.stringify(errorsOfSuite)}`);
    },
  },
];

const accessFacts: Fact[] = [
  {
    id: "access-log-status",
    when: "afterwards",
    check: async ({ http, start }) => {
      const query = "stats count(*) as requests by status, function";
      const rows = await readAccessRows(http, query, start);
      const statuses = new Set(rows.map(({ status, function: functionStatus }) => `${status}/${functionStatus}`));
      // 500/- is a review that the gateway couldn't pass to the function.
      const isLost = (pair: string) => /^5\d\d\/-$/.test(pair);
      const isSeen =
        statuses.has("200/200") && statuses.has("500/500") && statuses.has("429/-") && [...statuses].some(isLost);
      return observe(isSeen, `status/function: ${[...statuses].sort().join(", ")}`);
    },
  },
  {
    id: "access-log-policy",
    when: "afterwards",
    check: async ({ http, clients }) => {
      // AWS needs no resource policy of CloudWatch Logs to deliver the access log, and adds none.
      const names = await listPoliciesNaming(clients, [getAccessLogGroup(http.name)]);
      return observe(names.length === 0, `resource policies that name the log group: ${names.join(", ") || "none"}`);
    },
  },
  {
    id: "no-key-in-logs",
    when: "afterwards",
    check: async (suite) => {
      const { http, start } = suite;
      const [, key = ""] = readKeySegment(http).split(".");
      // CloudWatch keeps the texts of queries, so the query has only a part of the key.
      const query = `filter @message like /${key.slice(2, 12)}/ | stats count(*) as lines`;
      const found = await Promise.all([readAccessRows(http, query, start), readLogRows(http, query, start)]);
      const lines = found.map(([row = {}]) => Number(row.lines ?? 0));
      return observe(
        lines.every((count) => count === 0),
        `${lines[0]} lines of the access log, ${lines[1]} of the functions`,
      );
    },
  },
];

const readAccessRows = (stage: Suite["http"], query: string, since: number) =>
  readLogRows(stage, query, since, getAccessLogGroup(stage.name));

/** Reads a metric until its sum isn't 0, at most for five minutes, and returns the sum. */
const awaitSum = async (suite: Suite, question: Omit<Parameters<typeof sumMetric>[1], "since">): Promise<number> => {
  const readSum = async () => (await sumMetric(suite.clients, { ...question, since: suite.start })) || undefined;
  return (await poll(suite, { maxSeconds: 300, pauseMilliseconds: 5000 }, readSum)) ?? 0;
};

/** Builds the fact that Lambda counts a function's errors or throttles in a metric. */
const buildFunctionMetricFact = (id: string, rule: string, metric: "Errors" | "Throttles"): Fact => ({
  id,
  when: "afterwards",
  check: async (suite) => {
    const dimensions = { FunctionName: suite.url.aws.functions.getFunctionName(rule) };
    const sum = await awaitSum(suite, { namespace: "AWS/Lambda", metric, dimensions, stat: "Sum" });
    return observe(sum > 0, `${sum} ${metric.toLowerCase()}`);
  },
});

const metricFacts: Fact[] = [
  {
    id: "metric-delay",
    when: "afterwards",
    check: async ({ measured: { metricDelay } }) =>
      metricDelay === undefined
        ? notSeen("no review was found in metrics")
        : observe(metricDelay < 180_000, `found after ${metricDelay} ms at most`),
  },
  {
    id: "embedded-metrics",
    when: "afterwards",
    check: async (suite) => {
      const counts = [suite.http, suite.url].map(async (stage) => {
        const dimensions = { Stage: stage.name };
        const question = { namespace: "Postern", metric: "Latency", dimensions, stat: "SampleCount" as const };
        const query = "filter ispresent(Latency) and ispresent(Cluster) | stats count(*) as reviews";
        const compare = async () => {
          const counted = await sumMetric(suite.clients, { ...question, since: suite.start });
          const [row = {}] = await readLogRows(stage, query, suite.start);
          return [counted, Number(row.reviews ?? 0)] as const;
        };
        const isSame = async () => {
          const [counted, logged] = await compare();
          return counted === logged ? ([counted, logged] as const) : undefined;
        };
        return (await poll(suite, { maxSeconds: 300, pauseMilliseconds: 5000 }, isSame)) ?? (await compare());
      });
      const totals = await Promise.all(counts);
      const sentence = totals.map(([counted, logged]) => `${counted} in metrics, ${logged} in the log`).join("; ");
      return observe(
        totals.every(([counted, logged]) => counted === logged && counted > 0),
        sentence,
      );
    },
  },
  buildFunctionMetricFact("lambda-errors-metric", suiteRule, "Errors"),
  {
    id: "lambda-version-metric",
    when: "afterwards",
    check: async (suite) => {
      const FunctionName = suite.url.aws.functions.getFunctionName(suiteRule);
      const { version: ExecutedVersion } = await suite.url.aws.functions.readAlias(suiteRule);
      const dimensions = { FunctionName, Resource: `${FunctionName}:live`, ExecutedVersion };
      const sum = await awaitSum(suite, { namespace: "AWS/Lambda", metric: "Errors", dimensions, stat: "Sum" });
      return observe(sum > 0, `${sum} errors of version ${ExecutedVersion}`);
    },
  },
  buildFunctionMetricFact("lambda-throttles-metric", ordinaryRule, "Throttles"),
  {
    id: "lambda-queued-metric",
    when: "afterwards",
    check: async (suite) => {
      const which = { FunctionName: suite.url.aws.functions.getFunctionName(suiteRule) };
      const asynchronous = { Qualifier: "live", InvocationType: "Event", Payload: buildPayload() } as const;
      await suite.clients.lambda.invoke({ ...which, ...asynchronous });
      const question = {
        namespace: "AWS/Lambda",
        metric: "AsyncEventsReceived",
        dimensions: which,
        stat: "Sum",
      } as const;
      const sum = await awaitSum(suite, question);
      return observe(sum === 1, `${sum} of 1 event`);
    },
  },
  {
    id: "lost-metric",
    when: "afterwards",
    check: async (suite) => {
      const dimensions = { Stage: suite.http.name };
      const sum = await awaitSum(suite, { namespace: "Postern", metric: "Lost", dimensions, stat: "Sum" });
      return observe(sum > 0, `${sum} lost reviews`);
    },
  },
];

const alarmFacts: Fact[] = [
  {
    id: "alarms-stay-quiet",
    when: "afterwards",
    check: async ({ measured: { harmlessTraffic } }) => {
      if (harmlessTraffic === undefined || harmlessTraffic.minutes < 5)
        return notSeen(`only ${harmlessTraffic?.minutes ?? 0} minutes of reviews have metrics`);
      const { rang, minutes } = harmlessTraffic;
      return observe(rang.length === 0, `${rang.join(", ") || "none"} rang in ${minutes} minutes`);
    },
  },
  {
    id: "alarms-ring",
    when: "afterwards",
    check: async ({ measured: { rang, silent } }) => {
      if (rang.length + silent.length === 0) return notSeen("no alarm was read");
      return observe(silent.length === 0, `${rang.length} rang, silent: ${silent.join(", ") || "none"}`);
    },
  },
];

export const logAndMetricFacts: Fact[] = [...logFacts, ...accessFacts, ...metricFacts, ...alarmFacts];
