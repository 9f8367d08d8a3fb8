import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Capabilities } from "postern/needs";
import type { AdmissionRequest } from "postern/review";
import { openRule, recorded } from "postern/test";

const { decide } = await openRule(import.meta.dirname);

interface Limit {
  type: string;
  qps: number;
  burst: number;
  cacheSize?: number;
}

/** What events come to, one after another, as a table of single requests can't say. */
describe("limits of events", () => {
  let world: Capabilities;
  /** Seconds since the first. */
  let clock: number;
  beforeEach(() => {
    world = recorded({});
    clock = 0;
  });

  const pod = { kind: "Pod", namespace: "shop", name: "p", uid: "u", apiVersion: "v1" };
  const event = { metadata: { name: "a" }, source: { component: "kubelet", host: "n1" }, involvedObject: pod };
  const send = async (limits: Limit[], more: Partial<AdmissionRequest> = {}, settings: object = {}) => {
    const request: AdmissionRequest = {
      uid: "u",
      kind: { group: "", version: "v1", kind: "Event" },
      resource: { group: "", version: "v1", resource: "events" },
      namespace: "shop",
      operation: "CREATE",
      userInfo: { username: "jane" },
      object: event,
      ...more,
    };
    const now = new Date(1_800_000_000_000 + clock * 1000);
    return (await decide("validate", request, { settings: { limits, ...settings }, now, world })).outcome.status;
  };
  const sayings = async (limits: Limit[], ...requests: Partial<AdmissionRequest>[]) => {
    const said = [];
    for (const request of requests) said.push((await send(limits, request))?.message ?? "");
    return said;
  };
  const limit = (type: string, burst: number, cacheSize?: number): Limit => {
    return { type, qps: 1, burst, ...(cacheSize !== undefined && { cacheSize }) };
  };
  const reached = (type: string, key: string) => `limit reached on type ${type} for key ${key}`;
  const about = (involvedObject: object, source = {}): Partial<AdmissionRequest> => ({
    object: { ...event, involvedObject, source },
  });

  it("are told as the API server tells them", async () => {
    await send([limit("Namespace", 1)]);
    assert.deepEqual(await send([limit("Namespace", 1)]), {
      code: 429,
      reason: "TooManyRequests",
      message: "Too many requests: limit reached on type Namespace for key shop",
    });
  });
  const kinds: [string, string, Partial<AdmissionRequest>][] = [
    ["Server", "", { namespace: "bank", userInfo: { username: "john" }, ...about({}) }],
    ["Namespace", "shop", { userInfo: { username: "john" }, ...about({}) }],
    ["User", "jane", { namespace: "bank", ...about({}) }],
    ["SourceAndObject", "kubeletn1Podshoppuv1", { namespace: "bank", userInfo: { username: "john" } }],
  ];
  const others: Partial<AdmissionRequest> = {
    namespace: "mall",
    userInfo: { username: "jim" },
    ...about({ name: "q" }),
  };
  for (const [type, key, alike] of kinds)
    it(`count by ${type}`, async () => {
      const [first, other, second] = await sayings([limit(type, 1)], {}, others, alike);
      assert.equal(first, "");
      assert.equal(other, type === "Server" ? `Too many requests: ${reached("Server", "")}` : "");
      assert.equal(second, `Too many requests: ${reached(type, key)}`);
    });
  it("count what isn't there for nothing", async () => {
    const bare = { object: {}, userInfo: {} };
    const limits = [limit("SourceAndObject", 1), limit("User", 1)];
    const [, second] = await sayings(limits, bare, bare);
    assert.equal(second, `Too many requests: [${reached("SourceAndObject", "")}, ${reached("User", "")}]`);
  });
  it("count what is no text for nothing, too", async () => {
    const odd = JSON.parse('{"toString": 1, "valueOf": 1}');
    const limits = [limit("SourceAndObject", 1)];
    const said = await sayings(
      limits,
      about({ kind: "Pod", name: odd }, { component: odd, host: [odd] }),
      about({ kind: "Pod" }),
    );
    assert.deepEqual(said, ["", `Too many requests: ${reached("SourceAndObject", "Pod")}`]);
    assert.equal((await sayings(limits, about("Pod" as never, "kubelet")))[0], "");
  });
  it("are told together, each once", async () => {
    const limits = [limit("Namespace", 1), limit("User", 1), limit("Namespace", 1)];
    const [, second] = await sayings(limits, {}, {});
    assert.equal(second, `Too many requests: [${reached("Namespace", "shop")}, ${reached("User", "jane")}]`);
  });
  it("take their tokens where another refuses, too", async () => {
    const limits = [limit("Namespace", 1), limit("User", 2)];
    const [, second, third] = await sayings(limits, {}, {}, { namespace: "bank" });
    assert.equal(second, `Too many requests: ${reached("Namespace", "shop")}`);
    assert.equal(third, `Too many requests: ${reached("User", "jane")}`);
  });
  it("fill again with time, and no further than at first", async () => {
    const limits = [limit("Server", 2)];
    await sayings(limits, {}, {});
    clock = 0.5;
    assert.ok(await send(limits));
    clock = 1;
    assert.equal(await send(limits), undefined);
    assert.ok(await send(limits));
    clock = 1000;
    assert.deepEqual((await sayings(limits, {}, {}, {})).map(Boolean), [false, false, true]);
  });
  it("give nothing for a clock that goes back", async () => {
    const limits = [limit("Server", 1)];
    await send(limits);
    clock = -1000;
    assert.ok(await send(limits));
    clock = 0.5;
    assert.ok(await send(limits));
  });
  it("forget who wasn't there for long", async () => {
    const limits = [limit("User", 1, 2)];
    const user = (username: string) => ({ userInfo: { username } });
    const said = await sayings(limits, user("a"), user("b"), user("a"), user("c"), user("a"), user("b"));
    assert.deepEqual(said.map(Boolean), [false, false, true, false, true, false]);
  });
  it("count no dry run, and no events of the newer API unless they are told to", async () => {
    const limits = [limit("Server", 1)];
    const newer = { kind: { group: "events.k8s.io", version: "v1", kind: "Event" } };
    const said = await sayings(limits, { dryRun: true }, newer, {}, { dryRun: true }, newer, {});
    assert.deepEqual(said.map(Boolean), [false, false, false, false, false, true]);
    assert.ok(await send(limits, newer, { eventsApi: true }));
  });
  it("know the newer API's names for the same", async () => {
    const limits = [limit("SourceAndObject", 1)];
    await send(limits);
    const object = { metadata: { name: "b" }, deprecatedSource: event.source, regarding: pod };
    const newer = { kind: { group: "events.k8s.io", version: "v1", kind: "Event" }, object };
    assert.ok(await send(limits, newer, { eventsApi: true }));
  });
  it("let through as many as they say of those who come at once", async () => {
    const all = await Promise.all(Array.from({ length: 50 }, () => send([limit("Server", 7)])));
    assert.equal(all.filter((status) => status === undefined).length, 7);
  });
});
