import { createRecorder } from "#lib/recording/recorder.ts";
import { isRegion } from "#lib/service-settings.ts";
import { type Command, type ParsedOptions, writeNote, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { requireConfig } from "../project/project-rules.ts";
import {
  fetchRecordingsAndCountInvalid,
  parseAgeToMilliseconds,
  parseS3Address,
  requireEmptyFolder,
} from "../recordings/fetch.ts";
import { openLocalRecordingWriter } from "../recordings/local-store.ts";
import { serveRules, servingCommandOptions } from "../serve/serve.ts";

export default {
  summary:
    "Serves the rules and records the reviews, with placeholders instead of texts that may contain secrets. With --from, downloads recordings that deployed functions made.",
  options: {
    to: { type: "string", value: "DIR", says: "the folder for recordings: DIR/<cluster>/<rule>.yaml, one case a line" },
    most: {
      type: "string",
      value: "N",
      default: "10000",
      says: "the maximum number of reviews of a rule in a cluster",
    },
    from: {
      type: "string",
      value: "s3://BUCKET[/PREFIX]",
      says: "only fetch recordings from this S3 bucket; serve no rules",
    },
    region: {
      type: "string",
      value: "REGION",
      says: "with --from: the region of the bucket (default: the region of the environment)",
    },
    since: {
      type: "string",
      value: "AGE",
      says: "with --from: the maximum age of recordings, for instance 90m, 24h or 7d",
    },
    ...servingCommandOptions,
  },

  async run({ options }) {
    const [folder, from, maxReviewsPerRule = 0] = [options.text("to"), options.text("from"), options.number("most")];
    if (!folder) throw new Complaint("--to must name the folder for recordings");
    if (maxReviewsPerRule === 0) throw new Complaint("--most takes a number from 1, not 0");
    for (const option of ["region", "since"])
      if (from === undefined && options.text(option) !== undefined)
        throw new Complaint(`--${option} needs --from s3://BUCKET`);
    if (from !== undefined) return fetchIntoFolder(from, folder, maxReviewsPerRule, options);

    requireConfig();
    const recordings = await openLocalRecordingWriter(folder, maxReviewsPerRule, writeNote);
    await serveRules(options, (host, setupOf) =>
      createRecorder(host, (review) => {
        const { cluster, rule } = review.origin;
        // The paths in postern.yaml at which recordings of this rule keep all texts.
        const listUnredactedPaths = () => setupOf(cluster, rule)?.record?.keep;
        recordings.record({ ...review, line: () => review.line(listUnredactedPaths()) });
      }),
    );
    writeOutput(`${await recordings.close()}\n`);
  },
} satisfies Command;

/** Fetches recordings from a bucket. The modules are imported only here, because they load the AWS SDK. */
const fetchIntoFolder = async (from: string, folder: string, maxReviewsPerRule: number, options: ParsedOptions) => {
  const [{ openBucket, openS3 }, { rethrowAwsErrorsAsComplaints: reportAwsErrors }] = await Promise.all([
    import("../aws/bucket.ts"),
    import("../aws/stage.ts"),
  ]);
  const { bucket, prefix } = parseS3Address(from);
  const region = options.text("region");
  if (region !== undefined && !isRegion(region))
    throw new Complaint(`--region takes a region such as eu-west-1, not "${region}"`);
  const age = options.text("since");
  const since = new Date(age === undefined ? 0 : Date.now() - parseAgeToMilliseconds(age));
  await requireEmptyFolder(folder);
  const recordings = await openLocalRecordingWriter(folder, maxReviewsPerRule, writeNote);
  const invalid = await reportAwsErrors(() =>
    fetchRecordingsAndCountInvalid(openBucket(bucket, openS3(region)), prefix, since, recordings),
  );
  writeOutput(`${await recordings.close()}\n`);
  if (invalid > 0) writeNote(`${invalid} objects of the bucket are no recordings, and are left out`);
};
