import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Failure } from "../failure.ts";
import type { Capabilities, ResourceType } from "../needs.ts";
import { type RecordedAnswers, recorded } from "../recorded-answers.ts";
import type { KubernetesObject } from "../review.ts";
import { noting } from "./notes.ts";

const pods: ResourceType = { group: "", resource: "pods" };
const attachments: ResourceType = { group: "k8s.cni.cncf.io", resource: "network-attachment-definitions" };
const pod = (name: string, labels = {}) => {
  return { apiVersion: "v1", kind: "Pod", metadata: { name, namespace: "shop", labels } };
};
const attachment = { apiVersion: "k8s.cni.cncf.io/v1", kind: "NetworkAttachmentDefinition", metadata: { name: "a" } };
const everything: RecordedAnswers = {
  objects: [pod("one", { app: "a" }), pod("two"), attachment],
  plurals: { "k8s.cni.cncf.io/NetworkAttachmentDefinition": "network-attachment-definitions" },
  refused: [{ resource: "pods", name: "bad", status: { code: 403, message: "no" } }],
  may: [
    { user: { username: "jane" }, verb: "get", resource: "pods", name: "one", allowed: true },
    { user: { username: "jane" }, verb: "get", resource: "pods", allowed: false, reason: "no" },
  ],
  discovery: { v1: [{ resource: "pods", kind: "Pod", namespaced: true }] },
  https: [{ url: "https://a/", method: "POST", body: "x", answer: { status: 200, body: "y" } }],
  http: [{ url: "http://a/", answer: { status: 404, body: "" } }],
  aws: [{ action: "ec2:DescribeVolumes", region: "r", parameters: { a: "b" }, answer: { status: 200, body: "z" } }],
  ledger: { kept: 3 },
};

/** Whatever is asked here, is answered alike by what was noted of it. */
const questions: [string, (world: Capabilities) => Promise<unknown>][] = [
  ["an object that is there", (world) => world.get(pods, "one", "shop")],
  ["an object that isn't", (world) => world.get(pods, "none", "shop")],
  ["a kind with a plural of its own", (world) => world.get(attachments, "a")],
  ["a list", (world) => world.list(pods, "shop")],
  ["a list's beginning", (world) => world.list(pods, "shop", { most: 1 })],
  ["a list by labels", (world) => world.list(pods, "shop", { labels: { matchLabels: { app: "a" } } })],
  ["an empty list", (world) => world.list(pods, "elsewhere")],
  ["a list of the whole cluster", (world) => world.list(pods)],
  [
    "what may be done, by more and by less",
    async (world) => [
      await world.may({ user: { username: "jane" }, verb: "get", resource: "pods" }),
      await world.may({ user: { username: "jane" }, verb: "get", resource: "pods", name: "one" }),
    ],
  ],
  ["what is served", (world) => world.discover("v1")],
  ["what isn't", (world) => world.discover("v9")],
  [
    "services",
    async (world) => [
      await world.https({ url: "https://a/", method: "POST", body: "x", tries: 3, keep: () => 1 }),
      await world.http({ url: "http://a/" }),
      await world.aws("ec2:DescribeVolumes", { region: "r", parameters: { a: "b" } }),
    ],
  ],
  [
    "what is created, what is there and what is refused",
    async (world) => [
      await world.create(pods, pod("new")),
      await world.get(pods, "new", "shop"),
      await world.create(pods, pod("two")),
      await world.create(pods, pod("bad")),
    ],
  ],
  [
    "what a ledger had, and has",
    async (world) => [
      await world.ledger("rule").change<number>("kept", (kept = 0) => kept + 1),
      await world.ledger("rule").change<number>("kept", (kept = 0) => kept + 1),
      await world.ledger("rule").change<number>("fresh", (kept = 0) => kept + 1),
    ],
  ],
];

describe("what was noted of a review", () => {
  for (const [what, ask] of questions)
    it(`answers as the world did: ${what}`, async () => {
      const { world, noted } = noting(recorded(everything));
      const answer = await ask(world);
      const written: RecordedAnswers = JSON.parse(JSON.stringify(noted()));
      assert.deepEqual(await ask(recorded(written)), answer);
    });

  it("is nothing that nobody asked", async () => {
    const { world, noted } = noting(recorded(everything));
    assert.deepEqual(noted(), { reads: [] });
    await world.get(pods, "one", "shop");
    const reads = [{ ...pods, namespace: "shop", name: "one" }];
    assert.deepEqual(noted(), { objects: [pod("one", { app: "a" })], reads });
  });

  it("answers nothing that wasn't asked: an object or a list that may have been there", async () => {
    const { world, noted } = noting(recorded(everything));
    await world.get(pods, "none", "shop");
    await world.list(pods, "elsewhere");
    await world.list(pods, "shop", { most: 1 });
    await world.list(attachments, undefined, { most: 2 });
    const again = recorded(noted());
    assert.equal(await again.get(pods, "none", "shop"), undefined);
    assert.equal(await again.get(pods, "any", "elsewhere"), undefined, "a list has all");
    assert.equal(await again.get(attachments, "b"), undefined, "there were fewer than asked for");
    for (const ask of [
      () => again.get(pods, "none", "other"),
      () => again.get(pods, "two", "shop"),
      () => again.list(pods, "shop"),
      () => again.list(pods),
      () => again.list(pods, "shop", { most: 2 }),
      () => again.get({ group: "apps", resource: "pods" }, "none", "shop"),
    ])
      await assert.rejects(ask, /^Error: no answer is recorded to/);
  });

  it("is what was read anew, where a refusal had that done", async () => {
    const named = (name: string): Capabilities => ({
      ...recorded({}),
      get: async (): Promise<KubernetesObject> => pod(name),
    });
    const { world, noted } = noting({ ...named("old"), anew: () => named("new") });
    await world.get(pods, "old", "shop");
    const fresh = world.anew?.();
    await fresh?.get(pods, "new", "shop");
    assert.deepEqual(noted(), { objects: [pod("new")], reads: [{ ...pods, namespace: "shop", name: "new" }] });
    const still = noting({ ...named("old"), anew: () => undefined });
    await still.world.get(pods, "old", "shop");
    assert.equal(still.world.anew?.(), undefined);
    assert.deepEqual(still.noted().objects, [pod("old")]);
  });

  it("is what the last attempt of several found in a ledger", async () => {
    const contended = {
      change: async <T>(_: string, change: (kept: T | undefined) => T | undefined) => {
        change(1 as T);
        return change(2 as T);
      },
    };
    const { world, noted } = noting({ ...recorded({}), ledger: () => contended });
    await world.ledger("rule").change<number>("key", (kept = 0) => kept + 1);
    assert.deepEqual(noted(), { reads: [], ledger: { key: 2 } });
  });

  it("is nothing of what failed", async () => {
    const fail = async () => {
      throw new Failure(503, "not now");
    };
    const { world, noted } = noting({ ...recorded({}), get: fail, https: fail });
    await assert.rejects(world.get(pods, "one", "shop"), /not now/);
    await assert.rejects(world.https({ url: "https://a/" }), /not now/);
    assert.deepEqual(noted(), { reads: [] });
  });
});
