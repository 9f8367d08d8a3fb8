import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import {
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
  waitUntilFunctionUpdatedV2,
} from "@aws-sdk/client-lambda";
import { Complaint, sentenceOf } from "../complaint.ts";

/** Where a function's alias `live` points. */
export interface Live {
  version: string;
  /** The share of reviews, by version, of those that are on trial. */
  weights: Record<string, number>;
  /** What must still be so when it is moved. */
  revision: string | undefined;
}

/** A published version: code and configuration that never change. */
export interface Version {
  version: string;
  description: string;
  environment: Record<string, string>;
  modified: Date;
}

/** What came of invoking a version. */
export interface Answer {
  payload: unknown;
  /** Of a function that crashed or didn't start: what it says. */
  fault: string | undefined;
}

/** The functions of a stage, by rule, as Lambda has them. */
export interface Functions {
  rules(): Promise<string[]>;
  live(rule: string): Promise<Live>;
  versions(rule: string): Promise<Version[]>;
  invoke(rule: string, version: string, event: object): Promise<Answer>;
  /** Points `live` at one version alone, if it still points where it did. */
  move(rule: string, version: string, before: Live): Promise<void>;
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
  const settled = async (rule: string): Promise<FunctionConfiguration> => {
    const waiting = { client, maxWaitTime: patience, minDelay: 0.3, maxDelay: 3 };
    await waitUntilFunctionUpdatedV2(waiting, { FunctionName: nameOf(rule) });
    return (await read(rule)).configuration;
  };
  /** Nobody else's change may come between: the next step would publish it, or undo it. */
  const ours = async (rule: string, isOurs: (latest: FunctionConfiguration) => boolean) => {
    const latest = await settled(rule);
    if (isOurs(latest)) return latest;
    throw new Complaint(`somebody else changes ${rule} at the same time; look at it again with postern status`, 1);
  };
  const upload = async (rule: string, zip: Uint8Array, { RevisionId, Architectures }: FunctionConfiguration) => {
    const code = { FunctionName: nameOf(rule), ZipFile: zip, RevisionId, Architectures };
    await client.send(new UpdateFunctionCodeCommand(code));
    const sha256 = createHash("sha256").update(zip).digest("base64");
    return ours(rule, ({ CodeSha256 }) => CodeSha256 === sha256);
  };
  const surround = async (rule: string, Variables: Record<string, string>, { RevisionId }: FunctionConfiguration) => {
    const change = { FunctionName: nameOf(rule), Environment: { Variables }, RevisionId };
    await client.send(new UpdateFunctionConfigurationCommand(change));
    return ours(rule, ({ Environment }) => isDeepStrictEqual({ ...Environment?.Variables }, Variables));
  };

  const missing = (rule: string) => (error: unknown) => {
    if (!isCalled(error, "ResourceNotFoundException")) throw error;
    throw nobody(rule);
  };
  const nobody = (rule: string) => new Complaint(`stage ${stage} has no function for ${rule}, or none that is live`, 1);

  return {
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
      const { Payload, FunctionError } = await client.send(new InvokeCommand(call));
      const payload: unknown = JSON.parse(Buffer.from(Payload ?? []).toString() || "null");
      const fault = FunctionError && String(Object(payload).errorMessage ?? FunctionError);
      return { payload, fault };
    },

    move: async (rule, version, { revision }) => {
      const target = { FunctionVersion: version, RoutingConfig: { AdditionalVersionWeights: {} } };
      await client
        .send(new UpdateAliasCommand({ FunctionName: nameOf(rule), Name: alias, ...target, RevisionId: revision }))
        .catch((error: unknown) => {
          if (!isCalled(error, "PreconditionFailedException")) throw error;
          throw new Complaint(`somebody else has just moved ${rule}; look at it again with postern status`, 1);
        });
    },

    unpublished: async (rule) => (await read(rule)).configuration.Environment?.Variables ?? {},

    restore: async (rule, version) => {
      const [{ configuration }, source] = [await read(rule), await read(rule, version.version)];
      const code = await downloaded(source.location);
      await surround(rule, version.environment, await upload(rule, code, configuration));
    },

    republish: async (rule, from, { code, environment, description }) => {
      const before = await read(rule);
      const held = await downloaded(before.location);
      const rewritten = code(await downloaded((await read(rule, from.version)).location));
      const usual = before.configuration.Environment?.Variables ?? {};
      const changed = await upload(rule, rewritten, await surround(rule, environment, before.configuration));
      const { RevisionId, CodeSha256 } = changed;
      const request = { FunctionName: nameOf(rule), CodeSha256, RevisionId, Description: description };
      try {
        return String((await client.send(new PublishVersionCommand(request))).Version);
      } finally {
        await surround(rule, usual, await upload(rule, held, await settled(rule)));
      }
    },
  };
};

const versionOf = ({ Version, Description, Environment, LastModified }: FunctionConfiguration): Version => ({
  version: String(Version),
  description: Description ?? "",
  environment: Environment?.Variables ?? {},
  modified: new Date(LastModified ?? 0),
});

const downloaded = async (location: string): Promise<Uint8Array> => {
  const response = await fetch(location).catch((error) => {
    throw new Complaint(`Lambda doesn't hand out the code that is there: ${sentenceOf(error)}`, 3);
  });
  if (!response.ok) throw new Complaint(`Lambda doesn't hand out the code that is there: ${response.status}`, 3);
  return new Uint8Array(await response.arrayBuffer());
};

const isCalled = (error: unknown, name: string) => error instanceof Error && error.name === name;
