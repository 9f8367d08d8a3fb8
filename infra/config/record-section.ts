import { toList } from "#lib/json.ts";
import type { RecordingBucketSettingsByRule } from "#lib/lambda/recording.ts";
import { parseReferencePath } from "#lib/policy/values/paths.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toSentence } from "../cli/complaint.ts";
import type { InputShape } from "../cli/shape.ts";
import type { ConfigPath, PosternConfig, ReportMistake, ReviewRecordingConfig } from "./config.ts";

const defaults = { prefix: "", share: 0.01 };

/** The section `record` of a rule in postern.yaml, once it has the shape of `recordSectionShape`. */
export interface RecordSection {
  bucket?: string;
  prefix?: string;
  share?: number;
  keep?: unknown[];
}

const listOfPaths = "a list of paths such as spec.containers.args";

/** The shape of a `record` section in postern.yaml, which says where reviews are recorded. */
export const recordSectionShape: InputShape = {
  expected: "a map with a bucket, or off",
  description: "where the rule's function records reviews",
  default: "off",
  type: ["object", "string"],
  pattern: "^off$",
  properties: {
    bucket: {
      expected: "the name of a bucket in S3",
      description: "the bucket in S3 that gets the recordings",
      type: "string",
      pattern: "^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
    },
    // The prefix becomes part of a URL and of an IAM policy.
    prefix: {
      expected: "a prefix of object names, for instance recordings/",
      description: "the prefix of the recordings' names",
      default: defaults.prefix,
      type: "string",
      pattern: "^([A-Za-z0-9][A-Za-z0-9._=-]{0,62}/?){0,5}$",
    },
    share: {
      expected: "a number above 0 and at most 1: 0.01 is one review in a hundred",
      description: "the fraction of reviews that is recorded",
      default: defaults.share,
      type: "number",
      exclusiveMinimum: 0,
      maximum: 1,
    },
    keep: {
      expected: listOfPaths,
      description: "the paths of fields whose texts recordings keep; in all other fields, free text is redacted",
      type: "array",
    },
  },
  additionalProperties: false,
  checkedElsewhere: { required: ["bucket"], patternErrorMessage: "must be a map with a bucket, or off" },
};

/** Adds defaults to the section `record`, and reports a missing bucket and paths that can't be parsed. */
export const readRecordConfig = (
  section: RecordSection,
  path: ConfigPath,
  complain: ReportMistake,
): ReviewRecordingConfig => {
  const { bucket, keep } = section;
  if (bucket === undefined) complain(path, "must have a bucket");
  const paths = toList(keep).flatMap((text) => {
    try {
      return [parseReferencePath(text)];
    } catch (error) {
      complain([...path, "keep"], `must be ${listOfPaths}: ${toSentence(error)}`);
      return [];
    }
  });
  const { prefix = defaults.prefix, share = defaults.share } = section;
  return { bucket: String(bucket), prefix, share, ...(paths.length > 0 && { keep: paths }) };
};

/** Returns where a function records, by cluster and rule. A group's function records for each member. */
export const listRecordingBucketSettings = (
  { clusters }: PosternConfig,
  listed: CatalogueRule,
): RecordingBucketSettingsByRule => {
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
export const listWritableBucketPaths = (places: RecordingBucketSettingsByRule): string[] => [
  ...new Set(
    Object.entries(places).flatMap(([cluster, rules]) =>
      Object.entries(rules).map(([rule, { bucket, prefix }]) => `${bucket}/${prefix}${cluster}/${rule}/`),
    ),
  ),
];
