import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import { createUnconnectedCapabilities } from "../core/capabilities.ts";
import type { EndpointConfig } from "../core/endpoint.ts";
import type { AnsweredReviewFacts } from "../core/log-line.ts";
import { createMemoryLedger, type Ledger } from "../ledger.ts";
import { get, ledger } from "../needs.ts";
import { type Rule, rule } from "../rule.ts";
import { createLambdaHandler } from "./handler.ts";
import { warmUp } from "./warm-up.ts";

const setup = { keyVersions: [1], mode: "enforce", settings: {} } as const;

/** Warms a function up. Returns the code and phase of each review that was answered, and the questions to clusters. */
const start = async (rules: Record<string, Rule>, clusters: string[], kept: Ledger = createMemoryLedger()) => {
  const reviews: AnsweredReviewFacts[] = [];
  const asked: string[] = [];
  const config: EndpointConfig = { rule: "sample", usual: setup, clusters: {} };
  const openCapabilities = (cluster: string) => ({
    ...createUnconnectedCapabilities(cluster),
    discover: async (groupVersion: string) => {
      asked.push(`${cluster} ${groupVersion}`);
      throw new Error("it does not answer");
    },
    ledger: () => kept,
  });
  const written: AnsweredReviewFacts[] = [];
  const host = {
    publicKeys: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    openCapabilities,
    formatLogLine: (facts: AnsweredReviewFacts) => String(reviews.push(facts)),
    writeLogLine: (facts: AnsweredReviewFacts) => void written.push(facts),
  };
  const handler = createLambdaHandler({ rules, config }, host);
  const readConnections = () => Object.fromEntries(clusters.map((name) => [name, {}]));
  await warmUp({ rules, config, readConnections, host, handler });
  assert.deepEqual(written, []);
  await handler({}, {} as Context);
  assert.equal(written.length, 1);
  return { reviews: reviews.map(({ code, phase }) => [code, phase]), asked };
};

const about = { summary: "A rule.", match: [] };

describe("a function that starts", () => {
  it("refuses a key, and evaluates a Pod in each phase of its rules", async () => {
    const seen: unknown[] = [];
    const both = rule({
      ...about,
      mutate: (object) => void seen.push(object.kind),
      validate: (object) => void seen.push(object.kind),
    });
    assert.deepEqual(await start({ both }, []), {
      reviews: [
        [404, undefined],
        [200, "mutate"],
        [200, "validate"],
      ],
      asked: [],
    });
    assert.deepEqual(seen, ["Pod", "Pod"]);
  });

  it("asks at most three clusters, ignores their failures, and reads no objects for its rules", async () => {
    const needs = { namespace: get("namespaces") };
    const found: unknown[] = [];
    const reading = rule({
      ...about,
      needs,
      validate: async (_, { namespace }) => void found.push(await namespace({ name: "any" })),
    });
    const { asked } = await start({ reading }, ["a", "b", "c", "d"]);
    assert.deepEqual(
      asked,
      ["a", "b", "c"].map((name) => `${name} authorization.k8s.io/v1`),
    );
    assert.deepEqual(found, [undefined]);
  });

  it("calls its ledger without changing a value", async () => {
    const changes: unknown[] = [];
    const kept: Ledger = {
      change: async (keys, change) => {
        changes.push([keys, change([undefined])]);
        return [];
      },
    };
    const keeping = rule({
      ...about,
      needs: { ledger: ledger() },
      validate: async (_, { ledger }) => void (await ledger.change(["own"], () => [1])),
    });
    await start({ keeping }, [], kept);
    assert.deepEqual(changes, [[["authorization.k8s.io/v1"], [undefined]]]);
  });

  it("goes on if its rule fails for the Pod", async () => {
    const failing = rule({
      ...about,
      validate: () => {
        throw new Error("no Pod");
      },
    });
    assert.deepEqual((await start({ failing }, [])).reviews.at(-1), [500, "validate"]);
  });
});
