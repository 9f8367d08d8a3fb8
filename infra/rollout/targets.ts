import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { stringify } from "yaml";
import type { Stage } from "../aws/stage.ts";
import { type Deployer, describeEks, openCluster } from "../clusters/access.ts";
import type { ClusterApi, Manifest } from "../clusters/api.ts";
import { applyAll, applyRights, drift } from "../clusters/entries.ts";
import { probeAll } from "../clusters/probe.ts";
import { Complaint } from "../complaint.ts";
import type { Cluster, Config } from "../config.ts";
import { askingRules } from "../connections.ts";
import { idOf } from "../endpoints.ts";
import { counted, inParallel, type Progress } from "../progress.ts";
import type { Listed } from "../registry.ts";
import { ruleOf, type Webhook } from "../webhooks.ts";
import { configurationName, type Door, hardenable, manifestsOf, webhooksIn, withKey } from "./entries.ts";
import type { Keyring } from "./keyring.ts";
import type { Release, ReleasedCluster } from "./releases.ts";

/** The clusters that are told of a stage's rules, and how. */
export interface Targets {
  stage: Stage;
  config: Config;
  catalogue: Listed[];
  /** Where `config` was read. */
  file: string;
  /** Those whose entries are renewed; functions serve all of them. */
  clusters: string[];
  deployer: Deployer;
  /** Instead of the gateway's own address and its public certificate. */
  url?: string | undefined;
  ca?: string | undefined;
  /** Guards fail closed at once, or after so many reviews without a failure. */
  harden: boolean | number;
  /** A folder to write the entries to, the key left out, instead of applying them. */
  write?: string | undefined;
  progress: Progress;
}

/** What a cluster would be told. */
export interface ClusterPlan {
  cluster: string;
  hardened: string[];
  /** What differs from what is there, in sentences. */
  differences: string[];
  /** Why that can't be known. */
  unknown?: string;
  notes: string[];
}

const clusterOf = ({ config }: Pick<Targets, "config">, name: string): Cluster => {
  const cluster = config.clusters.get(name);
  if (cluster === undefined) throw new Complaint(`postern.yaml has no cluster "${name}"`);
  return cluster;
};

/** The key version that a cluster's URLs are signed with. */
const keyVersionOf = ({ keyVersions }: Cluster): number => keyVersions.at(-1) ?? 1;

/** EKS says where a cluster is that postern.yaml doesn't say it of. */
export const withAddresses = async ({ config, catalogue, stage }: Targets): Promise<Config> => {
  const clusters = [...config.clusters].map(async ([name, cluster]): Promise<[string, Cluster]> => {
    const { connect } = cluster;
    const isOpen = connect?.eks !== undefined && connect.server === undefined;
    if (!isOpen || askingRules(catalogue, cluster).length === 0) return [name, cluster];
    return [name, { ...cluster, connect: { ...connect, ...(await describeEks(connect, stage.identity)) } }];
  });
  return { ...config, clusters: new Map(await Promise.all(clusters)) };
};

/** Where rules are served, as the stack says, or whoever stands in front of it. */
export const doorOf = ({ url, ca }: Pick<Targets, "url" | "ca">, outputs: Record<string, string>): Door => ({
  ca,
  base: (rule) => (url ?? outputs.BaseUrl ?? outputs[`${idOf(rule)}BaseUrl`] ?? "").replace(/\/+$/, ""),
});

/** Whom we are to a cluster. A kubeconfig for several has a context for each, by its name. */
export const accessTo = (
  { stage, file, deployer, config }: Pick<Targets, "stage" | "file" | "deployer" | "config">,
  name: string,
): Promise<ClusterApi> => {
  const { kubeconfig, context } = deployer;
  const isForSeveral = kubeconfig !== undefined && config.clusters.size > 1;
  return openCluster(name, clusterOf({ config }, name).connect, {
    ...{ identity: stage.identity, folder: dirname(file), kubeconfig },
    context: context ?? (isForSeveral ? name : undefined),
  });
};

/** What a cluster would be told, and what that changes there. */
export const planCluster = async (
  targets: Targets,
  name: string,
  newest: Release | undefined,
  keyring: Keyring | undefined,
  outputs: Record<string, string>,
): Promise<ClusterPlan> => {
  const cluster = clusterOf(targets, name);
  const door = doorOf(targets, outputs);
  const { hardened, notes } = await hardenedIn(targets, name, newest, door);
  const manifests = manifestsOf(targets.catalogue, [name, cluster], door, new Set(hardened));
  const plan = { cluster: name, hardened, notes };
  const before = newest?.clusters[name];
  const isRecorded = isDeepStrictEqual(before?.manifests, manifests) && before?.keyVersion === keyVersionOf(cluster);
  if (targets.write !== undefined)
    return { ...plan, differences: isRecorded ? [] : [`the entries are written to ${targets.write}`] };
  try {
    const api = await accessTo(targets, name);
    const isServed = webhooksIn(manifests).every(({ clientConfig }) => clientConfig.url.startsWith("https:"));
    if (!isServed || keyring === undefined)
      return { ...plan, differences: webhooksIn(manifests).map((one) => `entry ${one.name} is missing`) };
    const wanted = withKey(manifests, keyring.current.segment(name, keyVersionOf(cluster)));
    const found = (await drift(api, wanted, configurationName)).map(({ sentence }) => sentence);
    if (found.length > 0 || isRecorded) return { ...plan, differences: found };
    return { ...plan, differences: ["it is as it shall be, but the record doesn't say so yet"] };
  } catch (error) {
    if (!(error instanceof Complaint)) throw error;
    return { ...plan, differences: [], unknown: error.message };
  }
};

