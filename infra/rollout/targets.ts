import { mkdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { stringify } from "yaml";
import type { Question } from "../aws/metrics.ts";
import type { Stage } from "../aws/stage.ts";
import { lossMetric, lossOutput, routeOf } from "../build/deployment.ts";
import { idOf } from "../catalogue/names.ts";
import type { Listed } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import { counted, type Progress } from "../cli/progress.ts";
import { type Deployer, describeEks, openCluster } from "../clusters/access.ts";
import type { ClusterApi, Manifest } from "../clusters/api.ts";
import { differencesOfAll } from "../clusters/drift.ts";
import { applyAll, applyRights, drift } from "../clusters/entries.ts";
import { surveyBy, surveyed, surveying } from "../clusters/inspection.ts";
import { probeAll } from "../clusters/probe.ts";
import type { Cluster, Config } from "../config/config.ts";
import { askingRules } from "../config/connections.ts";
import { entriesOf } from "../webhooks/entry.ts";
import { ruleOf, type Webhook } from "../webhooks/webhooks.ts";
import { configurationName, type Door, hardenable, manifestsOf, stageLabel, webhooksIn, withKey } from "./entries.ts";
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
  /** Guards fail closed at once, or after so many reviews, if none was lost. */
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
export const doorOf = (
  { url, ca, stage }: Pick<Targets, "url" | "ca"> & { stage: Pick<Stage, "name"> },
  outputs: Record<string, string>,
): Door => ({
  ...{ ca, stage: stage.name },
  base: (rule) => (url ?? outputs.BaseUrl ?? outputs[`${idOf(rule)}BaseUrl`] ?? "").replace(/\/+$/, ""),
});

/** Whom we are to a cluster. A kubeconfig's context of its name is meant for it; one for several has one for each. */
export const accessTo = (
  { stage, file, deployer, config }: Pick<Targets, "stage" | "file" | "deployer" | "config">,
  name: string,
): Promise<ClusterApi> => {
  const { kubeconfig, context } = deployer;
  const isForSeveral = kubeconfig !== undefined && config.clusters.size > 1;
  return openCluster(name, clusterOf({ config }, name).connect, {
    ...{ identity: stage.identity, guard: stage.guard, folder: dirname(file), kubeconfig },
    context: context ?? (isForSeveral ? name : undefined),
    preferred: name,
  });
};

/** Of two stages that told one cluster, the other's entries would be lost, and those who rely on them not told. */
export const mustBeOurs = async (api: ClusterApi, { name }: Pick<Stage, "name">): Promise<void> => {
  for (const kind of ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] as const) {
    const found = await api.get({ kind, name: configurationName });
    const owner = found?.metadata.labels?.[stageLabel];
    if (owner !== undefined && owner !== name)
      throw new Complaint(
        `cluster ${api.cluster} has its entries from stage ${owner}, not ${name}; postern destroy --stage ${owner} --configs-only --cluster ${api.cluster} would free it`,
        1,
      );
  }
};

/** A cluster with what its rules' surveys found there, and what is worth saying of it. */
const foundIn = (
  targets: Pick<Targets, "stage" | "file" | "deployer" | "config" | "catalogue">,
  name: string,
): ReturnType<typeof surveyed> =>
  surveyed(targets.catalogue, clusterOf(targets, name), async () => surveyBy(await accessTo(targets, name)));

