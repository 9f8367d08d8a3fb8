import { randomUUID } from "node:crypto";
import { hostname, userInfo } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { type BucketObject, openBucket, type StageBucket } from "../../aws/bucket.ts";
import { isErrorNamed } from "../../aws/errors.ts";
import { requireChangeableStack } from "../../aws/stack.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { Complaint } from "../../cli/complaint.ts";

/** The lock's key in the stage's bucket. infra/aws/iam/pipeline.yml names it, too. */
export const lockObjectKey = "lock.json";

/** The content of the lock object. */
interface LockClaim {
  /** A random id of the command that has the lock. */
  owner: string;
  /** The person or pipeline that runs this command. */
  by: string;
  /** The command, for instance "postern deploy". */
  what: string;
  /** The number of renewals. It changes the text of the lock object, and so its ETag, with each renewal. */
  renewal: number;
}

/** Milliseconds until a lock that isn't renewed expires, by S3's clock. */
export const lockTermMilliseconds = 180_000;
/** Milliseconds between renewals. */
const renewalMilliseconds = 20_000;
/** How often the lock object is read and written again if other commands write it at the same time. */
const maxAttempts = 10;

/** The name of the person or pipeline that runs this command. */
export const getPersonOrPipelineName = (): string =>
  process.env.POSTERN_BY ??
  process.env.GITHUB_ACTOR ??
  process.env.GITLAB_USER_LOGIN ??
  `${userInfo().username}@${hostname()}`;

/** The lock of a stage: while a command has it, other commands can't change the stage. */
export interface StageLock {
  /** Throws a Complaint if another command has the lock. Otherwise the lock lasts for at least half its term. */
  check(): Promise<void>;
  /** Aborted when a renewal finds that another command has the lock. */
  signal: AbortSignal;
  /**
   * Deletes the lock if this command still has it. Only `postern destroy` calls this, just before it deletes the stack:
   * the lock is an object in the stack's bucket, which must be empty then.
   */
  release(): Promise<void>;
}

/** How a command takes the lock of a stage. */
interface StageLockOptions {
  /** Takes the lock even if another command has it. That command stops before its next change. */
  overriding?: boolean;
  /** Is aborted when the user interrupts the command. */
  signal?: AbortSignal | undefined;
  /** Runs the command without a lock if the stage has no bucket. */
  mayLackBucket?: boolean;
}

/**
 * Runs `act` with the lock of the stage, so that no other command changes the stage. `what` names this command in the
 * lock. Each call that changes the stage or a cluster checks first that this command still has the lock.
 */
export const lockStage = async <T>(
  stage: AwsStage,
  what: string,
  act: (lock: StageLock) => Promise<T>,
  { overriding = false, mayLackBucket = false, signal }: StageLockOptions = {},
): Promise<T> => {
  const { guard } = stage;
  const takenLock = await takeStageLock(stage, what, { overriding, signal });
  if (takenLock === undefined && !mayLackBucket) {
    requireChangeableStack(stage.name, await stage.stack.readStatus());
    throw new Complaint(
      `stage ${stage.name} has no bucket: nothing was deployed to it, or its bucket was deleted; postern deploy creates it`,
      1,
    );
  }
  const lock = takenLock ?? (await watchForBucket(stage)); // a substitute, which checks that no bucket is created
  const checkBefore = guard.check;
  Object.assign(guard, { check: lock.check, signal: lock.signal });
  /** For an `act` that deletes the bucket, which has the lock: releases the lock early. Later calls don't check it. */
  const releaseBeforeEnd = async () => {
    Object.assign(guard, { check: checkBefore, signal: undefined });
    await lock.release();
  };
  try {
    return await act({ ...lock, release: releaseBeforeEnd });
  } finally {
    // If one of several parallel changes has failed, `act` has ended before the others. The calls still check the lock:
    // it is released now, so the next check fails, and the other changes stop.
    const released = lock.release();
    // After an interrupt, this waits only briefly, because AWS may not answer. The lock then expires.
    await (signal?.aborted ? Promise.race([released, wait(releaseMilliseconds, undefined, { ref: false })]) : released);
  }
};

/** How long a command that was interrupted waits until its lock is released. */
const releaseMilliseconds = 3000;

/** Throws if the user has interrupted the command. */
export const requireNotInterrupted = (signal: AbortSignal | undefined): void => {
  if (signal?.aborted) throw new Complaint("interrupted; run the command again to continue", 1);
};

/** Waits for a result that may be lost. Throws at once when the user interrupts the command. */
export const stopWaitingWhenInterrupted = async <T>(
  result: Promise<T>,
  signal: AbortSignal | undefined,
): Promise<T> => {
  if (signal === undefined) return result;
  const interrupted = Promise.withResolvers<void>();
  const end = () => interrupted.resolve();
  if (signal.aborted) end();
  signal.addEventListener("abort", end);
  try {
    await Promise.race([interrupted.promise, result]);
    requireNotInterrupted(signal);
    return await result;
  } finally {
    signal.removeEventListener("abort", end);
  }
};

