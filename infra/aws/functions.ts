import { createHash } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import {
  DeleteFunctionCommand,
  type FunctionConfiguration,
  GetAliasCommand,
  GetFunctionCommand,
  InvokeCommand,
  LambdaClient,
  PublishVersionCommand,
  paginateListFunctions,
  paginateListVersionsByFunction,
  UpdateAliasCommand,
  UpdateFunctionCodeCommand,
  UpdateFunctionConfigurationCommand,
  waitUntilFunctionActiveV2,
  waitUntilFunctionUpdatedV2,
  waitUntilPublishedVersionActive,
} from "@aws-sdk/client-lambda";
import { Complaint, sentenceOf } from "../cli/complaint.ts";

/** Where a function's alias `live` points. */
export interface Live {
  version: string;
  /** The share of reviews, by version, of those that are on trial. */
  weights: Record<string, number>;
  /** What must still be so when it is moved. */
  revision: string | undefined;
}

/** What makes a version, besides the stack's: it never changes once it is published. */
export interface Substance {
  /** SHA-256 of the zip, base64. */
  codeSha256: string;
  environment: Record<string, string>;
  memorySize: number;
  timeout: number;
}

/** A published version. */
export interface Version extends Substance {
  version: string;
  description: string;
  modified: Date;
}

/** A version as it shall be. */
export interface Wanted extends Substance {
  zip: Uint8Array;
  description: string;
}

/** What came of invoking a version. */
export interface Answer {
  payload: unknown;
  /** Of a function that crashed or didn't start: what it says. */
  fault: string | undefined;
  /** The end of what it wrote. */
  log: string;
}

/** The functions of a stage, by rule, as Lambda has them. */
export interface Functions {
  /** What a rule's function is called. */
  nameOf(rule: string): string;
  rules(): Promise<string[]>;
  live(rule: string): Promise<Live>;
  versions(rule: string): Promise<Version[]>;
  invoke(rule: string, version: string, event: object): Promise<Answer>;
  /** Points `live` at a version, and at others by their share, if it still points where it did. */
  move(rule: string, version: string, before: Live, weights?: Record<string, number>): Promise<void>;
  /** Publishes a version that is as wanted, or finds that the last one is; what is there for the next one is it, too. */
  publish(rule: string, wanted: Wanted): Promise<string>;
  /** Deletes a version that nothing points at. */
  prune(rule: string, version: string): Promise<void>;
  /** What the next deployment finds: the environment of the code that is there but not published. */
  unpublished(rule: string): Promise<Record<string, string>>;
  /** Puts a version's code and environment there, in this order. */
  restore(rule: string, version: Version): Promise<void>;
  /**
   * Publishes a version once more, with its code rewritten and another environment. What was there for the next deployment
   * is there again afterwards, code first: whatever stops us midway leaves the other environment behind, to be seen by.
   */
  republish(
    rule: string,
    from: Version,
    change: { code(zip: Uint8Array): Uint8Array; environment: Record<string, string>; description: string },
  ): Promise<string>;
}

const alias = "live";

