import type { AwsStage } from "../aws/stage.ts";
import { Complaint } from "../cli/complaint.ts";
import { type Release, readReleaseStore, requireRelease } from "../rollout/versions/releases.ts";
import { findServingFunctionName, type ReplayableVersion, type ServingFunction } from "./sides.ts";

/**
 * Opens a release of a stage, or the stage's live versions, for a replay. Each review is sent to the deployed version
 * of a function in AWS.
 */
export const openReleasedVersion = async (
  { name, openStageBucket: openBucket, functions }: AwsStage,
  releaseOrLive: string,
): Promise<ReplayableVersion> => {
  const { all: releases } = await readReleaseStore(openBucket);
  const [newest] = releases;
  if (newest === undefined) throw new Complaint(`nothing was released in stage ${name} yet; postern deploy does that`);
  const isLive = releaseOrLive === "live";
  const release = isLive ? newest : requireRelease(releases, releaseOrLive);
  const configs = new Map(
    Object.entries(release.rules).map(([functionName, { share: posternYamlPart }]) => [functionName, posternYamlPart]),
  );
  const versions = new Map<string, Promise<string>>();
  const findVersion = (functionName: string): Promise<string> => {
    const version =
      versions.get(functionName) ??
      (isLive ? findLiveVersion(functionName) : Promise.resolve(release.rules[functionName]?.version ?? ""));
    versions.set(functionName, version);
    return version;
  };
  const findLiveVersion = async (functionName: string) => (await functions.readAlias(functionName)).version;

  return {
    name: isLive ? `${name}'s live` : `${name}'s ${releaseOrLive}`,
    find: async (rule, phase) => {
      const functionName = findServingFunctionName(configs, rule, phase);
      if (functionName === undefined) return { absent: "doesn't have the rule, or has it turned off everywhere" };
      const version = await findVersion(functionName);
      const config = findReleasedConfig([release, ...releases], functionName, version);
      if (config) return { name: functionName, config };
      return {
        fault: `version ${version} of ${functionName} is in no known release, so its settings aren't known`,
      };
    },
    invoke: async ({ name: functionName }: ServingFunction, event) => {
      const version = await findVersion(functionName);
      const ignoreMissing = (error: unknown) => {
        if (!(error instanceof Error) || error.name !== "ResourceNotFoundException") throw error;
        return undefined;
      };
      const answer = await functions.invoke(functionName, version, event).catch(ignoreMissing);
      if (answer === undefined) return { absent: `has its version ${version} no more` };
      return answer.fault === undefined ? { answer: answer.payload } : { fault: answer.fault };
    },
  };
};

/** Returns the part of postern.yaml that a function's version was deployed with: the member `share` in a release. */
const findReleasedConfig = (releases: readonly Release[], functionName: string, version: string) =>
  releases
    .map(({ rules }) => (Object.hasOwn(rules, functionName) ? rules[functionName] : undefined))
    .find((releasedRule) => releasedRule?.version === version)?.share;
