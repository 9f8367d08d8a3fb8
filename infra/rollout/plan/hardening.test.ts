import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { type AnsweredReviewFacts, formatLogLine } from "#lib/core/log-line.ts";
import { evaluateQuery } from "../../../test/aws/insights.ts";
import { readRule } from "../../catalogue/registry.ts";
import { getFunctionsFolder } from "../../catalogue/sources.ts";
import { parseConfig } from "../../project/project.ts";
import type { Release } from "../versions/releases.ts";
import { chooseFailClosedRules, createStageCountsReader, type PresentEntries } from "./hardening.ts";

// A plan counts reviews and failures in the logs and metrics of a stage, to choose the rules that fail closed: their
// entries get failurePolicy Fail. These tests invent the log lines; test/aws/fleet.test.ts has those of real reviews.
const rule = "always-pull-images";
const catalogue = [await readRule(join(getFunctionsFolder(), rule), rule)];
const [hour, now] = [3_600_000, Date.now()];

const review: AnsweredReviewFacts = {
  rule,
  phase: "mutate",
  cluster: "prod",
  mode: "enforce",
  key: "abcdefgh.1",
  code: 200,
  refused: false,
  operations: 0,
  milliseconds: 4,
  function: `postern-test-${rule}`,
  version: "7",
};
/** Builds a line of the gateway's log, with the status of the gateway and that of the function ("-" if it has none). */
const buildAccessLine = (status: string, ofFunction: string, routeKey = `POST /{cluster}/${rule}/{phase+}`) =>
  JSON.stringify({ routeKey, status, function: ofFunction });

/** What the logs and metrics of a stage have, and options of its deployment. */
interface StageHistory {
  reviews?: Partial<AnsweredReviewFacts>[];
  access?: string[]; // lines of the gateway's log
  crashes?: number;
  outputs?: Record<string, string>;
  /** For how many milliseconds the rule has had webhook entries in the cluster. */
  webhookEntriesAge?: number;
  webhookEntries?: PresentEntries["entries"];
  /** The rules that are given to `--soften`: they must fail open again. */
  soften?: string[];
}

/** Chooses the rules that fail closed in the clusters prod and dev, after ten good reviews in prod and `history`. */
const choose = async (history: StageHistory) => {
  const { reviews = [], access = [], crashes = 0, outputs, soften = [] } = history;
  const { webhookEntries = [], webhookEntriesAge = hour } = history;
  const lines: Record<string, string[]> = {
    "/aws/lambda/postern-test": [...Array(10).fill({}), ...reviews].map((change) =>
      formatLogLine({ ...review, ...change }, "test", now),
    ),
    "/aws/vendedlogs/postern-test": access,
  };
  const spans: [from: Date, to: Date][] = [];
  const stage: Parameters<typeof createStageCountsReader>[0]["stage"] = {
    name: "test",
    functions: { getFunctionName: (name) => `postern-test-${name}` },
    logs: {
      query: async (group, query, from, to) => {
        spans.push([from, to]);
        return evaluateQuery(
          query,
          (lines[group] ?? []).map((line) => ({ time: now, line, stream: "" })),
        );
      },
    },
    metrics: {
      ask: async <K extends string>(questions: Record<K, { metric: string }>) => {
        const answers = Object.entries<{ metric: string }>(questions).map(([name, { metric }]) => [
          name,
          metric === "Errors" ? crashes : 0,
        ]);
        return Object.fromEntries(answers);
      },
    },
  };
  const config = parseConfig(`rules: { ${rule}: }\nclusters: { prod: , dev: }\n`, catalogue);
  const [prod, dev] = config.clusters;
  assert.ok(prod && dev);
  const recorded = {
    at: "",
    keyVersion: 1,
    hardened: [],
    manifests: [],
    since: { [rule]: new Date(now - webhookEntriesAge).toISOString() },
  };
  const release: Release = {
    id: 1,
    at: "",
    by: "",
    complete: true,
    rules: {},
    clusters: { prod: recorded, dev: recorded },
  };
  const endpoints = { base: () => "https://a.example", stage: "test", identity: "aws:123456789012:eu-west-1:test" };
  // A stack with the output LossMetric, whatever its value, counts the requests that its gateway loses.
  const allOutputs = { BaseUrl: "https://a.example", LossMetric: "any", ...outputs };
  const readCounts = createStageCountsReader({ stage, catalogue, config }, allOutputs);
  const present = { newest: release, entries: webhookEntries, outputs: allOutputs, readCounts };
  const chooseFor = (cluster: typeof prod) =>
    chooseFailClosedRules({ catalogue, harden: 10, soften }, cluster, present, endpoints);
  return { ...(await chooseFor(prod)), dev: await chooseFor(dev), spans };
};

