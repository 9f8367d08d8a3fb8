import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Capabilities } from "postern/needs";
import type { AdmissionRequest } from "postern/review";
import { createRecordedCapabilities, openRule } from "postern/test";
import type { EventLimit } from "./token-bucket.ts";

const { decide } = await openRule(import.meta.dirname);

describe("event-rate-limit", () => {
  let capabilities: Capabilities;
  /** The time of the next request. */
  let seconds: number;
  beforeEach(() => {
    capabilities = createRecordedCapabilities({});
    seconds = 0;
  });

  const pod = { kind: "Pod", namespace: "shop", name: "p", uid: "u", apiVersion: "v1" };
  const event = { metadata: { name: "a" }, source: { component: "kubelet", host: "n1" }, involvedObject: pod };
  const newerKind = { kind: { group: "events.k8s.io", version: "v1", kind: "Event" } };
  const send = async (limits: EventLimit[], overrides: Partial<AdmissionRequest> = {}, settings: object = {}) => {
    const request: AdmissionRequest = {
      uid: "u",
      kind: { group: "", version: "v1", kind: "Event" },
      resource: { group: "", version: "v1", resource: "events" },
      namespace: "shop",
      operation: "CREATE",
      userInfo: { username: "jane" },
      object: event,
      ...overrides,
    };
    const now = new Date(1_800_000_000_000 + seconds * 1000);
    return (await decide("validate", request, { settings: { limits, ...settings }, now, capabilities })).outcome.status;
  };
  /** Returns the message of each refused request, and an empty text for each admitted one. */
  const sendAll = async (limits: EventLimit[], ...requests: Partial<AdmissionRequest>[]) => {
    const messages = [];
    for (const request of requests) messages.push((await send(limits, request))?.message ?? "");
    return messages;
  };
  const buildLimit = (type: EventLimit["type"], burst: number, cacheSize = 0): EventLimit => ({
    type,
    qps: 1,
    burst,
    cacheSize,
  });
  const describeLimit = (type: string, key: string) => `limit reached on type ${type} for key ${key}`;
  const buildEvent = (involvedObject: object, source = {}): Partial<AdmissionRequest> => ({
    object: { ...event, involvedObject, source },
  });

  it("event-rate-limit refuses with 429 and the API server's message", async () => {
    await send([buildLimit("Namespace", 1)]);
    assert.deepEqual(await send([buildLimit("Namespace", 1)]), {
      code: 429,
      reason: "TooManyRequests",
      message: "Too many requests: limit reached on type Namespace for key shop",
    });
  });
  /** For each type of limit: a request that has the same key as the default request, but differs otherwise. */
  const sameKey: [type: EventLimit["type"], key: string, request: Partial<AdmissionRequest>][] = [
    ["Server", "", { namespace: "bank", userInfo: { username: "john" }, ...buildEvent({}) }],
    ["Namespace", "shop", { userInfo: { username: "john" }, ...buildEvent({}) }],
    ["User", "jane", { namespace: "bank", ...buildEvent({}) }],
    ["SourceAndObject", "kubeletn1Podshoppuv1", { namespace: "bank", userInfo: { username: "john" } }],
  ];
  /** A request whose keys of all types, except Server, differ from those of the default request. */
  const otherKeys: Partial<AdmissionRequest> = {
    namespace: "mall",
    userInfo: { username: "jim" },
    ...buildEvent({ name: "q" }),
  };
  for (const [type, key, request] of sameKey)
    it(`takes tokens from one bucket for events with the same key of the type ${type}, and from another one for others`, async () => {
      const [first, withOtherKey, second] = await sendAll([buildLimit(type, 1)], {}, otherKeys, request);
      assert.equal(first, "");
      // The type Server has only one key, so its bucket is empty here.
      assert.equal(withOtherKey, type === "Server" ? `Too many requests: ${describeLimit("Server", "")}` : "");
      assert.equal(second, `Too many requests: ${describeLimit(type, key)}`);
    });
  it("event-rate-limit uses a key without the fields that an event doesn't have", async () => {
    const request = { object: {}, userInfo: {} };
    const limits = [buildLimit("SourceAndObject", 1), buildLimit("User", 1)];
    const [, second] = await sendAll(limits, request, request);
    assert.equal(second, `Too many requests: [${describeLimit("SourceAndObject", "")}, ${describeLimit("User", "")}]`);
  });
  it("event-rate-limit uses a key without the fields that are not strings", async () => {
    const unconvertible = JSON.parse('{"toString": 1, "valueOf": 1}');
    const limits = [buildLimit("SourceAndObject", 1)];
    const messages = await sendAll(
      limits,
      buildEvent({ kind: "Pod", name: unconvertible }, { component: unconvertible, host: [unconvertible] }),
      buildEvent({ kind: "Pod" }),
    );
    assert.deepEqual(messages, ["", `Too many requests: ${describeLimit("SourceAndObject", "Pod")}`]);
    assert.equal((await sendAll(limits, buildEvent("Pod" as never, "kubelet")))[0], "");
  });
  it("event-rate-limit names every limit that refuses an event once in the message", async () => {
    const limits = [buildLimit("Namespace", 1), buildLimit("User", 1), buildLimit("Namespace", 1)];
    const [, second] = await sendAll(limits, {}, {});
    assert.equal(
      second,
      `Too many requests: [${describeLimit("Namespace", "shop")}, ${describeLimit("User", "jane")}]`,
    );
  });
  it("event-rate-limit takes a token of a limit even if another limit refuses", async () => {
    const limits = [buildLimit("Namespace", 1), buildLimit("User", 2)];
    const [, second, third] = await sendAll(limits, {}, {}, { namespace: "bank" });
    assert.equal(second, `Too many requests: ${describeLimit("Namespace", "shop")}`);
    assert.equal(third, `Too many requests: ${describeLimit("User", "jane")}`);
  });
  it("event-rate-limit refills a bucket over time, up to the burst", async () => {
    const limits = [buildLimit("Server", 2)];
    await sendAll(limits, {}, {});
    seconds = 0.5;
    assert.ok(await send(limits));
    seconds = 1;
    assert.equal(await send(limits), undefined);
    assert.ok(await send(limits));
    seconds = 1000;
    assert.deepEqual((await sendAll(limits, {}, {}, {})).map(Boolean), [false, false, true]);
  });
  it("event-rate-limit refills nothing if the clock goes back", async () => {
    const limits = [buildLimit("Server", 1)];
    await send(limits);
    seconds = -1000;
    assert.ok(await send(limits));
    seconds = 0.5;
    assert.ok(await send(limits));
  });
  it("event-rate-limit takes no token for a dry run, and for events.k8s.io only with eventsApi", async () => {
    const limits = [buildLimit("Server", 1)];
    const messages = await sendAll(limits, { dryRun: true }, newerKind, {}, { dryRun: true }, newerKind, {});
    assert.deepEqual(messages.map(Boolean), [false, false, false, false, false, true]);
    assert.ok(await send(limits, newerKind, { eventsApi: true }));
  });
  it("event-rate-limit reads the source and the object of an event of events.k8s.io", async () => {
    const limits = [buildLimit("SourceAndObject", 1)];
    await send(limits);
    const object = { metadata: { name: "b" }, deprecatedSource: event.source, regarding: pod };
    assert.ok(await send(limits, { ...newerKind, object }, { eventsApi: true }));
  });
  it("event-rate-limit admits no more concurrent events than the burst", async () => {
    const statuses = await Promise.all(Array.from({ length: 50 }, () => send([buildLimit("Server", 7)])));
    assert.equal(statuses.filter((status) => status === undefined).length, 7);
  });
});
