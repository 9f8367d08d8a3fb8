import { GetObjectCommand, NoSuchKey, paginateListObjectsV2, S3Client } from "@aws-sdk/client-s3";

/** An object that may be a recording. */
export interface Kept {
  key: string;
  bytes: number;
  modified: Date;
}

/** What functions have recorded, in the bucket that their `record` setting names. */
export interface Bucket {
  /** In the order of their names, which is that of their times. */
  list(prefix: string): AsyncIterable<Kept>;
  /** Undefined where it is gone: a lifecycle rule goes on while somebody fetches. */
  read(key: string): Promise<string | undefined>;
}

export const openBucket = (
  bucket: string,
  region: string | undefined,
  client = new S3Client({ maxAttempts: 5, ...(region && { region }) }),
): Bucket => ({
  list: async function* (prefix) {
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket: bucket, Prefix: prefix }))
      for (const { Key = "", Size = 0, LastModified = new Date(0) } of Contents)
        yield { key: Key, bytes: Size, modified: LastModified };
  },
  read: async (key) => {
    const answer = await client.send(new GetObjectCommand({ Bucket: bucket, Key: key })).catch((error) => {
      if (error instanceof NoSuchKey) return undefined;
      throw error;
    });
    return answer && ((await answer.Body?.transformToString()) ?? "");
  },
});
