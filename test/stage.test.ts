import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { S3Client } from "@aws-sdk/client-s3";
import { SSMClient } from "@aws-sdk/client-ssm";
import fc from "fast-check";
import { doorkeeper } from "#lib/key.ts";
import { openParameters, type Parameters } from "../infra/aws/parameters.ts";
import { openRecords, type Records } from "../infra/aws/records.ts";
import { openStage, passingOn } from "../infra/aws/stage.ts";
import { Complaint } from "../infra/complaint.ts";
import { healthOf } from "../infra/rollout/health.ts";
import {
  type Keyring,
  narrowKeyring,
  openKeyring,
  readKeyring,
  turnKeyring,
  widenKeyring,
} from "../infra/rollout/keyring.ts";
import { type Lock, locked, ourName } from "../infra/rollout/lock.ts";
import {
  openReleases,
  type Release,
  releaseBefore,
  releasedVersions,
  releaseNamed,
} from "../infra/rollout/releases.ts";
import { type Moto, motoMissing, openStorage, startMoto } from "./aws/moto.ts";

// What a stage keeps in AWS between deployments, and what becomes of it when two deploy at once.
const missing = motoMissing();
if (process.env.POSTERN_REQUIRE_ALL && missing) throw new Error(missing);

const region = "eu-west-1";

