import { readFile } from "node:fs/promises";
import { parse } from "yaml";
import { getAwsDomain } from "#lib/cluster/credentials.ts";
import { type AwsKeys, signHeaders } from "#lib/cluster/signature.ts";
import { toMap } from "#lib/json.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { getConfigFile } from "../cli/roots.ts";

/** Which stage this is: two stages of the same name in other accounts or regions are others. */
export interface StageIdentity {
  partition: string;
  account: string;
  region: string;
  stage: string;
}

/** The text of an identity, as the annotation of objects in clusters has it. */
export const formatStageIdentity = ({ partition, account, region, stage }: StageIdentity): string =>
  [partition, account, region, stage].join(":");

/** Returns the first line of plans and of the status. */
export const describeStageIdentity = ({ partition, account, region, stage }: StageIdentity): string =>
  `partition ${partition}, account ${account}, region ${region}, stage ${stage}`;

/** Reports whether an identity, as the annotation has it, is that of a stage. What isn't known of the stage is "". */
export const isSameStage = (written: string, stage: StageIdentity): boolean => {
  const parts = written.split(":");
  const own = formatStageIdentity(stage).split(":");
  return parts.length === own.length && own.every((part, index) => part === "" || part === parts[index]);
};

/** Asks STS whose credentials these are. That needs no right, and no SDK, because it is the only call of STS. */
export const readCallerAccount = async (
  identity: AwsKeys,
  region: string,
): Promise<Pick<StageIdentity, "partition" | "account">> => {
  const { AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL } = process.env;
  const { origin, host } = new URL(
    AWS_ENDPOINT_URL_STS || AWS_ENDPOINT_URL || `https://sts.${region}.${getAwsDomain(region)}`,
  );
  const query = { Action: "GetCallerIdentity", Version: "2011-06-15" };
  const headers = signHeaders({ method: "GET", host, path: "/", query, service: "sts", region }, identity, new Date());
  const complain = (why: string) => {
    throw new Complaint(`STS doesn't say of which AWS account these credentials are: ${why}`, 3);
  };
  const answer = await fetch(`${origin}/?${new URLSearchParams(query)}`, {
    headers,
    signal: AbortSignal.timeout(10_000),
  }).catch((error) => complain(toSentence(error.cause ?? error)));
  const text = await answer.text().catch((error) => complain(toSentence(error)));
  const [, partition, account] = /arn:([a-z-]+):(?:sts|iam)::(\d{12}):/.exec(text) ?? [];
  if (answer.status === 200 && partition !== undefined && account !== undefined) return { partition, account };
  return complain(toSentence(/<Message>([^<]*)/.exec(text)?.[1] ?? `it answers ${answer.status}`));
};

/** The account and the region that `stages` in postern.yaml names for a stage. */
export type StagePin = Pick<StageIdentity, "account" | "region">;

/**
 * Reads the pin of a stage. Commands that need the rest of postern.yaml check the file and name its mistakes; the others,
 * which must work in an emergency, take a file that can't be read as one without pins.
 */
export const readStagePin = async (stage: string, file = getConfigFile()): Promise<StagePin | undefined> => {
  const content: unknown = await readFile(file, "utf8")
    .then((text) => parse(text))
    .catch(() => undefined);
  const { account, region } = toMap(toMap(toMap(content).stages)[stage]);
  return typeof account === "string" && typeof region === "string" ? { account, region } : undefined;
};

/** Throws unless a command runs in the account or the region that postern.yaml names for the stage. */
export const requirePinned = (stage: string, pin: StagePin, what: "account" | "region", is: string): void => {
  if (pin[what] === is) return;
  throw new Complaint(
    `stage ${stage} is in ${what} ${pin[what]}, as stages.${stage} in postern.yaml says, and this command runs in ${what} ${is}`,
  );
};

export const getPartition = (region: string): string =>
  region.startsWith("cn-") ? "aws-cn" : region.startsWith("us-gov-") ? "aws-us-gov" : "aws";
