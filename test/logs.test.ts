import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { type AnsweredReviewFacts, formatLogLine } from "#lib/core/log-line.ts";
import { buildSavedQueries } from "../infra/aws/saved-queries.ts";
import { evaluateQuery } from "./aws/insights.ts";

// Runs the queries of docs/reference/metrics-and-logs.md on log lines like those of functions, Lambda and the gateway.
// `review` is an admission without a change, so its patch has no operations.
const time = Date.parse("2026-11-23T10:00:00Z");
const review: AnsweredReviewFacts = {
  rule: "limit-notes",
  phase: "validate",
  cluster: "prod-eu",
  mode: "enforce",
  key: "abcdefgh.1",
  code: 200,
  refused: false,
  operations: 0,
  milliseconds: 4,
  function: "postern-prod-limit-notes",
  version: "7",
  request: {
    uid: "u",
    operation: "CREATE",
    name: "web",
    namespace: "shop",
    userInfo: { username: "jane" },
    kind: { group: "", version: "v1", kind: "ConfigMap" },
    resource: { group: "", version: "v1", resource: "configmaps" },
  },
};
const withoutKey = { ...review, cluster: undefined, key: undefined, mode: undefined, request: undefined, code: 404 };
const coldStartMilliseconds = 150;
const lines = [
  formatLogLine(review, "prod", time, coldStartMilliseconds),
  formatLogLine({ ...review, refused: true, message: "it has no label" }, "prod", time),
  formatLogLine({ ...review, cluster: "prod-us", milliseconds: 900 }, "prod", time),
  formatLogLine({ ...review, code: 500, error: new Error("boom") }, "prod", time),
  formatLogLine(withoutKey, "prod", time),
  JSON.stringify({ type: "platform.report", record: { status: "timeout", errorType: "Sandbox.Timedout" } }),
  "a line that isn't JSON",
  JSON.stringify({ routeKey: "POST /{cluster}/limit-notes/{phase+}", status: "429", function: "-" }),
  JSON.stringify({ routeKey: "POST /{cluster}/limit-notes/{phase+}", status: "500", function: "500" }),
  formatLogLine({ ...review, code: 400, error: new Error("a wrong type") }, "prod", time),
  formatLogLine(
    { ...review, cluster: "prod-us", mode: "warn", logs: "minimal", refused: true, message: "it has no label" },
    "prod",
    time,
  ),
  // A deployment tested the new version with a case of the rule. The case has no key, so the line has no cluster.
  formatLogLine({ ...review, cluster: undefined, key: undefined, refused: true, message: "no" }, "prod", time),
];
const stream = "2026/11/23/postern-prod-limit-notes[7][0a1b]";
const events = lines.map((line, index) => ({ time: time + index, line, stream }));

const functionField = { function: "postern-prod-limit-notes" };