describe("a stage's memory", { skip: missing ?? false }, () => {
  let moto: Moto;
  let parameters: Parameters;
  let stages = 0;

  before(async () => {
    moto = await startMoto("AWS_ENDPOINT_URL_SSM", "AWS_ENDPOINT_URL_S3");
  });
  after(() => moto?.stop());
  /** Nobody has deployed to this one before. */
  const another = () => openParameters(`stage-${++stages}`, new SSMClient({ region, maxAttempts: 5 }));
  beforeEach(() => {
    parameters = another();
  });

  describe("has a lock that", () => {
    const by = process.env.POSTERN_BY;
    beforeEach(() => {
      process.env.POSTERN_BY = "jane";
    });
    afterEach(() => {
      if (by === undefined) delete process.env.POSTERN_BY;
      else process.env.POSTERN_BY = by;
    });
    const held = async () => JSON.parse((await parameters.read("lock")) ?? "null");
    const hold = (owner: string, until: number) =>
      parameters.write("lock", JSON.stringify({ owner, by: "joe", what: "postern rotate", until }));

    it("says who we are", () => {
      assert.equal(ourName(), "jane");
      delete process.env.POSTERN_BY;
      assert.match(ourName(), /./);
    });

    it("refuses the second of two, with the name and the time of the first", async () => {
      let acted = 0;
      const answer = await locked(parameters, "postern deploy", async ({ check }) => {
        const { until } = await held();
        const ends = new Date(until).toISOString();
        const second = locked(parameters, "postern rollback", async () => ++acted);
        await assert.rejects(second, (error) => {
          assert.ok(error instanceof Complaint);
          const sentence = `jane is at work on this stage (postern deploy); unless it goes on, it ends at ${ends}`;
          assert.deepEqual([error.message, error.exitCode], [sentence, 1]);
          return true;
        });
        await check();
        return "done";
      });
      assert.deepEqual([answer, acted, await held()], ["done", 0, null]);
    });

    /** Several who come at once; who may act does so until all others were refused. */
    const several = async (count: number) => {
      const refusals: string[] = [];
      const over = Promise.withResolvers<void>();
      let acted = 0;
      const act = async ({ check }: Lock) => {
        acted += 1;
        await over.promise;
        await check();
      };
      const all = Array.from({ length: count }, () =>
        locked(parameters, "postern deploy", act).catch(({ message }) => {
          refusals.push(message);
          if (refusals.length === count - 1) over.resolve();
        }),
      );
      await Promise.all(all);
      assert.equal(acted, 1);
      for (const sentence of refusals) assert.match(sentence, /^jane is at work on this stage \(postern deploy\)/);
      assert.equal(await held(), null);
    };

    it("lets one of many act who come at once", () => several(5));

    it("that ended is taken over, by exactly one of two", async () => {
      await hold("gone", Date.now() - 1);
      await several(2);
    });

    it("that nobody of us wrote has ended", async () => {
      await parameters.write("lock", "hello");
      await several(2);
    });

    it("is taken over after somebody ended while he did", async () => {
      await hold("gone", Date.now() - 1);
      const claim = { owner: "heir", by: "joe", what: "postern rotate", until: Date.now() + 60_000 };
      await parameters.create("lock-after-gone", JSON.stringify(claim));
      await assert.rejects(
        locked(parameters, "postern deploy", async () => assert.fail("it acts")),
        /^Error: joe is at work/,
      );
      await parameters.write("lock-after-gone", JSON.stringify({ ...claim, until: Date.now() - 1 }));
      assert.equal(await locked(parameters, "postern deploy", async () => "done"), "done");
      assert.equal(await parameters.read("lock-after-gone"), undefined);
    });

    it("that hasn't ended isn't taken over", async () => {
      await hold("there", Date.now() + 60_000);
      await assert.rejects(
        locked(parameters, "postern deploy", async () => assert.fail("it acts")),
        /^Error: joe is at work on this stage \(postern rotate\)/,
      );
      assert.equal((await held()).owner, "there");
    });

    it("stops whom it was taken away from, at the next check, and stays with who has it", async () => {
      const steps: string[] = [];
      const act = async ({ check }: Lock) => {
        await check();
        steps.push("first");
        await hold("other", Date.now() + 60_000);
        await check();
        steps.push("second");
      };
      await assert.rejects(locked(parameters, "postern deploy", act), /^Error: joe is at work on this stage/);
      assert.deepEqual([steps, (await held()).owner], [["first"], "other"]);
    });

    it("stops whom it was taken away from and left with nobody", async () => {
      const act = async ({ check }: Lock) => {
        await parameters.remove("lock");
        await check();
      };
      const sentence = /^Error: somebody took away the lock of this stage; run it again$/;
      await assert.rejects(locked(parameters, "postern deploy", act), sentence);
      assert.equal(await held(), null);
    });

    it("is gone after a failure, too, and hides none", async () => {
      const failure = new Error("no");
      const act = () => Promise.reject(failure);
      await assert.rejects(locked(parameters, "postern deploy", act), (error) => error === failure);
      assert.equal(await held(), null);
    });

    it("is renewed as long as it is held", async (context) => {
      context.mock.timers.enable({ apis: ["setInterval"] });
      await locked(parameters, "postern deploy", async ({ check }) => {
        const { until, ...who } = await held();
        let now = { until, ...who };
        for (let time = 0; time < 100 && now.until === until; time++) {
          context.mock.timers.tick(60_000);
          await wait(20);
          now = await held();
        }
        assert.ok(now.until > until);
        assert.deepEqual({ ...now, until }, { ...who, until });
        await check();
      });
    });

    it("isn't renewed by whom it was taken away from", async (context) => {
      context.mock.timers.enable({ apis: ["setInterval"] });
      const act = async () => {
        await hold("other", Date.now() + 60_000);
        context.mock.timers.tick(60_000);
        await wait(200);
      };
      await locked(parameters, "postern deploy", act);
      assert.equal((await held()).owner, "other");
    });

    /** The same parameters, where something comes before or after a call. */
    const between = (change: Partial<Parameters>): Parameters => ({ ...parameters, ...change });

    // Who found it just given back writes over it, though a third may have made it since: both act until the next check.
    it("isn't taken from whom it was given to meanwhile", async () => {
      await hold("first", Date.now() + 60_000);
      const given = Promise.withResolvers<void>();
      const over = Promise.withResolvers<void>();
      let third: Promise<void> | undefined;
      const slow = between({
        read: async (name) => {
          if (third) return parameters.read(name);
          await parameters.remove("lock");
          const nothing = await parameters.read(name);
          third = locked(parameters, "postern arm", async ({ check }) => {
            given.resolve();
            await over.promise;
            await check();
          });
          await given.promise;
          return nothing;
        },
      });
      const second = locked(slow, "postern deploy", async () => {});
      const refused = await second.then(
        () => false,
        () => true,
      );
      over.resolve();
      await third;
      assert.ok(refused);
    });

    // A renewal that is under way when all is over makes the lock again, and nobody deploys for three minutes.
    it("isn't left behind by its last renewal", async (context) => {
      context.mock.timers.enable({ apis: ["setInterval"] });
      const [writing, removed, written] = [0, 1, 2].map(() => Promise.withResolvers<void>());
      assert.ok(writing && removed && written);
      const late = between({
        write: async (name, value) => {
          writing.resolve();
          // No longer than somebody waits for it who waits.
          await Promise.race([removed.promise, wait(500)]);
          await parameters.write(name, value);
          written.resolve();
        },
        remove: async (name) => {
          await parameters.remove(name);
          removed.resolve();
        },
      });
      await locked(late, "postern deploy", async () => {
        context.mock.timers.tick(60_000);
        await writing.promise;
      });
      await written.promise;
      assert.equal(await held(), null);
    });
  });

  describe("has a keyring that", () => {
    const cluster = "prod-eu";
    /** Whether functions with these public keys let by a URL that this key signed. */
    const takes = ({ publicKeys }: Keyring, { current }: Keyring) =>
      doorkeeper(publicKeys, () => [1])(current.segment(cluster, 1))?.cluster === cluster;
    const keysOf = ({ publicKeys }: Keyring) => publicKeys.split(",");

    it("isn't there before somebody deploys, and can't be changed", async () => {
      assert.equal(await readKeyring(parameters), undefined);
      for (const change of [widenKeyring, turnKeyring, narrowKeyring])
        await assert.rejects(change(parameters), /^Error: this stage has no keys; postern deploy makes them$/);
      assert.equal(await parameters.read("keys"), undefined);
    });

    it("is one key, the same for all who deploy first at once", async () => {
      const made = await Promise.all(Array.from({ length: 5 }, () => openKeyring(parameters)));
      const keys = new Set(made.map(({ publicKeys }) => publicKeys));
      assert.deepEqual([...keys], [(await readKeyring(parameters))?.publicKeys]);
      for (const one of made) for (const other of made) assert.ok(takes(one, other));
      assert.equal((await openKeyring(another())).publicKeys === made[0]?.publicKeys, false);
    });

    it("is replaced without a moment in which a URL in use is refused", async () => {
      const first = await openKeyring(parameters);
      const wide = await widenKeyring(parameters);
      assert.deepEqual(keysOf(wide), [first.current.publicKey, wide.signers[1]?.publicKey]);
      assert.equal(wide.current.publicKey, first.current.publicKey);
      const turned = await turnKeyring(parameters);
      assert.equal(turned.publicKeys, wide.publicKeys);
      assert.equal(turned.current.publicKey, wide.signers[1]?.publicKey);
      for (const functions of [wide, turned])
        for (const urls of [first, wide, turned]) assert.ok(takes(functions, urls));
      const narrow = await narrowKeyring(parameters);
      assert.deepEqual(keysOf(narrow), [turned.current.publicKey]);
      assert.deepEqual([takes(narrow, turned), takes(narrow, first)], [true, false]);
    });

    const changes = { widen: widenKeyring, turn: turnKeyring, narrow: narrowKeyring };
    const names = fc.constantFrom(...(["widen", "turn", "narrow"] as const));

    it("has one or two keys, whatever is done to it in whatever order, and signs with one of them", async () => {
      const check = async (steps: (keyof typeof changes)[]) => {
        const own = another();
        let before = await openKeyring(own);
        for (const step of steps) {
          const now = await changes[step](own);
          assert.deepEqual(
            [now.publicKeys, now.current.publicKey],
            await readKeyring(own).then((read) => [read?.publicKeys, read?.current.publicKey]),
          );
          assert.ok(keysOf(now).length === 1 || keysOf(now).length === 2);
          assert.equal(new Set(keysOf(now)).size, keysOf(now).length);
          assert.ok(keysOf(now).includes(now.current.publicKey));
          assert.ok(takes(now, now));
          // Until the first is forgotten, what it has signed is let by.
          if (step !== "narrow") assert.ok(takes(now, before));
          const again = await changes[step](own);
          assert.deepEqual([again.publicKeys, again.current.publicKey], [now.publicKeys, now.current.publicKey]);
          before = again;
        }
      };
      await fc.assert(fc.asyncProperty(fc.array(names, { maxLength: 6 }), check), { numRuns: 20 });
    });

    const secret = "MC4CAQAwBQYDK2VwBCIEIsecret";
    const damaged: [string, string][] = [
      ["no JSON", `{"keys":["${secret}`],
      ["null", "null"],
      ["a text", JSON.stringify(secret)],
      ["no list", JSON.stringify({ keys: secret, current: 0 })],
      ["an empty list", JSON.stringify({ keys: [], current: 0 })],
      ["three keys", JSON.stringify({ keys: [secret, secret, secret], current: 0 })],
      ["none that signs", JSON.stringify({ keys: [secret] })],
      ["one that signs and isn't there", JSON.stringify({ keys: [secret], current: 1 })],
    ];
    const isSentence = (error: unknown) => {
      assert.ok(error instanceof Complaint, String(error));
      const sentence = "the keys of this stage, in SSM, are not as postern deploy writes them";
      assert.deepEqual([error.message, error.exitCode], [sentence, 3]);
      assert.ok(!String(error.stack).includes(secret));
      return true;
    };
    const readers = [readKeyring, openKeyring, ...Object.values(changes)];
    for (const [name, text] of damaged)
      it(`says that it is damaged, and not what it holds: ${name}`, async () => {
        await parameters.write("keys", text);
        for (const read of readers) await assert.rejects(read(parameters), isSentence);
        assert.equal(await parameters.read("keys"), text);
      });

    it("is missed by who asks how clusters do, and not taken for their health", async () => {
      const told = { at: "now", keyVersion: 1, hardened: [], since: {}, manifests: [] };
      const stage = { ...openStage("test"), parameters };
      const release = releaseOf(1, { clusters: { shop: told } });
      const healthNow = async () => (await healthOf({ stage, file: "", deployer: {} }, "shop", release))?.unknown;
      await parameters.remove("keys");
      const left = "its endpoints were not asked, for the key that signs URLs can't be read: ";
      const [gone = "", ...others] = (await healthNow()) ?? [];
      assert.equal(gone, `${left}SSM doesn't have it any more`);
      assert.deepEqual(others, ["postern.yaml doesn't say how to reach it"]);
      await parameters.write("keys", "hello");
      assert.equal((await healthNow())?.[0]?.startsWith(`${left}the keys of this stage, in SSM, are not as`), true);
    });

    it("says so of a key that is none", async () => {
      await parameters.write("keys", JSON.stringify({ keys: [secret], current: 0 }));
      for (const read of readers) await assert.rejects(read(parameters), isSentence);
    });
  });

  describe("has releases that", () => {
    let records: Records;
    let buckets = 0;
    beforeEach(async () => {
      const bucket = `bucket-${++buckets}`;
      assert.equal(await openStorage(moto.url, region).make(bucket), undefined);
      records = openRecords(bucket, new S3Client({ region, maxAttempts: 5 }));
    });
    const opened = () => openReleases(async () => records);

    it("are none where there is no bucket yet, and can't be kept there", async () => {
      const none = await openReleases(async () => undefined);
      assert.deepEqual(none.all, []);
      await assert.rejects(none.save(releaseOf(1)), /^Error: this stage has no bucket to write its release to$/);
    });

    it("are kept in the bucket that the stack has made meanwhile", async () => {
      let place: Records | undefined;
      const releases = await openReleases(async () => place);
      place = records;
      await releases.save(releaseOf(1));
      assert.deepEqual((await opened()).all, [releaseOf(1)]);
    });

    it("come newest first, and no more than ten of them", async () => {
      const { save } = await opened();
      for (let id = 1; id <= 25; id++) await save(releaseOf(id));
      const ids = (await opened()).all.map(({ id }) => id);
      assert.deepEqual(
        ids,
        Array.from({ length: 10 }, (_, index) => 25 - index),
      );
    });

    it("are written again as they go on, by who made them or goes on with them", async () => {
      const first = await opened();
      await first.save(releaseOf(1, { complete: false }));
      await first.save(releaseOf(1, { complete: false, by: "jane" }));
      assert.deepEqual((await opened()).all, [releaseOf(1, { complete: false, by: "jane" })]);
      await (await opened()).save(releaseOf(1, { by: "joe" }));
      assert.deepEqual((await opened()).all, [releaseOf(1, { by: "joe" })]);
    });

    it("are made by one of two who do it at once", async () => {
      const both = await Promise.all([opened(), opened()]);
      const ends = await Promise.allSettled(both.map(({ save }, index) => save(releaseOf(1, { by: String(index) }))));
      const refused = ends.findIndex(({ status }) => status === "rejected");
      const [end, won] = [ends[refused], ends[1 - refused]];
      assert.ok(end?.status === "rejected" && won?.status === "fulfilled");
      assert.ok(end.reason instanceof Complaint);
      assert.equal(end.reason.message, "somebody else has just made release r1");
      assert.deepEqual((await opened()).all, [releaseOf(1, { by: String(1 - refused) })]);
      await assert.rejects(
        both[refused]?.save(releaseOf(1)) ?? assert.fail(),
        /somebody else has just made release r1/,
      );
      await both[1 - refused]?.save(releaseOf(1, { by: "still ours" }));
      assert.deepEqual((await opened()).all, [releaseOf(1, { by: "still ours" })]);
    });
  });
});

