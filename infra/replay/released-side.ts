import type { AwsStage } from "../aws/stage.ts";
import { Complaint } from "../cli/complaint.ts";
import { type Release, readReleaseStore, requireRelease } from "../rollout/versions/releases.ts";
import { findServingFunctionName, type ReplayableVersion, type ServingFunction } from "./sides.ts";

/** Opens a release of a stage, or its live versions, for a replay: each review is sent to AWS, to a version. */
export const openReleasedVersion = async (
  { name, openStageBucket: openBucket, functions }: AwsStage,
  releaseOrLive: string,
): Promise<ReplayableVersion> => {
  const { all } = await readReleaseStore(openBucket);
  const [newest] = all;
  if (newest === undefined) throw new Complaint(`nothing was released in stage ${name} yet; postern deploy does that`);
  const isLive = releaseOrLive === "live";
  const release = isLive ? newest : requireRelease(all, releaseOrLive);
  const configs = new Map(Object.entries(release.rules).map(([part, { share }]) => [part, share]));
  const versions = new Map<string, Promise<string>>();
  const findVersion = (part: string): Promise<string> => {
    const known =
      versions.get(part) ?? (isLive ? findLiveVersion(part) : Promise.resolve(release.rules[part]?.version ?? ""));
    versions.set(part, known);
    return known;
  };
  const findLiveVersion = async (part: string) => (await functions.readAlias(part)).version;

  return {
    name: isLive ? `${name}'s live` : `${name}'s ${releaseOrLive}`,
    find: async (rule, phase) => {
      const part = findServingFunctionName(configs, rule, phase);
      if (part === undefined) return { absent: "doesn't have the rule, or has it turned off everywhere" };
      const version = await findVersion(part);
      const config = findReleasedConfig([release, ...all], part, version);
      if (config) return { name: part, config };
      return { fault: `version ${version} of ${part} is in no known release, so its settings aren't known` };
    },
    invoke: async ({ name: part }: ServingFunction, event) => {
      const version = await findVersion(part);
      const ignoreMissing = (error: unknown) => {
        if (!(error instanceof Error) || error.name !== "ResourceNotFoundException") throw error;
        return undefined;
      };
      const answer = await functions.invoke(part, version, event).catch(ignoreMissing);
      if (answer === undefined) return { absent: `has its version ${version} no more` };
      return answer.fault === undefined ? { answer: answer.payload } : { fault: answer.fault };
    },
  };
};

/** Returns the config of a deployed version as the releases record it; the version's code contains the same. */
const findReleasedConfig = (releases: readonly Release[], part: string, version: string) =>
  releases
    .map(({ rules }) => (Object.hasOwn(rules, part) ? rules[part] : undefined))
    .find((releasedRule) => releasedRule?.version === version)?.share;
