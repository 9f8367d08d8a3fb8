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

/**
 * Warms a function up. Returns the code and phase of each review that was answered, and the discoveries it asked for.
 */
const warmUpFunction = async (rules: Record<string, Rule>, clusters: string[], ledger = createMemoryLedger()) => {
  const formattedReviews: AnsweredReviewFacts[] = [];
  const discoveries: string[] = [];
  const config: EndpointConfig = { rule: "sample", usual: setup, clusters: {} };
  const openCapabilities = (cluster: string) => ({
    ...createUnconnectedCapabilities(cluster),
    discover: async (groupVersion: string) => {
      discoveries.push(`${cluster} ${groupVersion}`);
      throw new Error("it does not answer");
    },
    ledger: () => ledger,
  });
  const loggedReviews: AnsweredReviewFacts[] = [];
  const host = {
    publicKeys: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    openCapabilities,
    // A warm-up formats the log lines of its reviews, although it writes none, so this shows its reviews.
    formatLogLine: (facts: AnsweredReviewFacts) => {
      formattedReviews.push(facts);
      return "";
    },
    writeLogLine: (facts: AnsweredReviewFacts) => void loggedReviews.push(facts),
  };
  const handler = createLambdaHandler({ rules, config }, host);
  const readConnections = () => Object.fromEntries(clusters.map((name) => [name, {}]));
  await warmUp({ rules, config, readConnections, host, handler });
  assert.deepEqual(loggedReviews, [], "a warm-up writes no log lines");
  await handler({}, {} as Context);
  assert.equal(loggedReviews.length, 1, "afterwards, events are logged");
  return { reviews: formattedReviews.map(({ code, phase }) => [code, phase]), discoveries };
};

const base = { summary: "A rule.", match: [] };

describe("a function that starts", () => {
  it("a starting function answers 404 to a request with a wrong key, and evaluates a Pod in each phase", async () => {
    const seenKinds: unknown[] = [];
    const both = rule({
      ...base,
      mutate: (object) => void seenKinds.push(object.kind),
      validate: (object) => void seenKinds.push(object.kind),
    });
    assert.deepEqual(await warmUpFunction({ both }, []), {
      reviews: [
        [404, undefined],
        [200, "mutate"],
        [200, "validate"],
      ],
      discoveries: [],
    });
    assert.deepEqual(seenKinds, ["Pod", "Pod"]);
  });

  it("a starting function asks at most three clusters, ignores their failures, and reads no objects", async () => {
    const needs = { namespace: get("namespaces") };
    const foundNamespaces: unknown[] = [];
    const reading = rule({
      ...base,
      needs,
      validate: async (_, { namespace }) => void foundNamespaces.push(await namespace({ name: "any" })),
    });
    const { discoveries } = await warmUpFunction({ reading }, ["a", "b", "c", "d"]);
    assert.deepEqual(
      discoveries,
      ["a", "b", "c"].map((name) => `${name} authorization.k8s.io/v1`),
    );
    assert.deepEqual(foundNamespaces, [undefined]);
  });

  it("a starting function calls its ledger without changing a value", async () => {
    const changes: unknown[] = [];
    const recordingLedger: Ledger = {
      change: async (keys, change) => {
        changes.push([keys, change([undefined])]);
        return [];
      },
    };
    const changing = rule({
      ...base,
      needs: { ledger: ledger() },
      validate: async (_, { ledger }) => void (await ledger.change(["own"], () => [1])),
    });
    await warmUpFunction({ changing }, [], recordingLedger);
    // The only change is that of the warm-up itself. Its key may be any text, here the API group that it discovers.
    // The warm-up evaluates the rule with a ledger in memory, so the change of the key "own" doesn't reach this ledger.
    assert.deepEqual(changes, [[["authorization.k8s.io/v1"], [undefined]]]);
  });

  it("a starting function continues its warm-up if its rule fails for the Pod", async () => {
    const failing = rule({
      ...base,
      validate: () => {
        throw new Error("no Pod");
      },
    });
    assert.deepEqual((await warmUpFunction({ failing }, [])).reviews.at(-1), [500, "validate"]);
  });
});
