import { setTimeout as wait } from "node:timers/promises";
import { CloudFormation } from "#aws/client-cloudformation";
import { CloudWatchLogs } from "#aws/client-cloudwatch-logs";
import { SSM } from "#aws/client-ssm";
import type { AwsKeys } from "#lib/cluster/signature.ts";
import type { ParsedOptions } from "../cli/command.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { stagePattern } from "../cli/options.ts";
import { createStageAlarmsReader, type StageAlarmsReader } from "./alarms.ts";
import { openBucket, openS3, type StageBucket } from "./bucket.ts";
import { openAwsClient } from "./client.ts";
import { toCredentialsComplaint } from "./credentials.ts";
import { createDynamoDbClient } from "./dynamodb.ts";
import { guardAwsClient, type StageLockGuard } from "./guard.ts";
import {
  getPartition,
  readCallerAccount,
  readStagePin,
  requirePinned,
  type StageIdentity,
  type StagePin,
} from "./identity.ts";
import { openLambda, openStageFunctions, type StageFunctions } from "./lambda-functions.ts";
import { type LedgerTable, openLedgerTable } from "./ledger-table.ts";
import { createStageLogReader, openLogGroups, type StageLogGroups, type StageLogReader } from "./log-queries.ts";
import { createStageMetricsReader, type StageMetricsReader } from "./metrics.ts";
import { openParameters, type StageParameterStore } from "./parameters.ts";
import { openStack, type StageStack } from "./stack.ts";

/** A stage, for instance prod, and clients for its resources in AWS. */
export interface AwsStage {
  name: string;
  functions: StageFunctions;
  parameters: StageParameterStore;
  stack: StageStack;
  ledger: LedgerTable;
  metrics: StageMetricsReader;
  logs: StageLogReader;
  logGroups: StageLogGroups;
  alarms: StageAlarmsReader;
  /** Opens the stage's bucket; undefined if the stage has no stack. */
  openStageBucket(): Promise<StageBucket | undefined>;
  /** Checks the stage's lock before each call of AWS that changes something. */
  guard: StageLockGuard;
  readAwsKeys(): Promise<AwsKeys>;
  readRegion(): Promise<string>;
  /** Returns the partition, account and region of this stage. It calls AWS only once. */
  readStageIdentity(): Promise<StageIdentity>;
}

/** Returns the AWS resources of a stage. Nothing is called yet. */
export const createAwsStageClients = (name: string): AwsStage => {
  // A command that takes the stage's lock replaces `check`. Without a lock, there is nothing to check.
  const guard: StageLockGuard = { check: async () => {} };
  const lambda = guardAwsClient(openLambda(), guard);
  const s3 = guardAwsClient(openS3(), guard);
  const ssm = guardAwsClient(openAwsClient(SSM, { maxAttempts: 5 }), guard);
  const stack = openStack(name, guardAwsClient(openAwsClient(CloudFormation, { maxAttempts: 5 }), guard), guard);
  const readAwsKeys = async (): Promise<AwsKeys> => {
    const { accessKeyId, secretAccessKey, sessionToken } = await lambda.config.credentials().catch(async (error) => {
      throw await toCredentialsComplaint(error);
    });
    return { accessKeyId, secretAccessKey, sessionToken };
  };
  const readRegion = async () => lambda.config.region();
  let identity: Promise<StageIdentity> | undefined;
  const askStageIdentity = async (): Promise<StageIdentity> => {
    const region = await readRegion();
    return { ...(await readCallerAccount(await readAwsKeys(), region)), region, stage: name };
  };
  return {
    name,
    functions: openStageFunctions(name, stack, lambda),
    parameters: openParameters(name, ssm),
    stack,
    ledger: openLedgerTable(name, createDynamoDbClient(readAwsKeys, readRegion, guard)),
    metrics: createStageMetricsReader(),
    logs: createStageLogReader(),
    logGroups: openLogGroups(guardAwsClient(openAwsClient(CloudWatchLogs, { maxAttempts: 5 }), guard)),
    alarms: createStageAlarmsReader(stack, readAwsKeys),
    openStageBucket: async () => {
      const bucket = await stack.findBucket();
      return bucket === undefined ? undefined : openBucket(bucket, s3);
    },
    guard,
    readAwsKeys,
    readRegion,
    readStageIdentity: () => {
      identity ??= askStageIdentity();
      return identity;
    },
  };
};

