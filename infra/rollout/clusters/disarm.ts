import { readFile } from "node:fs/promises";
import { type EndpointConfig, findClusterSetup } from "#lib/core/endpoint.ts";
import { toMap } from "#lib/json.ts";
import type { LambdaVersionContent } from "../../aws/function-updates.ts";
import type { LiveAlias, PublishedVersion, StageFunctions } from "../../aws/lambda-functions.ts";
import { readOwnZip, zip } from "../../build/zip.ts";
import { Complaint } from "../../cli/complaint.ts";
import { buildProbeReview } from "../../clusters/probe.ts";

// These functions disarm rules in emergencies. They read neither the catalogue nor the cluster, because a failing rule
// may block all requests to the cluster.

/** What `postern status` shows of a rule in a stage: live version, weights, and whether it is disarmed. */
export interface LiveRuleState {
  rule: string;
  version: string;
  weights: Record<string, number>;
  modified: Date;
  /** The time until which the rule allows everything, and the version that is live again after that time. */
  disarmed?: { until: Date; version: string };
  /** The version to which a rollback goes. */
  previous?: string;
  /** Whether the rule keeps values in the stage's ledger. */
  keepsLedger?: boolean;
}

/** The state of a rule's function. */
export interface FunctionState extends LiveRuleState {
  /** The alias with its revision: a later move of the alias fails if another command has moved it in the meantime. */
  live: LiveAlias;
  versions: PublishedVersion[];
  /** Code and settings of $LATEST. No review is sent to $LATEST. */
  latest: LambdaVersionContent;
  /** The version with the real rule: the live one or, if the live one is disarmed, the one that it replaces. */
  ruleVersion: PublishedVersion;
}

/**
 * Reads the state of a rule's function. `released` are the versions that were live, the last one first. If it is
 * undefined, any version may have been live. `mayLackAlias`: a deleted alias is described with the version that was
 * live last.
 */
export const readFunctionState = async (
  functions: StageFunctions,
  rule: string,
  released?: string[],
  { mayLackAlias = false } = {},
): Promise<FunctionState> => {
  const [last] = mayLackAlias ? (released ?? []) : [];
  const [live, { versions, latest }] = await Promise.all([
    functions.readAlias(rule).catch((error: unknown): LiveAlias => {
      if (last === undefined || !(error instanceof Complaint)) throw error;
      return { version: last, weights: {}, revision: undefined, isMissing: true };
    }),
    functions.readVersions(rule),
  ]);
  const find = (wanted: string) => versions.find(({ version }) => version === wanted);
  const current = find(live.version);
  if (current === undefined)
    throw new Complaint(`the alias of ${rule} points at version ${live.version}, which doesn't exist`, 3);
  const disarmed = parseDisarmed(current);
  const ruleVersion = disarmed ? find(disarmed.version) : current;
  if (ruleVersion === undefined)
    throw new Complaint(
      `${rule} is disarmed, and version ${disarmed?.version}, which was live before, doesn't exist any more`,
      3,
    );
  const isEarlierRule = (version: PublishedVersion) =>
    Number(version.version) < Number(ruleVersion.version) && !parseDisarmed(version);
  const previous = released
    ? released.find((version) => version !== ruleVersion.version && find(version) !== undefined)
    : versions.findLast(isEarlierRule)?.version;
  return {
    rule,
    version: live.version,
    weights: live.weights,
    modified: current.modified,
    live,
    versions,
    latest,
    ruleVersion,
    ...(disarmed && { disarmed }),
    ...(previous !== undefined && { previous }),
    ...(ruleVersion.environment.POSTERN_LEDGER !== undefined && { keepsLedger: true }),
  };
};

/** What releases record about the clusters' keys. */
export interface RecordedKeyVersions {
  /** The key versions that are accepted now, by cluster. */
  inUse: Record<string, readonly number[]>;
  /** The config of the version to roll back to. It has the key versions that this version accepts. */
  rollbackConfig: EndpointConfig;
}

/** What releases record of a rule: the versions that went live, and the clusters' keys. */
interface KnownReleases {
  releasedVersions?: string[] | undefined;
  recordedKeyVersions?: RecordedKeyVersions | undefined;
}

/**
 * Points the alias `live` at the version `to`. Without `to`, it ends a running canary, or else goes back to the
 * previous version. Returns the version that is live afterwards.
 */
export const rollBackAlias = async (
  functions: StageFunctions,
  rule: string,
  to?: string,
  knownReleases: KnownReleases = {},
): Promise<string> => {
  const state = await readFunctionState(functions, rule, knownReleases.releasedVersions);
  const { live } = state;
  // A rollback during a canary ends the canary and keeps the main version.
  const isOnTrial = Object.keys(live.weights).length > 0;
  const wanted = to ?? (isOnTrial ? live.version : state.previous);
  if (wanted === undefined) throw new Complaint(`${rule} has no version before version ${live.version}`, 1);
  if (to !== undefined || !isOnTrial) requireRollbackTarget(state, wanted, knownReleases);
  if (wanted !== live.version || Object.keys(live.weights).length > 0) await functions.moveAlias(rule, wanted, live);
  return wanted;
};

