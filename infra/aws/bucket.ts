import { type BucketLocationConstraint, GetObjectCommand, paginateListObjectsV2, S3 } from "#aws/client-s3";
import { toMap } from "#lib/json.ts";
import { Complaint } from "../cli/complaint.ts";
import { openAwsClient } from "./client.ts";
import { isErrorNamed } from "./errors.ts";
import { getPartition } from "./identity.ts";

/** Key, size and date of an S3 object in a listing. */
export interface ListedBucketObject {
  key: string;
  bytes: number;
  modified: Date;
}

/** The content of an S3 object. */
export interface BucketObject {
  text: string;
  /** Changes with the text. A conditional write compares it. */
  etag: string;
  /** When the object was last written, by S3's clock. */
  modified: Date;
  /** Milliseconds since `modified`. The time now is the Date header of S3's response, not this machine's clock. */
  age: number;
}

/** A condition for a write: that the key has no object, or that its object has this ETag. */
type WriteCondition = { IfNoneMatch: "*" } | { IfMatch: string };

/** An S3 bucket: the one of a stage's stack, or one to which functions write recordings. */
export interface StageBucket {
  list(prefix: string): AsyncIterable<ListedBucketObject>;
  read(key: string): Promise<BucketObject | undefined>;
  /** Writes a JSON text to an object. Returns false, and writes nothing, if the condition is not true. */
  write(key: string, text: string, condition?: WriteCondition): Promise<boolean>;
  remove(key: string, etag: string): Promise<void>;
  /** Creates the bucket again if it was deleted. Returns true if it has created the bucket. */
  restore(): Promise<boolean>;
  /** Deletes all objects except the one with `keptKey`. A bucket that doesn't exist is no error. */
  empty(keptKey: string): Promise<void>;
}

/** Returns an S3 client. Without a region, the SDK reads the region from the environment. */
export const openS3 = (region?: string) => openAwsClient(S3, { maxAttempts: 5, region });

/** Reads and writes objects of an S3 bucket. `write` returns false if its condition isn't fulfilled. */
export const openBucket = (Bucket: string, client = openS3()): StageBucket => ({
  list: async function* (Prefix) {
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix }))
      for (const { Key = "", Size = 0, LastModified = new Date(0) } of Contents)
        yield { key: Key, bytes: Size, modified: LastModified };
  },
  read: (Key) => readObject(client, { Bucket, Key }),
  write: async (Key, Body, condition) => {
    try {
      await client.putObject({ Bucket, Key, ...condition, Body, ContentType: "application/json" });
      return true;
    } catch (error) {
      // ConditionalRequestConflict means that another conditional write was in progress.
      if (isErrorNamed(error, "PreconditionFailed", "NoSuchKey", "ConditionalRequestConflict")) return false;
      throw error;
    }
  },
  remove: async (Key, IfMatch) => {
    await client.deleteObject({ Bucket, Key, IfMatch });
  },
  restore: async () => {
    try {
      await client.headBucket({ Bucket });
      return false;
    } catch (error) {
      if (!isErrorNamed(error, "NotFound", "NoSuchBucket")) throw error;
    }
    await createBucketLikeStack(client, Bucket);
    return true;
  },
  empty: async (keptKey) => {
    try {
      for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket })) {
        const Objects = Contents.filter(({ Key }) => Key !== keptKey).map(({ Key }) => ({ Key }));
        if (Objects.length > 0) await client.deleteObjects({ Bucket, Delete: { Objects } });
      }
    } catch (error) {
      if (!isErrorNamed(error, "NoSuchBucket")) throw error;
    }
  },
});

/** Creates a bucket with the policy that the stack's template has. S3 itself encrypts it and blocks public access. */
const createBucketLikeStack = async (client: S3, Bucket: string): Promise<void> => {
  const region = await client.config.region();
  const configuration = region === "us-east-1" ? {} : { LocationConstraint: region as BucketLocationConstraint };
  await client.createBucket({ Bucket, CreateBucketConfiguration: configuration }).catch((error) => {
    if (isErrorNamed(error, "BucketAlreadyOwnedByYou")) return;
    if (!isErrorNamed(error, "BucketAlreadyExists")) throw error;
    throw new Complaint(`the bucket ${Bucket} of this stage was deleted, and another account has its name now`, 1);
  });
  const arn = `arn:${getPartition(region)}:s3:::${Bucket}`;
  const Condition = { Bool: { "aws:SecureTransport": "false" } };
  const Statement = [{ Effect: "Deny", Principal: "*", Action: "s3:*", Resource: [arn, `${arn}/*`], Condition }];
  await client.putBucketPolicy({ Bucket, Policy: JSON.stringify({ Version: "2012-10-17", Statement }) });
};

/** Reads an object; undefined if there is none. A middleware reads the Date header, which the SDK doesn't return. */
const readObject = async (client: S3, place: { Bucket: string; Key: string }): Promise<BucketObject | undefined> => {
  const command = new GetObjectCommand(place);
  let date = "";
  command.middlewareStack.add(
    (next) => async (request) => {
      const result = await next(request);
      date = String(toMap(toMap(result.response).headers).date ?? "");
      return result;
    },
    { step: "deserialize", name: "postern-date" },
  );
  try {
    const { Body, ETag = "", LastModified: modified = new Date(Number.NaN) } = await client.send(command);
    const text = (await Body?.transformToString()) ?? "";
    return { text, etag: ETag, modified, age: Date.parse(date) - modified.getTime() };
  } catch (error) {
    if (isErrorNamed(error, "NoSuchKey")) return undefined;
    throw error;
  }
};
