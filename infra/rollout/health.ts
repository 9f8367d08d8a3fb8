import { drift } from "../clusters/entries.ts";
import { probeAll } from "../clusters/probe.ts";
import { sentenceOf } from "../complaint.ts";
import { configurationName, webhooksIn, withKey } from "./entries.ts";
import { readKeyring } from "./keyring.ts";
import type { Release } from "./releases.ts";
import { accessTo, onePerPhase, outgrownIn, type Targets } from "./targets.ts";

/** How a cluster and the endpoints that it calls do. */
export interface ClusterHealth {
  cluster: string;
  /** When it was told last. */
  at: string;
  entries: number;
  /** Endpoints that don't answer it, in sentences. */
  sick: string[];
  /** Milliseconds, of the slowest of them. */
  slowest: number;
  /** What is there otherwise than it was told. */
  drift: string[];
  /** What can't be known, and why. */
  unknown: string[];
}

/** Asks each endpoint over its real address with the cluster's real key, and the cluster for what it was told. */
export const healthOf = async (
  targets: Pick<Targets, "stage" | "file" | "deployer"> & Partial<Pick<Targets, "config" | "catalogue">>,
  name: string,
  release: Release,
): Promise<ClusterHealth | undefined> => {
  const told = release.clusters[name];
  if (told === undefined) return undefined;
  const health: ClusterHealth = {
    ...{ cluster: name, at: told.at, entries: webhooksIn(told.manifests).length },
    ...{ sick: [], slowest: 0, drift: [], unknown: [] },
  };
  const keyring = await readKeyring(targets.stage.parameters).catch(sentenceOf);
  if (keyring === undefined || typeof keyring === "string") {
    health.unknown.push(keyring === undefined ? "the keys are gone from SSM" : `the keys can't be read: ${keyring}`);
    return health;
  }
  const wanted = withKey(told.manifests, keyring.current.segment(name, told.keyVersion));
  // Each function once a phase: its variants are one code.
  const probed = await probeAll(onePerPhase(webhooksIn(wanted)));
  health.sick = probed.filter(({ ok }) => !ok).map(({ entry, sentence }) => `${entry}: ${sentence}`);
  health.slowest = Math.max(0, ...probed.map(({ milliseconds }) => milliseconds));
  const { config } = targets;
  if (config === undefined || !config.clusters.has(name)) {
    health.unknown.push("postern.yaml doesn't say how to reach it");
    return health;
  }
  try {
    const found = await drift(await accessTo({ ...targets, config }, name), wanted, configurationName);
    health.drift = found.map(({ sentence }) => sentence);
    const { catalogue = [] } = targets;
    health.drift.push(...(await outgrownIn({ ...targets, config, catalogue }, name, webhooksIn(told.manifests))));
  } catch (error) {
    health.unknown.push(sentenceOf(error));
  }
  return health;
};
