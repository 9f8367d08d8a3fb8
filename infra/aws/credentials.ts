import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { Complaint, toSentence } from "../cli/complaint.ts";

/** Returns a complaint that says why there are no AWS credentials, and what to do. */
export const toCredentialsComplaint = async (error: unknown, environment = process.env): Promise<Complaint> => {
  const { AWS_PROFILE: profile, AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE } = environment;
  const files = [
    AWS_CONFIG_FILE || join(homedir(), ".aws/config"),
    AWS_SHARED_CREDENTIALS_FILE || join(homedir(), ".aws/credentials"),
  ];
  if (!profile)
    return new Complaint(
      `there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (${toSentence(error)})`,
      3,
    );
  const section = new RegExp(`^\\s*\\[\\s*(profile\\s+)?["']?${RegExp.escape(profile)}["']?\\s*\\]`, "m");
  const texts = await Promise.all(files.map((file) => readFile(file, "utf8").catch(() => "")));
  if (!texts.some((text) => section.test(text)))
    return new Complaint(`there is no AWS profile "${profile}", which AWS_PROFILE names, in ${files.join(" or ")}`, 3);
  return new Complaint(`the AWS profile "${profile}" has no credentials: ${toSentence(error)}`, 3);
};
