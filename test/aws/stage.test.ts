import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { S3 as S3Client } from "@aws-sdk/client-s3";
import { SSM } from "@aws-sdk/client-ssm";
import fc from "fast-check";
import { createUrlKeyVerifier } from "#lib/url-key.ts";
import { openBucket, type StageBucket } from "../../infra/aws/bucket.ts";
import { openParameters, type StageParameterStore } from "../../infra/aws/parameters.ts";
import { createAwsStageClients, rethrowAwsErrorsAsComplaints } from "../../infra/aws/stage.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { waitUntil } from "../../infra/parity/rule-server.ts";
import { probeClusterHealth } from "../../infra/rollout/health.ts";
import {
  addSecondSigningKey,
  deleteAllKeysButNewest,
  type Keyring,
  readKeyring,
  readOrCreateKeyring,
  selectNewestKeyForNewUrls,
} from "../../infra/rollout/keyring.ts";
import { getPersonOrPipelineName, lockObjectKey, lockTermMilliseconds, takeLock } from "../../infra/rollout/lock.ts";
import {
  listReleasedVersions,
  type Release,
  readReleaseStore,
  requireRelease,
  requireRollbackRelease,
} from "../../infra/rollout/releases.ts";
import { needs } from "../parts.ts";
import { createMotoService } from "./account.ts";
import { type CallRecorder, startServer } from "./aws-service.ts";
import { type Moto, openStorage, startMoto } from "./moto.ts";
import { openS3, type S3 } from "./s3.ts";

// The state of a stage in AWS between deployments, also with two deployments at once.
const region = "eu-west-1";

