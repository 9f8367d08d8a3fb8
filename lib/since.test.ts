import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import { buildPodRequest, buildPodReview } from "../test/requests.ts";
import { evaluateRule } from "./core/evaluation.ts";
import { toMap } from "./json.ts";
import { createLambdaHandler } from "./lambda/handler.ts";
import { rule } from "./rule.ts";
import { selectSince } from "./since.ts";

/** A rule that writes its data for the cluster's minor version into an audit annotation. */
const versionedRule = rule({
  summary: "Writes its data.",
  match: [],
  since: { "1.0": { word: "old", names: ["a"] }, "1.34": { word: "new" }, "1.37": { names: ["a", "b"] } },
  mutate: (_, { upstream: { word, names } }) => ({ audit: { data: `${word} ${names.join()}` } }),
});
const host = { publicKeys: "", writeLogLine() {} };
const setup = { keyVersions: [1], mode: "enforce" as const, settings: {} };
const match = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*" as const] }];
const ruleConfigInGroup = { mode: "enforce" as const, settings: {}, match, failsOpen: false, exempt: {} };

describe("data by the minor version of Kubernetes", () => {
  const rows: [minor: string | undefined, data: string][] = [
    ["1.30", "old a"],
    ["1.33", "old a"],
    ["1.34", "new a"],
    ["1.36", "new a"],
    ["1.37", "new a,b"],
    ["1.100", "new a,b"],
    [undefined, "new a,b"],
  ];
  const readData = async (kubernetes: string | undefined) => {
    const context = { name: "versionedRule", mode: "enforce" as const, settings: {}, kubernetes, now: new Date(0) };
    return (await evaluateRule(versionedRule, "mutate", buildPodRequest({ object: {} }), context)).outcome.audit?.data;
  };
  for (const [minor, data] of rows)
    it(`is "${data}" for ${minor ?? "an unknown version"}`, async () => assert.equal(await readData(minor), data));

  it("selectSince throws for a text that is no minor version of Kubernetes", () => {
    for (const minor of ["", "1", "1.x", "v1.34", "1.34.2", "35+"])
      assert.throws(() => selectSince({ "1.0": 1 }, minor), {
        message: `"${minor}" is no minor version of Kubernetes, such as 1.35`,
      });
  });

  const clusters = { older: { ...setup, kubernetes: "1.33" }, same: "older" };
  const ruleConfigsInGroup = { versionedRule: ruleConfigInGroup };
  const endpoints = {
    rule: createLambdaHandler(
      { rules: { versionedRule }, config: { rule: "versionedRule", usual: setup, clusters } },
      host,
    ),
    group: createLambdaHandler(
      {
        rules: { versionedRule },
        config: {
          rule: "all",
          usual: { ...setup, settings: ruleConfigsInGroup },
          clusters: { older: { ...clusters.older, settings: ruleConfigsInGroup }, same: "older" },
          alone: ruleConfigsInGroup,
        },
      },
      host,
    ),
  };
  const events: [name: string, endpoint: keyof typeof endpoints, event: object, data: string][] = [
    ["is that of the cluster", "rule", { cluster: "older" }, "old a"],
    ["is that of a cluster with the same setup", "rule", { cluster: "same" }, "old a"],
    ["is the newest for another cluster", "rule", { cluster: "other" }, "new a,b"],
    ["is that of a direct invocation", "rule", { kubernetes: "1.35" }, "new a"],
    [
      "is that of a direct invocation, not that of its cluster",
      "rule",
      { cluster: "older", kubernetes: "1.37" },
      "new a,b",
    ],
    ["is that of the cluster for the members of a group", "group", { cluster: "older" }, "old a"],
    ["is that of a direct invocation of a group", "group", { kubernetes: "1.35" }, "new a"],
    [
      "is that of the cluster for one member of a group",
      "group",
      { cluster: "older", member: "versionedRule" },
      "old a",
    ],
  ];
  for (const [name, endpoint, event, data] of events)
    it(name, async () => {
      const review = buildPodReview({ object: {} });
      const { response } = toMap(await endpoints[endpoint]({ phase: "mutate", review, ...event }, {} as Context));
      assert.deepEqual(Object.values(toMap(toMap(response).auditAnnotations)), [data]);
    });

  it("a direct invocation with a text that is no minor version of Kubernetes is refused in one sentence", async () => {
    const event = { phase: "mutate", review: buildPodReview({ object: {} }), kubernetes: "35" };
    const { code, message } = toMap(await endpoints.rule(event, {} as Context));
    assert.deepEqual([code, message], [400, '"35" is no minor version of Kubernetes, such as 1.35']);
  });
});