/** Entries that follow from what is in a cluster, and were made when something else was in it; in sentences. */
export const outgrownIn = async (
  targets: Pick<Targets, "stage" | "file" | "deployer" | "config" | "catalogue">,
  name: string,
  told: Webhook[],
): Promise<string[]> => {
  const { cluster } = await foundIn(targets, name);
  return surveying(targets.catalogue, cluster).flatMap((listed) => {
    const setup = cluster.rules.get(listed.name);
    return listed.phases.flatMap((phase) => {
      const match = setup ? entriesOf(listed, phase, setup, false).flatMap(({ entry }) => entry.match) : [];
      const known = told.filter((one) => ruleOf(one) === listed.name && one.clientConfig.url.includes(`/${phase}`));
      const wanted = match.map((one) => ({ scope: "*", ...one }));
      const isSame = isDeepStrictEqual(
        known.flatMap(({ rules }) => rules),
        wanted,
      );
      const what = `what is in the cluster asks for other ${phase} entries of ${listed.name} than it has`;
      return isSame ? [] : [`${what}; postern deploy renews them`];
    });
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
  const found = await foundIn(targets, name).catch((error: unknown) => {
    if (error instanceof Complaint) return error;
    throw error;
  });
  if (found instanceof Complaint)
    return { cluster: name, hardened: [], differences: [], unknown: found.message, notes: [] };
  const { cluster } = found;
  const door = doorOf(targets, outputs);
  const { hardened, notes: open } = await hardenedIn(targets, [name, cluster], newest, door, outputs);
  const notes = [...found.notes, ...open];
  const manifests = manifestsOf(targets.catalogue, [name, cluster], door, new Set(hardened));
  const plan = { cluster: name, hardened, notes };
  const keyVersion = keyVersionOf(cluster);
  const signer = keyring?.current.publicKey ?? newest?.keys?.signer;
  const unlike = compareWithRecord(newest, name, { manifests, keyVersion, signer });
  const isRecorded = unlike.length === 0;
  if (targets.write !== undefined)
    return { ...plan, differences: isRecorded ? [] : [`the entries are written to ${targets.write}`] };
  if (keyring === undefined) {
    const unfinished = `release r${newest?.id} was not finished, and the cluster may lack some of its entries`;
    return { ...plan, differences: newest?.complete === false ? [...unlike, unfinished] : unlike };
  }
  try {
    const api = await accessTo(targets, name);
    await mustBeOurs(api, targets.stage);
    const isServed = webhooksIn(manifests).every(({ clientConfig }) => clientConfig.url.startsWith("https:"));
    if (!isServed) return { ...plan, differences: webhooksIn(manifests).map((one) => `entry ${one.name} is missing`) };
    const wanted = withKey(manifests, keyring.current.segment(name, keyVersion));
    const found = (await drift(api, wanted, configurationName)).map(({ sentence }) => sentence);
    if (found.length > 0 || isRecorded) return { ...plan, differences: found };
    return { ...plan, differences: ["it is as it shall be, but the record doesn't say so yet"] };
  } catch (error) {
    if (!(error instanceof Complaint)) throw error;
    return { ...plan, differences: [], unknown: error.message };
  }
};

/** Compares what a cluster would be told with what the newest release says it was told; in sentences, none if alike. */
export const compareWithRecord = (
  newest: Release | undefined,
  name: string,
  wanted: { manifests: Manifest[]; keyVersion: number; signer: string | undefined },
): string[] => {
  const before = newest?.clusters[name];
  const found = differencesOfAll(before?.manifests ?? [], wanted.manifests).map(({ sentence }) => sentence);
  if (before === undefined) return found;
  if (before.keyVersion !== wanted.keyVersion)
    found.push(`its URLs get a key of version ${wanted.keyVersion}, not ${before.keyVersion}`);
  if (before.signer !== wanted.signer) found.push("its URLs are to be signed with the stage's present key");
  return found;
};

/** Which rules fail closed in a cluster: those that did before, and those that have now shown that they can. */
const hardenedIn = async (
  targets: Targets,
  [name, cluster]: [string, Cluster],
  newest: Release | undefined,
  door: Door,
  outputs: Record<string, string>,
): Promise<{ hardened: string[]; notes: string[] }> => {
  const { stage, catalogue, harden } = targets;
  const candidates = hardenable(catalogue, [name, cluster], door);
  if (harden === true) return { hardened: candidates, notes: [] };
  const before = newest?.clusters[name];
  const already = candidates.filter((rule) => before?.hardened.includes(rule));
  if (harden === false) return { hardened: already, notes: [] };
  const others = candidates.filter((rule) => !already.includes(rule));
  // A stack of an older version of Postern doesn't count what its gateway loses.
  const isUncounted = outputs.BaseUrl !== undefined && outputs[lossOutput] === undefined;
  const reviews = await readReviews(stage, name, cluster, others, before);
  const counts = others.map((rule) => {
    const { count, losses } = reviews.get(rule) ?? { count: 0, losses: [] };
    const reasons = isUncounted ? ["the stack doesn't count yet what its gateway loses", ...losses] : losses;
    return { rule, clean: reasons.length > 0 ? 0 : count, reasons };
  });
  const ready = new Set(counts.filter(({ clean }) => clean >= harden).map(({ rule }) => rule));
  const notes = counts
    .filter(({ rule }) => !ready.has(rule))
    .map(({ rule, clean, reasons }) => {
      const why = reasons.length > 0 ? ` (${reasons.join(", ")})` : "";
      return `${rule} fails open as yet: ${clean} of ${harden} reviews without a failure${why}`;
    });
  return { hardened: candidates.filter((rule) => already.includes(rule) || ready.has(rule)), notes };
};

const week = 7 * 24 * 3_600_000;

/** Reviews of one rule. */
interface Reviews {
  /** How many clusters sent: those that we sent ourselves are left out. */
  count: number;
  /** What became of those that were lost, with numbers. */
  losses: string[];
}

/**
 * The reviews of a cluster since its entries are there, or in the last seven days. Functions count by cluster. What AWS
 * counts in their place (crashes, timeouts, throttled calls, answers of the gateway) belongs to every cluster.
 */
const readReviews = async (
  { metrics, functions, name: stageName }: Stage,
  name: string,
  cluster: Cluster,
  rules: string[],
  before: ReleasedCluster | undefined,
): Promise<Map<string, Reviews>> => {
  const there = rules.filter((rule) => before?.since[rule] !== undefined);
  if (before === undefined || there.length === 0) return new Map();
  const found = new Map<string, Reviews>();
  // Those that have been there for as long are asked of together.
  for (const [since, some] of Map.groupBy(there, (rule) => before.since[rule] ?? "")) {
    const from = new Date(Math.max(Date.parse(since), Date.now() - week));
    const questions: Record<string, Question> = {};
    for (const rule of some) {
      const mode = cluster.rules.get(rule)?.mode ?? "enforce";
      for (const phase of ["mutate", "validate"]) {
        const dimensions = { Rule: rule, Phase: phase, Cluster: name, Mode: mode };
        questions[`${rule} reviews ${phase}`] = { namespace: "Postern", metric: "Reviews", dimensions, stat: "Sum" };
        questions[`${rule} failed ${phase}`] = { namespace: "Postern", metric: "Errors", dimensions, stat: "Sum" };
      }
      const ofLambda = (metric: string): Question => {
        return { namespace: "AWS/Lambda", metric, dimensions: { FunctionName: functions.nameOf(rule) }, stat: "Sum" };
      };
      questions[`${rule} crashed`] = ofLambda("Errors");
      questions[`${rule} throttled`] = ofLambda("Throttles");
      questions[`${rule} url`] = ofLambda("Url5xxCount");
      // A request that is refused before its route is known has the route "-".
      for (const Route of [routeOf(rule), "-"]) {
        const dimensions = { Stage: stageName, Route };
        questions[`${rule} gateway ${Route}`] = { ...lossMetric, dimensions, stat: "Sum" };
      }
    }
    const sums: Record<string, number> = await metrics.ask(questions, from, new Date());
    for (const rule of some) {
      const sum = (what: string) =>
        Object.entries(sums).reduce((all, [id, value]) => (id.startsWith(`${rule} ${what}`) ? all + value : all), 0);
      const losses = causes.flatMap(([what, words]) => (sum(what) > 0 ? [`${sum(what)} ${words}`] : []));
      found.set(rule, { count: Math.max(0, sum("reviews") - (before.probed?.[rule] ?? 0)), losses });
    }
  }
  return found;
};

/** By which metrics reviews are known to be lost, and how that is told. */
const causes = [
  ["failed", "failed"],
  ["crashed", "ended by a crash or a timeout"],
  ["throttled", "throttled by Lambda"],
  ["gateway", "answered 429 or 5xx by the gateway"],
  ["url", "answered 5xx at the function's URL"],
] as const;

/** Tells a cluster: first who may read what, then, when every endpoint answers over its real address, the entries. */
export const tellCluster = async (
  targets: Targets,
  name: string,
  before: ReleasedCluster | undefined,
  hardened: string[],
  keyring: Keyring,
  record: (told: ReleasedCluster) => Promise<void>,
): Promise<void> => {
  const { catalogue, progress, stage, write } = targets;
  const { cluster } = await foundIn(targets, name);
  const door = doorOf(targets, await stage.stack.outputs());
  const manifests = manifestsOf(catalogue, [name, cluster], door, new Set(hardened));
  const keyVersion = keyVersionOf(cluster);
  const since = sinceWhen(manifests, before?.since ?? {});
  const wanted = withKey(manifests, keyring.current.segment(name, keyVersion));
  const entries = webhooksIn(wanted);
  const signer = keyring.current.publicKey;
  const told = { at: new Date().toISOString(), keyVersion, signer, hardened, since, manifests };
  const probed = probesOf(before, entries);
  const api = write === undefined ? await accessTo(targets, name) : undefined;
  if (api) {
    await mustBeOurs(api, stage);
    await applyRights(api, wanted);
  } else
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
  // Written down before it is done: whoever stops midway leaves a cluster that may have them.
  await record({ ...told, probed });
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
};

/** How many reviews we have sent to each rule ourselves: they show that it answers, not that it does so to users. */
const probesOf = (before: ReleasedCluster | undefined, entries: Webhook[]): Record<string, number> => {
  const probes: Record<string, number> = { ...before?.probed };
  // Each entry once, and its rule twice more: after the entries, and when its alias moves.
  for (const entry of entries) {
    const rule = ruleOf(entry) ?? "";
    probes[rule] = (probes[rule] ?? 0) + 3;
  }
  return probes;
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
  await mkdir(folder, { recursive: true });
  const file = join(folder, name);
  // One that somebody applied before must not stay.
  if (manifests.length === 0) return rm(file, { force: true }).then(() => "there are none");
  const documents = manifests.map((one) => stringify(one, { lineWidth: 0, aliasDuplicateObjects: false }));
  await writeFile(file, documents.join("---\n"));
  return `written to ${file}`;
};
