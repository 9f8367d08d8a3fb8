import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Failure } from "./failure.ts";
import { plural, recorded } from "./recorded-answers.ts";

const named = (kind: string, name: string, namespace?: string, apiVersion = "v1") => ({
  apiVersion,
  kind,
  metadata: { name, ...(namespace && { namespace }) },
});
const names = (objects: { metadata?: { name?: string } }[]) => objects.map(({ metadata }) => metadata?.name);

const objects = [
  named("LimitRange", "small", "a"),
  named("LimitRange", "large", "a"),
  named("LimitRange", "other", "b"),
  named("LimitRange", "near", "ab"),
  named("Namespace", "a"),
  named("StorageClass", "fast", undefined, "storage.k8s.io/v1"),
  named("Widget", "w", "a", "example.com/v1beta2"),
];

describe("a recorded world", () => {
  const world = recorded({ objects });
  const limitranges = { group: "", resource: "limitranges" };

  it("has objects by name", async () => {
    assert.deepEqual(await world.get(limitranges, "small", "a"), objects[0]);
    assert.deepEqual(await world.get({ group: "", resource: "namespaces" }, "a"), objects[4]);
    assert.deepEqual(await world.get({ group: "storage.k8s.io", resource: "storageclasses" }, "fast"), objects[5]);
    assert.deepEqual(await world.get({ group: "example.com", resource: "widgets" }, "w", "a"), objects[6]);
  });
  it("has nothing where nothing is", async () => {
    for (const [kind, name, namespace] of [
      [limitranges, "none", "a"],
      [limitranges, "small", "b"],
      [limitranges, "small"],
      [{ group: "apps", resource: "limitranges" }, "small", "a"],
    ] as const)
      assert.equal(await world.get(kind, name, namespace), undefined);
  });
  it("lists a namespace, and none that begins alike", async () => {
    assert.deepEqual(names(await world.list(limitranges, "a")), ["large", "small"]);
    assert.deepEqual(names(await world.list(limitranges, "b")), ["other"]);
    assert.deepEqual(names(await world.list(limitranges, "c")), []);
  });
  it("lists a cluster", async () => {
    assert.deepEqual(names(await world.list(limitranges)), ["large", "small", "near", "other"]);
    assert.deepEqual(names(await world.list({ group: "", resource: "namespaces" })), ["a"]);
  });
  it("creates what isn't there", async () => {
    const fresh = recorded({ objects });
    const kind = { group: "", resource: "namespaces" };
    assert.deepEqual(
      [
        await fresh.create(kind, named("Namespace", "new")),
        await fresh.create(kind, named("Namespace", "new")),
        await fresh.create(kind, named("Namespace", "a")),
      ],
      ["created", "exists", "exists"],
    );
    assert.deepEqual(await fresh.get(kind, "new"), named("Namespace", "new"));
    assert.equal(await world.get(kind, "new"), undefined);
  });
  it("does not create what it says can't be", async () => {
    const status = { code: 422, reason: "Invalid", message: "no such name" };
    const strict = recorded({ refused: [{ resource: "namespaces", name: "New", status }] });
    const kind = { group: "", resource: "namespaces" };
    assert.deepEqual(await strict.create(kind, named("Namespace", "New")), { refused: status });
    assert.equal(await strict.get(kind, "New"), undefined);
  });

  const may = [
    { user: { username: "jane" }, verb: "delete", resource: "pods", allowed: true },
    { user: { username: "jane" }, verb: "delete", resource: "nodes", allowed: false, reason: "no role" },
  ];
  const calls = [{ url: "https://images.example/a", answer: { status: 200, body: "yes" } }];
  it("answers what is recorded, and nothing by guess", async () => {
    const asked = recorded({ may, https: calls });
    const user = { username: "jane", groups: ["g"] };
    const access = (resource: string) => ({ user: { username: "jane" }, verb: "delete", resource, namespace: "a" });
    assert.deepEqual(
      [await asked.may(access("pods")), await asked.may(access("nodes"))],
      [{ allowed: true }, { allowed: false, reason: "no role" }],
    );
    assert.deepEqual(await asked.https({ url: "https://images.example/a", method: "POST", body: "x" }), {
      status: 200,
      body: "yes",
    });
    const unanswered = (question: string) => (error: unknown) =>
      error instanceof Failure &&
      error.code === 500 &&
      error.message === `no answer is recorded to ${question}; the case's needs must hold one`;
    await assert.rejects(
      asked.may({ user, verb: "get", resource: "pods" }),
      unanswered('{"user":{"username":"jane","groups":["g"]},"verb":"get","resource":"pods"}'),
    );
    await assert.rejects(
      asked.https({ url: "https://images.example/b" }),
      unanswered('{"url":"https://images.example/b"}'),
    );
    await assert.rejects(recorded({}).may(access("pods")), Failure);
    await assert.rejects(recorded({}).discover("v1"), unanswered('{"discovery":"v1"}'));
    const discovery = { v1: [{ resource: "pods", kind: "Pod", namespaced: true }] };
    assert.deepEqual(await recorded({ discovery }).discover("v1"), discovery.v1);
    assert.equal(await recorded({ discovery }).discover("apps/v1"), undefined);
  });

  it("answers AWS's actions and plain services by their own records", async () => {
    const [answer, region] = [{ status: 200, body: "volumes" }, "eu-west-1"];
    const asked = recorded({ aws: [{ action: "ec2:DescribeVolumes", region, parameters: {}, answer }], http: calls });
    const volumes = (region: string) => asked.aws("ec2:DescribeVolumes", { region, parameters: {} });
    assert.deepEqual(await volumes(region), answer);
    assert.equal((await asked.http({ url: "https://images.example/a" })).body, "yes");
    await assert.rejects(volumes("us-east-1"), /^Error: no answer is recorded to .*us-east-1/);
    await assert.rejects(asked.https({ url: "https://images.example/a" }), Failure);
  });

  it("keeps what reviews leave, and what earlier ones left", async () => {
    const ledger = recorded({ ledger: { a: 1 } }).ledger("rule");
    const count = (key: string) => ledger.change<number>(key, (kept = 0) => kept + 1);
    assert.deepEqual([await count("a"), await count("a"), await count("b")], [2, 3, 1]);
  });
});

describe("the plural", () => {
  const kinds: [string, string][] = [
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
  for (const [kind, resource] of kinds) it(`of ${kind} is ${resource}`, () => assert.equal(plural(kind), resource));
});
