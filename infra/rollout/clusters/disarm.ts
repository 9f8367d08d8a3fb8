import { readFile } from "node:fs/promises";
import { type EndpointConfig, findClusterSetup } from "#lib/core/endpoint.ts";
import { toMap } from "#lib/json.ts";
import type { LambdaVersionContent } from "../../aws/function-updates.ts";
import type { LiveAlias, PublishedVersion, StageFunctions } from "../../aws/lambda-functions.ts";
import { readOwnZip, zip } from "../../build/zip.ts";
import { Complaint } from "../../cli/complaint.ts";
import { buildProbeReview } from "../../clusters/probe.ts";

// These functions disarm rules in emergencies: they need neither the catalogue nor the cluster, which may be blocked.

/** What `postern status` shows of a rule in a stage: live version, weights, and whether it is disarmed. */
export interface LiveRuleState {
  rule: string;
  version: string;
  weights: Record<string, number>;
  modified: Date;
  /** The time until which the rule allows everything, and the version that is replaced until then. */
  disarmed?: { until: Date; version: string };
  previous?: string;
  /** Whether the rule keeps values in the stage's ledger. */
  keepsLedger?: boolean;
}

/**
 * The state of a rule's function. `live` has the alias's revision, so that moving the alias fails if another command
 * has moved it since.
 */
export interface FunctionState extends LiveRuleState {
  live: LiveAlias;
  versions: PublishedVersion[];
  /** What $LATEST has, which answers no review. */
  latest: LambdaVersionContent;
  /** The version with the real rule: the live one or, if the live one is disarmed, the one that it replaces. */
  ruleVersion: PublishedVersion;
}

/**
 * Reads the state of a rule's function. `released` are the versions that were live, the last one first; undefined if
 * unknown, then any version counts. `mayLackAlias`: an alias that doesn't exist is described as it was released.
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
  const previous = released
    ? released.find((version) => version !== ruleVersion.version && find(version) !== undefined)
    : versions.findLast((version) => Number(version.version) < Number(ruleVersion.version) && !parseDisarmed(version))
        ?.version;
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

/** What releases record about the clusters' keys; `target` is the config of the version to roll back to. */
export interface RecordedKeyVersions {
  inUse: Record<string, readonly number[]>;
  target: EndpointConfig;
}

/** What releases record of a rule: the versions that went live, and the clusters' keys. */
interface KnownReleases {
  released?: string[] | undefined;
  recorded?: RecordedKeyVersions | undefined;
}

/** Points `live` at an earlier version, by default the previous one; ends a canary instead if one runs. */
export const rollBackAlias = async (
  functions: StageFunctions,
  rule: string,
  to?: string,
  known: KnownReleases = {},
): Promise<string> => {
  const state = await readFunctionState(functions, rule, known.released);
  const { live } = state;
  // A rollback during a canary ends the canary and keeps the main version.
  const isOnTrial = Object.keys(live.weights).length > 0;
  const wanted = to ?? (isOnTrial ? live.version : state.previous);
  if (wanted === undefined) throw new Complaint(`${rule} has no version before version ${live.version}`, 1);
  if (to !== undefined || !isOnTrial) requireRollbackTarget(state, wanted, known);
  if (wanted !== live.version || Object.keys(live.weights).length > 0) await functions.moveAlias(rule, wanted, live);
  return wanted;
};

/** Throws a Complaint unless a rule can be rolled back to the version `wanted`. */
export const requireRollbackTarget = (
  { rule, versions, ruleVersion }: FunctionState,
  wanted: string,
  { released, recorded }: KnownReleases,
): void => {
  const target = versions.find(({ version }) => version === wanted);
  if (target === undefined)
    throw new Complaint(
      `${rule} has no version ${wanted}; it has ${versions.map(({ version }) => version).join(", ")}`,
    );
  if (parseDisarmed(target))
    throw new Complaint(`version ${wanted} of ${rule} is a disarmed version, made by postern disarm`);
  if (released && !released.includes(wanted))
    throw new Complaint(`version ${wanted} of ${rule} never went live: it may not have passed its cases`, 1);
  const refuse = (what: string) => {
    throw new Complaint(
      `version ${wanted} of ${rule} doesn't accept ${what} that are in use now; roll back to a version that does`,
      1,
    );
  };
  if (!includesVariable(target, ruleVersion, "POSTERN_KEYS")) refuse("the keys");
  if (!hasKeyVersionsOf(target, ruleVersion, recorded)) refuse("the clusters and key versions");
};

