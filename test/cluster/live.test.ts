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
import { requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { type Fault, openFaulty } from "./faults.ts";

// A rule reads a real API server over a connection that is slow, breaks, or leads to the API server of another cluster.
// These tests state the results that the rule gets.

const namespaces = { group: "", resource: "namespaces" };
const limitranges = { group: "", resource: "limitranges" };
/** Lets a read ask the API server even if the answer is in the cache. */
const fresh = { maxAge: 0 };

/** A wrong answer that a call of a rule gets. */
interface WrongAnswer {
  /** What is wrong with the answer, for the title of the test. */
  answer: string;
  /** The function that the rule calls; `get` by default. */
  call?: string;
  /** What the proxy does in place of the API server. */
  fault: Fault;
  /** A pattern for the message with which the call fails. */
  failure: string;
}

describe("a cluster that is read", await needs("API server"), () => {
  const folders: string[] = [];
  let clusterOne: TestCluster;
  let clusterTwo: TestCluster;
  let proxy: Awaited<ReturnType<typeof openFaulty>>;
  let otherProxy: Awaited<ReturnType<typeof openFaulty>>;
  let ca: string;
  let otherCa: string;

  const createCertificate = async () => {
    const folder = await mkdtemp(join(tmpdir(), "postern-live-"));
    folders.push(folder);
    return readOrCreateServerCertificate(folder, "127.0.0.1");
  };
  const create = (cluster: TestCluster, path: string, body: object) =>
    cluster.admin({ method: "POST", path: `/api/v1/${path}`, body });
  const buildNamespace = (name: string, annotations: Record<string, string> = {}) => {
    return { apiVersion: "v1", kind: "Namespace", metadata: { name, annotations } };
  };
  const buildLimitRange = (name: string) => {
    const spec = { limits: [{ type: "Container", max: { cpu: "1" } }] };
    return { apiVersion: "v1", kind: "LimitRange", metadata: { name }, spec };
  };

  before(async () => {
    const binaries = await requireBinaries();
    [clusterOne, clusterTwo] = await Promise.all([
      bootCluster(binaries, { users: { reader: ["readers"] } }),
      bootCluster(binaries),
    ]);
    const [first, second] = [await createCertificate(), await createCertificate()];
    [ca, otherCa] = [first.ca, second.ca];
    [proxy, otherProxy] = [await openFaulty(clusterOne, first), await openFaulty(clusterOne, second)];
    for (const [name, cluster] of Object.entries({ one: clusterOne, two: clusterTwo }))
      for (const namespace of ["a", "b", "c"]) {
        await create(cluster, "namespaces", buildNamespace(namespace, { cluster: name }));
        await create(cluster, `namespaces/${namespace}/limitranges`, buildLimitRange(`of-${name}`));
      }
  });
  after(async () => {
    await Promise.all([clusterOne, clusterTwo, proxy, otherProxy].map((server) => server?.stop()));
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  });

  /** Creates an empty cache, and returns a function that opens capabilities with this cache for `milliseconds`. */
  const connect = (change: Partial<ApiServerConnection> = {}) => {
    const credentials = { token: clusterOne.getToken("admin") };
    const openCapabilities = createLiveCapabilities({ prod: { server: proxy.url, ca, credentials, ...change } });
    return ({ milliseconds = 4000 } = {}) => openCapabilities("prod", milliseconds);
  };
  beforeEach(() => {
    proxy.paths.length = 0;
    proxy.faults.length = 0;
  });
  const expectFailure = (sentence: RegExp) => (error: unknown) => {
    assert.ok(error instanceof Failure, String(error));
    assert.equal(error.code, 503);
    assert.match(error.message, sentence);
    return true;
  };
  const read = (capabilities: Capabilities) => capabilities.get(namespaces, "a", undefined, fresh);
  /** Asserts that a read of the namespace `a` fails with this sentence. */
  const requireFailure = (sentence: RegExp, capabilities = connect()()) =>
    assert.rejects(read(capabilities), expectFailure(sentence));

  describe("reads over a bad connection", () => {
    it("a read fails before the review's time ends if the cluster doesn't answer", async () => {
      proxy.faults.push({ milliseconds: 3000 });
      await requireFailure(
        /^could not read namespaces "a" of cluster "prod": it did not answer in time$/,
        connect()({ milliseconds: 300 }),
      );
    });

    it("the cluster is called again after a connection was closed", async () => {
      const open = connect();
      await read(open());
      for (let time = 0; time < 5; time++) {
        proxy.hangUp();
        assert.equal((await read(open()))?.metadata?.name, "a");
      }
    });

    it("the cluster is called over a new connection if all open connections are dead", async () => {
      const open = connect();
      const names = ["a", "b", "c", "kube-system", "default"];
      const readAll = () => Promise.all(names.map((name) => open().get(namespaces, name, undefined, fresh)));
      await readAll();
      proxy.goStale();
      assert.equal((await read(open()))?.metadata?.name, "a");
      assert.equal((await readAll()).length, 5);
    });

    it("reads still get answers after many responses that can't be unpacked", async () => {
      const open = connect();
      const notGzip = { status: 200, headers: { "content-encoding": "gzip" }, body: "x".repeat(100_000) };
      for (let time = 0; time < 10; time++) {
        proxy.faults.push(notGzip);
        await requireFailure(/incorrect header check/, open());
      }
      assert.equal((await read(open()))?.metadata?.name, "a");
    });

    it("reads work again after the API server was restarted", async () => {
      const open = connect({ server: clusterOne.server, ca: clusterOne.ca });
      await read(open());
      await clusterOne.restart();
      assert.equal((await read(open()))?.metadata?.name, "a");
    });

    for (const status of [500, 502, 503, 504])
      it(`the cluster is called again after the answer ${status}`, async () => {
        proxy.faults.push({ status });
        assert.equal((await read(connect()()))?.metadata?.name, "a");
      });
    it("the cluster is called again after 429 with retry-after, if there is time", async () => {
      const busy = { status: 429, headers: { "retry-after": "1" }, body: "busy" };
      proxy.faults.push(busy);
      assert.equal((await read(connect()()))?.metadata?.name, "a");
      proxy.faults.push(busy);
      await requireFailure(/: the API server answers 429: busy$/, connect()({ milliseconds: 500 }));
    });
    it("a read fails with the API server's message after three answers 500", async () => {
      proxy.faults.push(...Array(3).fill({ status: 500, body: '{"message": "no leader"}' }));
      await requireFailure(/"prod": the API server answers 500: no leader$/);
    });

    const calls: Record<string, (capabilities: Capabilities) => Promise<unknown>> = {
      list: ({ list }) => list(limitranges),
      may: ({ may }) => may({ user: {}, verb: "get", resource: "pods" }),
      discover: ({ discover }) => discover("v1"),
    };
    for (const { answer, call = "", fault, failure } of readRows<WrongAnswer[]>(import.meta.filename))
      it(`a read fails for an answer ${answer}`, async () => {
        // After a lost connection, the call is made again, and uses up three faults. Other answers use up one.
        proxy.faults.push(fault, fault, fault);
        await assert.rejects((calls[call] ?? read)(connect()()), expectFailure(new RegExp(failure)));
        assert.equal(proxy.faults.length, "broken" in fault ? 0 : 2);
      });
    it("a read takes items: null, as Go writes an empty list, for an empty list", async () => {
      proxy.faults.push({ status: 200, body: '{"kind":"LimitRangeList","items":null,"metadata":{}}' });
      assert.deepEqual(await connect()().list(limitranges), []);
    });

    it("a creation fails if it gets a conflict, or if a webhook refuses the object", async () => {
      const conflict = { kind: "Status", reason: "Conflict", message: "try again", code: 409 };
      proxy.faults.push({ status: 409, body: JSON.stringify(conflict) });
      const createNamespace = () => connect()().create(namespaces, buildNamespace("made"));
      await assert.rejects(createNamespace(), expectFailure(/the API server answers 409: try again$/));
      proxy.faults.push({ status: 403, body: '{"message":"Forbidden"}' });
      await assert.rejects(createNamespace(), expectFailure(/the API server answers 403: Forbidden/));
    });

    it("the cluster is not called if the token has a line break, which no HTTP header can have", async () => {
      const credentials = { token: "a\nb" };
      await requireFailure(/it can't be asked: Invalid character in header/, connect({ credentials })());
    });

    it("a read returns undefined for a name that no object can have, without a call", async () => {
      for (const name of ["x".repeat(300_000), "\ud800"])
        assert.equal(await connect()().get(namespaces, name), undefined);
      assert.deepEqual(proxy.paths, []);
    });

    it("the cluster is not asked again to create an object if the first creation may have succeeded", async () => {
      proxy.faults.push({ broken: "before" });
      await assert.rejects(
        connect()().create(namespaces, buildNamespace("made")),
        expectFailure(/could not create namespaces "made" in/),
      );
      assert.equal(proxy.paths.length, 1);
    });

    it("a read fails for a resource that isn't served", async () => {
      const strange = { group: "example.com", resource: "widgets" };
      await assert.rejects(connect()().list(strange), expectFailure(/could not read widgets of .* answers 404/));
      await assert.rejects(
        connect()().get(strange, "a"),
        expectFailure(/could not read widgets "a" of .* answers 404/),
      );
    });

    it("a read reports that the API server refuses the token", async () => {
      const credentials = { token: "wrong" };
      await requireFailure(/answers 401: Unauthorized$/, connect({ credentials })());
      assert.equal(proxy.paths.length, 2, "the read is repeated, because the first token could have expired");
    });

    it("a read fails if the token was revoked", async () => {
      const open = connect({
        server: clusterOne.server,
        ca: clusterOne.ca,
        credentials: { token: clusterOne.getToken("reader") },
      });
      await read(open());
      await clusterOne.restart(["reader"]);
      await requireFailure(/answers 401: Unauthorized$/, open());
    });

    it("a cluster is read if its certificate has any of the connection's CAs, and not with another CA", async () => {
      const oldAndNewCa = `${ca}\n${otherCa}`;
      for (const server of [proxy.url, otherProxy.url])
        assert.equal((await read(connect({ server, ca: oldAndNewCa })()))?.metadata?.name, "a");
      await requireFailure(/certificate/, connect({ server: otherProxy.url })());
    });

    it("a read fails for a compressed answer that is too large", async () => {
      const { gzipSync } = await import("node:zlib");
      const body = gzipSync(Buffer.alloc(40 * 1024 * 1024, " "));
      proxy.faults.push({ status: 200, headers: { "content-encoding": "gzip" }, body });
      await requireFailure(/of cluster "prod": its answer has more than 33554432 bytes$/);
    });
  });

  describe("reads from memory", () => {
    it("the cluster is called once for repeated reads of the same object or list", async () => {
      const open = connect();
      for (let time = 0; time < 3; time++) await open().get(namespaces, "a");
      await Promise.all([open().list(limitranges, "a"), open().list(limitranges, "a")]);
      assert.deepEqual(proxy.paths, ["GET /api/v1/namespaces/a", "GET /api/v1/namespaces/a/limitranges?limit=500"]);
    });

    it("the cluster is called again for reads with maxAge 0, and for objects that didn't exist before", async () => {
      const open = connect();
      for (let time = 0; time < 2; time++) await open().get(namespaces, "a", undefined, fresh);
      assert.equal(await open().get(namespaces, "later"), undefined);
      await create(clusterOne, "namespaces", buildNamespace("later"));
      assert.equal((await open().get(namespaces, "later"))?.metadata?.name, "later");
      assert.equal(proxy.paths.length, 4);
    });

    it("the method `anew`, which exists only if an answer came from memory, reads the cluster again", async () => {
      const open = connect();
      const first = open();
      await first.get(namespaces, "b");
      assert.equal(first.anew?.(), undefined, "no answer came from the cache");
      const second = open();
      await second.get(namespaces, "b");
      const anew = second.anew?.();
      await anew?.get(namespaces, "b");
      await anew?.get(namespaces, "b");
      assert.equal(anew?.anew?.(), undefined);
      assert.deepEqual(proxy.paths, ["GET /api/v1/namespaces/b", "GET /api/v1/namespaces/b"]);
    });
  });

  it("the cluster is called again if a read gets no answer in time for which longer reads also wait", async () => {
    const open = connect();
    proxy.faults.push({ milliseconds: 3000 });
    const readWithLittleTime = open({ milliseconds: 500 }).get(namespaces, "a");
    const laterReads = [0, 1].map(() => open({ milliseconds: 6000 }).get(namespaces, "a"));
    await assert.rejects(readWithLittleTime, expectFailure(/did not answer in time$/));
    for (const namespace of await Promise.all(laterReads)) assert.equal(namespace?.metadata?.name, "a");
    assert.equal(proxy.paths.length, 2);
  });

  it("the cluster is read again until an object exists, for the seconds that `patience` states", async () => {
    const patient = { maxAge: 0, patience: 3 };
    const soon = connect()().get(namespaces, "soon", undefined, patient);
    while (proxy.paths.length < 2) await wait(20);
    await create(clusterOne, "namespaces", buildNamespace("soon"));
    assert.equal((await soon)?.metadata?.name, "soon");

    proxy.paths.length = 0;
    const open = connect();
    // The review ends in 700 ms, before the three seconds of patience.
    assert.equal(await open({ milliseconds: 700 }).get(namespaces, "never", undefined, patient), undefined);
    assert.ok(proxy.paths.length > 1, "the read was repeated");
    proxy.paths.length = 0;
    assert.equal(await open().get(namespaces, "never", undefined, fresh), undefined);
    assert.equal(proxy.paths.length, 1);
  });

  it("a list of 1100 objects is read in three pages", async () => {
    const names = Array.from({ length: 1100 }, (_, index) => `n${String(index).padStart(4, "0")}`);
    for (let start = 0; start < names.length; start += 50)
      await Promise.all(
        names
          .slice(start, start + 50)
          .map((name) => create(clusterOne, "namespaces/default/limitranges", buildLimitRange(name))),
      );
    const limitRanges = await connect()({ milliseconds: 10_000 }).list(limitranges, "default");
    assert.deepEqual(
      limitRanges.map(({ metadata }) => metadata?.name),
      names,
    );
    assert.equal(proxy.paths.length, 3);
  });

  it("a cluster is never confused with another cluster, even with many callers and a small cache", async () => {
    const clusters = { one: clusterOne, two: clusterTwo };
    const question = fc.record({
      cluster: fc.constantFrom("one" as const, "two" as const),
      name: fc.constantFrom("a", "b", "c"),
      isList: fc.boolean(),
      maxAge: fc.constantFrom(0, 10),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(question, { minLength: 10, maxLength: 40 }), async (questions) => {
        const connections = Object.entries(clusters).map(([name, { server, ca, getToken }]) => {
          return [name, { server, ca, credentials: { token: getToken("admin") } }] as const;
        });
        const openCapabilities = createLiveCapabilities(Object.fromEntries(connections), {
          cache: createAnswerCache({ entries: 3, bytes: 2000 }),
        });
        const answers = questions.map(async ({ cluster, name, isList, maxAge }) => {
          const capabilities = openCapabilities(cluster, 8000);
          if (isList) {
            const items = await capabilities.list(limitranges, name, { maxAge });
            assert.deepEqual(
              items.map(({ metadata }) => metadata?.name),
              [`of-${cluster}`],
            );
          } else {
            const namespace = await capabilities.get(namespaces, name, undefined, { maxAge });
            assert.equal(namespace?.metadata?.annotations?.cluster, cluster);
          }
        });
        await Promise.all(answers);
      }),
      { numRuns: 20 },
    );
  });
});