/** The rows that each query finds. The log line with the index i has the time `time + i`. */
const expectedRows: Record<string, Record<string, string>[]> = {
  "`denials`": [
    ["prod-eu", "enforce", { user: "jane", message: "it has no label" }, time + 1] as const,
    ["prod-us", "warn", {}, time + 10] as const,
  ].map(([Cluster, Mode, details, last]) => ({
    Cluster,
    Rule: "limit-notes",
    Mode,
    ...details,
    operation: "CREATE",
    group: "",
    resource: "configmaps",
    namespace: "shop",
    times: "1",
    last: `${last}`,
    example: "web",
  })),
  "`errors by rule`": [
    { ...functionField, Rule: "limit-notes", Cluster: "prod-eu", code: "500", errors: "1", last: `${time + 3}` },
    { ...functionField, "record.status": "timeout", errors: "1", last: `${time + 5}` },
  ],
  "`slowest reviews`": [
    ["10:00:00.002", "prod-us", "900", "0"] as const,
    ["10:00:00.000", "prod-eu", "154", "150"] as const,
    ["10:00:00.001", "prod-eu", "4", "0"] as const,
    ["10:00:00.003", "prod-eu", "4", "0"] as const,
    ["10:00:00.009", "prod-eu", "4", "0"] as const,
    ["10:00:00.010", "prod-us", "4", "0"] as const,
  ].map(([clock, Cluster, Latency, Init]) => ({
    "@timestamp": `2026-11-23 ${clock}`,
    Rule: "limit-notes",
    Cluster,
    Latency,
    Init,
    operation: "CREATE",
    resource: "configmaps",
    namespace: "shop",
    name: "web",
  })),
  "`cold starts`": [{ Rule: "limit-notes", starts: "1", p50: "150", longest: "150" }],
  "`guards that failed`": [
    { ...functionField, Rule: "limit-notes", Cluster: "prod-eu", code: "500", failures: "1", last: `${time + 3}` },
    { ...functionField, "record.status": "timeout", failures: "1", last: `${time + 5}` },
    { ...functionField, Rule: "limit-notes", Cluster: "prod-eu", code: "400", failures: "1", last: `${time + 9}` },
  ],
  "Reviews by cluster": [
    { Cluster: "prod-eu", reviews: "3", denials: "1", errors: "1", p99: "154" },
    { Cluster: "prod-us", reviews: "2", denials: "1", errors: "0", p99: "900" },
  ],
  "Failed reviews": [
    {
      "@timestamp": "2026-11-23 10:00:00.003",
      Rule: "limit-notes",
      Cluster: "prod-eu",
      code: "500",
      error: "Error: boom",
      resource: "configmaps",
      namespace: "shop",
      name: "web",
    },
  ],
  "Requests with a valid key that no API server sends": [
    { Cluster: "prod-eu", Rule: "limit-notes", code: "400", error: "a wrong type", requests: "1" },
  ],
  "Timeouts and crashes": [
    {
      "@timestamp": "2026-11-23 10:00:00.005",
      "@logStream": stream,
      "record.status": "timeout",
      "record.errorType": "Sandbox.Timedout",
    },
  ],
  "Which keys are in use": [
    { Cluster: "prod-eu", Key: "abcdefgh.1", reviews: "4" },
    { Cluster: "prod-us", Key: "abcdefgh.1", reviews: "2" },
  ],
  "Reviews, errors and latency by version, without cold starts": [
    { Rule: "limit-notes", Version: "7", reviews: "5", denials: "2", errors: "1", p99: "900" },
  ],
  "Requests without a valid key": [{ Rule: "limit-notes", requests: "1" }],
  "Requests that the HTTP API refused or couldn't forward, in the log group `/aws/vendedlogs/postern-STAGE`": [
    { routeKey: "POST /{cluster}/limit-notes/{phase+}", status: "429", lost: "1" },
  ],
};

describe("a query of docs/reference/metrics-and-logs.md", async () => {
  const page = await readFile(new URL("../docs/reference/metrics-and-logs.md", import.meta.url), "utf8");
  const queries = [...page.matchAll(/^(\S.*):\n\n```insights\n([^`]+)```$/gm)].map(([, title = "", query = ""]) => {
    return { title, query };
  });

  it("each query of docs/reference/metrics-and-logs.md has a title", () => {
    assert.equal(queries.length, page.split("```insights").length - 1);
    assert.deepEqual(
      queries.map(({ title }) => title),
      Object.keys(expectedRows),
    );
  });
  it("each of the page's first queries, which the page calls saved, equals a query that the stack saves", () => {
    const saved = Object.entries(buildSavedQueries(["postern-STAGE-pod-security"]));
    assert.deepEqual(
      queries.slice(0, saved.length),
      saved.map(([name, query]) => ({ title: `\`${name}\``, query: `${query}\n` })),
    );
  });
  for (const { title, query } of queries)
    it(`a query of the page has the expected rows: ${title}`, () => {
      const ownQuery = query.replace("postern-STAGE-pod-security", functionField.function);
      const rows = evaluateQuery(ownQuery, events).map((row) =>
        row.error === undefined ? row : { ...row, error: row.error.replace(/\n.*/s, "") },
      );
      assert.deepEqual(rows, expectedRows[title]);
    });
});

describe("the evaluator of queries", () => {
  // The evaluator knows only what the queries in docs/reference/metrics-and-logs.md use.
  const refused = [
    "parse @message /x/",
    "stats avg(Latency) as mean by Rule",
    "stats count(*) by Rule",
    "filter Rule like limit",
    "filter Rule != 1",
    "filter Errors = 1 | dedup Rule",
    "fields Latency / 2 as half",
    "filter Errors = 1 limit 3",
    "",
  ];
  for (const query of refused)
    it(`the evaluator of queries refuses: ${query}`, () =>
      assert.throws(() => evaluateQuery(query, events), /^Error: (the query has|unexpected)/));
});
