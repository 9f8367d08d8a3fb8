import { randomUUID } from "node:crypto";
import { hostname, userInfo } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { type Bucket, openBucket, type StoredObject } from "../aws/bucket.ts";
import { hasName } from "../aws/errors.ts";
import { requireChangeableStack } from "../aws/stack.ts";
import type { Stage } from "../aws/stage.ts";
import { Complaint } from "../cli/complaint.ts";

/** The lock's key in the stage's bucket. infra/aws/iam/pipeline.yml names it, too. */
export const lockKey = "lock.json";

interface Claim {
  owner: string;
  by: string;
  what: string;
  /** Changes the text, and so the ETag, with each renewal. */
  renewal: number;
}

/** Milliseconds until a lock that isn't renewed expires, by S3's clock. */
export const term = 180_000;
/** Milliseconds between renewals. */
const period = 20_000;
const tries = 10;

/** The name of the person or pipeline that runs this command. */
export const ourName = (): string =>
  process.env.POSTERN_BY ??
  process.env.GITHUB_ACTOR ??
  process.env.GITLAB_USER_LOGIN ??
  `${userInfo().username}@${hostname()}`;

export interface Lock {
  /** Throws a Complaint if another command has the lock. Afterwards, the lock holds for at least half its term. */
  check(): Promise<void>;
  /** Aborted when a renewal finds that another command has the lock. */
  signal: AbortSignal;
  /** Deletes the lock if this command still has it. Later changes are made without a lock. */
  release(): Promise<void>;
}

export interface LockOptions {
  /** Takes the lock from the command that holds it, which stops before its next change. */
  overriding?: boolean;
  /** Acts without a lock if the stage has no bucket to keep it in; nothing can be deployed to such a stage. */
  optional?: boolean;
}

/**
 * Acts while no other command changes the stage. Every call that changes the stage or a cluster first checks that this
 * command still has the lock.
 */
export const lockStage = async <T>(
  stage: Stage,
  what: string,
  act: (lock: Lock) => Promise<T>,
  { overriding = false, optional = false }: LockOptions = {},
): Promise<T> => {
  const { guard } = stage;
  const taken = await takeStageLock(stage, what, overriding);
  if (taken === undefined && !optional) {
    requireChangeableStack(stage.name, await stage.stack.status());
    throw new Complaint(`stage ${stage.name} has no bucket: nothing was deployed to it, or its bucket was deleted`, 1);
  }
  const lock = taken ?? (await watchForBucket(stage));
  const unguarded = guard.check;
  Object.assign(guard, { check: lock.check, signal: lock.signal });
  const release = async () => {
    Object.assign(guard, { check: unguarded, signal: undefined });
    await lock.release();
  };
  try {
    return await act({ ...lock, release });
  } finally {
    // The guard stays set: if one of several parallel changes failed, the others must stop when the lock is released.
    await lock.release();
  }
};

/** Takes the lock in the stage's bucket; undefined if there is no bucket, or the stack is being deleted. */
const takeStageLock = async ({ stack }: Stage, what: string, overriding: boolean): Promise<Lock | undefined> => {
  const bucket = await stack.bucket();
  if (bucket === undefined || (await stack.status()) === "DELETE_IN_PROGRESS") return undefined;
  try {
    return await takeLock(openBucket(bucket), what, overriding);
  } catch (error) {
    if (hasName(error, "NoSuchBucket")) return undefined;
    throw error;
  }
};

/** Replaces the lock if there is no bucket. `check` throws once another command has created one. */
const watchForBucket = async ({ name, stack }: Stage): Promise<Lock> => {
  const before = await stack.bucket();
  return {
    check: async () => {
      const now = await stack.bucket();
      if (now !== undefined && now !== before)
        throw new Complaint(`another command has begun to deploy stage ${name}; run this again`, 1);
    },
    signal: new AbortController().signal,
    release: async () => {},
  };
};

export const takeLock = async (bucket: Bucket, what: string, overriding = false): Promise<Lock> => {
  const owner = randomUUID();
  let renewal = 0;
  const claim = () => JSON.stringify({ owner, by: ourName(), what, renewal: renewal++ } satisfies Claim);
  const isOurs = (stored: StoredObject | undefined) => claimIn(stored).owner === owner;

  const take = async () => {
    for (let attempt = 1; attempt <= tries; attempt++) {
      if (await bucket.write(lockKey, claim(), { IfNoneMatch: "*" })) return;
      const other = await bucket.read(lockKey);
      // The write succeeded, but its response was lost and the SDK sent it again.
      if (isOurs(other)) return;
      if (other) {
        if (!overriding && !(other.age > term)) throw refusalOf(other);
        if (await bucket.write(lockKey, claim(), { IfMatch: other.etag })) return;
      }
      await waitLonger(attempt);
    }
    throw new Complaint("other commands take the lock of this stage at the same time; run this again", 1);
  };
  /** Throws if another command has the lock. Renews a lock that is older than `oldest` milliseconds. */
  const confirm = async (oldest: number) => {
    for (let attempt = 1; attempt <= tries; attempt++) {
      const stored = await bucket.read(lockKey);
      if (!stored || !isOurs(stored)) throw lossOf(stored);
      if (stored.age <= oldest || (await bucket.write(lockKey, claim(), { IfMatch: stored.etag }))) return;
      // This command is renewing it at the same time, or another command is taking it.
      await waitLonger(attempt);
    }
    throw new Complaint("the lock of this stage could not be renewed; run this again", 1);
  };

  await take();
  const lost = new AbortController();
  let renewing: Promise<void> = Promise.resolve();
  const timer = setInterval(() => {
    renewing = confirm(Number.NEGATIVE_INFINITY).catch((error) => {
      // If S3 doesn't answer, the next check reports it.
      if (error instanceof Complaint) lost.abort(error);
    });
  }, period).unref();
  let isReleased = false;
  return {
    check: () => confirm(term / 2),
    signal: lost.signal,
    release: async () => {
      if (isReleased) return;
      isReleased = true;
      clearInterval(timer);
      await renewing;
      const last = await bucket.read(lockKey).catch(() => undefined);
      if (last && isOurs(last)) await bucket.remove(lockKey, last.etag).catch(() => {});
    },
  };
};

/** Waits a little longer each time, and not as long as others that wait. */
const waitLonger = (attempt: number) => wait(Math.random() * 100 * attempt);

/** Returns the lock's content. Of a text in another format, only the age counts. */
const claimIn = (stored: StoredObject | undefined): Claim => {
  try {
    const { owner, by, what, renewal } = JSON.parse(stored?.text ?? "");
    return { owner: String(owner), by: String(by), what: String(what), renewal: Number(renewal) };
  } catch {
    return { owner: "", by: "an unknown program", what: "unknown", renewal: 0 };
  }
};

const nameOf = (stored: StoredObject) => {
  const { by, what } = claimIn(stored);
  return `${by} (${what})`;
};

const refusalOf = (stored: StoredObject): Complaint => {
  const end = new Date(stored.modified.getTime() + term).toISOString();
  return new Complaint(`this stage is locked by ${nameOf(stored)}; unless that renews it, the lock ends at ${end}`, 1);
};

const lossOf = (stored: StoredObject | undefined): Complaint =>
  new Complaint(
    stored === undefined
      ? "this command has lost the lock of the stage, and changes nothing more; run it again"
      : `this command has lost the lock of the stage to ${nameOf(stored)}, and changes nothing more`,
    1,
  );