/**
 * Reports whether a version accepts all key versions that the live one accepts. Versions of older Postern versions list
 * them in POSTERN_ACCEPTS. Others have a hash in POSTERN_CLUSTERS; if theirs differ, what releases record decides, and
 * without a record the answer is no.
 */
const hasKeyVersionsOf = (
  target: PublishedVersion,
  live: PublishedVersion,
  recorded?: RecordedKeyVersions,
): boolean => {
  const [hash, list] = ["POSTERN_CLUSTERS", "POSTERN_ACCEPTS"] as const;
  const [wanted, present] = [target.environment[hash], live.environment[hash]];
  if (wanted === undefined && present === undefined) return includesVariable(target, live, list);
  if (wanted === present) return true;
  return (
    recorded !== undefined &&
    Object.entries(recorded.inUse).every(([name, versions]) => {
      const accepted = findClusterSetup(recorded.target, name)?.keyVersions ?? [];
      return versions.every((version) => accepted.includes(version));
    })
  );
};

const includesVariable = (target: PublishedVersion, live: PublishedVersion, name: string): boolean => {
  const accepted = splitVariable(target, name);
  return splitVariable(live, name).every((entry) => accepted.includes(entry));
};

/** Makes a rule allow every request until a time, by a new Lambda version. Returns this version's number. */
export const disarmRule = async (functions: StageFunctions, rule: string, until: Date): Promise<string> => {
  const { live, versions, ruleVersion } = await readFunctionState(functions, rule);
  await restoreLatestCode(functions, rule, versions);
  const stand = await readFile(new URL("disarmed.cjs", import.meta.url));
  const version = await functions.republish(rule, ruleVersion, {
    code: (archive) => {
      const { "index.cjs": own, ...others } = readOwnZip(archive) ?? {};
      if (own === undefined)
        throw new Complaint(`version ${ruleVersion.version} of ${rule} was not built by postern build`, 3);
      return zip({ "index.cjs": stand, "rule.cjs": own, ...others });
    },
    environment: {
      ...ruleVersion.environment,
      DISARMED_UNTIL: until.toISOString(),
      DISARMED_VERSION: ruleVersion.version,
      DISARMED_RULE: rule,
    },
    description: `Version ${ruleVersion.version}, disarmed until ${until.toISOString()}`,
  });
  await requireAdmits(functions, rule, version);
  await functions.moveAlias(rule, version, live);
  return version;
};

/** Makes a disarmed rule decide again, before its time is over. Returns the version that is live now. */
export const restoreDisarmedRule = async (functions: StageFunctions, rule: string): Promise<string> => {
  const { live, versions, ruleVersion, disarmed } = await readFunctionState(functions, rule);
  if (disarmed) await functions.moveAlias(rule, ruleVersion.version, live);
  await restoreLatestCode(functions, rule, versions);
  return ruleVersion.version;
};

/** Restores the function's unpublished code and environment if an interrupted `disarm` left its own. */
const restoreLatestCode = async (functions: StageFunctions, rule: string, versions: PublishedVersion[]) => {
  const latest = versions.findLast((version) => !parseDisarmed(version));
  if (latest && "DISARMED_UNTIL" in (await functions.readLatestEnvironment(rule)))
    await functions.restore(rule, latest);
};

/**
 * Returns until when a disarmed version applies, and the version that it replaces. A version counts as disarmed only
 * if its description says so: leftover environment variables are not enough.
 */
const parseDisarmed = ({ environment: { DISARMED_UNTIL, DISARMED_VERSION }, description }: PublishedVersion) =>
  DISARMED_UNTIL && DISARMED_VERSION && description.startsWith(`Version ${DISARMED_VERSION}, disarmed until `)
    ? { until: new Date(DISARMED_UNTIL), version: DISARMED_VERSION }
    : undefined;

const splitVariable = ({ environment }: PublishedVersion, name: string) =>
  (environment[name] ?? "").split(",").filter(Boolean);

/** Sends a version a probe review; throws if the version doesn't allow it: the alias must not point there. */
const requireAdmits = async (functions: StageFunctions, rule: string, version: string) => {
  const { payload, fault } = await functions.invoke(rule, version, { phase: "validate", review: buildProbeReview([]) });
  if (toMap(toMap(payload).response).allowed === true) return;
  throw new Complaint(
    `version ${version}, which should replace ${rule}, doesn't allow a review: ${fault ?? "it refuses"}`,
    3,
  );
};