/** Takes the lock in the stage's bucket; undefined if there is no bucket, or the stack is being deleted. */
const takeStageLock = async (
  { stack }: AwsStage,
  what: string,
  { overriding, signal }: Pick<StageLockOptions, "overriding" | "signal">,
): Promise<StageLock | undefined> => {
  const bucket = await stopWaitingWhenInterrupted(stack.findBucket(), signal);
  if (bucket === undefined) return undefined;
  if ((await stopWaitingWhenInterrupted(stack.readStatus(), signal)) === "DELETE_IN_PROGRESS") return undefined;
  try {
    return await takeLock(openBucket(bucket), what, overriding);
  } catch (error) {
    if (isErrorNamed(error, "NoSuchBucket")) return undefined;
    throw error;
  }
};

/** Returns a substitute for the lock of a stage without a bucket. `check` throws if another command created one. */
const watchForBucket = async ({ name, stack }: AwsStage): Promise<StageLock> => {
  const before = await stack.findBucket();
  return {
    check: async () => {
      const now = await stack.findBucket();
      if (now !== undefined && now !== before)
        throw new Complaint(`another command has begun to deploy stage ${name}; run the command again`, 1);
    },
    signal: new AbortController().signal,
    release: async () => {},
  };
};

/** Writes the lock object, and renews it until the lock is released. Throws if another command has the lock. */
export const takeLock = async (bucket: StageBucket, what: string, overriding = false): Promise<StageLock> => {
  const owner = randomUUID();
  let renewal = 0;
  const buildClaim = () =>
    JSON.stringify({ owner, by: getPersonOrPipelineName(), what, renewal: renewal++ } satisfies LockClaim);
  const isOurs = (stored: BucketObject | undefined) => parseClaim(stored).owner === owner;

  const take = async () => {
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      if (await bucket.write(lockObjectKey, buildClaim(), { IfNoneMatch: "*" })) return;
      const currentLock = await bucket.read(lockObjectKey);
      // The first request has written the lock, but its response was lost, and the SDK sent the request again.
      if (isOurs(currentLock)) return;
      if (currentLock) {
        if (!overriding && !(currentLock.age > lockTermMilliseconds)) throw buildRefusal(currentLock);
        if (await bucket.write(lockObjectKey, buildClaim(), { IfMatch: currentLock.etag })) return;
      }
      await waitLonger(attempt);
    }
    throw new Complaint(
      "other commands tried to lock this stage at the same time, so this one gave up; run it again",
      1,
    );
  };
  /** Throws if another command has the stage's lock. Renews this lock if it is older than `maxAge` milliseconds. */
  const confirm = async (maxAge: number) => {
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      const stored = await bucket.read(lockObjectKey);
      if (!stored || !isOurs(stored)) throw buildLoss(stored);
      if (stored.age <= maxAge || (await bucket.write(lockObjectKey, buildClaim(), { IfMatch: stored.etag }))) return;
      // The write failed, because the lock has just been renewed by this command or taken by another one: try again.
      await waitLonger(attempt);
    }
    throw new Complaint("the lock of this stage could not be renewed; run the command again", 1);
  };

  await take();
  const lost = new AbortController();
  let renewing: Promise<void> = Promise.resolve();
  const timer = setInterval(() => {
    renewing = confirm(Number.NEGATIVE_INFINITY).catch((error) => {
      // Only a lost lock ends the command here. If S3 doesn't answer, the next call of `check` reports it.
      if (error instanceof Complaint) lost.abort(error);
    });
  }, renewalMilliseconds).unref();
  let isReleased = false;
  return {
    check: () => confirm(lockTermMilliseconds / 2),
    signal: lost.signal,
    release: async () => {
      if (isReleased) return;
      isReleased = true;
      clearInterval(timer);
      await renewing;
      const last = await bucket.read(lockObjectKey).catch(() => undefined);
      if (last && isOurs(last)) await bucket.remove(lockObjectKey, last.etag).catch(() => {});
    },
  };
};

/** Waits for a random time that grows with each attempt, so that several commands don't try again at the same time. */
const waitLonger = (attempt: number) => wait(Math.random() * 100 * attempt);

/** Returns the content of a lock object. It may have the format of another Postern version, and be unreadable. */
const parseClaim = (stored: BucketObject | undefined): LockClaim => {
  try {
    const { owner, by, what, renewal } = JSON.parse(stored?.text ?? "");
    return { owner: String(owner), by: String(by), what: String(what), renewal: Number(renewal) };
  } catch {
    return { owner: "", by: "an unknown program", what: "unknown", renewal: 0 };
  }
};

const describeHolder = (stored: BucketObject) => {
  const { by, what } = parseClaim(stored);
  return `${by} (${what})`;
};

const buildRefusal = (stored: BucketObject): Complaint => {
  const end = new Date(stored.modified.getTime() + lockTermMilliseconds).toISOString();
  return new Complaint(
    `this stage is locked by ${describeHolder(stored)}; the lock expires at ${end} unless that command renews it`,
    1,
  );
};

const buildLoss = (stored: BucketObject | undefined): Complaint =>
  new Complaint(
    stored === undefined
      ? "this command has lost the lock of the stage, and changes nothing more; run it again"
      : `this command has lost the lock of the stage to ${describeHolder(stored)}, and changes nothing more`,
    1,
  );
