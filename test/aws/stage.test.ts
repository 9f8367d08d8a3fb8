import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";
import { S3 as S3Client } from "@aws-sdk/client-s3";
import { SSM } from "@aws-sdk/client-ssm";
import fc from "fast-check";
import { createUrlKeyVerifier } from "#lib/core/url-key.ts";
import { openBucket, type StageBucket } from "../../infra/aws/bucket.ts";
import { createDynamoDbClient } from "../../infra/aws/dynamodb.ts";
import { type LedgerTable, openLedgerTable } from "../../infra/aws/ledger-table.ts";
import { openParameters, type StageParameterStore } from "../../infra/aws/parameters.ts";
import { createAwsStageClients, rethrowAwsErrorsAsComplaints } from "../../infra/aws/stage.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { probeClusterHealth } from "../../infra/rollout/clusters/cluster-health.ts";
import {
  addSecondSigningKey,
  deleteAllKeysButNewest,
  type Keyring,
  readKeyring,
  readOrCreateKeyring,
  selectNewestKeyForNewUrls,
} from "../../infra/rollout/stage/keyring.ts";
import {
  getPersonOrPipelineName,
  lockObjectKey,
  lockTermMilliseconds,
  takeLock,
} from "../../infra/rollout/stage/lock.ts";
import {
  listReleasedVersions,
  type Release,
  readReleaseStore,
  requireRelease,
  requireRollbackRelease,
} from "../../infra/rollout/versions/releases.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { createMotoService } from "./account.ts";
import { type CallRecorder, type Fault, startServer } from "./aws-service.ts";
import { openDynamoDb } from "./dynamodb-service.ts";
import { type Moto, openStorage, startMoto } from "./moto.ts";
import { openS3, type S3 } from "./s3.ts";

// Tests the state that a stage keeps in AWS between deployments, also with two simultaneous deployments.
const region = "eu-west-1";
const rows = readRows<{
  damaged: { keyring: string; text: string }[];
  rollbacks: {
    direction: string;
    releases: (Partial<Release> & { id: number; version?: string })[];
    expectedId?: number;
  }[];
}>(import.meta.filename);

