import { randomUUID } from "node:crypto";
import { hostname, userInfo } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
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
 * Nobody else changes the stage meanwhile. It is renewed as long as it is held; SSM can't compare and swap, so of two who
 * take over one that ended, both write and look again whose it is.
 */
export const locked = async <T>(
  parameters: Parameters,
  what: string,
  act: (lock: Lock) => Promise<T>,
  settle = 1000,
): Promise<T> => {
  const owner = randomUUID();
  const claim = () => JSON.stringify({ owner, by: ourName(), what, until: Date.now() + term } satisfies Held);
  const held = async (): Promise<Held | undefined> => {
    const text = await parameters.read(name);
    return text === undefined ? undefined : JSON.parse(text);
  };
  const refuse = ({ by, what, until }: Held) => {
    const time = new Date(until).toISOString();
    throw new Complaint(`${by} is at work on this stage (${what}); unless it goes on, it ends at ${time}`, 1);
  };
  const take = async () => {
    if (await parameters.create(name, claim())) return;
    const other = await held();
    if (other && other.until > Date.now()) refuse(other);
    await parameters.write(name, claim());
    await wait(settle);
    await check();
  };
  const check = async () => {
    const now = await held();
    if (now?.owner === owner) return;
    if (now) refuse(now);
    throw new Complaint("somebody took away the lock of this stage; run it again", 1);
  };
  await take();
  // Whatever comes between is seen at the next check.
  const renewal = setInterval(() => void renew().catch(() => {}), term / 4).unref();
  const renew = async () => {
    await check();
    await parameters.write(name, claim());
  };
  try {
    return await act({ check });
  } finally {
    clearInterval(renewal);
    const last = await held().catch(() => undefined);
    if (last?.owner === owner) await parameters.remove(name);
  }
};
