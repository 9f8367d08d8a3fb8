import { randomUUID } from "node:crypto";
import { hostname, userInfo } from "node:os";
import type { Parameters } from "../aws/parameters.ts";
import { Complaint } from "../complaint.ts";

interface Held {
  owner: string;
  by: string;
  what: string;
  until: number;
}

const name = "lock";

/** For how long it is held at a time. Who is killed holds it no longer than this. */
const term = 180_000;

/** Who we are to people who read it. */
export const ourName = (): string =>
  process.env.POSTERN_BY ??
  process.env.GITHUB_ACTOR ??
  process.env.GITLAB_USER_LOGIN ??
  `${userInfo().username}@${hostname()}`;

/** Still ours, or a Complaint. */
export interface Lock {
  check(): Promise<void>;
}

/**
 * Nobody else changes the stage meanwhile. It is renewed as long as it is held. SSM can only make what isn't there without
 * overwriting it: of several who find that a lock has ended, the one who makes its heir takes it over.
 */
export const locked = async <T>(
  parameters: Parameters,
  what: string,
  act: (lock: Lock) => Promise<T>,
  { overriding = false } = {},
): Promise<T> => {
  const owner = randomUUID();
  const claim = () => JSON.stringify({ owner, by: ourName(), what, until: Date.now() + term } satisfies Held);
  const refuse = ({ by, what, until }: Held): never => {
    const time = new Date(until).toISOString();
    throw new Complaint(`${by} is at work on this stage (${what}); unless it goes on, it ends at ${time}`, 1);
  };
  const heldNow = async (which: string) => {
    const text = await parameters.read(which);
    return text === undefined ? undefined : heldIn(text);
  };
  const take = async () => {
    for (let attempt = 1; attempt <= 5; attempt++) {
      if (await parameters.create(name, claim())) return;
      const other = await heldNow(name);
      // Let go of just now: whoever makes it first has it.
      if (other === undefined) continue;
      if (other.until > Date.now()) refuse(other);
      const heir = `${name}-after-${other.owner}`;
      if (await parameters.create(heir, claim())) {
        const isStillThere = (await heldNow(name))?.owner === other.owner;
        if (isStillThere) await parameters.write(name, claim());
        await parameters.remove(heir);
        if (isStillThere) return;
        continue;
      }
      const rival = await heldNow(heir);
      if (rival && rival.until > Date.now()) refuse(rival);
      // It ended before it had taken over.
      await parameters.remove(heir);
    }
    throw new Complaint("others are taking the lock of this stage at the same time; run it again", 1);
  };
  const check = async () => {
    const held = await heldNow(name);
    if (held?.owner === owner) return;
    if (held) refuse(held);
    throw new Complaint("somebody took away the lock of this stage; run it again", 1);
  };
  // Whoever held it stops at the next check.
  if (overriding) await parameters.write(name, claim());
  else await take();
  let renewal: Promise<unknown> = Promise.resolve();
  const renew = async () => {
    await check();
    await parameters.write(name, claim());
  };
  // What comes between is seen at the next check.
  const timer = setInterval(() => {
    renewal = renew().catch(() => {});
  }, term / 4).unref();
  try {
    return await act({ check });
  } finally {
    clearInterval(timer);
    await renewal;
    const last = await heldNow(name).catch(() => undefined);
    // One that can't be taken away ends by itself.
    if (last?.owner === owner) await parameters.remove(name).catch(() => {});
  }
};

/** What nobody of us wrote there has ended. */
const heldIn = (text: string): Held => {
  try {
    const { owner, by, what, until } = JSON.parse(text);
    return { owner: String(owner), by: String(by), what: String(what), until: Number(until) || 0 };
  } catch {
    return { owner: "nobody", by: "nobody", what: "", until: 0 };
  }
};
