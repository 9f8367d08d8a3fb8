import {
  DeleteObjectsCommand,
  GetObjectCommand,
  PutObjectCommand,
  paginateListObjectsV2,
  S3Client,
} from "@aws-sdk/client-s3";
import { lockKey } from "./lock-object.ts";

/** What a stage keeps in its bucket: documents by name. */
export interface Records {
  /** In the order of their names. */
  names(): Promise<string[]>;
  read(name: string): Promise<unknown>;
  /** Whether it is ours: false where there is one by that name already. */
  create(name: string, document: unknown): Promise<boolean>;
  write(name: string, document: unknown): Promise<void>;
}

const folder = "releases/";

/** In the bucket that the stack made for its own artefacts. */
export const openRecords = (bucket: string, client = new S3Client({ maxAttempts: 5 })): Records => {
  const placeOf = (name: string) => ({ Bucket: bucket, Key: `${folder}${name}.json` });
  const put = (name: string, document: unknown, condition: { IfNoneMatch?: string }) => {
    const Body = JSON.stringify(document);
    return client.send(new PutObjectCommand({ ...placeOf(name), ...condition, Body, ContentType: "application/json" }));
  };
  return {
    names: async () => {
      const found: string[] = [];
      for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket: bucket, Prefix: folder }))
        found.push(...Contents.map(({ Key = "" }) => Key.slice(folder.length).replace(/\.json$/, "")));
      return found.sort();
    },
    read: async (name) => {
      const { Body } = await client.send(new GetObjectCommand(placeOf(name)));
      return JSON.parse((await Body?.transformToString()) ?? "null");
    },
    create: (name, document) =>
      put(name, document, { IfNoneMatch: "*" }).then(
        () => true,
        (error) => {
          if (["PreconditionFailed", "ConditionalRequestConflict"].includes(error.name)) return false;
          throw error;
        },
      ),
    write: async (name, document) => void (await put(name, document, {})),
  };
};

/** Deletes all but the lock, which must hold until all else is gone. A bucket that is gone is empty. */
export const emptyBucket = async (bucket: string, client = new S3Client({ maxAttempts: 5 })): Promise<void> => {
  try {
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket: bucket })) {
      const Objects = Contents.filter(({ Key }) => Key !== lockKey).map(({ Key }) => ({ Key }));
      if (Objects.length > 0) await client.send(new DeleteObjectsCommand({ Bucket: bucket, Delete: { Objects } }));
    }
  } catch (error) {
    if (!(error instanceof Error) || error.name !== "NoSuchBucket") throw error;
  }
};
