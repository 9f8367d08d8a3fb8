import { createHash } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import {
  type FunctionConfiguration,
  type Lambda,
  type UpdateFunctionConfigurationCommandInput,
  waitUntilFunctionActiveV2,
  waitUntilFunctionUpdatedV2,
  waitUntilPublishedVersionActive,
} from "#aws/client-lambda";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { isErrorNamed } from "./errors.ts";

// Each step changes the code or the settings of a function's $LATEST. It fails if another command has changed the
// function since the step before.

/** The settings of a function that come from serverless.yml, or are Lambda's defaults. */
export type LambdaStackSettings = {
  [Name in
    | "Runtime"
    | "Layers"
    | "TracingConfig"
    | "EphemeralStorage"
    | "KMSKeyArn"
    | "LoggingConfig"
    | "VpcConfig"]: UpdateFunctionConfigurationCommandInput[Name];
};

/** The content of a Lambda version. A published version never changes. */
export interface LambdaVersionContent {
  /** The SHA-256 of the zip with the function's code, in base64. */
  codeSha256: string;
  environment: Record<string, string>;
  memorySize: number;
  timeout: number;
  stackSettings: LambdaStackSettings;
}

/** The settings in one update of a function. The update removes environment variables that are not in `environment`. */
type Settings = Pick<LambdaVersionContent, "environment"> &
  Partial<Omit<LambdaVersionContent, "stackSettings"> & { stackSettings: Partial<LambdaStackSettings> }>;

/** Changes the code and the configuration of one Lambda function, and publishes its versions. */
interface FunctionUpdater {
  /** Waits until Lambda has finished an update, and returns the configuration. */
  awaitUpdate(): Promise<FunctionConfiguration>;
  upload(zip: Uint8Array, before: FunctionConfiguration): Promise<FunctionConfiguration>;
  configure(settings: Settings, before: FunctionConfiguration): Promise<FunctionConfiguration>;
  /**
   * Publishes $LATEST as a new version. If the last version has the same code and configuration, Lambda publishes
   * nothing, and the last version is returned.
   */
  publish(before: FunctionConfiguration, description: string): Promise<string>;
}

/** Creates the updater of one function. It waits at most `maxWaitSeconds` for each update. */
export const createFunctionUpdater = (
  client: Lambda,
  rule: string,
  FunctionName: string,
  maxWaitSeconds: number,
): FunctionUpdater => {
  const waiting = { client, maxWaitTime: maxWaitSeconds, minDelay: 0.3, maxDelay: 3 };
  const buildConflict = () =>
    new Complaint(`another command is changing ${rule} at the same time; check it with postern status`, 1);

  const awaitUpdate = async (): Promise<FunctionConfiguration> => {
    await waitUntilFunctionActiveV2(waiting, { FunctionName });
    await waitUntilFunctionUpdatedV2(waiting, { FunctionName });
    return (await client.getFunction({ FunctionName })).Configuration ?? {};
  };
  /** Waits for the update. Throws if another command has changed the function, so that `isOurs` is false for it. */
  const requireOurs = async (isOurs: (latest: FunctionConfiguration) => boolean) => {
    const latest = await awaitUpdate();
    if (isOurs(latest)) return latest;
    throw buildConflict();
  };
  /**
   * Calls a change of the function. Tries again while Lambda is still applying an earlier update. Throws if another
   * command has changed the function in the meantime.
   */
  const retryChange = async <T>(change: () => Promise<T>): Promise<T> => {
    for (let count = 1; ; count++)
      try {
        return await change();
      } catch (error) {
        if (isErrorNamed(error, "PreconditionFailedException") || isCodeMismatch(error)) throw buildConflict();
        if (isErrorNamed(error, "CodeStorageExceededException"))
          throw new Complaint(`this account has no room for more code in Lambda; delete old versions of ${rule}`, 1);
        if (!isErrorNamed(error, "ResourceConflictException") || count === 5) throw error;
        await wait(200 * 2 ** count);
      }
  };
  return {
    awaitUpdate,
    upload: async (zip, { RevisionId, Architectures }) => {
      const code = { FunctionName, ZipFile: zip, RevisionId, Architectures };
      await retryChange(async () => {
        // The dry run lets Lambda refuse a bad upload before anything is changed.
        await client.updateFunctionCode({ ...code, DryRun: true });
        await client.updateFunctionCode({ ...code, Publish: false });
      });
      const sha256 = createHash("sha256").update(zip).digest("base64");
      return requireOurs(({ CodeSha256 }) => CodeSha256 === sha256);
    },
    configure: async ({ environment, memorySize: MemorySize, timeout: Timeout, stackSettings }, { RevisionId }) => {
      const Environment = { Variables: environment };
      const change = { FunctionName, ...stackSettings, Environment, MemorySize, Timeout, RevisionId };
      await retryChange(() => client.updateFunctionConfiguration(change));
      return requireOurs(({ Environment }) => isDeepStrictEqual({ ...Environment?.Variables }, environment));
    },
    publish: async ({ CodeSha256, RevisionId }, Description) => {
      const request = { FunctionName, CodeSha256, RevisionId, Description };
      const { Version } = await retryChange(() => client.publishVersion(request));
      await waitUntilPublishedVersionActive(waiting, { FunctionName, Qualifier: Version });
      return String(Version);
    },
  };
};

/** Reports whether PublishVersion was refused because $LATEST has other code than the request says. */
const isCodeMismatch = (error: unknown): boolean =>
  isErrorNamed(error, "InvalidParameterValueException") && /CodeSHA256/i.test(toSentence(error));

/** Downloads the zip of a function from the address that Lambda's GetFunction returns. */
export const downloadFunctionCode = async (location: string): Promise<Uint8Array> => {
  const fail = (error: unknown) => {
    const exitCode = 3; // all commands exit with 3 if they can't read what they need to know
    throw new Complaint(`the function's code can't be downloaded from Lambda: ${toSentence(error)}`, exitCode);
  };
  const response = await fetch(location, { signal: AbortSignal.timeout(60_000) }).catch(fail);
  if (!response.ok) return fail(response.status);
  return new Uint8Array(await response.arrayBuffer().catch(fail));
};
