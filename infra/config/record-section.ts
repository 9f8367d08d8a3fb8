import { toList } from "#lib/json.ts";
import type { RecordingBucketSettingsByRule } from "#lib/lambda/recording.ts";
import { parseReferencePath } from "#lib/policy/values/paths.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { toSentence } from "../cli/complaint.ts";
import type { InputShape } from "../cli/shape.ts";
import type { ConfigPath, PosternConfig, ReportMistake, ReviewRecordingConfig } from "./config.ts";

const defaults = { prefix: "", share: 0.01 };

/** The section `record` of a rule in postern.yaml, after `recordSectionShape` has checked it. */
export interface RecordSection {
  bucket?: string;
  prefix?: string;
  share?: number;
  /** The paths of fields whose texts are recorded unchanged, such as "spec.containers.args", not parsed yet. */
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
  editorKeywords: { required: ["bucket"], patternErrorMessage: "must be a map with a bucket, or off" },
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

/** Returns, by cluster and rule, where a function records reviews. The function of a group records for each member. */
export const listRecordingBucketSettings = (
  { clusters }: PosternConfig,
  listed: CatalogueRule,
): RecordingBucketSettingsByRule => {
  const names = (listed.members ?? [listed]).map(({ name }) => name);
  const settingsByCluster = [...clusters].flatMap(([cluster, { rules }]) => {
    const settingsByRule = names.flatMap((name) => {
      const { record, mode = "off" } = rules.get(name) ?? {};
      return record && mode !== "off" ? [[name, record] as const] : [];
    });
    return settingsByRule.length > 0 ? [[cluster, Object.fromEntries(settingsByRule)] as const] : [];
  });
  return Object.fromEntries(settingsByCluster);
};

/** Returns the paths below which the role of the function may write, for instance `my-bucket/recordings/prod/pods/`. */
export const listWritableBucketPaths = (places: RecordingBucketSettingsByRule): string[] => [
  ...new Set(
    Object.entries(places).flatMap(([cluster, rules]) =>
      Object.entries(rules).map(([rule, { bucket, prefix }]) => `${bucket}/${prefix}${cluster}/${rule}/`),
    ),
  ),
];