/** Which rules fail closed in a cluster: those that did before, and those that have now shown that they can. */
const hardenedIn = async (
  targets: Targets,
  name: string,
  newest: Release | undefined,
  door: Door,
): Promise<{ hardened: string[]; notes: string[] }> => {
  const { stage, catalogue, harden } = targets;
  const cluster = clusterOf(targets, name);
  const candidates = hardenable(catalogue, [name, cluster], door);
  if (harden === true) return { hardened: candidates, notes: [] };
  const before = newest?.clusters[name];
  const already = candidates.filter((rule) => before?.hardened.includes(rule));
  if (harden === false) return { hardened: already, notes: [] };
  const others = candidates.filter((rule) => !already.includes(rule));
  const counted = await inParallel(5, others, async (rule) => {
    return { rule, clean: await cleanReviews(stage, rule, name, cluster, before?.since[rule]) };
  });
  const ready = new Set(counted.filter(({ clean }) => clean >= harden).map(({ rule }) => rule));
  const notes = counted
    .filter(({ rule }) => !ready.has(rule))
    .map(({ rule, clean }) => `${rule} fails open as yet: ${clean} of ${harden} reviews without a failure`);
  return { hardened: candidates.filter((rule) => already.includes(rule) || ready.has(rule)), notes };
};

/** Reviews since its entries are there; none count where one failed. */
const cleanReviews = async (
  { metrics }: Stage,
  rule: string,
  name: string,
  cluster: Cluster,
  since: string | undefined,
): Promise<number> => {
  if (since === undefined) return 0;
  const mode = cluster.rules.get(rule)?.mode ?? "enforce";
  const about = (metric: string, phase: string) => ({
    ...{ namespace: "Postern" as const, metric, stat: "Sum" as const },
    dimensions: { Rule: rule, Phase: phase, Cluster: name, Mode: mode },
  });
  const sums = await metrics.ask(
    {
      ...{ mutated: about("Reviews", "mutate"), validated: about("Reviews", "validate") },
      ...{ broken: about("Errors", "mutate"), failed: about("Errors", "validate") },
    },
    new Date(since),
    new Date(),
  );
  return sums.broken + sums.failed > 0 ? 0 : sums.mutated + sums.validated;
};

/** Tells a cluster: first who may read what, then, when every endpoint answers over its real address, the entries. */
export const tellCluster = async (
  targets: Targets,
  name: string,
  before: ReleasedCluster | undefined,
  hardened: string[],
  keyring: Keyring,
): Promise<ReleasedCluster> => {
  const { catalogue, progress, stage, write } = targets;
  const cluster = clusterOf(targets, name);
  const door = doorOf(targets, await stage.stack.outputs());
  const manifests = manifestsOf(catalogue, [name, cluster], door, new Set(hardened));
  const keyVersion = keyVersionOf(cluster);
  const since = sinceWhen(manifests, before?.since ?? {});
  const wanted = withKey(manifests, keyring.current.segment(name, keyVersion));
  const entries = webhooksIn(wanted);
  const api = write === undefined ? await accessTo(targets, name) : undefined;
  if (api) await applyRights(api, wanted);
  else
    await writeDown(
      String(write),
      `${name}.roles.yaml`,
      manifests.filter(({ webhooks }) => webhooks === undefined),
    );

  await progress.step(`cluster ${name}: endpoints`, async () => {
    const sick = (await probeAll(entries)).filter(({ ok }) => !ok);
    if (sick.length > 0)
      throw new Complaint(
        `cluster ${name} keeps the entries it has, for not every endpoint answers:\n${sick.map(({ entry, sentence }) => `${entry}: ${sentence}`).join("\n")}`,
        1,
      );
    return `${entries.length} answer`;
  });
  await progress.step(`cluster ${name}: entries`, async () => {
    if (api === undefined)
      return writeDown(
        String(write),
        `${name}.entries.yaml`,
        manifests.filter(({ webhooks }) => webhooks !== undefined),
      );
    const changes = await applyAll(api, wanted, configurationName);
    const left = await drift(api, wanted, configurationName);
    const sick = (await probeAll(onePerPhase(entries))).filter(({ ok }) => !ok);
    if (left.length + sick.length > 0)
      throw new Complaint(
        `cluster ${name} is not well, and those after it were left alone:\n${[...left, ...sick].map(({ sentence }) => sentence).join("\n")}`,
        1,
      );
    return changes.length === 0 ? "as they shall be" : `${counted(changes.length, "object")} changed`;
  });
  return { at: new Date().toISOString(), keyVersion, hardened, since, manifests };
};

/** Of the many entries that some rules have, one for each cluster and phase. */
export const onePerPhase = (entries: Webhook[]): Webhook[] => [
  ...new Map(entries.map((one) => [one.clientConfig.url.replace(/\/(mutate|validate)\/[^/]+$/, "/$1"), one])).values(),
];

const sinceWhen = (manifests: Manifest[], before: Record<string, string>): Record<string, string> => {
  const now = new Date().toISOString();
  const rules = webhooksIn(manifests).flatMap((webhook) => ruleOf(webhook) ?? []);
  return Object.fromEntries(rules.map((rule) => [rule, before[rule] ?? now]));
};

const writeDown = async (folder: string, name: string, manifests: Manifest[]): Promise<string> => {
  if (manifests.length === 0) return "there are none";
  await mkdir(folder, { recursive: true });
  const file = join(folder, name);
  const documents = manifests.map((one) => stringify(one, { lineWidth: 0, aliasDuplicateObjects: false }));
  await writeFile(file, documents.join("---\n"));
  return `written to ${file}`;
};
