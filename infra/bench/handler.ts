import { fork } from "node:child_process";
import { once } from "node:events";
import { open } from "node:fs/promises";
import { devNull } from "node:os";
import { fileURLToPath } from "node:url";
import type { Share } from "#lib/endpoint.ts";
import type { Phase } from "#lib/rule.ts";
import { merge } from "#lib/settings.ts";
import type { Listed } from "../catalogue/registry.ts";
import type { Signer } from "../keys/keys.ts";

/** One thing to measure. It runs in a process of its own, as one Lambda runs one rule. */
export interface Case {
  rule: string;
  phase: Phase;
  /** Whether the line for CloudWatch is written. */
  journal: boolean;
  bytes: number;
}

/** What the process that measures is told. */
export interface Assignment extends Case {
  publicKey: string;
  segment: string;
  rounds: number;
}

/** The name of the cluster whose key the measured reviews hold. */
export const cluster = "bench";

/** As if postern.yaml named the rule, and said no more than these settings. */
export const shareOf = ({ name, rule }: Listed, said: object = {}): Share => {
  const settings = merge(rule.settings ?? {}, said);
  return { rule: name, clusters: { [cluster]: { keyVersions: [1], mode: "enforce", settings } } };
};

/** The handler's time over the floor's, once a round; the floor parses the body and writes a small answer. */
export const handlerRatios = async (one: Case, signer: Signer, rounds: number): Promise<number[]> => {
  const nowhere = await open(devNull, "w");
  const child = fork(fileURLToPath(new URL("measured.ts", import.meta.url)), {
    execArgv: ["--expose-gc"],
    env: { ...process.env, POSTERN_KEYS: signer.publicKey },
    stdio: ["ignore", nowhere.fd, "inherit", "ipc"],
  });
  try {
    const ended = once(child, "exit").then(([code]) => {
      throw new Error(`the process that measures ended with ${code}`);
    });
    child.send({
      ...one,
      publicKey: signer.publicKey,
      segment: signer.segment(cluster, 1),
      rounds,
    } satisfies Assignment);
    const [ratios] = await Promise.race([once(child, "message"), ended]);
    return ratios;
  } finally {
    child.kill();
    await nowhere.close();
  }
};