/**
 * Runs `act` with the stage of the option --stage. Throws first if postern.yaml has the stage's account and region, and
 * the command runs in another account or region. `worksWithoutAws`: the command must work even if AWS doesn't answer.
 */
export const runInStage = async <T>(
  options: ParsedOptions,
  act: (stage: AwsStage) => Promise<T>,
  { worksWithoutAws = false } = {},
): Promise<T> => {
  const name = options.text("stage");
  if (name === undefined) throw new Complaint("--stage must name the stage, for instance --stage prod");
  if (!stagePattern.test(name))
    throw new Complaint(
      `--stage takes a name such as prod, not "${name}": it must begin with a letter, and have at most 21 lower-case letters, digits and hyphens`,
    );
  return rethrowAwsErrorsAsComplaints(async () => act(await openPinnedStage(name, worksWithoutAws)));
};

/** Opens a stage, but only in the account and region that postern.yaml names for this stage. */
const openPinnedStage = async (name: string, commandWorksWithoutAws: boolean): Promise<AwsStage> => {
  const stage = createAwsStageClients(name);
  const pin = await readStagePin(name);
  if (commandWorksWithoutAws) return openStageEvenWithoutAws(stage, pin); // checks account and region if AWS answers
  // Throws if there are no access keys, so that this is reported once, and not by several of the calls of AWS below.
  await stage.readAwsKeys();
  const region = await stage.readRegion();
  if (pin === undefined) return stage;
  requirePinned(name, pin, "region", region);
  requirePinned(name, pin, "account", (await stage.readStageIdentity()).account);
  return stage;
};

/**
 * Returns a stage for a command that must work without AWS. If AWS doesn't answer, account and region come from
 * postern.yaml, or are "", and the outputs of the stack are empty.
 */
const openStageEvenWithoutAws = async (stage: AwsStage, pin: StagePin | undefined): Promise<AwsStage> => {
  const { name, stack } = stage;
  const region = await stage.readRegion().catch(() => pin?.region ?? "");
  if (pin) requirePinned(name, pin, "region", region);
  const account = pin?.account ?? "";
  const identity = await stage
    .readStageIdentity()
    .catch(() => ({ partition: getPartition(region), account, region, stage: name }));
  if (pin) requirePinned(name, pin, "account", identity.account);
  const late = () => wait(awsAnswerMilliseconds, {}, { ref: false });
  return {
    ...stage,
    readStageIdentity: async () => identity,
    stack: { ...stack, readOutputs: () => Promise.race([stack.readOutputs(), late()]).catch(() => ({})) },
  };
};

/** A command that must work without AWS waits at most so many milliseconds for an answer of AWS. */
const awsAnswerMilliseconds = 10_000;

/** Runs `act`, and rethrows errors of AWS as complaints. */
export const rethrowAwsErrorsAsComplaints = async <T>(act: () => Promise<T>): Promise<T> => {
  try {
    return await act();
  } catch (error) {
    if (error instanceof Complaint || !isAwsError(error)) throw error;
    if (isRegionMissing(error))
      throw new Complaint("AWS: Region is missing; set AWS_REGION, or a region in the AWS profile", 3);
    throw new Complaint(`AWS: ${toSentence(error)}`, 3);
  }
};

/** Reports whether an error comes from the AWS SDK. Call errors have metadata; others are known by name or message. */
const isAwsError = (error: unknown): boolean =>
  error instanceof Error &&
  ("$metadata" in error ||
    ["CredentialsProviderError", "TimeoutError"].includes(error.name) ||
    isRegionMissing(error) ||
    /region not accepted/i.test(error.message));

const isRegionMissing = (error: unknown): boolean =>
  error instanceof Error && /region is missing|region not accepted: region=""/i.test(error.message);
