import { readFile } from "node:fs/promises";
import { parse } from "yaml";
import { createRenewedSource } from "#lib/cluster/credentials.ts";
import { sendRequest } from "#lib/cluster/https-request.ts";
import { type AwsKeys, signHeaders } from "#lib/cluster/signature.ts";
import { toMap } from "#lib/json.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { getConfigFile } from "../cli/roots.ts";
import { findServiceUrl } from "./client.ts";

/** The identity of a stage. Stages with the same name in different accounts or regions are different stages. */
export interface StageIdentity {
  partition: string;
  account: string;
  region: string;
  stage: string;
}

/** Returns an identity as text, such as `aws:111122223333:eu-west-1:prod`: the annotation of objects in clusters. */
export const formatStageIdentity = ({ partition, account, region, stage }: StageIdentity): string =>
  [partition, account, region, stage].join(":");

/** Describes an identity for users. It is the first line of plans and of the status. */
export const describeStageIdentity = ({ partition, account, region, stage }: StageIdentity): string =>
  `partition ${partition}, account ${account}, region ${region}, stage ${stage}`;

/** Reports whether an annotation has the identity of a stage. Unknown parts of the stage ("") are not compared. */
export const isSameStage = (written: string, stage: StageIdentity): boolean => {
  const parts = written.split(":");
  const expected = formatStageIdentity(stage).split(":");
  return parts.length === expected.length && expected.every((part, index) => part === "" || part === parts[index]);
};

/**
 * Calls STS without its SDK. Throws a Complaint that begins with `what` if STS doesn't answer. The caller calls
 * `complain` if the answer is a refusal.
 */
const askSts = async (
  query: Record<string, string>,
  identity: AwsKeys,
  region: string,
  what: string,
): Promise<{ status: number; text: string; complain(): never }> => {
  const { origin, host } = findServiceUrl("STS", region);
  const parameters = { ...query, Version: "2011-06-15" };
  const request = { method: "GET", host, path: "/", query: parameters, service: "sts", region };
  const fail = (why: string): never => {
    throw new Complaint(`${what}: ${why}`, 3);
  };
  const url = `${origin}/?${new URLSearchParams(parameters)}`;
  const headers = signHeaders(request, identity, new Date());
  const deadline = Date.now() + 10_000;
  const { status, body: text } = await sendRequest(url, { method: "GET", headers }, undefined, deadline).catch(
    (error) => fail(toSentence(error)),
  );
  const complain = () => fail(toSentence(/<Message>([^<]*)/.exec(text)?.[1] ?? `it answers ${status}`));
  return { status, text, complain };
};

/** Asks STS to which account credentials belong. The call needs no rights. */
export const readCallerAccount = async (
  identity: AwsKeys,
  region: string,
): Promise<Pick<StageIdentity, "partition" | "account">> => {
  const what = "STS doesn't say of which AWS account these credentials are";
  const { status, text, complain } = await askSts({ Action: "GetCallerIdentity" }, identity, region, what);
  const [, partition, account] = /arn:([a-z-]+):(?:sts|iam)::(\d{12}):/.exec(text) ?? [];
  return status === 200 && partition !== undefined && account !== undefined ? { partition, account } : complain();
};

/** Returns a function that returns a role's keys. It assumes the role at the first call, and before keys expire. */
export const createRoleIdentity = (
  role: string,
  region: string,
  readIdentity: () => Promise<AwsKeys>,
): (() => Promise<AwsKeys>) => {
  const { read } = createRenewedSource(async () => {
    const query = { Action: "AssumeRole", RoleArn: role, RoleSessionName: "postern" };
    const what = `the role ${role} in postern.yaml can't be assumed`;
    const { status, text, complain } = await askSts(query, await readIdentity(), region, what);
    const find = (name: string) => new RegExp(`<${name}>([^<]+)</${name}>`).exec(text)?.[1] ?? complain();
    if (status !== 200) complain();
    const [accessKeyId, secretAccessKey, sessionToken] = ["AccessKeyId", "SecretAccessKey", "SessionToken"].map(find);
    return {
      value: { accessKeyId, secretAccessKey, sessionToken } as AwsKeys,
      until: Date.parse(find("Expiration")) - 5 * 60_000,
    };
  });
  // `read` gives a deadline to the function above, which ignores it, because `askSts` has its own time limit.
  const ignoredDeadline = Number.POSITIVE_INFINITY;
  return () => read(ignoredDeadline);
};

/** The account and the region of a stage, from the section `stages` in postern.yaml. */
export type StagePin = Pick<StageIdentity, "account" | "region">;

/**
 * Reads account and region of a stage from postern.yaml; undefined if the file doesn't have them or can't be read.
 * Mistakes in the file are not reported, because commands for emergencies call this, too.
 */
export const readStagePin = async (stage: string, file = getConfigFile()): Promise<StagePin | undefined> => {
  const content: unknown = await readFile(file, "utf8")
    .then((text) => parse(text))
    .catch(() => undefined);
  const { account, region } = toMap(toMap(toMap(content).stages)[stage]);
  return typeof account === "string" && typeof region === "string" ? { account, region } : undefined;
};

/** Throws if a command runs in another account or region than postern.yaml names for the stage. */
export const requirePinned = (stage: string, pin: StagePin, what: "account" | "region", actual: string): void => {
  if (pin[what] === actual) return;
  throw new Complaint(
    `stage ${stage} is in ${what} ${pin[what]}, as stages.${stage} in postern.yaml says, and this command runs in ${what} ${actual}`,
  );
};

/** Returns the AWS partition of a region. */
export const getPartition = (region: string): string => {
  if (region.startsWith("cn-")) return "aws-cn";
  return region.startsWith("us-gov-") ? "aws-us-gov" : "aws";
};
