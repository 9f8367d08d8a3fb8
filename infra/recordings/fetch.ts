import { readdir } from "node:fs/promises";
import { toMap } from "#lib/json.ts";
import type { ListedBucketObject, StageBucket } from "../aws/bucket.ts";
import { isRuleName } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
import { isClusterName } from "../config/validation.ts";
import type { LocalRecordingWriter } from "./local-store.ts";

export const parseS3Address = (address: string): { bucket: string; prefix: string } => {
  const [, bucket, prefix = ""] = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(.*))?$/.exec(address) ?? [];
  if (bucket === undefined) throw new Complaint(`--from takes s3://BUCKET or s3://BUCKET/PREFIX, not "${address}"`);
  return { bucket, prefix };
};

/** Parses `90m`, `24h` or `7d` to milliseconds. */
export const parseAgeToMilliseconds = (text: string): number => {
  const [, number, unit = ""] = /^([1-9]\d{0,4})([mhd])$/.exec(text) ?? [];
  if (number === undefined) throw new Complaint(`--since takes a time such as 90m, 24h or 7d, not "${text}"`);
  return Number(number) * ({ m: 60_000, h: 3_600_000, d: 86_400_000 }[unit] ?? 0);
};

/** Throws if the folder for fetched recordings is not empty: a second fetch would duplicate every recording. */
export const requireEmptyFolder = async (folder: string): Promise<void> => {
  const files = await readdir(folder).catch(() => []);
  if (files.length > 0)
    throw new Complaint(`--to ${folder} is not empty; what is fetched goes into a folder of its own`);
};

/** The most bytes that are read of an object in the bucket; a recording has at most 1 MiB. */
const longest = 2 * 1024 * 1024;
const batchSize = 16;

/**
 * Fetches the recordings below a prefix, from `since` on, in bounded memory. Returns how many objects are not
 * recordings.
 */
export const fetchRecordingsAndCountInvalid = async (
  bucket: Pick<StageBucket, "list" | "read">,
  prefix: string,
  since: Date,
  recordings: LocalRecordingWriter,
): Promise<number> => {
  let strange = 0;
  const take = async (batch: ListedBucketObject[]) => {
    const objects = await Promise.all(batch.map(({ key }) => bucket.read(key)));
    for (const object of objects) {
      // A lifecycle rule of the bucket may have deleted the recording since it was listed.
      if (object === undefined) continue;
      const { text } = object;
      const origin = readOrigin(text);
      if (origin) await recordings.append(origin.cluster, origin.rule, text);
      else strange += 1;
    }
  };
  let batch: ListedBucketObject[] = [];
  for await (const kept of bucket.list(prefix)) {
    if (kept.modified < since) continue;
    if (kept.bytes > longest || !kept.key.endsWith(".yaml")) {
      strange += 1;
      continue;
    }
    batch.push(kept);
    if (batch.length < batchSize) continue;
    await take(batch);
    batch = [];
  }
  await take(batch);
  return strange;
};

/** Returns the cluster and rule of an object with one recording. Both are checked, because they become a path. */
const readOrigin = (text: string): { cluster: string; rule: string } | undefined => {
  if (!text.startsWith("- {") || text.indexOf("\n") !== text.length - 1) return undefined;
  try {
    const { cluster, rule } = toMap(toMap(JSON.parse(text.slice(2))).recorded);
    if (typeof cluster !== "string" || typeof rule !== "string") return undefined;
    return isClusterName(cluster) && isRuleName(rule) ? { cluster, rule } : undefined;
  } catch {
    return undefined;
  }
};
