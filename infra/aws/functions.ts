import { isDeepStrictEqual } from "node:util";
import {
  type FunctionConfiguration,
  Lambda,
  paginateListFunctions,
  paginateListVersionsByFunction,
} from "@aws-sdk/client-lambda";
import { Complaint } from "../cli/complaint.ts";
import { hasName } from "./errors.ts";
import { downloadCode, openUpdates, type Substance } from "./function-updates.ts";

/** Where a function's alias `live` points. */
export interface Live {
  version: string;
  /** The share of reviews, by version, of those that are on trial. */
  weights: Record<string, number>;
  /** What must still be so when it is moved. */
  revision: string | undefined;
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
export const openFunctions = (stage: string, client = new Lambda({ maxAttempts: 5 }), patience = 60): Functions => {
  const prefix = `postern-${stage}-`;
  const nameOf = (rule: string) => `${prefix}${rule}`;

  /** The code and configuration of a version, or those that the next one will have. */
  const read = async (rule: string, version?: string) => {
    const found = await client.getFunction({ FunctionName: nameOf(rule), Qualifier: version });
    return { configuration: found.Configuration ?? {}, location: found.Code?.Location ?? "" };
  };
  const updatesOf = (rule: string) => openUpdates(client, rule, nameOf(rule), patience);
  const missing = (rule: string) => (error: unknown) => {
    if (!hasName(error, "ResourceNotFoundException")) throw error;
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
        .getAlias({ FunctionName: nameOf(rule), Name: alias })
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
      const answer = await client.invoke({ ...call, LogType: "Tail" });
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
        .updateAlias({ FunctionName: nameOf(rule), Name: alias, ...target, RevisionId: revision })
        .catch((error: unknown) => {
          if (!hasName(error, "PreconditionFailedException")) throw error;
          throw new Complaint(`somebody else has just moved ${rule}; look at it again with postern status`, 1);
        });
    },

    publish: async (rule, wanted) => {
      const updates = updatesOf(rule);
      let latest = await updates.awaitUpdate();
      if (latest.CodeSha256 !== wanted.codeSha256) latest = await updates.upload(wanted.zip, latest);
      if (!isAsWanted(substanceOf(latest), wanted)) latest = await updates.configure(wanted, latest);
      return updates.publish(latest, wanted.description);
    },

    prune: async (rule, version) => {
      await client.deleteFunction({ FunctionName: nameOf(rule), Qualifier: version }).catch((error: unknown) => {
        // Gone already, or somebody points at it after all.
        if (!hasName(error, "ResourceNotFoundException", "ResourceConflictException")) throw error;
      });
    },

    unpublished: async (rule) => (await read(rule)).configuration.Environment?.Variables ?? {},

    restore: async (rule, version) => {
      const { upload, configure } = updatesOf(rule);
      const [{ configuration }, source] = [await read(rule), await read(rule, version.version)];
      const code = await downloadCode(source.location);
      await configure(version, await upload(code, configuration));
    },

    republish: async (rule, from, { code, environment, description }) => {
      const { awaitUpdate, upload, configure, publish } = updatesOf(rule);
      const before = await read(rule);
      const held = await downloadCode(before.location);
      const rewritten = code(await downloadCode((await read(rule, from.version)).location));
      const usual = { environment: before.configuration.Environment?.Variables ?? {} };
      const latest = await upload(rewritten, await configure({ environment }, before.configuration));
      try {
        return await publish(latest, description);
      } finally {
        await configure(usual, await upload(held, await awaitUpdate()));
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