describe("the state of a stage", await needs("moto"), () => {
  let moto: Moto;
  let parameters: StageParameterStore;
  let stages = 0;

  before(async () => {
    // Small pages, for lists that have several.
    process.env.MOTO_S3_DEFAULT_MAX_KEYS = "3";
    moto = await startMoto("AWS_ENDPOINT_URL_SSM", "AWS_ENDPOINT_URL_S3");
  });
  after(() => moto?.stop());
  /** Opens the parameters of a new stage. */
  const another = () => openParameters(`stage-${++stages}`, new SSM({ region, maxAttempts: 5 }));
  beforeEach(() => {
    parameters = another();
  });
  let buckets = 0;
  const newBucket = async (client: S3Client): Promise<StageBucket> => {
    const name = `bucket-${++buckets}`;
    assert.equal(await openStorage(moto.url, region).make(name), undefined);
    return openBucket(name, client);
  };

  describe("has a lock that", () => {
    const by = process.env.POSTERN_BY;
    const ear: CallRecorder = { heard: [], fault: undefined, allow: undefined };
    let s3: S3;
    let served: Awaited<ReturnType<typeof startServer>>;
    let bucket: StageBucket;
    before(async () => {
      s3 = openS3(createMotoService(moto.url, "s3"), ear);
      served = await startServer(() => s3, ear);
    });
    after(() => served?.stop());
    beforeEach(async () => {
      process.env.POSTERN_BY = "jane";
      s3.ahead = 0;
      bucket = await newBucket(new S3Client({ region, endpoint: served.url, maxAttempts: 5 }));
    });
    afterEach(() => {
      Object.assign(ear, { fault: undefined, allow: undefined });
      if (by === undefined) delete process.env.POSTERN_BY;
      else process.env.POSTERN_BY = by;
    });
    const textOf = (owner: string) => JSON.stringify({ owner, by: "joe", what: "postern rotate", renewal: 0 });
    const conditionNow = async () => {
      const stored = await bucket.read(lockObjectKey);
      return stored ? { IfMatch: stored.etag } : { IfNoneMatch: "*" as const };
    };
    /** Writes the lock as another command would. */
    const hold = async (text: string) => assert.ok(await bucket.write(lockObjectKey, text, await conditionNow()));
    const held = async () => (await bucket.read(lockObjectKey))?.text;
    /** Lets so many milliseconds go by on S3's clock. */
    const pass = (milliseconds: number) => {
      s3.ahead += milliseconds;
    };
    const take = (what = "postern deploy", overriding = false) => takeLock(bucket, what, overriding);
    const refusal = /^Error: this stage is locked by joe \(postern rotate\); the lock expires at /;

    it("has the name of its owner", () => {
      assert.equal(getPersonOrPipelineName(), "jane");
      delete process.env.POSTERN_BY;
      assert.match(getPersonOrPipelineName(), /./);
    });

    it("refuses the second of two, with the name of the first and the end of its lock by S3's clock", async () => {
      pass(3_600_000);
      const lock = await take();
      const ends = new Date((await bucket.read(lockObjectKey))?.modified.getTime() ?? 0);
      ends.setSeconds(ends.getSeconds() + 180);
      await assert.rejects(take("postern rotate"), (error) => {
        assert.ok(error instanceof Complaint);
        const sentence = `this stage is locked by jane (postern deploy); the lock expires at ${ends.toISOString()} unless that command renews it`;
        assert.deepEqual([error.message, error.exitCode], [sentence, 1]);
        return true;
      });
      assert.ok(ends.getTime() > Date.now() + 3_600_000);
      await lock.check();
      await lock.release();
      assert.equal(await held(), undefined);
    });

    it("can be taken again at once after it was released", async () => {
      for (let time = 0; time < 3; time++) await (await take()).release();
      assert.equal(await held(), undefined);
    });

    /** Has several commands take the lock at once: exactly one must. */
    const race = async (count: number) => {
      const ends = await Promise.allSettled(Array.from({ length: count }, () => take()));
      const [lock, ...others] = ends.flatMap((end) => (end.status === "fulfilled" ? [end.value] : []));
      assert.ok(lock);
      assert.deepEqual(others, []);
      for (const end of ends)
        if (end.status === "rejected") assert.match(String(end.reason), /^Error: this stage is locked by jane/);
      await lock.check();
      await lock.release();
    };

    it("is taken by one of many commands that come at once", () => race(5));

    it("is taken over by one of many after it has expired", async () => {
      await hold(textOf("killed"));
      pass(lockTermMilliseconds + 2_000);
      await race(5);
    });

    for (const [clock, minutes] of [
      ["right", 0],
      ["three minutes fast", 3],
      ["three minutes slow", -3],
      ["a year fast", 365 * 24 * 60],
    ] as const)
      it(`is taken over after it has expired and not before, with a clock that is ${clock}`, async (test) => {
        await hold(textOf("other"));
        test.mock.timers.enable({ apis: ["Date"], now: Date.now() + minutes * 60_000 });
        await assert.rejects(take(), refusal);
        pass(lockTermMilliseconds - 60_000);
        await assert.rejects(take(), refusal);
        assert.equal(await held(), textOf("other"));
        pass(62_000);
        const lock = await take();
        await lock.check();
        await lock.release();
      });

    it("expires by its age if another program wrote it", async () => {
      await hold("hello");
      await assert.rejects(take(), /^Error: this stage is locked by an unknown program/);
      pass(lockTermMilliseconds + 2_000);
      await (await take()).release();
    });

    it("can be taken from the command that holds it, which then stops", async () => {
      const first = await take();
      const second = await take("postern rollback --all", true);
      const sentence =
        /^Error: this command has lost the lock of the stage to jane \(postern rollback --all\), and changes nothing more$/;
      await assert.rejects(first.check(), sentence);
      await first.release();
      await second.check();
      await second.release();
      await assert.rejects(
        first.check(),
        /^Error: this command has lost the lock of the stage, and changes nothing more/,
      );
      assert.equal(await held(), undefined);
    });

    it("is still held if no other command took it over in time", async () => {
      const lock = await take();
      pass(lockTermMilliseconds + 60_000);
      const seen = await bucket.read(lockObjectKey);
      assert.ok(seen && seen.age > lockTermMilliseconds);
      // This renews it, so that what another command saw is not there any more.
      await lock.check();
      assert.equal(await bucket.write(lockObjectKey, textOf("late"), { IfMatch: seen.etag }), false);
      await lock.check();
      await lock.release();
    });

    it("is kept if it is renewed several times at once", async () => {
      const lock = await take();
      pass(lockTermMilliseconds - 10_000);
      await Promise.all(Array.from({ length: 5 }, () => lock.check()));
      assert.ok(Number((await bucket.read(lockObjectKey))?.age) < lockTermMilliseconds / 2);
      await lock.release();
    });

    it("is held if S3 wrote it but the answer was lost", async () => {
      let cut = 0;
      ear.fault = ({ action }, when) =>
        action === "s3:PutObject" && when === "after" && cut++ % 2 === 0 ? "cut" : undefined;
      const lock = await take();
      pass(lockTermMilliseconds - 10_000);
      await lock.check();
      assert.ok(cut >= 4, `${cut}`);
      await lock.release();
      assert.equal(await held(), undefined);
    });

    it("is not retried without the right to write", async () => {
      ear.allow = ({ action }) => action !== "s3:PutObject";
      await assert.rejects(take(), ({ name }: Error) => name === "AccessDenied");
    });

    it("is renewed as long as it is held", async (test) => {
      test.mock.timers.enable({ apis: ["setInterval"] });
      const lock = await take();
      const first = await held();
      pass(60_000);
      test.mock.timers.tick(20_000);
      await waitUntil("the lock was not renewed", async () => (await held()) !== first);
      assert.ok(Number((await bucket.read(lockObjectKey))?.age) < 60_000);
      assert.equal(lock.signal.aborted, false);
      await lock.release();
      assert.equal(await held(), undefined);
    });

    it("isn't renewed by a command that has lost it, which is notified", async (test) => {
      test.mock.timers.enable({ apis: ["setInterval"] });
      const lock = await take();
      await hold(textOf("other"));
      test.mock.timers.tick(20_000);
      await waitUntil("the loss was not heard of", () => lock.signal.aborted);
      assert.match(String(lock.signal.reason), /lost the lock of the stage to joe \(postern rotate\)/);
      await lock.release();
      assert.equal(await held(), textOf("other"));
    });

    it("is deleted at release even during a renewal", async (test) => {
      test.mock.timers.enable({ apis: ["setInterval"] });
      const lock = await take();
      const { length } = ear.heard;
      test.mock.timers.tick(20_000);
      await lock.release();
      assert.equal(await held(), undefined);
      const asked = ear.heard.slice(length).filter(({ action }) => action !== "s3:GetObject");
      assert.deepEqual(
        asked.map(({ action }) => action),
        ["s3:PutObject", "s3:DeleteObject"],
      );
    });
  });

  describe("has parameters that", () => {
    it("are secret, and the stage's own", async () => {
      await parameters.write("two", "a secret");
      assert.equal(await another().read("two"), undefined);
      const { Parameter } = await new SSM({ region }).getParameter({ Name: `/postern/stage-${stages - 1}/two` });
      assert.equal(Parameter?.Type, "SecureString");
      assert.notEqual(Parameter?.Value, "a secret");
    });

    it("are deleted, once or twice, and created by one of several commands", async () => {
      const made = () => Promise.all(["a", "b", "c"].map((value) => parameters.create("raced", value)));
      const first = await made();
      assert.deepEqual([first.filter(Boolean).length, (await made()).includes(true)], [1, false]);
      assert.equal(await parameters.read("raced"), ["a", "b", "c"][first.indexOf(true)]);
      for (let time = 0; time < 2; time++) await parameters.remove("raced");
      assert.equal(await parameters.read("raced"), undefined);
    });
  });

  describe("has a keyring that", () => {
    const cluster = "prod-eu";
    /** Reports whether functions with these public keys accept a URL that this key signed. */
    const takes = ({ publicKeys }: Keyring, { current }: Keyring) =>
      createUrlKeyVerifier(publicKeys, () => [1])(current.signSegment(cluster, 1))?.cluster === cluster;
    const keysOf = ({ publicKeys }: Keyring) => publicKeys.split(",");

    it("doesn't exist before a deployment, and can't be changed then", async () => {
      assert.equal(await readKeyring(parameters), undefined);
      for (const change of [addSecondSigningKey, selectNewestKeyForNewUrls, deleteAllKeysButNewest])
        await assert.rejects(change(parameters), /^Error: this stage has no keys; postern deploy creates them$/);
      assert.equal(await parameters.read("keys"), undefined);
    });

    it("is one key, the same for several first deployments at once", async () => {
      const made = await Promise.all(Array.from({ length: 5 }, () => readOrCreateKeyring(parameters)));
      const keys = new Set(made.map(({ publicKeys }) => publicKeys));
      assert.deepEqual([...keys], [(await readKeyring(parameters))?.publicKeys]);
      for (const one of made) for (const other of made) assert.ok(takes(one, other));
      assert.equal((await readOrCreateKeyring(another())).publicKeys === made[0]?.publicKeys, false);
    });

    it("is replaced while all URLs in use are accepted", async () => {
      const first = await readOrCreateKeyring(parameters);
      const wide = await addSecondSigningKey(parameters);
      assert.deepEqual(keysOf(wide), [first.current.publicKey, wide.signers[1]?.publicKey]);
      assert.equal(wide.current.publicKey, first.current.publicKey);
      const turned = await selectNewestKeyForNewUrls(parameters);
      assert.equal(turned.publicKeys, wide.publicKeys);
      assert.equal(turned.current.publicKey, wide.signers[1]?.publicKey);
      for (const functions of [wide, turned])
        for (const urls of [first, wide, turned]) assert.ok(takes(functions, urls));
      const narrow = await deleteAllKeysButNewest(parameters);
      assert.deepEqual(keysOf(narrow), [turned.current.publicKey]);
      assert.deepEqual([takes(narrow, turned), takes(narrow, first)], [true, false]);
    });

    const changes = { widen: addSecondSigningKey, turn: selectNewestKeyForNewUrls, narrow: deleteAllKeysButNewest };
    const names = fc.constantFrom(...(["widen", "turn", "narrow"] as const));

    it("has one or two keys after any sequence of changes, and signs with one of them", async () => {
      const check = async (steps: (keyof typeof changes)[]) => {
        const own = another();
        let before = await readOrCreateKeyring(own);
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
          // URLs of the first key are accepted until it is deleted.
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
      const sentence =
        "the keys of this stage can't be read: their SSM parameter is not in the format that postern deploy writes; restore an earlier version of it";
      assert.deepEqual([error.message, error.exitCode], [sentence, 3]);
      assert.ok(!String(error.stack).includes(secret));
      return true;
    };
    const readers = [readKeyring, readOrCreateKeyring, ...Object.values(changes)];
    for (const [name, text] of damaged)
      it(`reports damage without its content: ${name}`, async () => {
        await parameters.write("keys", text);
        for (const read of readers) await assert.rejects(read(parameters), isSentence);
        assert.equal(await parameters.read("keys"), text);
      });

    it("is reported as missing in the health of clusters", async () => {
      const told = { at: "now", keyVersion: 1, hardened: [], since: {}, manifests: [] };
      const stage = { ...createAwsStageClients("test"), parameters };
      const release = releaseOf(1, { clusters: { shop: told } });
      const healthNow = async () =>
        (await probeClusterHealth({ stage, file: "", deployer: {} }, "shop", release))?.unknown;
      await parameters.remove("keys");
      const left = "its endpoints were not probed, because the key that signs URLs can't be read: ";
      const [gone = "", ...others] = (await healthNow()) ?? [];
      assert.equal(gone, `${left}SSM doesn't have it any more`);
      assert.deepEqual(others, ["postern.yaml doesn't say how to reach it"]);
      await parameters.write("keys", "hello");
      assert.equal((await healthNow())?.[0]?.startsWith(`${left}the keys of this stage can't be read: `), true);
    });

    it("reports an invalid key", async () => {
      await parameters.write("keys", JSON.stringify({ keys: [secret], current: 0 }));
      for (const read of readers) await assert.rejects(read(parameters), isSentence);
    });
  });

  describe("has releases that", () => {
    let bucket: StageBucket;
    beforeEach(async () => {
      bucket = await newBucket(new S3Client({ region, maxAttempts: 5 }));
    });
    const opened = () => readReleaseStore(async () => bucket);

    it("don't exist without a bucket, and can't be saved", async () => {
      const none = await readReleaseStore(async () => undefined);
      assert.deepEqual(none.all, []);
      await assert.rejects(none.save(releaseOf(1)), /^Error: this stage has no bucket to write its release to$/);
    });

    it("are saved in a bucket that was created meanwhile", async () => {
      let place: StageBucket | undefined;
      const releases = await readReleaseStore(async () => place);
      place = bucket;
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

    it("are overwritten by the deployment that created them or continues them", async () => {
      const first = await opened();
      await first.save(releaseOf(1, { complete: false }));
      await first.save(releaseOf(1, { complete: false, by: "jane" }));
      assert.deepEqual((await opened()).all, [releaseOf(1, { complete: false, by: "jane" })]);
      await (await opened()).save(releaseOf(1, { by: "joe" }));
      assert.deepEqual((await opened()).all, [releaseOf(1, { by: "joe" })]);
    });

    it("are created by one of two commands", async () => {
      const both = await Promise.all([opened(), opened()]);
      const ends = await Promise.allSettled(both.map(({ save }, index) => save(releaseOf(1, { by: String(index) }))));
      const refused = ends.findIndex(({ status }) => status === "rejected");
      const [end, won] = [ends[refused], ends[1 - refused]];
      assert.ok(end?.status === "rejected" && won?.status === "fulfilled");
      assert.ok(end.reason instanceof Complaint);
      assert.equal(end.reason.message, "another command has just created release r1");
      assert.deepEqual((await opened()).all, [releaseOf(1, { by: String(1 - refused) })]);
      await assert.rejects(
        both[refused]?.save(releaseOf(1)) ?? assert.fail(),
        /another command has just created release r1/,
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

describe("an error of the AWS SDK", () => {
  const said = (error: Error) =>
    rethrowAwsErrorsAsComplaints(async () => Promise.reject(error)).catch((caught: Error) => caught.message);

  it("is reported, with a remedy for a missing region", async () => {
    const sentence = "AWS: Region is missing; set AWS_REGION, or a region in the AWS profile";
    assert.equal(await said(new Error("Region is missing")), sentence);
    const denied = Object.assign(new Error("you may not"), { $metadata: {} });
    assert.equal(await said(denied), "AWS: you may not");
  });
  it("does not include other errors", async () => assert.equal(await said(new Error("no bread")), "no bread"));
});

describe("a release", () => {
  const all = [releaseOf(12), releaseOf(2), releaseOf(1)];

  it("is found by its name", () => {
    for (const one of all) assert.equal(requireRelease(all, `r${one.id}`), one);
  });

  it("is not found by another name, and the error lists the releases", () => {
    for (const text of ["2", "r02", "R2", "r3", "r", "", "r1 "])
      assert.throws(
        () => requireRelease(all, text),
        (error) =>
          error instanceof Complaint &&
          error.message === `there is no release ${text}; there are r12, r2, r1` &&
          error.exitCode === 2,
      );
    assert.throws(() => requireRelease([], "r1"), /^Error: there is no release r1; nothing was released yet$/);
  });

  it("lists the versions of each rule, the last one first and withdrawn ones at the end", () => {
    const share = { rule: "a", clusters: {} };
    const with_ = (version: string, ...earlier: string[]) => ({ version, logic: "", share, phases: [], earlier });
    const some = [
      releaseOf(3, { rules: { a: with_("10"), b: with_("1") } }),
      releaseOf(2, { rules: { a: with_("9") } }),
      releaseOf(1, { rules: { a: with_("10") } }),
    ];
    assert.deepEqual(listReleasedVersions(some, "a"), ["10", "9"]);
    const later = releaseOf(4, { rules: { a: with_("12", "10", "7") }, withdrawn: ["a@10"] });
    assert.deepEqual(listReleasedVersions([later, ...some], "a"), ["12", "7", "9", "10"]);
    assert.deepEqual(listReleasedVersions(some, "b"), ["1"]);
    for (const none of ["c", "constructor", "toString"]) assert.deepEqual(listReleasedVersions(some, none), []);
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
      if (id !== undefined) assert.equal(requireRollbackRelease(all).id, id);
      else assert.throws(() => requireRollbackRelease(all), /^Error: there is no release before the one that is live$/);
    });
});
