import { DeleteObjectCommand, GetObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";

/** The key in the stage's bucket. infra/aws/iam/pipeline.yml names it, too. */
export const lockKey = "lock.json";

/** What the object holds, and how old that is. */
export interface Stored {
  text: string;
  /** Changes with every write, as long as the texts differ. */
  etag: string;
  /** By S3's clock. */
  modified: Date;
  /** Milliseconds since then, by the Date header of the same answer: this machine's clock has no part in it. */
  age: number;
}

/** An object of S3 that is only written or deleted while it is what its writer has read. */
export interface LockObject {
  read(): Promise<Stored | undefined>;
  /** Writes over the object with this ETag, or without one only where there is no object. Returns whether it did. */
  write(text: string, etag?: string): Promise<boolean>;
  /** Deletes the object with this ETag, and no other. */
  remove(etag: string): Promise<void>;
}

export const openLockObject = (Bucket: string, client = new S3Client({ maxAttempts: 5 })): LockObject => {
  const place = { Bucket, Key: lockKey };
  return {
    read: async () => {
      const command = new GetObjectCommand(place);
      let date = "";
      command.middlewareStack.add(
        (next) => async (request) => {
          const result = await next(request);
          date = dateIn(result.response);
          return result;
        },
        { step: "deserialize", name: "postern-date" },
      );
      try {
        const { Body, ETag = "", LastModified: modified = new Date(Number.NaN) } = await client.send(command);
        const text = (await Body?.transformToString()) ?? "";
        return { text, etag: ETag, modified, age: Date.parse(date) - modified.getTime() };
      } catch (error) {
        if (isCalled(error, "NoSuchKey")) return undefined;
        throw error;
      }
    },
    write: async (Body, etag) => {
      const condition = etag === undefined ? { IfNoneMatch: "*" } : { IfMatch: etag };
      const object = { ...place, ...condition, Body, ContentType: "application/json" };
      try {
        await client.send(new PutObjectCommand(object));
        return true;
      } catch (error) {
        // The last means that another conditional write was under way.
        if (isCalled(error, "PreconditionFailed", "NoSuchKey", "ConditionalRequestConflict")) return false;
        throw error;
      }
    },
    remove: async (IfMatch) => void (await client.send(new DeleteObjectCommand({ ...place, IfMatch }))),
  };
};

const isCalled = (error: unknown, ...names: string[]) => error instanceof Error && names.includes(error.name);

const dateIn = (response: unknown): string => {
  if (typeof response !== "object" || response === null || !("headers" in response)) return "";
  const { headers } = response;
  return typeof headers === "object" && headers !== null && "date" in headers ? String(headers.date) : "";
};