describe("the state of a stage", await needs("moto"), () => {
  let moto: Moto;
  let parameters: StageParameterStore;
  let stages = 0;

  before(async () => {
    // With three elements a page, lists have several pages.
    process.env.MOTO_S3_DEFAULT_MAX_KEYS = "3";
    moto = await startMoto("AWS_ENDPOINT_URL_SSM", "AWS_ENDPOINT_URL_S3");
  });
  after(() => moto?.stop());
  /** Opens the parameters of a new stage. */
  const openNextParameters = () => openParameters(`stage-${++stages}`, new SSM({ region, maxAttempts: 5 }));
  beforeEach(() => {
    parameters = openNextParameters();
  });
  let buckets = 0;
  const recorder: CallRecorder = { recordedCalls: [], fault: undefined, allow: undefined };
  let s3: S3;
  let server: Awaited<ReturnType<typeof startServer>>;
  before(async () => {
    s3 = openS3(createMotoService(moto.url, "s3"), recorder);
    server = await startServer(() => s3, recorder);
  });
  after(() => server?.stop());
  /** Creates a bucket behind the stand-in for S3, because moto itself may accept two conflicting conditional writes. */
  const createBucket = async (): Promise<StageBucket> => {
    const name = `bucket-${++buckets}`;
    assert.equal(await openStorage(moto.url, region).createBucket(name), undefined);
    return openBucket(name, new S3Client({ region, endpoint: server.url, maxAttempts: 5 }));
  };

  describe("the lock of a stage", () => {
    const earlierPosternBy = process.env.POSTERN_BY;
    let bucket: StageBucket;
    beforeEach(async () => {
      process.env.POSTERN_BY = "jane";
      s3.clockOffset = 0;
      bucket = await createBucket();
    });
    afterEach(() => {
      Object.assign(recorder, { fault: undefined, allow: undefined });
      if (earlierPosternBy === undefined) delete process.env.POSTERN_BY;
      else process.env.POSTERN_BY = earlierPosternBy;
    });
    const buildLockText = (owner: string) => JSON.stringify({ owner, by: "joe", what: "postern rotate", renewal: 0 });
    const readCondition = async () => {
      const stored = await bucket.read(lockObjectKey);
      return stored ? { IfMatch: stored.etag } : { IfNoneMatch: "*" as const };
    };
    /** Writes the lock as another command would. */
    const writeLock = async (text: string) => assert.ok(await bucket.write(lockObjectKey, text, await readCondition()));
    const readLock = async () => (await bucket.read(lockObjectKey))?.text;
    /** Moves S3's clock forward. */
    const advanceClock = (milliseconds: number) => {
      s3.clockOffset += milliseconds;
    };
    const take = (what = "postern deploy", { overriding = false } = {}) => takeLock(bucket, what, overriding);
    const refusal = /^Error: this stage is locked by joe \(postern rotate\); the lock expires at /;

    it("a lock has the name of the person or pipeline that took it", () => {
      assert.equal(getPersonOrPipelineName(), "jane");
      delete process.env.POSTERN_BY;
      assert.match(getPersonOrPipelineName(), /./);
    });

    it("the refusal of a second command names the first one and the end of the lock by S3's clock", async () => {
      advanceClock(3_600_000);
      const lock = await take();
      const expiry = new Date((await bucket.read(lockObjectKey))?.modified.getTime() ?? 0);
      expiry.setSeconds(expiry.getSeconds() + 180);
      await assert.rejects(take("postern rotate"), (error) => {
        assert.ok(error instanceof Complaint);
        const sentence = `this stage is locked by jane (postern deploy); the lock expires at ${expiry.toISOString()} unless that command renews it`;
        assert.deepEqual([error.message, error.exitCode], [sentence, 1]);
        return true;
      });
      assert.ok(expiry.getTime() > Date.now() + 3_600_000);
      await lock.check();
      await lock.release();
      assert.equal(await readLock(), undefined);
    });

    it("a lock can be taken again at once after it was released", async () => {
      for (let time = 0; time < 3; time++) await (await take()).release();
      assert.equal(await readLock(), undefined);
    });

    /** Lets several commands take the lock at once, and asserts that exactly one command gets the lock. */
    const raceForLock = async (count: number) => {
      const outcomes = await Promise.allSettled(Array.from({ length: count }, () => take()));
      const [lock, ...others] = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
      assert.ok(lock);
      assert.deepEqual(others, []);
      for (const outcome of outcomes)
        if (outcome.status === "rejected") assert.match(String(outcome.reason), /^Error: this stage is locked by jane/);
      await lock.check();
      await lock.release();
    };

    it("exactly one of several simultaneous commands gets the lock", () => raceForLock(5));

    it("exactly one of several commands takes over an expired lock", async () => {
      await writeLock(buildLockText("killed"));
      advanceClock(lockTermMilliseconds + 2_000);
      await raceForLock(5);
    });

    for (const [clock, minutes] of [
      ["right", 0],
      ["three minutes fast", 3],
      ["three minutes slow", -3],
      ["a year fast", 365 * 24 * 60],
    ] as const)
      it(`a lock is taken over only after it has expired, by a command whose clock is ${clock}`, async (test) => {
        await writeLock(buildLockText("other"));
        test.mock.timers.enable({ apis: ["Date"], now: Date.now() + minutes * 60_000 });
        await assert.rejects(take(), refusal);
        advanceClock(lockTermMilliseconds - 60_000);
        await assert.rejects(take(), refusal);
        assert.equal(await readLock(), buildLockText("other"));
        advanceClock(62_000);
        const lock = await take();
        await lock.check();
        await lock.release();
      });

    it("a lock that another program wrote and doesn't renew expires by its age", async () => {
      await writeLock("hello");
      await assert.rejects(take(), /^Error: this stage is locked by an unknown program/);
      advanceClock(lockTermMilliseconds + 2_000);
      await (await take()).release();
    });

    it("a lock can be taken from the command that holds the lock; that command then stops", async () => {
      const first = await take();
      const second = await take("postern rollback --all", { overriding: true });
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
      assert.equal(await readLock(), undefined);
    });

    it("a command still holds its expired lock if no other command took the lock over", async () => {
      const lock = await take();
      advanceClock(lockTermMilliseconds + 60_000);
      const expired = await bucket.read(lockObjectKey);
      assert.ok(expired && expired.age > lockTermMilliseconds);
      // The check renews the lock. So the lock's ETag changes, and the other command can't take the lock with the old
      // one.
      await lock.check();
      assert.equal(await bucket.write(lockObjectKey, buildLockText("late"), { IfMatch: expired.etag }), false);
      await lock.check();
      await lock.release();
    });

    it("a command still holds its lock after several simultaneous renewals", async () => {
      const lock = await take();
      advanceClock(lockTermMilliseconds - 10_000);
      await Promise.all(Array.from({ length: 5 }, () => lock.check()));
      assert.ok(Number((await bucket.read(lockObjectKey))?.age) < lockTermMilliseconds / 2);
      await lock.release();
    });

    it("a command holds a lock that S3 wrote although the answer was lost", async () => {
      // Every second answer to a write is lost.
      let cut = 0;
      recorder.fault = ({ action }, when) =>
        action === "s3:PutObject" && when === "after" && cut++ % 2 === 0 ? "cut" : undefined;
      const lock = await take();
      advanceClock(lockTermMilliseconds - 10_000);
      await lock.check();
      assert.ok(cut >= 4, `${cut}`);
      await lock.release();
      assert.equal(await readLock(), undefined);
    });

    it("a lock is refused without the right to write it", async () => {
      recorder.allow = ({ action }) => action !== "s3:PutObject";
      await assert.rejects(take(), ({ name }: Error) => name === "AccessDenied");
    });

    it("a lock is renewed as long as a command holds the lock", async (test) => {
      test.mock.timers.enable({ apis: ["setInterval"] });
      const lock = await take();
      const textBefore = await readLock();
      advanceClock(60_000);
      test.mock.timers.tick(20_000);
      await waitUntil("the lock was not renewed in time", async () => (await readLock()) !== textBefore);
      assert.ok(Number((await bucket.read(lockObjectKey))?.age) < 60_000);
      assert.equal(lock.signal.aborted, false);
      await lock.release();
      assert.equal(await readLock(), undefined);
    });

    it("a command that has lost its lock is notified, and leaves the other command's lock as it is", async (test) => {
      test.mock.timers.enable({ apis: ["setInterval"] });
      const lock = await take();
      await writeLock(buildLockText("other"));
      test.mock.timers.tick(20_000);
      await waitUntil("the loss was not noticed in time", () => lock.signal.aborted);
      assert.match(String(lock.signal.reason), /lost the lock of the stage to joe \(postern rotate\)/);
      await lock.release();
      assert.equal(await readLock(), buildLockText("other"));
    });

    it("a lock is deleted at its release, even during a renewal", async (test) => {
      test.mock.timers.enable({ apis: ["setInterval"] });
      const lock = await take();
      const { length } = recorder.recordedCalls;
      // A renewal begins.
      test.mock.timers.tick(20_000);
      await lock.release();
      assert.equal(await readLock(), undefined);
      const writes = recorder.recordedCalls.slice(length).filter(({ action }) => action !== "s3:GetObject");
      assert.deepEqual(
        writes.map(({ action }) => action),
        ["s3:PutObject", "s3:DeleteObject"],
      );
    });
  });

  describe("the parameters of a stage", () => {
    it("parameters are encrypted, and belong to one stage", async () => {
      await parameters.write("two", "a secret");
      assert.equal(await openNextParameters().read("two"), undefined);
      const { Parameter } = await new SSM({ region }).getParameter({ Name: `/postern/stage-${stages - 1}/two` });
      assert.equal(Parameter?.Type, "SecureString");
      assert.notEqual(Parameter?.Value, "a secret");
    });

    it("a parameter is created by exactly one of several commands, and can be deleted twice", async () => {
      const createParameter = () => Promise.all(["a", "b", "c"].map((value) => parameters.create("raced", value)));
      const first = await createParameter();
      assert.deepEqual([first.filter(Boolean).length, (await createParameter()).includes(true)], [1, false]);
      assert.equal(await parameters.read("raced"), ["a", "b", "c"][first.indexOf(true)]);
      for (let time = 0; time < 2; time++) await parameters.remove("raced");
      assert.equal(await parameters.read("raced"), undefined);
    });
  });

  describe("the table with the ledger of a stage", () => {
    const recorder: CallRecorder = { recordedCalls: [], fault: undefined, allow: undefined };
    const identity = { accessKeyId: "a", secretAccessKey: "b" };
    let server: Awaited<ReturnType<typeof startServer>>;
    let stage: string;
    let table: LedgerTable;
    const guard = { check: async () => {} };
    const call = createDynamoDbClient(
      async () => identity,
      async () => region,
      guard,
    );
    before(async () => {
      const service = openDynamoDb(createMotoService(moto.url, "dynamodb"));
      server = await startServer(() => service, recorder);
      process.env.AWS_ENDPOINT_URL_DYNAMODB = server.url;
    });
    after(() => server?.stop());
    beforeEach(() => {
      stage = `ledger-${++stages}`;
      table = openLedgerTable(stage, call);
    });
    afterEach(() => {
      recorder.fault = undefined;
      recorder.recordedCalls = [];
    });
    const describeTable = async () => Object((await call("DescribeTable", { TableName: table.name })).Table);
    const listChanges = () => recorder.recordedCalls.filter(({ action }) => !/:Describe/.test(action));
    const isChange = (action: string) => /:(Create|Update|Delete)/.test(action);

    it("the table is created with all its settings, and isn't changed by later deployments", async () => {
      assert.equal(await table.readFaults(), undefined);
      await table.complete();
      assert.deepEqual(await table.readFaults(), []);
      const { KeySchema, BillingModeSummary, TableArn: ResourceArn } = await describeTable();
      assert.deepEqual(KeySchema, [{ AttributeName: "key", KeyType: "HASH" }]);
      assert.equal(BillingModeSummary.BillingMode, "PAY_PER_REQUEST");
      const { Tags } = await call("ListTagsOfResource", { ResourceArn });
      assert.deepEqual(Tags, [{ Key: "STAGE", Value: stage }]);
      const { TimeToLiveDescription } = await call("DescribeTimeToLive", { TableName: table.name });
      assert.equal(Object(TimeToLiveDescription).AttributeName, "expires");
      recorder.recordedCalls = [];
      await table.complete();
      assert.deepEqual(listChanges(), []);
    });

    it("the table gets its missing settings after a deployment was killed at any call", async () => {
      const killed: Fault = { status: 400, error: "Killed" };
      let states = 0;
      for (const when of ["before", "after"] as const)
        for (let limit = 0, isKilled = true; isKilled; limit++) {
          const ledgerTable = openLedgerTable(`${stage}-${when}-${limit}`, call);
          let calls = 0;
          recorder.fault = (_, moment) => (moment === when && calls++ === limit ? killed : undefined);
          isKilled = await ledgerTable.complete().then(
            () => false,
            ({ name }: Error) => name === "Killed" || assert.fail(name),
          );
          recorder.fault = undefined;
          await ledgerTable.complete();
          assert.deepEqual(await ledgerTable.readFaults(), []);
          states += 1;
        }
      assert.ok(states > 10, `${states}`);
    });

    it("the table is created, completed and deleted although the answer to each change is lost once", async () => {
      const lostActions = new Set<string>();
      recorder.fault = ({ action }, when) => {
        if (when === "before" || !isChange(action) || lostActions.has(action)) return undefined;
        lostActions.add(action);
        return "cut";
      };
      await table.complete();
      assert.deepEqual(await table.readFaults(), []);
      assert.equal(await table.remove(), true);
      assert.equal(await table.readFaults(), undefined);
      // CreateTable, UpdateTimeToLive, UpdateContinuousBackups, UpdateTable and DeleteTable.
      assert.equal(lostActions.size, 5);
      assert.equal(await table.remove(), false);
    });

    it("the table can't be deleted before its deletion protection is turned off", async () => {
      await table.complete();
      const { name: TableName } = table;
      await assert.rejects(call("DeleteTable", { TableName }), /DeletionProtectionEnabled|protected against deletion/);
      recorder.recordedCalls = [];
      assert.equal(await table.remove(), true);
      const changes = listChanges().map(({ action }) => action);
      assert.deepEqual(changes, ["dynamodb:UpdateTable", "dynamodb:DeleteTable"]);
    });

    it("two simultaneous deployments wait until DynamoDB accepts their changes of the table", async () => {
      let updates = 0;
      recorder.fault = ({ action }, when) =>
        when === "before" && action.endsWith("UpdateContinuousBackups") && updates++ < 2
          ? { status: 400, error: "ContinuousBackupsUnavailableException" }
          : undefined;
      await Promise.all([table.complete(), openLedgerTable(stage, call).complete()]);
      assert.deepEqual([await table.readFaults(), updates > 2], [[], true]);
    });

    it("changed settings of the table are reported in words", async () => {
      await table.complete();
      const { name: TableName } = table;
      const PointInTimeRecoverySpecification = { PointInTimeRecoveryEnabled: false };
      await call("UpdateContinuousBackups", { TableName, PointInTimeRecoverySpecification });
      const setExpiry = (AttributeName: string, Enabled: boolean) =>
        call("UpdateTimeToLive", { TableName, TimeToLiveSpecification: { AttributeName, Enabled } });
      await setExpiry("expires", false);
      await call("UpdateTable", { TableName, DeletionProtectionEnabled: false });
      assert.deepEqual(await table.readFaults(), [
        "its time to live is off",
        "its point-in-time recovery is off",
        "its deletion protection is off",
      ]);
      await setExpiry("other", true);
      assert.deepEqual((await table.readFaults())?.[0], "its time to live is by other");
      await assert.rejects(table.complete(), /deletes values by the attribute "other" instead of "expires": turn its/);
    });

    it("a table with another key is refused as a ledger", async () => {
      const key = { AttributeName: "id", KeyType: "HASH" };
      await call("CreateTable", {
        TableName: table.name,
        KeySchema: [key],
        BillingMode: "PAY_PER_REQUEST",
        AttributeDefinitions: [{ AttributeName: "id", AttributeType: "S" }],
      });
      for (const act of [table.readFaults, table.complete, table.remove])
        await assert.rejects(act(), /^Error: the table .* in DynamoDB is no ledger of Postern, whose only key is/);
    });

    it("a command that has lost the lock of the stage doesn't change the table", async () => {
      const lostGuard = { check: () => Promise.reject(new Error("lost")) };
      const clientWithoutLock = createDynamoDbClient(
        async () => identity,
        async () => region,
        lostGuard,
      );
      await assert.rejects(openLedgerTable(stage, clientWithoutLock).complete(), /^Error: lost$/);
      assert.deepEqual(listChanges(), []);
    });
  });

  describe("the keyring of a stage", () => {
    const cluster = "prod-eu";
    /**
     * Reports whether functions with the public keys of one keyring accept URLs that the other keyring's key signed.
     */
    const acceptsUrls = ({ publicKeys }: Keyring, { current }: Keyring) =>
      createUrlKeyVerifier(publicKeys, () => [1])(current.signSegment(cluster, 1))?.cluster === cluster;
    const listKeys = ({ publicKeys }: Keyring) => publicKeys.split(",");

    it("a keyring can't be changed before the first deployment creates it", async () => {
      assert.equal(await readKeyring(parameters), undefined);
      for (const change of [addSecondSigningKey, selectNewestKeyForNewUrls, deleteAllKeysButNewest])
        await assert.rejects(change(parameters), /^Error: this stage has no keys; postern deploy creates them$/);
      assert.equal(await parameters.read("keys"), undefined);
    });

    it("several simultaneous first deployments create one keyring with one key", async () => {
      const keyrings = await Promise.all(Array.from({ length: 5 }, () => readOrCreateKeyring(parameters)));
      const keys = new Set(keyrings.map(({ publicKeys }) => publicKeys));
      assert.deepEqual([...keys], [(await readKeyring(parameters))?.publicKeys]);
      for (const functions of keyrings) for (const urls of keyrings) assert.ok(acceptsUrls(functions, urls));
      assert.equal((await readOrCreateKeyring(openNextParameters())).publicKeys === keyrings[0]?.publicKeys, false);
    });

    it("the key is replaced step by step, and all URLs in use are accepted at each step", async () => {
      const first = await readOrCreateKeyring(parameters);
      const withTwoKeys = await addSecondSigningKey(parameters);
      assert.deepEqual(listKeys(withTwoKeys), [first.current.publicKey, withTwoKeys.signers[1]?.publicKey]);
      assert.equal(withTwoKeys.current.publicKey, first.current.publicKey);
      const withNewUrls = await selectNewestKeyForNewUrls(parameters);
      assert.equal(withNewUrls.publicKeys, withTwoKeys.publicKeys);
      assert.equal(withNewUrls.current.publicKey, withTwoKeys.signers[1]?.publicKey);
      for (const functions of [withTwoKeys, withNewUrls])
        for (const urls of [first, withTwoKeys, withNewUrls]) assert.ok(acceptsUrls(functions, urls));
      const withNewKeyOnly = await deleteAllKeysButNewest(parameters);
      assert.deepEqual(listKeys(withNewKeyOnly), [withNewUrls.current.publicKey]);
      assert.deepEqual([acceptsUrls(withNewKeyOnly, withNewUrls), acceptsUrls(withNewKeyOnly, first)], [true, false]);
    });

    const changes = { add: addSecondSigningKey, select: selectNewestKeyForNewUrls, delete: deleteAllKeysButNewest };
    const changeNames = fc.constantFrom(...(["add", "select", "delete"] as const));

    it("a keyring has one or two keys after any sequence of changes, and signs with one of the keys", async () => {
      const check = async (steps: (keyof typeof changes)[]) => {
        const parameters = openNextParameters();
        let before = await readOrCreateKeyring(parameters);
        for (const step of steps) {
          const now = await changes[step](parameters);
          assert.deepEqual(
            [now.publicKeys, now.current.publicKey],
            await readKeyring(parameters).then((read) => [read?.publicKeys, read?.current.publicKey]),
          );
          assert.ok(listKeys(now).length === 1 || listKeys(now).length === 2);
          assert.equal(new Set(listKeys(now)).size, listKeys(now).length);
          assert.ok(listKeys(now).includes(now.current.publicKey));
          assert.ok(acceptsUrls(now, now));
          // Until the first key is deleted, URLs that it signed are accepted.
          if (step !== "delete") assert.ok(acceptsUrls(now, before));
          // A second call of the same step changes nothing.
          const again = await changes[step](parameters);
          assert.deepEqual([again.publicKeys, again.current.publicKey], [now.publicKeys, now.current.publicKey]);
          before = again;
        }
      };
      await fc.assert(fc.asyncProperty(fc.array(changeNames, { maxLength: 6 }), check), { numRuns: 20 });
    });

    const secret = "MC4CAQAwBQYDK2VwBCIEIsecret";
    const isExpectedComplaint = (error: unknown) => {
      assert.ok(error instanceof Complaint, String(error));
      const sentence =
        "the keys of this stage can't be read: their SSM parameter is not in the format that postern deploy writes; restore an earlier version of it";
      assert.deepEqual([error.message, error.exitCode], [sentence, 3]);
      assert.ok(!String(error.stack).includes(secret));
      return true;
    };
    const readers = [readKeyring, readOrCreateKeyring, ...Object.values(changes)];
    for (const { keyring, text } of rows.damaged)
      it(`a damaged keyring is reported without its content: ${keyring}`, async () => {
        const content = text.replaceAll("SECRET", secret);
        await parameters.write("keys", content);
        for (const read of readers) await assert.rejects(read(parameters), isExpectedComplaint);
        assert.equal(await parameters.read("keys"), content);
      });

    it("the health of a cluster reports that the keyring can't be read", async () => {
      const clusterRelease = { at: "now", keyVersion: 1, hardened: [], since: {}, manifests: [] };
      const stage = { ...createAwsStageClients("test"), parameters };
      const release = buildRelease(1, { clusters: { shop: clusterRelease } });
      const readUnknownHealth = async () =>
        (await probeClusterHealth({ stage, file: "", deployer: {} }, "shop", release))?.unknown;
      await parameters.remove("keys");
      const notProbed = "its endpoints were not probed, because the key that signs URLs can't be read: ";
      const [missingKey = "", ...others] = (await readUnknownHealth()) ?? [];
      assert.equal(missingKey, `${notProbed}SSM doesn't have the private key any more`);
      assert.deepEqual(others, ["postern.yaml doesn't say how to reach it"]);
      await parameters.write("keys", "hello");
      assert.equal(
        (await readUnknownHealth())?.[0]?.startsWith(`${notProbed}the keys of this stage can't be read: `),
        true,
      );
    });
  });

  describe("the releases of a stage", () => {
    let bucket: StageBucket;
    beforeEach(async () => {
      bucket = await createBucket();
    });
    const openReleases = () => readReleaseStore(async () => bucket);

    it("without a bucket, there are no releases, and none can be saved", async () => {
      const none = await readReleaseStore(async () => undefined);
      assert.deepEqual(none.all, []);
      await assert.rejects(none.save(buildRelease(1)), /^Error: this stage has no bucket to write its release to$/);
    });

    it("a release is saved in a bucket that was created after the releases were read", async () => {
      let currentBucket: StageBucket | undefined;
      const releases = await readReleaseStore(async () => currentBucket);
      currentBucket = bucket;
      await releases.save(buildRelease(1));
      assert.deepEqual((await openReleases()).all, [buildRelease(1)]);
    });

    it("releases are listed with the newest first, and only ten are kept", async () => {
      const { save } = await openReleases();
      for (let id = 1; id <= 25; id++) await save(buildRelease(id));
      const ids = (await openReleases()).all.map(({ id }) => id);
      assert.deepEqual(
        ids,
        Array.from({ length: 10 }, (_, index) => 25 - index),
      );
    });

    it("a release is overwritten by the deployment that created or continues it", async () => {
      const first = await openReleases();
      await first.save(buildRelease(1, { complete: false }));
      await first.save(buildRelease(1, { complete: false, by: "jane" }));
      assert.deepEqual((await openReleases()).all, [buildRelease(1, { complete: false, by: "jane" })]);
      await (await openReleases()).save(buildRelease(1, { by: "joe" }));
      assert.deepEqual((await openReleases()).all, [buildRelease(1, { by: "joe" })]);
    });

    it("a release is created by only one of two simultaneous commands", async () => {
      const commands = await Promise.all([openReleases(), openReleases()]);
      const outcomes = await Promise.allSettled(
        commands.map(({ save }, index) => save(buildRelease(1, { by: String(index) }))),
      );
      const refusedIndex = outcomes.findIndex(({ status }) => status === "rejected");
      const [failure, success] = [outcomes[refusedIndex], outcomes[1 - refusedIndex]];
      assert.ok(failure?.status === "rejected" && success?.status === "fulfilled");
      assert.ok(failure.reason instanceof Complaint);
      assert.equal(failure.reason.message, "another command has just created release r1");
      assert.deepEqual((await openReleases()).all, [buildRelease(1, { by: String(1 - refusedIndex) })]);
      await assert.rejects(
        commands[refusedIndex]?.save(buildRelease(1)) ?? assert.fail(),
        /another command has just created release r1/,
      );
      await commands[1 - refusedIndex]?.save(buildRelease(1, { by: "still ours" }));
      assert.deepEqual((await openReleases()).all, [buildRelease(1, { by: "still ours" })]);
    });
  });
});

