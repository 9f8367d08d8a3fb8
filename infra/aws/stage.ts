import { CloudFormation } from "@aws-sdk/client-cloudformation";
import { Lambda } from "@aws-sdk/client-lambda";
import { SSM } from "@aws-sdk/client-ssm";
import type { Identity } from "#lib/cluster/signature.ts";
import type { Options } from "../cli/command.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { type Bucket, openBucket, openS3 } from "./bucket.ts";
import { type Functions, openFunctions } from "./functions.ts";
import { type Guard, guardClient } from "./guard.ts";
import { type Metrics, openMetrics } from "./metrics.ts";
import { openParameters, type Parameters } from "./parameters.ts";
import { openStack, type Stack } from "./stack.ts";

export interface Stage {
  name: string;
  functions: Functions;
  parameters: Parameters;
  stack: Stack;
  metrics: Metrics;
  /** Undefined if there is no stack. */
  bucket(): Promise<Bucket | undefined>;
  /** Checked before every call that changes something. */
  guard: Guard;
  identity(): Promise<Identity>;
}

export const openStage = (name: string): Stage => {
  const guard: Guard = { check: async () => {} };
  const lambda = guardClient(new Lambda({ maxAttempts: 5 }), guard);
  const s3 = guardClient(openS3(), guard);
  const ssm = guardClient(new SSM({ maxAttempts: 5 }), guard);
  const stack = openStack(name, guardClient(new CloudFormation({ maxAttempts: 5 }), guard), guard);
  return {
    name,
    functions: openFunctions(name, lambda),
    parameters: openParameters(name, ssm),
    stack,
    metrics: openMetrics(),
    bucket: async () => {
      const bucket = await stack.bucket();
      return bucket === undefined ? undefined : openBucket(bucket, s3);
    },
    guard,
    identity: async () => {
      const { accessKeyId, secretAccessKey, sessionToken } = await lambda.config.credentials();
      return { accessKeyId, secretAccessKey, sessionToken };
    },
  };
};

export const inStage = async <T>(options: Options, act: (stage: Stage) => Promise<T>): Promise<T> => {
  const name = options.text("stage");
  if (name === undefined) throw new Complaint("--stage must name the stage, for instance --stage prod");
  if (!/^[a-z][a-z0-9-]{0,20}$/.test(name))
    throw new Complaint(`--stage takes lower-case letters, digits and hyphens, at most 21, not "${name}"`);
  return passingOn(() => act(openStage(name)));
};

export const passingOn = async <T>(act: () => Promise<T>): Promise<T> => {
  try {
    return await act();
  } catch (error) {
    if (error instanceof Complaint || !isOfAws(error)) throw error;
    const remedy = isLost(error) ? "; AWS_REGION names one, or a profile does" : "";
    throw new Complaint(`AWS: ${toSentence(error)}${remedy}`, 3);
  }
};

/** Errors of AWS calls have metadata; errors of credentials and regions have only a name or a message. */
const isOfAws = (error: unknown): boolean =>
  error instanceof Error &&
  ("$metadata" in error ||
    ["CredentialsProviderError", "TimeoutError"].includes(error.name) ||
    isLost(error) ||
    /region not accepted/i.test(error.message));

const isLost = (error: unknown): boolean => error instanceof Error && /region is missing/i.test(error.message);
