import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { bindNeeds, createUnconnectedCapabilities } from "./core/capabilities.ts";
import { Failure } from "./failure.ts";
import { toMap } from "./json.ts";
import { createMemoryLedger } from "./ledger.ts";
import {
  accessReview,
  aws,
  type Capabilities,
  create,
  discovery,
  get,
  http,
  https,
  ledger,
  list,
  type ObjectPlace,
  sharedLedger,
  updateStatus,
} from "./needs.ts";

const objects = [{ apiVersion: "v1", kind: "Namespace", metadata: { name: "a" } }];

describe("needs", () => {
  /** Returns capabilities with fixed answers, and a list to which each call adds its verb and arguments. */
  const recordQuestions = () => {
    const questions: unknown[][] = [];
    const record =
      <A extends unknown[], R>(verb: string, answer: R) =>
      async (...args: A): Promise<R> => {
        questions.push([verb, ...args]);
        return answer;
      };
    const capabilities: Capabilities = {
      get: record("get", objects[0]),
      list: record("list", objects),
      create: record("create", "created" as const),
      updateStatus: record("updateStatus", "updated" as const),
      may: record("may", { allowed: true }),
      discover: record("discover", undefined),
      https: record("https", { status: 200, body: "" }),
      http: record("http", { status: 200, body: "" }),
      aws: record("aws", { status: 200, body: "" }),
      cue: record("cue", "{}"),
      cluster: "prod",
      ledger: (rule, reach) => {
        questions.push(["ledger", rule, reach]);
        return createMemoryLedger();
      },
      count: (counts) => void questions.push(["count", counts]),
    };
    return { questions, capabilities };
  };
  interface Answers {
    account: (place: ObjectPlace) => Promise<unknown>;
    ranges: (namespace?: string) => Promise<unknown>;
    provision: (object: object) => Promise<unknown>;
    charge: (object: object) => Promise<unknown>;
    may: (access: object) => Promise<unknown>;
    call: (request: object) => Promise<unknown>;
    kinds: (groupVersion: string) => Promise<unknown>;
    others: (namespace?: string) => Promise<unknown>;
    plain: (request: object) => Promise<unknown>;
    volumes: (request: object) => Promise<unknown>;
  }
  const needs = {
    account: get("serviceaccounts"),
    ranges: list("limitranges", { maxAge: 0 }),
    provision: create("namespaces"),
    charge: updateStatus("resourcequotas"),
    may: accessReview(),
    call: https(),
    kinds: discovery(),
    others: list("limitranges"),
    plain: http(),
    volumes: aws("ec2:DescribeVolumes"),
  };
  const bindToRule = (capabilities: Capabilities) => bindNeeds(needs, capabilities, "rule") as unknown as Answers;

  it("a rule's needs pass group, resource and the rule's arguments to the capabilities", async () => {
    const { questions, capabilities } = recordQuestions();
    const { account, ranges, provision, charge, may, call, kinds, plain, volumes } = bindToRule(capabilities);
    await Promise.all([
      account({ name: "default", namespace: "a" }),
      ranges("a"),
      ranges(),
      provision({ a: 1 }),
      charge({ b: 2 }),
      may({ verb: "get" }),
      call({ url: "u" }),
      kinds("apps/v1"),
      plain({ url: "p" }),
      volumes({ region: "r" }),
    ]);
    assert.deepEqual(questions, [
      ["get", { group: "", resource: "serviceaccounts" }, "default", "a", undefined],
      ["list", { group: "", resource: "limitranges" }, "a", { maxAge: 0 }],
      ["list", { group: "", resource: "limitranges" }, undefined, { maxAge: 0 }],
      ["create", { group: "", resource: "namespaces" }, { a: 1 }],
      ["updateStatus", { group: "", resource: "resourcequotas" }, { b: 2 }],
      ["may", { verb: "get" }],
      ["https", { url: "u" }],
      ["discover", "apps/v1"],
      ["http", { url: "p" }],
      ["aws", "ec2:DescribeVolumes", { region: "r" }],
    ]);
  });

  it("a rule's need of a ledger keeps the entries of each rule apart", () => {
    const { questions, capabilities } = recordQuestions();
    bindNeeds({ buckets: ledger() }, capabilities, "event-rate-limit");
    const { quotas } = bindNeeds({ quotas: sharedLedger() }, capabilities, "workload-quota");
    assert.equal(toMap(quotas).cluster, "prod");
    assert.deepEqual(questions, [
      ["ledger", "event-rate-limit", undefined],
      ["ledger", "workload-quota", "clusters"],
    ]);
  });

  it("a rule's needs send the same question once in a review, and again in the next review", async () => {
    const { questions, capabilities } = recordQuestions();
    const { account, ranges, may } = bindToRule(capabilities);
    await Promise.all([
      ranges("a"),
      ranges("a"),
      account({ name: "x", namespace: "a" }),
      account({ name: "x", namespace: "a" }),
      may({ verb: "get" }),
      may({ verb: "get" }),
    ]);
    assert.equal(questions.length, 3);
    await bindToRule(capabilities).ranges("a");
    assert.equal(questions.length, 4);
  });

  it("a rule's needs send a question with effects each time, even if it is the same", async () => {
    const { questions, capabilities } = recordQuestions();
    const { provision, call } = bindToRule(capabilities);
    await Promise.all([provision({}), provision({}), call({ url: "u" }), call({ url: "u" })]);
    assert.equal(questions.length, 4);
  });

  it("a rule's needs send a question again after the rule has written to the cluster", async () => {
    const { questions, capabilities } = recordQuestions();
    const { ranges, charge } = bindToRule(capabilities);
    await ranges("a");
    await charge({});
    await ranges("a");
    await ranges("a");
    assert.deepEqual(
      questions.map(([verb]) => verb),
      ["list", "updateStatus", "list"],
    );
  });

  it("a rule's needs reject each of several calls that fail at once, without an unhandled rejection", async () => {
    const { account } = bindToRule(createUnconnectedCapabilities("prod"));
    const [first, second] = [account({ name: "a" }), account({ name: "b" })];
    await assert.rejects(first);
    await new Promise(setImmediate);
    await assert.rejects(second);
  });

  it("a rule's needs send no question before the rule asks it", () => {
    const { questions, capabilities } = recordQuestions();
    bindToRule(capabilities);
    assert.deepEqual(questions, []);
  });

  it("a rule's needs list the verbs and resources from which the rule's rights follow", () => {
    const kinds = Object.values({
      ...needs,
      classes: get("storageclasses"),
      widgets: list({ group: "example.com", resource: "widgets" }),
    }).map(({ verb, kind }) => [verb, kind?.group, kind?.resource]);
    assert.deepEqual(kinds, [
      ["get", "", "serviceaccounts"],
      ["list", "", "limitranges"],
      ["create", "", "namespaces"],
      ["updateStatus", "", "resourcequotas"],
      ["may", undefined, undefined],
      ["https", undefined, undefined],
      ["discover", undefined, undefined],
      ["list", "", "limitranges"],
      ["http", undefined, undefined],
      ["aws", undefined, undefined],
      ["get", "storage.k8s.io", "storageclasses"],
      ["list", "example.com", "widgets"],
    ]);
  });

  it("a rule's needs throw if get is called with a text instead of { name, namespace }", () => {
    const { account } = bindToRule(createUnconnectedCapabilities("prod"));
    assert.throws(() => account("default" as never), /^Error: get takes \{ name, namespace \}, not "default"$/);
  });

  it("a rule's needs fail with 503 if the cluster is not connected", async () => {
    const { account, ranges, provision, charge, may, call } = bindToRule(createUnconnectedCapabilities("prod"));
    const sentence = 'nothing can be read from cluster "prod": it has no connection here';
    for (const ask of [
      () => account({ name: "a" }),
      () => ranges(),
      () => provision({}),
      () => charge({}),
      () => may({}),
      () => call({}),
    ])
      await assert.rejects(
        ask,
        (error) => error instanceof Failure && error.code === 503 && error.message === sentence,
      );
  });
});
