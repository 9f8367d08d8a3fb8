import { createHash } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import {
  type FunctionConfiguration,
  type Lambda,
  waitUntilFunctionActiveV2,
  waitUntilFunctionUpdatedV2,
  waitUntilPublishedVersionActive,
} from "@aws-sdk/client-lambda";
import { Complaint, sentenceOf } from "../cli/complaint.ts";
import { hasName } from "./errors.ts";

// Changes of a function's unpublished code and environment, one after the other, each only if nobody else's came between.

/** What makes a version, besides the stack's: it never changes once it is published. */
export interface Substance {
  /** SHA-256 of the zip, base64. */
  codeSha256: string;
  environment: Record<string, string>;
  memorySize: number;
  timeout: number;
}

/** The settings of a version that an update sends; the environment is replaced whole. */
type Settings = Pick<Substance, "environment"> & Partial<Substance>;

/** The steps in which one function gets a new version. */
export interface FunctionUpdates {
  /** Waits until no update is under way. */
  awaitUpdate(): Promise<FunctionConfiguration>;
  upload(zip: Uint8Array, before: FunctionConfiguration): Promise<FunctionConfiguration>;
  configure(settings: Settings, before: FunctionConfiguration): Promise<FunctionConfiguration>;
  /** Returns the version that has this code and configuration. */
  publish(before: FunctionConfiguration, description: string): Promise<string>;
}

/** An update is waited for at most so many seconds. */
export const openUpdates = (client: Lambda, rule: string, FunctionName: string, patience: number): FunctionUpdates => {
  const waiting = { client, maxWaitTime: patience, minDelay: 0.3, maxDelay: 3 };
  const conflict = () =>
    new Complaint(`somebody else changes ${rule} at the same time; look at it again with postern status`, 1);

  const awaitUpdate = async (): Promise<FunctionConfiguration> => {
    await waitUntilFunctionActiveV2(waiting, { FunctionName });
    await waitUntilFunctionUpdatedV2(waiting, { FunctionName });
    return (await client.getFunction({ FunctionName })).Configuration ?? {};
  };
  /** Nobody else's change may come between: the next step would publish it, or undo it. */
  const requireOurs = async (isOurs: (latest: FunctionConfiguration) => boolean) => {
    const latest = await awaitUpdate();
    if (isOurs(latest)) return latest;
    throw conflict();
  };
  /** An update that is under way is waited for; a revision that is not the latest any more is somebody else's doing. */
  const attempt = async <T>(change: () => Promise<T>): Promise<T> => {
    for (let count = 1; ; count++)
      try {
        return await change();
      } catch (error) {
        if (hasName(error, "PreconditionFailedException")) throw conflict();
        if (hasName(error, "CodeStorageExceededException"))
          throw new Complaint(`this account has no room for more code in Lambda; delete old versions of ${rule}`, 1);
        if (!hasName(error, "ResourceConflictException") || count === 5) throw error;
        await wait(200 * 2 ** count);
      }
  };
  return {
    awaitUpdate,
    upload: async (zip, { RevisionId, Architectures }) => {
      const code = { FunctionName, ZipFile: zip, RevisionId, Architectures };
      await attempt(async () => {
        // Once for whether it would be let, so that nothing is done by halves.
        await client.updateFunctionCode({ ...code, DryRun: true });
        await client.updateFunctionCode({ ...code, Publish: false });
      });
      const sha256 = createHash("sha256").update(zip).digest("base64");
      return requireOurs(({ CodeSha256 }) => CodeSha256 === sha256);
    },
    configure: async ({ environment, memorySize: MemorySize, timeout: Timeout }, { RevisionId }) => {
      const change = { FunctionName, Environment: { Variables: environment }, MemorySize, Timeout, RevisionId };
      await attempt(() => client.updateFunctionConfiguration(change));
      return requireOurs(({ Environment }) => isDeepStrictEqual({ ...Environment?.Variables }, environment));
    },
    publish: async ({ CodeSha256, RevisionId }, Description) => {
      const request = { FunctionName, CodeSha256, RevisionId, Description };
      const { Version } = await attempt(() => client.publishVersion(request));
      await waitUntilPublishedVersionActive(waiting, { FunctionName, Qualifier: Version });
      return String(Version);
    },
  };
};

/** Fetches the code of a function from where Lambda says that it lies. */
export const downloadCode = async (location: string): Promise<Uint8Array> => {
  const response = await fetch(location).catch((error) => {
    throw new Complaint(`Lambda doesn't hand out the code that is there: ${sentenceOf(error)}`, 3);
  });
  if (!response.ok) throw new Complaint(`Lambda doesn't hand out the code that is there: ${response.status}`, 3);
  return new Uint8Array(await response.arrayBuffer());
};
