import { parsePath } from "#lib/policy/values/paths.ts";
import type { Places } from "#lib/recording/bucket-handler.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toSentence } from "../cli/complaint.ts";
import type { PosternConfig, RecordConfig } from "./config.ts";

export const recordKeys = ["bucket", "prefix", "share", "keep"] as const;

const usual = { prefix: "", share: 0.01 };

type Said = { readonly [key: string]: unknown };

/** Returns what is wrong, as pairs of field and sentence; the field is "" for the whole setting. */
export const unfitKeeping = ({
  bucket,
  prefix = usual.prefix,
  share = usual.share,
  keep = [],
}: Said): [string, string][] => {
  const found: [string, string][] = [];
  if (bucket === undefined) found.push(["", "must have a bucket"]);
  else if (typeof bucket !== "string" || !/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket))
    found.push(["bucket", "must be the name of a bucket in S3"]);
  // The prefix becomes part of a URL and of an IAM policy.
  if (typeof prefix !== "string" || !/^([A-Za-z0-9][A-Za-z0-9._=-]{0,62}\/?){0,5}$/.test(prefix))
    found.push(["prefix", "must be what names begin with, for instance recordings/"]);
  if (typeof share !== "number" || !(share > 0 && share <= 1))
    found.push(["share", "must be a number above 0, and 1 at most: 0.01 is one review in a hundred"]);
  const faults = Array.isArray(keep) ? keep.flatMap((text) => faultOfPath(text) ?? []) : [noPaths];
  return [...found, ...faults.map((sentence): [string, string] => ["keep", sentence])];
};

const noPaths = "must be a list of paths such as spec.containers.args";

const faultOfPath = (text: unknown): string | undefined => {
  try {
    parsePath(text);
    return undefined;
  } catch (error) {
    return `${noPaths}: ${toSentence(error)}`;
  }
};

const isReadable = (text: unknown): boolean => faultOfPath(text) === undefined;

/** Fills in the defaults. unfitKeeping reports values of other types. */
export const keepingOf = ({ bucket, prefix = usual.prefix, share = usual.share, keep }: Said): RecordConfig => {
  const paths = Array.isArray(keep) ? keep.filter(isReadable).map(parsePath) : [];
  const whole = { bucket: bucket as string, prefix: prefix as string, share: share as number };
  return { ...whole, ...(paths.length > 0 && { keep: paths }) };
};

/** Returns where a function records, by cluster and rule. A group's function records for each member. */
export const placesOf = ({ clusters }: PosternConfig, listed: CatalogueRule): Places => {
  const names = (listed.members ?? [listed]).map(({ name }) => name);
  const all = [...clusters].flatMap(([cluster, { rules }]) => {
    const places = names.flatMap((name) => {
      const { record, mode = "off" } = rules.get(name) ?? {};
      return record && mode !== "off" ? [[name, record] as const] : [];
    });
    return places.length > 0 ? [[cluster, Object.fromEntries(places)] as const] : [];
  });
  return Object.fromEntries(all);
};

/** Returns the paths, as `BUCKET/PREFIX`, below which the function's role may write. */
export const writtenBelow = (places: Places): string[] => [
  ...new Set(
    Object.entries(places).flatMap(([cluster, rules]) =>
      Object.entries(rules).map(([rule, { bucket, prefix }]) => `${bucket}/${prefix}${cluster}/${rule}/`),
    ),
  ),
];