const buildRelease = (id: number, overrides: Partial<Release> = {}): Release => ({
  id,
  at: "2026-01-01T00:00:00.000Z",
  by: "tester",
  complete: true,
  rules: {},
  clusters: {},
  ...overrides,
});

describe("an error of the AWS SDK", () => {
  const reportError = (error: Error) =>
    rethrowAwsErrorsAsComplaints(async () => Promise.reject(error)).catch((caught: Error) => caught.message);

  it("an error of the AWS SDK is reported, with a remedy for a missing region", async () => {
    const sentence = "AWS: Region is missing; set AWS_REGION, or a region in the AWS profile";
    assert.equal(await reportError(new Error("Region is missing")), sentence);
    const empty = 'Region not accepted: region="" is not a valid hostname component.';
    assert.equal(await reportError(new Error(empty)), sentence);
    const denied = Object.assign(new Error("you may not"), { $metadata: {} });
    assert.equal(await reportError(denied), "AWS: you may not");
  });
  it("an error that isn't of the AWS SDK is thrown as it is", async () =>
    assert.equal(await reportError(new Error("no bread")), "no bread"));
});

describe("lists of releases", () => {
  const all = [buildRelease(12), buildRelease(2), buildRelease(1)];

  it("a release is found by its name", () => {
    for (const release of all) assert.equal(requireRelease(all, `r${release.id}`), release);
  });

  it("a release is not found by another name, and the error lists the releases", () => {
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

  it("the released versions of a rule are listed, the last one first and withdrawn ones at the end", () => {
    const listed = [
      buildRelease(3, { rules: { a: buildVersion("10"), b: buildVersion("1") } }),
      buildRelease(2, { rules: { a: buildVersion("9") } }),
      buildRelease(1, { rules: { a: buildVersion("10") } }),
    ];
    assert.deepEqual(listReleasedVersions(listed, "a"), ["10", "9"]);
    // Release 4 has withdrawn version 10, so 10 is last. Its other versions, 12 and 7, come before the older 9.
    const later = buildRelease(4, { rules: { a: buildVersion("12", { earlier: ["10", "7"] }) }, withdrawn: ["a@10"] });
    assert.deepEqual(listReleasedVersions([later, ...listed], "a"), ["12", "7", "9", "10"]);
    assert.deepEqual(listReleasedVersions(listed, "b"), ["1"]);
    for (const rule of ["c", "constructor", "toString"]) assert.deepEqual(listReleasedVersions(listed, rule), []);
  });

  const buildVersion = (version: string, { earlier = [] }: { earlier?: string[] } = {}) => {
    return { version, logic: "", share: { rule: "a", clusters: {} }, phases: [], earlier };
  };
  for (const { direction, releases, expectedId } of rows.rollbacks)
    it(`a rollback of all rules goes ${direction}`, () => {
      const all = releases.map(({ id, version, ...fields }) =>
        buildRelease(id, { ...(version && { rules: { a: buildVersion(version) } }), ...fields }),
      );
      if (expectedId !== undefined) assert.equal(requireRollbackRelease(all).id, expectedId);
      else assert.throws(() => requireRollbackRelease(all), /^Error: there is no release before the one that is live$/);
    });
});