/** As osls names them, with what serverless.yml calls the service. An update is waited for at most so many seconds. */
export const openFunctions = (
  stage: string,
  client = new LambdaClient({ maxAttempts: 5 }),
  patience = 60,
): Functions => {
  const prefix = `postern-${stage}-`;
  const nameOf = (rule: string) => `${prefix}${rule}`;

  /** The code and configuration of a version, or those that the next one will have. */
  const read = async (rule: string, version?: string) => {
    const found = await client.send(new GetFunctionCommand({ FunctionName: nameOf(rule), Qualifier: version }));
    return { configuration: found.Configuration ?? {}, location: found.Code?.Location ?? "" };
  };
  const waiting = { client, maxWaitTime: patience, minDelay: 0.3, maxDelay: 3 };
  const settled = async (rule: string): Promise<FunctionConfiguration> => {
    await waitUntilFunctionActiveV2(waiting, { FunctionName: nameOf(rule) });
    await waitUntilFunctionUpdatedV2(waiting, { FunctionName: nameOf(rule) });
    return (await read(rule)).configuration;
  };
  /** Nobody else's change may come between: the next step would publish it, or undo it. */
  const ours = async (rule: string, isOurs: (latest: FunctionConfiguration) => boolean) => {
    const latest = await settled(rule);
    if (isOurs(latest)) return latest;
    throw new Complaint(`somebody else changes ${rule} at the same time; look at it again with postern status`, 1);
  };
  /** An update that is under way is waited for; a revision that is not the latest any more is somebody else's doing. */
  const changed = async (rule: string, change: () => Promise<unknown>) => {
    for (let attempt = 1; ; attempt++)
      try {
        await change();
        return;
      } catch (error) {
        if (isCalled(error, "PreconditionFailedException"))
          throw new Complaint(
            `somebody else changes ${rule} at the same time; look at it again with postern status`,
            1,
          );
        if (isCalled(error, "CodeStorageExceededException"))
          throw new Complaint(`this account has no room for more code in Lambda; delete old versions of ${rule}`, 1);
        if (!isCalled(error, "ResourceConflictException") || attempt === 5) throw error;
        await wait(200 * 2 ** attempt);
      }
  };
  const upload = async (rule: string, zip: Uint8Array, { RevisionId, Architectures }: FunctionConfiguration) => {
    const code = { FunctionName: nameOf(rule), ZipFile: zip, RevisionId, Architectures };
    await changed(rule, async () => {
      // Once for whether it would be let, so that nothing is done by halves.
      await client.send(new UpdateFunctionCodeCommand({ ...code, DryRun: true }));
      await client.send(new UpdateFunctionCodeCommand({ ...code, Publish: false }));
    });
    const sha256 = createHash("sha256").update(zip).digest("base64");
    return ours(rule, ({ CodeSha256 }) => CodeSha256 === sha256);
  };
  const surround = async (
    rule: string,
    { environment, ...sizing }: Pick<Substance, "environment"> & Partial<Substance>,
    { RevisionId }: FunctionConfiguration,
  ) => {
    const { memorySize: MemorySize, timeout: Timeout } = sizing;
    const change = { FunctionName: nameOf(rule), Environment: { Variables: environment }, MemorySize, Timeout };
    await changed(rule, () => client.send(new UpdateFunctionConfigurationCommand({ ...change, RevisionId })));
    return ours(rule, ({ Environment }) => isDeepStrictEqual({ ...Environment?.Variables }, environment));
  };
  const published = async (rule: string, { CodeSha256, RevisionId }: FunctionConfiguration, description: string) => {
    const request = { FunctionName: nameOf(rule), CodeSha256, RevisionId, Description: description };
    let version = "";
    await changed(rule, async () => {
      version = String((await client.send(new PublishVersionCommand(request))).Version);
    });
    await waitUntilPublishedVersionActive(waiting, { FunctionName: nameOf(rule), Qualifier: version });
    return version;
  };

  const missing = (rule: string) => (error: unknown) => {
    if (!isCalled(error, "ResourceNotFoundException")) throw error;
    throw nobody(rule);
  };
  const nobody = (rule: string) => new Complaint(`stage ${stage} has no function for ${rule}, or none that is live`, 1);

  return {
    nameOf,

    rules: async () => {
      const names: string[] = [];
      // A name alone could be another stage's: dev-x of rule, or dev of x-rule.
      for await (const { Functions = [] } of paginateListFunctions({ client }, {}))
        for (const { FunctionName = "", Environment } of Functions)
          if (FunctionName.startsWith(prefix) && Environment?.Variables?.POSTERN_STAGE === stage)
            names.push(FunctionName);
      return names.map((name) => name.slice(prefix.length)).sort();
    },

    live: async (rule) => {
      const { FunctionVersion, RoutingConfig, RevisionId } = await client
        .send(new GetAliasCommand({ FunctionName: nameOf(rule), Name: alias }))
        .catch(missing(rule));
      const weights = RoutingConfig?.AdditionalVersionWeights ?? {};
      return { version: String(FunctionVersion), weights, revision: RevisionId };
    },

    versions: async (rule) => {
      const found: Version[] = [];
      try {
        for await (const { Versions = [] } of paginateListVersionsByFunction(
          { client },
          { FunctionName: nameOf(rule) },
        ))
          found.push(...Versions.filter(({ Version }) => Version !== "$LATEST").map(versionOf));
      } catch (error) {
        missing(rule)(error);
      }
      // The name alone could be another stage's, here too.
      if (found.every(({ environment }) => environment.POSTERN_STAGE !== stage)) throw nobody(rule);
      return found.sort((one, other) => Number(one.version) - Number(other.version));
    },

    invoke: async (rule, version, event) => {
      const call = { FunctionName: nameOf(rule), Qualifier: version, Payload: JSON.stringify(event) };
      const answer = await client.send(new InvokeCommand({ ...call, LogType: "Tail" }));
      const { Payload, FunctionError, LogResult = "", ExecutedVersion } = answer;
      const payload: unknown = JSON.parse(Buffer.from(Payload ?? []).toString() || "null");
      const strayed = /^\d+$/.test(version) && ExecutedVersion !== undefined && ExecutedVersion !== version;
      const fault = FunctionError
        ? String(Object(payload).errorMessage ?? FunctionError)
        : strayed
          ? `version ${ExecutedVersion} answered in its place`
          : undefined;
      return { payload, fault, log: Buffer.from(LogResult, "base64").toString() };
    },

    move: async (rule, version, { revision }, weights = {}) => {
      const target = { FunctionVersion: version, RoutingConfig: { AdditionalVersionWeights: weights } };
      await client
        .send(new UpdateAliasCommand({ FunctionName: nameOf(rule), Name: alias, ...target, RevisionId: revision }))
        .catch((error: unknown) => {
          if (!isCalled(error, "PreconditionFailedException")) throw error;
          throw new Complaint(`somebody else has just moved ${rule}; look at it again with postern status`, 1);
        });
    },

    publish: async (rule, wanted) => {
      let latest = await settled(rule);
      if (latest.CodeSha256 !== wanted.codeSha256) latest = await upload(rule, wanted.zip, latest);
      if (!isAsWanted(substanceOf(latest), wanted)) latest = await surround(rule, wanted, latest);
      return published(rule, latest, wanted.description);
    },

    prune: async (rule, version) => {
      await client
        .send(new DeleteFunctionCommand({ FunctionName: nameOf(rule), Qualifier: version }))
        .catch((error: unknown) => {
          // Gone already, or somebody points at it after all.
          const isNoMatter = ["ResourceNotFoundException", "ResourceConflictException"].some((name) =>
            isCalled(error, name),
          );
          if (!isNoMatter) throw error;
        });
    },

    unpublished: async (rule) => (await read(rule)).configuration.Environment?.Variables ?? {},

    restore: async (rule, version) => {
      const [{ configuration }, source] = [await read(rule), await read(rule, version.version)];
      const code = await downloaded(source.location);
      await surround(rule, version, await upload(rule, code, configuration));
    },

    republish: async (rule, from, { code, environment, description }) => {
      const before = await read(rule);
      const held = await downloaded(before.location);
      const rewritten = code(await downloaded((await read(rule, from.version)).location));
      const usual = { environment: before.configuration.Environment?.Variables ?? {} };
      const latest = await upload(rule, rewritten, await surround(rule, { environment }, before.configuration));
      try {
        return await published(rule, latest, description);
      } finally {
        await surround(rule, usual, await upload(rule, held, await settled(rule)));
      }
    },
  };
};

