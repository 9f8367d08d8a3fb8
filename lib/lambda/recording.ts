import { createHash } from "node:crypto";
import type { MiddlewareObj } from "@middy/core";
import { getAwsDomain, readAwsKeysFromEnvironment } from "../cluster/credentials.ts";
import { awaitUntil, sendRequest } from "../cluster/https-request.ts";
import { signHeaders } from "../cluster/signature.ts";
import type { EndpointHost } from "../core/endpoint.ts";
import { formatError } from "../masking/masked-error.ts";
import { printSync } from "../print.ts";
import { createRecorder, type RecordedReview, type RecordingHostAndEvaluation } from "../recording/recorder.ts";
import type { UnredactedPath } from "../recording/redaction.ts";

/** The place in S3 for recordings, and which part of the reviews is recorded. */
export interface RecordingBucketSettings {
  bucket: string;
  prefix: string;
  /** The fraction of reviews that are recorded, from 0 to 1. */
  share: number;
  /** The paths whose texts are not redacted. */
  keep?: readonly UnredactedPath[];
}

/** The places in S3 to which a function writes recordings, by cluster and rule. */
export type RecordingBucketSettingsByRule = Record<string, Record<string, RecordingBucketSettings>>;

/** For how many milliseconds at most an answer waits until its recording is written. */
const maxRecordingMilliseconds = 500;

/**
 * Returns the host and the evaluation for an endpoint, and a middleware that writes each recorded review to an object
 * in S3. The function answers after the recording is written, because Lambda may freeze the process after the answer.
 * If the recording fails, this is only logged. Dry runs are not recorded, because recording is a side effect.
 */
export const createRecording = (
  buckets: RecordingBucketSettingsByRule,
  host: EndpointHost,
  put = putObject,
): RecordingHostAndEvaluation & { middleware: MiddlewareObj<{ deadline: number }> } => {
  // Lambda runs one invocation at a time in a process.
  const reviews: RecordedReview[] = [];
  const recorder = createRecorder(host, (review) => void reviews.push(review));
  return {
    ...recorder,
    middleware: {
      before: () => {
        reviews.length = 0;
      },
      after: async ({ event }) => {
        const toWrite = reviews.flatMap((review, index) => {
          const place = findRecordingBucket(buckets, review);
          return place ? [{ review, place, index }] : [];
        });
        const deadline = Math.min(Date.now() + maxRecordingMilliseconds, event.deadline);
        await Promise.all(
          toWrite.map(({ review, place, index }) =>
            writeRecording(review, place, index, deadline, put).catch((error) => logFailure(review, error)),
          ),
        );
      },
    },
  };
};

/** Returns the bucket for the recording of a review; undefined if the review is not recorded. */
const findRecordingBucket = (
  buckets: RecordingBucketSettingsByRule,
  { origin: { cluster, rule }, request }: RecordedReview,
): RecordingBucketSettings | undefined => {
  const rules = Object.hasOwn(buckets, cluster) ? buckets[cluster] : undefined;
  const bucket = rules && Object.hasOwn(rules, rule) ? rules[rule] : undefined;
  return bucket && request.dryRun !== true && toFraction(request.uid) < bucket.share ? bucket : undefined;
};

/**
 * Returns a number from 0 to 1 that depends only on the review's uid. A review is recorded if the number is less than
 * `share`. Rules with the same `share` thus record the same reviews.
 */
const toFraction = (uid: string): number => createHash("sha256").update(uid).digest().readUInt32BE() / 2 ** 32;

/**
 * Writes a recorded review into the bucket, as PREFIX/CLUSTER/RULE/DAY/TIME-UID.yaml. `index` is the review's place
 * among those of one invocation. It is a part of the name, because a group may evaluate a review twice by the same
 * rule.
 */
const writeRecording = async (
  review: RecordedReview,
  { bucket, prefix, keep: unredactedPaths }: RecordingBucketSettings,
  index: number,
  deadline: number,
  put = putObject,
): Promise<void> => {
  const { cluster, rule, at } = review.origin;
  const { uid } = review.request;
  // The uid becomes part of the S3 key if it has the form of an API server's uid; any other text is hashed.
  const name = /^[A-Za-z0-9-]{1,64}$/.test(uid) ? uid : createHash("sha256").update(uid).digest("hex");
  const time = `${at.slice(0, 10)}/${at.slice(11, 23).replaceAll(":", "-")}`;
  const key = `${prefix}${cluster}/${rule}/${time}-${name}${index > 0 ? `-${index}` : ""}.yaml`;
  const yaml = await awaitUntil(deadline, review.line(unredactedPaths));
  await put(bucket, key, yaml, deadline);
};

/** Logs why a review was not recorded. */
const logFailure = ({ origin: { cluster, rule }, request }: RecordedReview, error: unknown) => {
  const reason = formatError(error, { request, rule, cluster });
  printSync(`${JSON.stringify({ Rule: rule, Cluster: cluster, uid: request.uid, unrecorded: reason })}\n`);
};

/** Writes an object to a bucket. */
export const putObject = async (bucket: string, key: string, body: string, deadline: number): Promise<void> => {
  const { AWS_REGION: region = "", AWS_ENDPOINT_URL_S3: address } = process.env;
  const { origin, host } = new URL(address ?? `https://s3.${region}.${getAwsDomain(region)}`);
  const path = `/${bucket}/${key.split("/").map(encodeURIComponent).join("/")}`;
  const request = {
    method: "PUT",
    host,
    path,
    service: "s3",
    region,
    body,
    headers: {
      "content-type": "application/yaml",
      "x-amz-content-sha256": createHash("sha256").update(body).digest("hex"),
    },
  };
  const headers = signHeaders(request, readAwsKeysFromEnvironment(), new Date());
  const { status, body: text } = await sendRequest(`${origin}${path}`, { method: "PUT", headers }, body, deadline);
  if (status === 200) return;
  const [, code] = /<Code>(\w{1,60})<\/Code>/.exec(text) ?? [];
  throw new Error(`s3 answers ${status}${code === undefined ? "" : `, ${code}`}`);
};
