import { readdir } from "node:fs/promises";
import type { Bucket, ListedObject } from "../aws/bucket.ts";
import { isName } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
import { isCluster } from "../config/validation.ts";
import type { Recordings } from "./local-store.ts";

/** The bucket and the prefix in `s3://BUCKET/PREFIX`. */
export const placeIn = (address: string): { bucket: string; prefix: string } => {
  const [, bucket, prefix = ""] = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(.*))?$/.exec(address) ?? [];
  if (bucket === undefined) throw new Complaint(`--from takes s3://BUCKET or s3://BUCKET/PREFIX, not "${address}"`);
  return { bucket, prefix };
};

/** `90m`, `24h`, `7d`, as milliseconds. */
export const ageOf = (text: string): number => {
  const [, number, unit = ""] = /^([1-9]\d{0,4})([mhd])$/.exec(text) ?? [];
  if (number === undefined) throw new Complaint(`--since takes a time such as 90m, 24h or 7d, not "${text}"`);
  return Number(number) * ({ m: 60_000, h: 3_600_000, d: 86_400_000 }[unit] ?? 0);
};

/** Who fetches twice would have everything twice. */
export const refuseUnlessEmpty = async (folder: string): Promise<void> => {
  const there = await readdir(folder).catch(() => []);
  if (there.length > 0)
    throw new Complaint(`--to ${folder} is not empty; what is fetched goes into a folder of its own`);
};

/** Longer than any recording. */
const longest = 2 * 1024 * 1024;
/** Objects that are read side by side. */
const together = 16;

/** Fetches what is below a prefix and no older than `since`, in bounded memory; answers how many were no recordings. */
export const fetchRecordings = async (
  bucket: Pick<Bucket, "list" | "read">,
  prefix: string,
  since: Date,
  recordings: Recordings,
): Promise<number> => {
  let strange = 0;
  const take = async (batch: ListedObject[]) => {
    const objects = await Promise.all(batch.map(({ key }) => bucket.read(key)));
    for (const object of objects) {
      // A lifecycle rule may have deleted it since it was listed.
      if (object === undefined) continue;
      const { text } = object;
      const origin = originOf(text);
      if (origin) await recordings.append(origin.cluster, origin.rule, text);
      else strange += 1;
    }
  };
  let batch: ListedObject[] = [];
  for await (const kept of bucket.list(prefix)) {
    if (kept.modified < since) continue;
    if (kept.bytes > longest || !kept.key.endsWith(".yaml")) {
      strange += 1;
      continue;
    }
    batch.push(kept);
    if (batch.length < together) continue;
    await take(batch);
    batch = [];
  }
  await take(batch);
  return strange;
};

/** One object is one line, and says whose it is; that becomes a path on this machine. */
const originOf = (text: string): { cluster: string; rule: string } | undefined => {
  if (!text.startsWith("- {") || text.indexOf("\n") !== text.length - 1) return undefined;
  try {
    const { cluster, rule } = Object(Object(JSON.parse(text.slice(2))).recorded);
    return isCluster(String(cluster)) && isName(String(rule)) ? { cluster, rule } : undefined;
  } catch {
    return undefined;
  }
};
