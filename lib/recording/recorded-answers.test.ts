import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { buildObject, discovery, may, objects, refused, testAnswers, testObjects } from "../../test/capabilities.ts";
import { Failure } from "../failure.ts";
import { createRecordedCapabilities, toPlural } from "./recorded-answers.ts";

describe("recorded answers", () => {
  const capabilities = createRecordedCapabilities({ objects, may, discovery, refused });
  testObjects(() => capabilities);
  testAnswers(() => capabilities);

  it("recorded answers contain an object under its group and namespace, in any version", async () => {
    const widget = buildObject("Widget", "w", "a", {}, "example.com/v1beta2");
    const { get } = createRecordedCapabilities({ objects: [widget] });
    assert.deepEqual(await get({ group: "example.com", resource: "widgets" }, "w", "a"), widget);
    assert.equal(await get({ group: "example.com", resource: "widgets" }, "w"), undefined);
    assert.equal(await get({ group: "apps", resource: "widgets" }, "w", "a"), undefined);
  });

  const access = [
    { user: { username: "jane" }, verb: "delete", resource: "pods", allowed: true },
    { user: { username: "jane" }, verb: "delete", resource: "nodes", allowed: false, reason: "no role" },
  ];
  const calls = [{ url: "https://images.example/a", answer: { status: 200, body: "yes" } }];
  it("recorded answers answer only recorded questions", async () => {
    const recorded = createRecordedCapabilities({ may: access, https: calls });
    const user = { username: "jane", groups: ["g"] };
    const buildQuestion = (resource: string) => {
      return { user: { username: "jane" }, verb: "delete", resource, namespace: "a" };
    };
    assert.deepEqual(await recorded.may(buildQuestion("pods")), { allowed: true });
    assert.deepEqual(await recorded.may(buildQuestion("nodes")), { allowed: false, reason: "no role" });
    const answer = await recorded.https({ url: "https://images.example/a", method: "POST", body: "x" });
    assert.deepEqual(answer, { status: 200, body: "yes" });
    const isUnanswered = (question: string) => (error: unknown) =>
      error instanceof Failure &&
      error.code === 500 &&
      error.message === `no answer is recorded to ${question}; add one to the case's needs`;
    await assert.rejects(
      recorded.may({ user, verb: "get", resource: "pods" }),
      isUnanswered('{"user":{"username":"jane","groups":["g"]},"verb":"get","resource":"pods"}'),
    );
    await assert.rejects(
      recorded.https({ url: "https://images.example/b" }),
      isUnanswered('{"url":"https://images.example/b"}'),
    );
    await assert.rejects(createRecordedCapabilities({}).may(buildQuestion("pods")), Failure);
    await assert.rejects(createRecordedCapabilities({}).discover("v1"), isUnanswered('{"discovery":"v1"}'));
    const discovery = { v1: [{ resource: "pods", kind: "Pod", namespaced: true }] };
    assert.deepEqual(await createRecordedCapabilities({ discovery }).discover("v1"), discovery.v1);
    assert.equal(await createRecordedCapabilities({ discovery }).discover("apps/v1"), undefined);
  });

  it("recorded answers don't confuse answers of AWS and of HTTP services", async () => {
    const [answer, region] = [{ status: 200, body: "volumes" }, "eu-west-1"];
    const recorded = createRecordedCapabilities({
      aws: [{ action: "ec2:DescribeVolumes", region, parameters: {}, answer }],
      http: calls,
    });
    const askForVolumes = (region: string) => recorded.aws("ec2:DescribeVolumes", { region, parameters: {} });
    assert.deepEqual(await askForVolumes(region), answer);
    assert.equal((await recorded.http({ url: "https://images.example/a" })).body, "yes");
    await assert.rejects(askForVolumes("us-east-1"), /^Error: no answer is recorded to .*us-east-1/);
    await assert.rejects(recorded.https({ url: "https://images.example/a" }), Failure);
  });

  it("recorded answers start a ledger with the recorded entries", async () => {
    const ledger = createRecordedCapabilities({ ledger: { a: 1 } }).ledger("rule");
    const count = async (key: string) => (await ledger.change<number>([key], ([kept = 0]) => [kept + 1]))[0];
    assert.deepEqual([await count("a"), await count("a"), await count("b")], [2, 3, 1]);
  });
});

describe("the plural of a kind", () => {
  const kinds: [kind: string, resource: string][] = [
    ["Pod", "pods"],
    ["StorageClass", "storageclasses"],
    ["Ingress", "ingresses"],
    ["NetworkPolicy", "networkpolicies"],
    ["Gateway", "gateways"],
    ["Endpoints", "endpoints"],
    ["ResourceQuota", "resourcequotas"],
    ["Prefix", "prefixes"],
    ["Branch", "branches"],
    ["PriorityClass", "priorityclasses"],
  ];
  for (const [kind, resource] of kinds) it(`of ${kind} is ${resource}`, () => assert.equal(toPlural(kind), resource));
});
