import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Failure } from "../failure.ts";
import type { Capabilities, ResourceType } from "../needs.ts";
import type { KubernetesObject } from "../review.ts";
import { noteAnswers } from "./notes.ts";
import { createRecordedCapabilities, type RecordedCapabilityAnswers } from "./recorded-answers.ts";

const pods: ResourceType = { group: "", resource: "pods" };
const attachments: ResourceType = { group: "k8s.cni.cncf.io", resource: "network-attachment-definitions" };
const buildPod = (name: string, labels = {}) => {
  return { apiVersion: "v1", kind: "Pod", metadata: { name, namespace: "shop", labels } };
};
const attachment = { apiVersion: "k8s.cni.cncf.io/v1", kind: "NetworkAttachmentDefinition", metadata: { name: "a" } };
const everything: RecordedCapabilityAnswers = {
  objects: [buildPod("one", { app: "a" }), buildPod("two"), attachment],
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
  cluster: "prod",
};

/** Questions whose answers from the notes must equal those from the capabilities. */
const questions: [what: string, ask: (capabilities: Capabilities) => Promise<unknown>][] = [
  ["an object that is there", (capabilities) => capabilities.get(pods, "one", "shop")],
  ["an object that isn't", (capabilities) => capabilities.get(pods, "none", "shop")],
  ["an object of a kind with an irregular plural", (capabilities) => capabilities.get(attachments, "a")],
  ["a list", (capabilities) => capabilities.list(pods, "shop")],
  ["a list's beginning", (capabilities) => capabilities.list(pods, "shop", { most: 1 })],
  ["a list by labels", (capabilities) => capabilities.list(pods, "shop", { labels: { matchLabels: { app: "a" } } })],
  ["an empty list", (capabilities) => capabilities.list(pods, "elsewhere")],
  ["a list of the whole cluster", (capabilities) => capabilities.list(pods)],
  [
    "access questions without and with the name of an object",
    async (capabilities) => [
      await capabilities.may({ user: { username: "jane" }, verb: "get", resource: "pods" }),
      await capabilities.may({ user: { username: "jane" }, verb: "get", resource: "pods", name: "one" }),
    ],
  ],
  ["a group version that is served", (capabilities) => capabilities.discover("v1")],
  ["a group version that isn't served", (capabilities) => capabilities.discover("v9")],
  [
    "requests to services and to AWS",
    async (capabilities) => [
      await capabilities.https({ url: "https://a/", method: "POST", body: "x", tries: 3, keep: () => 1 }),
      await capabilities.http({ url: "http://a/" }),
      await capabilities.aws("ec2:DescribeVolumes", { region: "r", parameters: { a: "b" } }),
    ],
  ],
  [
    "creations of a new object, of an existing object and of a refused object",
    async (capabilities) => [
      await capabilities.create(pods, buildPod("new")),
      await capabilities.get(pods, "new", "shop"),
      await capabilities.create(pods, buildPod("two")),
      await capabilities.create(pods, buildPod("bad")),
    ],
  ],
  [
    "updates of a status: a successful, an outdated and a refused update",
    async (capabilities) => {
      const [pod = {}] = await capabilities.list(pods, "shop");
      return [
        pod,
        await capabilities.updateStatus(pods, pod),
        await capabilities.updateStatus(pods, pod),
        await capabilities.updateStatus(pods, buildPod("bad")),
        await capabilities.list(pods, "shop"),
      ];
    },
  ],
  [
    "entries of a ledger before and after changes",
    async (capabilities) => [
      await capabilities.ledger("rule").change<number>(["kept"], ([kept = 0]) => [kept + 1]),
      await capabilities.ledger("rule").change<number>(["kept"], ([kept = 0]) => [kept + 1]),
      await capabilities.ledger("rule").change<number>(["fresh"], ([kept = 0]) => [kept + 1]),
    ],
  ],
  [
    "the cluster's name, which is noted only if the rule opens the ledger that all clusters share",
    async (capabilities) => {
      await capabilities.ledger("rule", "clusters").change<number>(["kept"], ([kept = 0]) => [kept + 1]);
      return capabilities.cluster;
    },
  ],
];

