import { readdir } from "node:fs/promises";
import { toMap } from "#lib/json.ts";
import type { ListedBucketObject, StageBucket } from "../aws/bucket.ts";
import { isRuleName } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
import { isClusterName } from "../config/validation.ts";
import type { LocalRecordingWriter } from "./local-store.ts";

/** Parses an address such as `s3://my-bucket/prod`. */
export const parseS3Address = (address: string): { bucket: string; prefix: string } => {
  const [, bucket, prefix = ""] = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(.*))?$/.exec(address) ?? [];
  if (bucket === undefined)
    throw new Complaint(
      `--from takes s3://BUCKET or s3://BUCKET/PREFIX, not "${address}"; the name of a bucket has 3 to 63 lower-case letters, digits, dots and hyphens`,
    );
  return { bucket, prefix };
};

/** Parses an age such as `90m`, `24h` or `7d`. */
export const parseAgeToMilliseconds = (text: string): number => {
  const [, number, unit = ""] = /^([1-9]\d{0,4})([mhd])$/.exec(text) ?? [];
  if (number === undefined) throw new Complaint(`--since takes a time such as 90m, 24h or 7d, not "${text}"`);
  return Number(number) * ({ m: 60_000, h: 3_600_000, d: 86_400_000 }[unit] ?? 0);
};

/** Throws if the folder for fetched recordings isn't empty: fetching into it again would duplicate every recording. */
export const requireEmptyFolder = async (folder: string): Promise<void> => {
  const files = await readdir(folder).catch(() => []);
  if (files.length > 0)
    throw new Complaint(`--to ${folder} is not empty; what is fetched goes into a folder of its own`);
};

/** Larger objects in the bucket aren't read. A recording has at most 1 MiB. */
const maxObjectBytes = 2 * 1024 * 1024;
const batchSize = 16;

/**
 * Fetches the recordings below a prefix that are not older than `since`. Reads them in batches, so that memory is
 * bounded. Returns the number of objects that are no recordings.
 */
export const fetchRecordingsAndCountInvalid = async (
  bucket: Pick<StageBucket, "list" | "read">,
  prefix: string,
  since: Date,
  recordings: LocalRecordingWriter,
): Promise<number> => {
  let invalidCount = 0;
  const fetchBatch = async (batch: ListedBucketObject[]) => {
    const objects = await Promise.all(batch.map(({ key }) => bucket.read(key)));
    for (const object of objects) {
      // A lifecycle rule of the bucket may have deleted the recording since it was listed.
      if (object === undefined) continue;
      const { text } = object;
      const origin = readOrigin(text);
      if (origin) await recordings.append(origin.cluster, origin.rule, text);
      else invalidCount += 1;
    }
  };
  let batch: ListedBucketObject[] = [];
  for await (const listed of bucket.list(prefix)) {
    if (listed.modified < since) continue;
    if (listed.bytes > maxObjectBytes || !listed.key.endsWith(".yaml")) {
      invalidCount += 1;
      continue;
    }
    batch.push(listed);
    if (batch.length < batchSize) continue;
    await fetchBatch(batch);
    batch = [];
  }
  await fetchBatch(batch);
  return invalidCount;
};

/** Returns the cluster and the rule of a recording. Checks both names, because they become parts of a file's path. */
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