const releaseOf = (id: number, more: Partial<Release> = {}): Release => ({
  ...{ id, at: "2026-01-01T00:00:00.000Z", by: "somebody", complete: true, rules: {}, clusters: {} },
  ...more,
});

describe("what AWS's own library says", () => {
  const said = (error: Error) => passingOn(async () => Promise.reject(error)).catch((caught: Error) => caught.message);

  it("is passed on, with what would help where no region is named", async () => {
    const sentence = "AWS: Region is missing; AWS_REGION names one, or a profile does";
    assert.equal(await said(new Error("Region is missing")), sentence);
    const denied = Object.assign(new Error("you may not"), { $metadata: {} });
    assert.equal(await said(denied), "AWS: you may not");
  });
  it("is not what somebody else says", async () => assert.equal(await said(new Error("no bread")), "no bread"));
});

describe("a release", () => {
  const all = [releaseOf(12), releaseOf(2), releaseOf(1)];

  it("is found by its name", () => {
    for (const one of all) assert.equal(releaseNamed(all, `r${one.id}`), one);
  });

  it("is not found by another, and those that are there are named", () => {
    for (const text of ["2", "r02", "R2", "r3", "r", "", "r1 "])
      assert.throws(
        () => releaseNamed(all, text),
        (error) =>
          error instanceof Complaint &&
          error.message === `there is no release ${text}; there are r12, r2, r1` &&
          error.exitCode === 2,
      );
    assert.throws(() => releaseNamed([], "r1"), /^Error: there is no release r1; nothing was released yet$/);
  });

  it("has versions of each rule, the last one first, and behind them what was rolled back from", () => {
    const share = { rule: "a", clusters: {} };
    const with_ = (version: string, ...earlier: string[]) => ({ version, logic: "", share, phases: [], earlier });
    const some = [
      releaseOf(3, { rules: { a: with_("10"), b: with_("1") } }),
      releaseOf(2, { rules: { a: with_("9") } }),
      releaseOf(1, { rules: { a: with_("10") } }),
    ];
    assert.deepEqual(releasedVersions(some, "a"), ["10", "9"]);
    const later = releaseOf(4, { rules: { a: with_("12", "10", "7") }, withdrawn: ["a@10"] });
    assert.deepEqual(releasedVersions([later, ...some], "a"), ["12", "7", "9", "10"]);
    assert.deepEqual(releasedVersions(some, "b"), ["1"]);
    for (const none of ["c", "constructor", "toString"]) assert.deepEqual(releasedVersions(some, none), []);
  });

  const versionOf = (version: string) => {
    return { version, logic: "", share: { rule: "a", clusters: {} }, phases: [], earlier: [] };
  };
  const before: [string, Release[], number | undefined][] = [
    ["none, where there is none", [], undefined],
    ["none, of the first", [releaseOf(1)], undefined],
    ["the one before", [releaseOf(3), releaseOf(2), releaseOf(1)], 2],
    [
      "the one before one that didn't get to its end",
      [releaseOf(3, { complete: false }), releaseOf(2), releaseOf(1)],
      2,
    ],
    [
      "the one before, though that only took one rule back",
      [
        releaseOf(4, { rules: { a: versionOf("3") } }),
        releaseOf(3, { rules: { a: versionOf("1") }, withdrawn: ["a@2"] }),
        releaseOf(2, { rules: { a: versionOf("2") } }),
        releaseOf(1, { rules: { a: versionOf("1") } }),
      ],
      3,
    ],
    [
      "never back to what was rolled back from just now",
      [
        releaseOf(3, { rules: { a: versionOf("1") }, withdrawn: ["a@2"] }),
        releaseOf(2, { rules: { a: versionOf("2") } }),
        releaseOf(1, { rules: { a: versionOf("1") } }),
      ],
      1,
    ],
    ["never one that didn't get to its end", [releaseOf(3), releaseOf(2, { complete: false }), releaseOf(1)], 1],
    ["never one that only undid another", [releaseOf(4), releaseOf(3, { like: 2 }), releaseOf(2), releaseOf(1)], 2],
    ["further back, once it was gone back", [releaseOf(4, { like: 2 }), releaseOf(3), releaseOf(2), releaseOf(1)], 1],
    [
      "further back, though that didn't get to its end",
      [releaseOf(4, { like: 2, complete: false }), releaseOf(3), releaseOf(2), releaseOf(1)],
      1,
    ],
    [
      "none, once all was gone back",
      [releaseOf(4, { like: 1 }), releaseOf(3, { like: 2 }), releaseOf(2), releaseOf(1)],
      undefined,
    ],
    ["none, where nothing before it got to its end", [releaseOf(2), releaseOf(1, { complete: false })], undefined],
  ];
  for (const [name, all, id] of before)
    it(`goes back to ${name}`, () => {
      if (id !== undefined) assert.equal(releaseBefore(all).id, id);
      else assert.throws(() => releaseBefore(all), /^Error: there is no release before the one that is live$/);
    });
});