describe("the notes on a review", () => {
  for (const [what, ask] of questions)
    it(`give the same answers as the capabilities: ${what}`, async () => {
      const { capabilities, noted } = noteAnswers(createRecordedCapabilities(everything));
      const answer = await ask(capabilities);
      const written: RecordedCapabilityAnswers = JSON.parse(JSON.stringify(noted()));
      assert.deepEqual(await ask(createRecordedCapabilities(written)), answer);
    });

  it("the notes on a review contain only the answers to questions that were asked", async () => {
    const { capabilities, noted } = noteAnswers(createRecordedCapabilities(everything));
    assert.deepEqual(noted(), { reads: [] });
    await capabilities.get(pods, "one", "shop");
    const reads = [{ ...pods, namespace: "shop", name: "one" }];
    assert.deepEqual(noted(), { objects: [buildPod("one", { app: "a" })], reads });
  });

  it("the notes on a review state that an object or list is absent only if a question was about it", async () => {
    const { capabilities, noted } = noteAnswers(createRecordedCapabilities(everything));
    await capabilities.get(pods, "none", "shop");
    await capabilities.list(pods, "elsewhere");
    await capabilities.list(pods, "shop", { most: 1 });
    await capabilities.list(attachments, undefined, { most: 2 });
    const replayed = createRecordedCapabilities(noted());
    assert.equal(await replayed.get(pods, "none", "shop"), undefined);
    assert.equal(await replayed.get(pods, "any", "elsewhere"), undefined, "the whole list was read");
    assert.equal(await replayed.get(attachments, "b"), undefined, "the list was shorter than its limit");
    for (const ask of [
      () => replayed.get(pods, "none", "other"),
      () => replayed.get(pods, "two", "shop"),
      () => replayed.list(pods, "shop"),
      () => replayed.list(pods),
      () => replayed.list(pods, "shop", { most: 2 }),
      () => replayed.get({ group: "apps", resource: "pods" }, "none", "shop"),
    ])
      await assert.rejects(ask, /^Error: no answer is recorded to/);
  });

  it("the notes on a review have only the answers of the second evaluation if there was a second one", async () => {
    const createNamed = (name: string): Capabilities => ({
      ...createRecordedCapabilities({}),
      get: async (): Promise<KubernetesObject> => buildPod(name),
    });
    const { capabilities, noted } = noteAnswers({ ...createNamed("old"), anew: () => createNamed("new") });
    await capabilities.get(pods, "old", "shop");
    const secondCapabilities = capabilities.anew?.();
    await secondCapabilities?.get(pods, "new", "shop");
    assert.deepEqual(noted(), { objects: [buildPod("new")], reads: [{ ...pods, namespace: "shop", name: "new" }] });
    const withoutSecond = noteAnswers({ ...createNamed("old"), anew: () => undefined });
    await withoutSecond.capabilities.get(pods, "old", "shop");
    assert.equal(withoutSecond.capabilities.anew?.(), undefined);
    assert.deepEqual(withoutSecond.noted().objects, [buildPod("old")]);
  });

  it("the notes have a ledger entry as the last attempt to change the entry found it", async () => {
    const contended = {
      change: async <T>(
        _: readonly string[],
        change: (kept: readonly (T | undefined)[]) => readonly (T | undefined)[],
      ) => {
        change([1 as T]);
        return change([2 as T]);
      },
    };
    const { capabilities, noted } = noteAnswers({ ...createRecordedCapabilities({}), ledger: () => contended });
    await capabilities.ledger("rule").change<number>(["key"], ([kept = 0]) => [kept + 1]);
    assert.deepEqual(noted(), { reads: [], ledger: { key: 2 } });
  });

  it("the notes on a review don't include questions that failed", async () => {
    const fail = async () => {
      throw new Failure(503, "not now");
    };
    const { capabilities, noted } = noteAnswers({ ...createRecordedCapabilities({}), get: fail, https: fail });
    await assert.rejects(capabilities.get(pods, "one", "shop"), /not now/);
    await assert.rejects(capabilities.https({ url: "https://a/" }), /not now/);
    assert.deepEqual(noted(), { reads: [] });
  });
});