describe("a rule", () => {
  const harmless: [name: string, history: StageHistory][] = [
    ["a failed review of another cluster", { reviews: [{ cluster: "dev", code: 500 }] }],
    ["a failed review in another mode", { reviews: [{ mode: "audit", code: 500 }] }],
    ["a failed review of another rule", { reviews: [{ rule: "other", code: 500 }] }],
    ["a forged review of a holder of the key", { reviews: [{ code: 400 }] }],
    ["a request without a valid key", { reviews: [{ cluster: undefined, mode: undefined, code: 404 }] }],
    [
      "answers that are not lost",
      { access: [buildAccessLine("200", "200"), buildAccessLine("404", "-"), buildAccessLine("500", "500")] },
    ],
    ["a lost request of another route", { access: [buildAccessLine("503", "-", "POST /{cluster}/other/{phase+}")] }],
    ["logs that are kept for a week", { outputs: { LogRetention: "7 days" } }],
  ];
  for (const [name, history] of harmless)
    it(`fails closed in spite of ${name}`, async () => {
      const { hardened, notes } = await choose(history);
      assert.deepEqual([hardened, notes], [[rule], []]);
    });

  const open = `${rule} still fails open: 0 of 10 reviews without a failure`;
  const losses: [string, StageHistory, string][] = [
    ["a failed review", { reviews: [{ code: 500 }] }, `${open} (1 failed)`],
    ["a crash", { crashes: 2 }, `${open} (2 ended by a crash or a timeout)`],
    ...(
      [
        ["429", "-"],
        ["503", "-"],
        ["502", "200"],
      ] as const
    ).map(([status, ofFunction]): [string, StageHistory, string] => [
      `an answer ${status} of the gateway`,
      { access: [buildAccessLine(status, ofFunction)] },
      `${open} (1 answered 429 or 5xx by the gateway)`,
    ]),
    [
      "a request that the gateway refused before it knew the route",
      { access: [buildAccessLine("429", "-", "-")] },
      `${open} (1 answered 429 or 5xx by the gateway)`,
    ],
  ];
  for (const [name, history, note] of losses)
    it(`still fails open after ${name}`, async () => {
      const { hardened, notes } = await choose(history);
      assert.deepEqual([hardened, notes], [[], [note]]);
    });

  it("a rule's reviews are counted by cluster, with one query of each of two logs for all clusters", async () => {
    const { hardened, dev, spans } = await choose({ reviews: Array(3).fill({ cluster: "dev" }) });
    const notes = [`${rule} still fails open: 3 of 10 reviews without a failure`];
    assert.deepEqual([hardened, dev, spans.length], [[rule], { hardened: [], notes }, 2]);
  });

  it("a rule's reviews are counted since it has entries in the cluster, but at most for seven days", async () => {
    for (const [webhookEntriesAge, hours] of [
      [5 * hour, 5],
      [1000 * hour, 7 * 24],
    ] as const) {
      const { spans } = await choose({ webhookEntriesAge });
      assert.equal(spans.length, 2, "a query of each of two logs");
      for (const [from, to] of spans) assert.equal(Math.round((to.getTime() - from.getTime()) / hour), hours);
    }
  });

  it("a rule whose entry fails closed continues to fail closed despite errors, unless --soften is given", async () => {
    const failing = {
      reviews: [{ code: 500 }],
      webhookEntries: [{ name: `${rule}.postern.dev`, failurePolicy: "Fail" as const }],
    };
    assert.deepEqual((await choose(failing)).hardened, [rule]);
    assert.deepEqual((await choose({ ...failing, soften: [rule] })).hardened, []);
  });

  it("a rule has a note if the logs are kept for a shorter time", async () => {
    const { notes } = await choose({ reviews: [{ code: 500 }], outputs: { LogRetention: "3 days" } });
    assert.deepEqual(notes, [`${open} in the 3 days that logs are kept (1 failed)`]);
  });
});