/** Whether two versions would do the same. */
export const isAsWanted = (one: Substance, other: Substance): boolean =>
  one.codeSha256 === other.codeSha256 &&
  one.memorySize === other.memorySize &&
  one.timeout === other.timeout &&
  isDeepStrictEqual({ ...one.environment }, { ...other.environment });

const substanceOf = ({ CodeSha256, Environment, MemorySize, Timeout }: FunctionConfiguration): Substance => ({
  codeSha256: CodeSha256 ?? "",
  environment: Environment?.Variables ?? {},
  memorySize: MemorySize ?? 0,
  timeout: Timeout ?? 0,
});

const versionOf = (configuration: FunctionConfiguration): Version => ({
  ...substanceOf(configuration),
  version: String(configuration.Version),
  description: configuration.Description ?? "",
  modified: new Date(configuration.LastModified ?? 0),
});

const downloaded = async (location: string): Promise<Uint8Array> => {
  const response = await fetch(location).catch((error) => {
    throw new Complaint(`Lambda doesn't hand out the code that is there: ${sentenceOf(error)}`, 3);
  });
  if (!response.ok) throw new Complaint(`Lambda doesn't hand out the code that is there: ${response.status}`, 3);
  return new Uint8Array(await response.arrayBuffer());
};

const isCalled = (error: unknown, name: string) => error instanceof Error && error.name === name;
