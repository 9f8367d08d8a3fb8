import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import fc from "fast-check";
import { createAnswerCache } from "#lib/cluster/answer-cache.ts";
import type { ApiServerConnection } from "#lib/cluster/api-server.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { Failure } from "#lib/failure.ts";
import type { Capabilities } from "#lib/needs.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../../infra/parity/control-plane/cluster.ts";
import { needs } from "../parts.ts";
import { openFaulty } from "./faults.ts";

// What reaches a rule when the way to a real API server is slow, breaks, or leads to another cluster's server.
const namespaces = { group: "", resource: "namespaces" };
const limitranges = { group: "", resource: "limitranges" };
const fresh = { maxAge: 0 };

describe("a cluster that is read", await needs("API server"), () => {
  const folders: string[] = [];
  let one: TestCluster;
  let two: TestCluster;
  let way: Awaited<ReturnType<typeof openFaulty>>;
  let other: Awaited<ReturnType<typeof openFaulty>>;
  let ca: string;
  let otherCa: string;

  const certificate = async () => {
    const folder = await mkdtemp(join(tmpdir(), "postern-live-"));
    folders.push(folder);
    return readOrCreateServerCertificate(folder, "127.0.0.1");
  };
  const create = (cluster: TestCluster, path: string, body: object) =>
    cluster.admin({ method: "POST", path: `/api/v1/${path}`, body });
  const namespace = (name: string, annotations: Record<string, string> = {}) => {
    return { apiVersion: "v1", kind: "Namespace", metadata: { name, annotations } };
  };
  const limitRange = (name: string) => {
    const spec = { limits: [{ type: "Container", max: { cpu: "1" } }] };
    return { apiVersion: "v1", kind: "LimitRange", metadata: { name }, spec };
  };

  before(async () => {
    const binaries = await requireBinaries();
    [one, two] = await Promise.all([bootCluster(binaries, { users: { reader: ["readers"] } }), bootCluster(binaries)]);
    const [first, second] = [await certificate(), await certificate()];
    [ca, otherCa] = [first.ca, second.ca];
    [way, other] = [await openFaulty(one, first), await openFaulty(one, second)];
    for (const [name, cluster] of Object.entries({ one, two }))
      for (const shared of ["a", "b", "c"]) {
        await create(cluster, "namespaces", namespace(shared, { cluster: name }));
        await create(cluster, `namespaces/${shared}/limitranges`, limitRange(`of-${name}`));
      }
  });
  after(async () => {
    await Promise.all([one, two, way, other].map((running) => running?.stop()));
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  });

  /** A fresh environment, with nothing remembered. */
  const environment = (change: Partial<ApiServerConnection> = {}) => {
    const credentials = { token: one.getToken("admin") };
    const world = createLiveCapabilities({ prod: { server: way.url, ca, credentials, ...change } });
    return (milliseconds = 4000) => world("prod", milliseconds);
  };
  beforeEach(() => {
    way.paths.length = 0;
    way.faults.length = 0;
  });
  const failing = (sentence: RegExp) => (error: unknown) => {
    assert.ok(error instanceof Failure, String(error));
    assert.equal(error.code, 503);
    assert.match(error.message, sentence);
    return true;
  };
  const read = (world: Capabilities) => world.get(namespaces, "a", undefined, fresh);

  describe("badly", () => {
    it("fails in time where it is slow", async () => {
      way.faults.push({ milliseconds: 3000 });
      await assert.rejects(
        read(environment()(300)),
        failing(/^could not read namespaces "a" of cluster "prod": it did not answer in time$/),
      );
    });

    it("is asked again on a connection that was closed meanwhile", async () => {
      const open = environment();
      await read(open());
      for (let time = 0; time < 5; time++) {
        way.hangUp();
        assert.equal((await read(open()))?.metadata?.name, "a");
      }
    });

    it("is asked again over a new connection where all that were kept are dead", async () => {
      const open = environment();
      const names = ["a", "b", "c", "kube-system", "default"];
      const all = () => Promise.all(names.map((name) => open().get(namespaces, name, undefined, fresh)));
      await all();
      way.goStale();
      assert.equal((await read(open()))?.metadata?.name, "a");
      assert.equal((await all()).length, 5);
    });

    it("is not used up by answers that can't be unpacked", async () => {
      const open = environment();
      const odd = { status: 200, headers: { "content-encoding": "gzip" }, body: "x".repeat(100_000) };
      for (let time = 0; time < 10; time++) {
        way.faults.push(odd);
        await assert.rejects(read(open()), failing(/incorrect header check/));
      }
      assert.equal((await read(open()))?.metadata?.name, "a");
    });

    it("works again after the API server was restarted", async () => {
      const open = environment({ server: one.server, ca: one.ca });
      await read(open());
      await one.restart();
      assert.equal((await read(open()))?.metadata?.name, "a");
    });

    for (const status of [500, 502, 503, 504])
      it(`is asked again after ${status}`, async () => {
        way.faults.push({ status });
        assert.equal((await read(environment()()))?.metadata?.name, "a");
      });
    it("is asked again after 429 when it says so, and where there is time for it", async () => {
      const busy = { status: 429, headers: { "retry-after": "1" }, body: "busy" };
      way.faults.push(busy);
      assert.equal((await read(environment()()))?.metadata?.name, "a");
      way.faults.push(busy);
      await assert.rejects(read(environment()(500)), failing(/: the API server answers 429: busy$/));
    });
    it("fails with a sentence where that doesn't help", async () => {
      way.faults.push(...Array(3).fill({ status: 500, body: '{"message": "no leader"}' }));
      await assert.rejects(read(environment()()), failing(/"prod": the API server answers 500: no leader$/));
    });

    const broken: [string, Parameters<typeof way.faults.push>, RegExp][] = [
      ["that breaks before an answer", [{ broken: "before" }], /socket hang up/],
      ["that breaks amid an answer", [{ broken: "amid" }], /broke off|aborted/],
      ["that is no JSON", [{ status: 200, body: "<html>" }], /the API server answers 200: <html>/],
      [
        "that says nothing is there as a web page",
        [{ status: 404, body: "404 page not found" }],
        /answers 404: 404 page/,
      ],
      ["that redirects", [{ status: 302, headers: { location: "https://192.0.2.1/" } }], /answers 302/],
    ];
    for (const [name, faults, sentence] of broken)
      it(`fails for an answer ${name}`, async () => {
        way.faults.push(...faults);
        await assert.rejects(read(environment()()), failing(sentence));
      });

    const list = (content: unknown) => ({ status: 200, body: JSON.stringify(content) });
    const shapes: [string, unknown, (world: Capabilities) => Promise<unknown>, RegExp][] = [
      ["a list that is no object", 5, (world) => world.list(limitranges), /the answer is not a list$/],
      ["a list of nothing known", { kind: "LimitRangeList" }, (world) => world.list(limitranges), /no list$/],
      ["a list of no objects", { kind: "LimitRangeList", items: [3] }, (world) => world.list(limitranges), /no list$/],
      ["an object without a kind", { metadata: {} }, read, /the answer is not an object$/],
      ["an object that is none", "x", read, /the answer is not an object$/],
      [
        "an access review without a status",
        { kind: "x" },
        (world) => world.may({ user: {}, verb: "get", resource: "pods" }),
        /the answer is not a SubjectAccessReview$/,
      ],
      [
        "resources that are none",
        { resources: [] },
        (world) => world.discover("v1"),
        /the answer is not a list of resources$/,
      ],
    ];
    for (const [name, content, ask, sentence] of shapes)
      it(`fails for ${name}, and takes it for nothing`, async () => {
        way.faults.push(list(content));
        await assert.rejects(ask(environment()()), failing(sentence));
      });
    it("takes a list without elements for one, as Go writes it", async () => {
      way.faults.push(list({ kind: "LimitRangeList", items: null, metadata: {} }));
      assert.deepEqual(await environment()().list(limitranges), []);
    });

    it("doesn't take a conflict for an existing object, nor a webhook's refusal for the API server's", async () => {
      const conflict = { kind: "Status", reason: "Conflict", message: "try again", code: 409 };
      way.faults.push({ status: 409, body: JSON.stringify(conflict) });
      const make = () => environment()().create(namespaces, namespace("made"));
      await assert.rejects(make(), failing(/the API server answers 409: try again$/));
      way.faults.push({ status: 403, body: '{"message":"Forbidden"}' });
      await assert.rejects(make(), failing(/the API server answers 403: Forbidden/));
    });

    it("is not asked with what no header can carry", async () => {
      const credentials = { token: "a\nb" };
      await assert.rejects(
        read(environment({ credentials })()),
        failing(/it can't be asked: Invalid character in header/),
      );
    });

    it("has no object under a name that none can have, however long", async () => {
      for (const name of ["x".repeat(300_000), "\ud800"])
        assert.equal(await environment()().get(namespaces, name), undefined);
      assert.deepEqual(way.paths, []);
    });

    it("does not do again what may have been done", async () => {
      way.faults.push({ broken: "before" });
      await assert.rejects(
        environment()().create(namespaces, namespace("made")),
        failing(/could not create namespaces "made" in/),
      );
      assert.equal(way.paths.length, 1);
    });

    it("fails for a resource that isn't served", async () => {
      const strange = { group: "example.com", resource: "widgets" };
      await assert.rejects(environment()().list(strange), failing(/could not read widgets of .* answers 404/));
      await assert.rejects(environment()().get(strange, "a"), failing(/could not read widgets "a" of .* answers 404/));
    });

    it("names the server that refuses", async () => {
      const credentials = { token: "wrong" };
      await assert.rejects(read(environment({ credentials })()), failing(/answers 401: Unauthorized$/));
      assert.equal(way.paths.length, 2, "it may have been an old token");
    });

    it("fails where its token was revoked", async () => {
      const open = environment({ server: one.server, ca: one.ca, credentials: { token: one.getToken("reader") } });
      await read(open());
      await one.restart(["reader"]);
      await assert.rejects(read(open()), failing(/answers 401: Unauthorized$/));
    });

    it("trusts an old and a new CA while they change, and none that isn't named", async () => {
      const both = `${ca}\n${otherCa}`;
      for (const server of [way.url, other.url])
        assert.equal((await read(environment({ server, ca: both })()))?.metadata?.name, "a");
      await assert.rejects(read(environment({ server: other.url })()), failing(/certificate/));
    });

    it("is not believed where what it packs is endless", async () => {
      const { gzipSync } = await import("node:zlib");
      const body = gzipSync(Buffer.alloc(40 * 1024 * 1024, " "));
      way.faults.push({ status: 200, headers: { "content-encoding": "gzip" }, body });
      await assert.rejects(
        read(environment()()),
        failing(/of cluster "prod": its answer has more than 33554432 bytes$/),
      );
    });
  });

  describe("from memory", () => {
    it("is asked once for what is asked again", async () => {
      const open = environment();
      for (let time = 0; time < 3; time++) await open().get(namespaces, "a");
      await Promise.all([open().list(limitranges, "a"), open().list(limitranges, "a")]);
      assert.deepEqual(way.paths, ["GET /api/v1/namespaces/a", "GET /api/v1/namespaces/a/limitranges?limit=500"]);
    });

    it("is asked again for what must be fresh, and what wasn't there", async () => {
      const open = environment();
      for (let time = 0; time < 2; time++) await open().get(namespaces, "a", undefined, fresh);
      assert.equal(await open().get(namespaces, "later"), undefined);
      await create(one, "namespaces", namespace("later"));
      assert.equal((await open().get(namespaces, "later"))?.metadata?.name, "later");
      assert.equal(way.paths.length, 4);
    });

    it("says nothing to a refusal: that is decided anew", async () => {
      const open = environment();
      const first = open();
      await first.get(namespaces, "b");
      assert.equal(first.anew?.(), undefined, "all was of now");
      const second = open();
      await second.get(namespaces, "b");
      const anew = second.anew?.();
      await anew?.get(namespaces, "b");
      await anew?.get(namespaces, "b");
      assert.equal(anew?.anew?.(), undefined);
      assert.deepEqual(way.paths, ["GET /api/v1/namespaces/b", "GET /api/v1/namespaces/b"]);
    });
  });

  it("is asked again by the callers that waited for a question without an answer", async () => {
    const open = environment();
    way.faults.push({ milliseconds: 3000 });
    const hasty = open(500).get(namespaces, "a");
    const others = [0, 1].map(() => open(6000).get(namespaces, "a"));
    await assert.rejects(hasty, failing(/did not answer in time$/));
    for (const found of await Promise.all(others)) assert.equal(found?.metadata?.name, "a");
    assert.equal(way.paths.length, 2);
  });

  it("is read again for an object that another client is about to create, for the stated time", async () => {
    const patient = { maxAge: 0, patience: 3 };
    const soon = environment()().get(namespaces, "soon", undefined, patient);
    while (way.paths.length < 2) await wait(20);
    await create(one, "namespaces", namespace("soon"));
    assert.equal((await soon)?.metadata?.name, "soon");

    way.paths.length = 0;
    const open = environment();
    assert.equal(await open(700).get(namespaces, "never", undefined, patient), undefined);
    assert.ok(way.paths.length > 1, "it was looked for again");
    way.paths.length = 0;
    assert.equal(await open().get(namespaces, "never", undefined, fresh), undefined);
    assert.equal(way.paths.length, 1);
  });

  it("is read in pages, whole", async () => {
    const names = Array.from({ length: 1100 }, (_, index) => `n${String(index).padStart(4, "0")}`);
    for (let start = 0; start < names.length; start += 50)
      await Promise.all(
        names.slice(start, start + 50).map((name) => create(one, "namespaces/default/limitranges", limitRange(name))),
      );
    const found = await environment()(10_000).list(limitranges, "default");
    assert.deepEqual(
      found.map(({ metadata }) => metadata?.name),
      names,
    );
    assert.equal(way.paths.length, 3);
  });

  it("is never taken for another, with any number of callers and any size of memory", async () => {
    const clusters = { one, two };
    const question = fc.record({
      cluster: fc.constantFrom("one" as const, "two" as const),
      name: fc.constantFrom("a", "b", "c"),
      lists: fc.boolean(),
      maxAge: fc.constantFrom(0, 10),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(question, { minLength: 10, maxLength: 40 }), async (questions) => {
        const connections = Object.entries(clusters).map(([name, { server, ca, getToken }]) => {
          return [name, { server, ca, credentials: { token: getToken("admin") } }] as const;
        });
        const world = createLiveCapabilities(
          Object.fromEntries(connections),
          createAnswerCache({ entries: 3, bytes: 2000 }),
        );
        const answers = questions.map(async ({ cluster, name, lists, maxAge }) => {
          const asked = world(cluster, 8000);
          if (lists) {
            const found = await asked.list(limitranges, name, { maxAge });
            assert.deepEqual(
              found.map(({ metadata }) => metadata?.name),
              [`of-${cluster}`],
            );
          } else {
            const found = await asked.get(namespaces, name, undefined, { maxAge });
            assert.equal(found?.metadata?.annotations?.cluster, cluster);
          }
        });
        await Promise.all(answers);
      }),
      { numRuns: 20 },
    );
  });
});