/** Throws a Complaint unless a rule can be rolled back to the version `wanted`. */
export const requireRollbackTarget = (
  { rule, versions, ruleVersion: current }: FunctionState,
  wanted: string,
  { releasedVersions, recordedKeyVersions }: KnownReleases,
): void => {
  const target = versions.find(({ version }) => version === wanted);
  if (target === undefined)
    throw new Complaint(
      `${rule} has no version ${wanted}; it has ${versions.map(({ version }) => version).join(", ")}`,
    );
  if (parseDisarmed(target))
    throw new Complaint(`version ${wanted} of ${rule} is a disarmed version, made by postern disarm`);
  if (releasedVersions && !releasedVersions.includes(wanted))
    throw new Complaint(`version ${wanted} of ${rule} never went live: it may not have passed its cases`, 1);
  const refuse = (what: string) => {
    throw new Complaint(
      `version ${wanted} of ${rule} doesn't accept ${what} that are in use now; roll back to a version that does`,
      1,
    );
  };
  if (!includesLiveEntries(target, current, "POSTERN_KEYS")) refuse("the keys"); // public keys that verify URLs
  if (!acceptsKeyVersionsOf(target, current, recordedKeyVersions)) refuse("the clusters and key versions");
};

/**
 * Reports whether a Lambda version accepts all key versions that the live one accepts. Older versions of Postern list
 * them in the variable POSTERN_ACCEPTS; newer ones have a hash of them in POSTERN_CLUSTERS. If the hashes differ, the
 * target's config in the releases must accept the key versions in use in the releases. Returns false without a record.
 */
const acceptsKeyVersionsOf = (
  target: PublishedVersion,
  live: PublishedVersion,
  recorded?: RecordedKeyVersions,
): boolean => {
  const [hashVariable, listVariable] = ["POSTERN_CLUSTERS", "POSTERN_ACCEPTS"] as const;
  const [targetHash, liveHash] = [target.environment[hashVariable], live.environment[hashVariable]];
  if (targetHash === undefined && liveHash === undefined) return includesLiveEntries(target, live, listVariable);
  if (targetHash === liveHash) return true;
  return (
    recorded !== undefined &&
    Object.entries(recorded.inUse).every(([name, versions]) => {
      const accepted = findClusterSetup(recorded.rollbackConfig, name)?.keyVersions ?? [];
      return versions.every((version) => accepted.includes(version));
    })
  );
};

/** Reports whether the environment variable `name`, a list, has in `target` all entries that it has in `live`. */
const includesLiveEntries = (target: PublishedVersion, live: PublishedVersion, name: string): boolean => {
  const accepted = splitVariable(target, name);
  return splitVariable(live, name).every((entry) => accepted.includes(entry));
};

/** Publishes a Lambda version of a rule that allows everything until a time, and makes it live. Returns its number. */
export const disarmRule = async (functions: StageFunctions, rule: string, until: Date): Promise<string> => {
  const { live: alias, versions, ruleVersion } = await readFunctionState(functions, rule);
  // `republish` puts back the code that it found in $LATEST: after an interrupted `disarm`, that one allows everything.
  await restoreLatestCode(functions, rule, versions);
  const allowingCode = await readFile(new URL("disarmed.cjs", import.meta.url));
  const version = await functions.republish(rule, ruleVersion, {
    code: (archive) => {
      const { "index.cjs": ruleCode, ...others } = readOwnZip(archive) ?? {};
      if (ruleCode === undefined)
        throw new Complaint(`version ${ruleVersion.version} of ${rule} was not built by postern build`, 3);
      // After the time `until`, index.cjs passes requests on to rule.cjs.
      return zip({ "index.cjs": allowingCode, "rule.cjs": ruleCode, ...others });
    },
    environment: {
      ...ruleVersion.environment,
      DISARMED_UNTIL: until.toISOString(),
      DISARMED_VERSION: ruleVersion.version,
      DISARMED_RULE: rule,
    },
    description: `Version ${ruleVersion.version}, disarmed until ${until.toISOString()}`,
  });
  await requireAllowsProbe(functions, rule, version);
  await functions.moveAlias(rule, version, alias);
  return version;
};

/** Ends the disarming of a rule before its time is over. Returns the version that is live now. */
export const restoreDisarmedRule = async (functions: StageFunctions, rule: string): Promise<string> => {
  const { live, versions, ruleVersion, disarmed } = await readFunctionState(functions, rule);
  if (disarmed) await functions.moveAlias(rule, ruleVersion.version, live);
  await restoreLatestCode(functions, rule, versions);
  return ruleVersion.version;
};

/** Restores the code and environment of $LATEST if an earlier `disarm` has replaced them. */
const restoreLatestCode = async (functions: StageFunctions, rule: string, versions: PublishedVersion[]) => {
  const latest = versions.findLast((version) => !parseDisarmed(version));
  if (latest && "DISARMED_UNTIL" in (await functions.readLatestEnvironment(rule)))
    await functions.restore(rule, latest);
};

/**
 * Returns until when a version is disarmed, and the version that it replaces; undefined if it is not disarmed. Only the
 * description of a version counts: the environment variables of an earlier disarming may have been left in others.
 */
const parseDisarmed = ({ environment: { DISARMED_UNTIL, DISARMED_VERSION }, description }: PublishedVersion) =>
  DISARMED_UNTIL && DISARMED_VERSION && description.startsWith(`Version ${DISARMED_VERSION}, disarmed until `)
    ? { until: new Date(DISARMED_UNTIL), version: DISARMED_VERSION }
    : undefined;

const splitVariable = ({ environment }: PublishedVersion, name: string) =>
  (environment[name] ?? "").split(",").filter(Boolean);

/** Sends a probe review to a version. Throws if the version doesn't allow it. */
const requireAllowsProbe = async (functions: StageFunctions, rule: string, version: string) => {
  const { payload, fault } = await functions.invoke(rule, version, { phase: "validate", review: buildProbeReview([]) });
  if (toMap(toMap(payload).response).allowed === true) return;
  throw new Complaint(
    `version ${version}, which should replace ${rule}, doesn't allow a review: ${fault ?? "it refuses"}`,
    3,
  );
};
