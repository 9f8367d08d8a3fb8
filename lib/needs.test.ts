import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Failure } from "./failure.ts";
import { accessReview, bind, create, get, https, list, plural, recorded, unconnected, type World } from "./needs.ts";

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
    assert.deepEqual(names(await world.list(limitranges, "a")), ["small", "large"]);
    assert.deepEqual(names(await world.list(limitranges, "b")), ["other"]);
    assert.deepEqual(names(await world.list(limitranges, "c")), []);
  });
  it("lists a cluster", async () => {
    assert.deepEqual(names(await world.list(limitranges)), ["small", "large", "other", "near"]);
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

  const may = [
    { user: { username: "jane" }, verb: "delete", resource: "pods", allowed: true },
    { user: { username: "jane" }, verb: "delete", resource: "nodes", allowed: false },
  ];
  const calls = [{ url: "https://images.example/a", answer: { status: 200, body: "yes" } }];
  it("answers what is recorded, and nothing by guess", async () => {
    const asked = recorded({ may, https: calls });
    const user = { username: "jane", groups: ["g"] };
    const access = (resource: string) => ({ user: { username: "jane" }, verb: "delete", resource, namespace: "a" });
    assert.deepEqual([await asked.may(access("pods")), await asked.may(access("nodes"))], [true, false]);
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
  });
});

describe("needs", () => {
  /** A world that writes down what it is asked. */
  const counted = () => {
    const asked: unknown[][] = [];
    const note =
      <A extends unknown[], R>(verb: string, answer: R) =>
      async (...args: A): Promise<R> => {
        asked.push([verb, ...args]);
        return answer;
      };
    const world: World = {
      get: note("get", objects[0]),
      list: note("list", objects),
      create: note("create", "created" as const),
      may: note("may", true),
      https: note("https", { status: 200, body: "" }),
    };
    return { asked, world };
  };
  interface Bound {
    account: (name: string, namespace?: string) => Promise<unknown>;
    ranges: (namespace?: string) => Promise<unknown>;
    provision: (object: object) => Promise<unknown>;
    may: (access: object) => Promise<unknown>;
    call: (request: object) => Promise<unknown>;
    others: (namespace?: string) => Promise<unknown>;
  }
  const needs = {
    account: get("serviceaccounts"),
    ranges: list("limitranges"),
    provision: create("namespaces"),
    may: accessReview(),
    call: https(),
    others: list("limitranges"),
  };
  const bound = (world: World) => bind(needs, world) as unknown as Bound;

  it("ask the world by group, resource and name", async () => {
    const { asked, world } = counted();
    const { account, ranges, provision, may, call } = bound(world);
    await Promise.all([
      account("default", "a"),
      ranges("a"),
      ranges(),
      provision({ a: 1 }),
      may({ verb: "get" }),
      call({ url: "u" }),
    ]);
    assert.deepEqual(asked, [
      ["get", { group: "", resource: "serviceaccounts" }, "default", "a"],
      ["list", { group: "", resource: "limitranges" }, "a"],
      ["list", { group: "", resource: "limitranges" }, undefined],
      ["create", { group: "", resource: "namespaces" }, { a: 1 }],
      ["may", { verb: "get" }],
      ["https", { url: "u" }],
    ]);
  });

  it("ask the same question once in a review, and anew in the next", async () => {
    const { asked, world } = counted();
    const { account, ranges, others, may } = bound(world);
    await Promise.all([
      ranges("a"),
      ranges("a"),
      others("a"),
      account("x", "a"),
      account("x", "a"),
      may({ verb: "get" }),
      may({ verb: "get" }),
    ]);
    assert.equal(asked.length, 3);
    await bound(world).ranges("a");
    assert.equal(asked.length, 4);
  });

  it("ask again what has effects", async () => {
    const { asked, world } = counted();
    const { provision, call } = bound(world);
    await Promise.all([provision({}), provision({}), call({ url: "u" }), call({ url: "u" })]);
    assert.equal(asked.length, 4);
  });

  it("don't ask before the rule does", () => {
    const { asked, world } = counted();
    bound(world);
    assert.deepEqual(asked, []);
  });

  it("say what they need, for the rule's rights", () => {
    const kinds = Object.values({
      ...needs,
      classes: get("storageclasses"),
      widgets: list({ group: "example.com", resource: "widgets" }),
    }).map(({ verb, kind }) => [verb, kind?.group, kind?.resource]);
    assert.deepEqual(kinds, [
      ["get", "", "serviceaccounts"],
      ["list", "", "limitranges"],
      ["create", "", "namespaces"],
      ["may", undefined, undefined],
      ["https", undefined, undefined],
      ["list", "", "limitranges"],
      ["get", "storage.k8s.io", "storageclasses"],
      ["list", "example.com", "widgets"],
    ]);
  });

  it("fail with 503 where nobody connected the cluster", async () => {
    const { account, ranges, provision, may, call } = bound(unconnected("prod"));
    const sentence = 'nothing can be read from cluster "prod": it has no connection here';
    for (const ask of [() => account("a"), () => ranges(), () => provision({}), () => may({}), () => call({})])
      await assert.rejects(
        ask,
        (error) => error instanceof Failure && error.code === 503 && error.message === sentence,
      );
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
