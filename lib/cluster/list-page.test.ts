import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createUnconnectedCapabilities } from "../core/capabilities.ts";
import type { ResourceType } from "../needs.ts";
import { createListPage } from "./list-page.ts";
import { createLiveCapabilities } from "./live-capabilities.ts";

const buildGroup = (name: string, preferred: string, ...versions: string[]) => {
  return {
    name,
    preferredVersion: { version: preferred },
    versions: [preferred, ...versions].map((version) => ({ version })),
  };
};
const buildDiscoveryAnswer = (groupVersion: string, ...names: string[]) => ({
  [`/apis/${groupVersion}`]: {
    status: 200,
    content: { kind: "APIResourceList", resources: names.map((name) => ({ name })) },
  },
});
const answers: Record<string, { status: number; content: object }> = {
  "/apis": {
    status: 200,
    content: { kind: "APIGroupList", groups: [buildGroup("old.io", "v1", "v1beta1"), buildGroup("lost.io", "v1")] },
  },
  ...buildDiscoveryAnswer("old.io/v1", "others"),
  ...buildDiscoveryAnswer("old.io/v1beta1", "trainers"),
  "/apis/old.io/v1beta1/trainers?limit=2": {
    status: 200,
    content: { kind: "TrainerList", metadata: { continue: "next" }, items: [{ metadata: { name: "a" } }] },
  },
  // Only a read that names v2 gets this page, because discovery doesn't list v2. The page is larger than is allowed.
  "/apis/old.io/v2/trainers?limit=2": { status: 200, content: { kind: "TrainerList", items: ["x".repeat(2 ** 23)] } },
  "/api/v1/pods?limit=2": { status: 200, content: { kind: "PodList", metadata: {}, items: null } },
  "/api/v1/pods?limit=2&continue=old": {
    status: 410,
    content: { kind: "Status", reason: "Expired", metadata: { continue: "fresh" } },
  },
  "/api/v1/pods?limit=2&continue=lost": { status: 410, content: { kind: "Status", message: "too old", metadata: {} } },
  "/api/v1/pods?limit=2&continue=odd": { status: 200, content: { kind: "PodList", items: {} } },
};

describe("a page of a list", () => {
  const connection = { server: "https://api", credentials: { token: "t" } };
  const send = async (url: string) => {
    const { status, content } = answers[url.slice("https://api".length)] ?? {
      status: 404,
      content: { kind: "Status" },
    };
    return { status, body: JSON.stringify(content), retryAfter: undefined };
  };
  const { listPage } = createLiveCapabilities({ east: connection }, { send, createPages: createListPage })(
    "east",
    10_000,
  );
  const read = (kind: ResourceType, next = "") => listPage?.(kind, 2, next);
  const pods = { group: "", resource: "pods" };
  const trainers = { group: "old.io", resource: "trainers" };

  it("a page of a list is read in the version that serves the kind, or in the given version", async () => {
    const page = { items: [{ metadata: { name: "a" } }], version: "v1beta1", next: "next" };
    assert.deepEqual(await read(trainers), page);
    assert.deepEqual(await read({ ...trainers, version: "v1beta1" }), page);
  });

  it("a page of a list is empty for a kind that isn't served, and for an empty list", async () => {
    const unserved = { items: [], version: undefined, next: "" };
    assert.deepEqual(await read({ group: "no.io", resource: "trainers" }), unserved);
    assert.deepEqual(await read({ group: "old.io", resource: "gone" }), unserved);
    assert.deepEqual(await read(pods), { items: [], version: "v1", next: "" });
  });

  it("a page can't be read if the served kinds can't be read, or if it has over 8,388,608 characters", async () => {
    await assert.rejects(
      read({ group: "lost.io", resource: "trainers" }) ?? Promise.resolve(),
      /the API server answers 404/,
    );
    await assert.rejects(read({ ...trainers, version: "v2" }) ?? Promise.resolve(), /more than 8388608 characters/);
    const answerAll = async () => ({ status: 200, body: "{}", retryAfter: undefined });
    const open = createLiveCapabilities({ east: connection }, { send: answerAll, createPages: createListPage });
    await assert.rejects(
      open("east", 10_000).listPage?.(trainers, 2, "") ?? Promise.resolve(),
      /the answer at .apis is not APIGroupList/,
    );
  });

  it("a page with an expired token is empty and has a new token, or fails if the server sends none", async () => {
    assert.deepEqual(await read(pods, "old"), { items: [], version: "v1", next: "fresh" });
    await assert.rejects(read(pods, "lost") ?? Promise.resolve(), {
      code: 503,
      message: 'could not list pods of cluster "east": the API server answers 410: too old',
    });
    await assert.rejects(read(pods, "odd") ?? Promise.resolve(), /the answer is not a list/);
  });

  it("a page of a list can't be read with capabilities that have no connection to the cluster", async () => {
    assert.equal(createUnconnectedCapabilities("east").listPage, undefined);
    const { listPage } = createLiveCapabilities({}, { send, createPages: createListPage })("west", 1000);
    await assert.rejects(listPage?.(pods, 2, "") ?? Promise.resolve(), /cluster "west" has no connection here/);
  });
});
