import { isDeepStrictEqual } from "node:util";
import {
  type FunctionConfiguration,
  Lambda,
  type ProvisionedConcurrencyConfigListItem,
  paginateListProvisionedConcurrencyConfigs,
  paginateListVersionsByFunction,
} from "#aws/client-lambda";
import { toMap } from "#lib/json.ts";
import { buildFunctionName, findRuleOfLogicalId } from "../catalogue/rule-names.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { formatCount } from "../cli/progress.ts";
import { openAwsClient } from "./client.ts";
import { createFallbackForErrorNamed, isErrorNamed } from "./errors.ts";
import {
  createFunctionUpdater,
  downloadFunctionCode,
  type LambdaStackSettings,
  type LambdaVersionContent,
} from "./function-updates.ts";
import type { StageStack } from "./stack.ts";

/** The alias `live`, which clusters call. */
export interface LiveAlias {
  version: string;
  /** During a canary, the share of reviews (0 to 1) for each new version. */
  weights: Record<string, number>;
  /** The alias's revision when it was read. `moveAlias` fails if the alias has another revision then. */
  revision: string | undefined;
  /** True if the alias doesn't exist. `version` is then the version that the last release has. */
  isMissing?: boolean;
}

/** A permission in the resource policy of the alias `live`, with the members of AddPermission. */
export interface LambdaPermission {
  Action: string;
  Principal: string;
  SourceArn?: string;
  FunctionUrlAuthType?: "NONE" | "AWS_IAM";
  InvokedViaFunctionUrl?: boolean;
}

/** The published versions of a function, and the content of $LATEST. */
interface FunctionVersions {
  versions: PublishedVersion[];
  latest: LambdaVersionContent;
}

export interface PublishedVersion extends LambdaVersionContent {
  version: string;
  description: string;
  modified: Date;
}

export interface WantedLambdaVersion extends LambdaVersionContent {
  zip: Uint8Array;
  description: string;
}

/** A version with warm environments (provisioned concurrency). */
export interface WarmVersion {
  version: string;
  /** The number of environments that were requested. */
  count: number;
  status: "IN_PROGRESS" | "READY" | "FAILED";
  /** Lambda's reason, if it could not start the environments. */
  reason?: string | undefined;
}

interface FunctionInvocationResult {
  payload: unknown;
  /** A sentence if the function failed or another version answered; else undefined. */
  fault: string | undefined;
  log: string;
}

/** The quotas of Lambda in an account and a region. */
export interface LambdaQuotas {
  /** The most executions at the same time. */
  concurrency: number;
  /** The part of `concurrency` that no function reserves. */
  unreserved: number;
  codeBytes: number;
  usedCodeBytes: number;
  /** The size of the largest zip that Lambda accepts. */
  zipBytes: number;
}

/** The Lambda functions of a stage. */
export interface StageFunctions {
  getFunctionName(rule: string): string;
  listRules(): Promise<string[]>;
  /** Returns the account's quotas; undefined if the caller may not read them. */
  readQuotas(): Promise<LambdaQuotas | undefined>;
  readAlias(rule: string): Promise<LiveAlias>;
  listVersions(rule: string): Promise<PublishedVersion[]>;
  readVersions(rule: string): Promise<FunctionVersions>;
  /** Returns the function's reserved concurrency; undefined if it has none. */
  readReservedConcurrency(rule: string): Promise<number | undefined>;
  /** Reads the resource policy of the alias `live`. */
  readPermissions(rule: string): Promise<{ statement: string; permission: LambdaPermission }[]>;
  addPermission(rule: string, statement: string, permission: LambdaPermission): Promise<void>;
  removePermission(rule: string, statement: string): Promise<void>;
  createAlias(rule: string, version: string): Promise<void>;
  invoke(rule: string, version: string, event: object): Promise<FunctionInvocationResult>;
  /** Points the alias `live` at a version. Throws if another command has moved the alias since `before` was read. */
  moveAlias(rule: string, version: string, before: LiveAlias, weights?: Record<string, number>): Promise<void>;
  /** Gives $LATEST the wanted content, and publishes it as a version, unless the last version has the same content. */
  publishVersion(rule: string, wanted: WantedLambdaVersion): Promise<string>;
  /** Gives $LATEST the wanted content. */
  setLatest(rule: string, wanted: WantedLambdaVersion): Promise<void>;
  /** Lists the versions with warm environments. The list is empty if the function doesn't exist. */
  listWarmVersions(rule: string): Promise<WarmVersion[]>;
  /** Requests warm environments of a version. Throws a Complaint if Lambda refuses the number. */
  requestWarmEnvironments(rule: string, version: string, count: number): Promise<void>;
  releaseWarmEnvironments(rule: string, version: string): Promise<void>;
  /** Deletes a version unless an alias points at it. */
  deleteVersion(rule: string, version: string): Promise<void>;
  /** Returns the environment variables of $LATEST. */
  readLatestEnvironment(rule: string): Promise<Record<string, string>>;
  /** Copies a version's code, then its environment, to $LATEST. */
  restore(rule: string, version: PublishedVersion): Promise<void>;
  /**
   * Publishes a version again with changed code and environment. Then restores $LATEST: first its code and then its
   * environment. If that is interrupted, the environment of $LATEST still shows that it was changed.
   */
  republish(
    rule: string,
    from: PublishedVersion,
    change: { code(zip: Uint8Array): Uint8Array; environment: Record<string, string>; description: string },
  ): Promise<string>;
}

const alias = "live";

/** Opens a client for Lambda's API, which accepts 15 calls per second. The client slows down if AWS throttles it. */
export const openLambda = (): Lambda => openAwsClient(Lambda, { maxAttempts: 10, retryMode: "adaptive" });

/** Opens a stage's Lambda functions. Its stack lists them. `maxWaitSeconds` limits the wait for each update. */
export const openStageFunctions = (
  stage: string,
  stack: Pick<StageStack, "listFunctionIds">,
  client = openLambda(),
  maxWaitSeconds = 60,
): StageFunctions => {
  const nameOf = (rule: string) => buildFunctionName(stage, rule);

  /** Reads a version of a rule's Lambda function; without a version, reads $LATEST. */
  const read = async (rule: string, version?: string) => {
    const found = await client.getFunction({ FunctionName: nameOf(rule), Qualifier: version });
    return { configuration: found.Configuration ?? {}, location: found.Code?.Location ?? "" };
  };
  const openRuleUpdates = (rule: string) => createFunctionUpdater(client, rule, nameOf(rule), maxWaitSeconds);
  const complainIfMissing = (rule: string) => (error: unknown) => {
    if (!isErrorNamed(error, "ResourceNotFoundException")) throw error;
    throw buildMissingComplaint(rule);
  };
  const buildMissingComplaint = (rule: string) =>
    new Complaint(`stage ${stage} has no function for ${rule}, or none that is live`, 1);
  const readVersions = async (rule: string): Promise<FunctionVersions> => {
    const found: FunctionConfiguration[] = [];
    try {
      for await (const { Versions = [] } of paginateListVersionsByFunction({ client }, { FunctionName: nameOf(rule) }))
        found.push(...Versions);
    } catch (error) {
      complainIfMissing(rule)(error);
    }
    const isLatest = ({ Version }: FunctionConfiguration) => Version === "$LATEST";
    const versions = found.filter((configuration) => !isLatest(configuration)).map(toVersion);
    // The name postern-dev-x-rule may belong to stage dev or dev-x, so the function's environment must name the stage.
    if (versions.every(({ environment }) => environment.POSTERN_STAGE !== stage)) throw buildMissingComplaint(rule);
    return {
      versions: versions.sort((left, right) => Number(left.version) - Number(right.version)),
      latest: toContent(found.find(isLatest) ?? {}),
    };
  };
  /** Gives $LATEST the wanted content, unless it has this content already. */
  const setLatest = async (rule: string, wanted: WantedLambdaVersion): Promise<FunctionConfiguration> => {
    const updates = openRuleUpdates(rule);
    let latest = await updates.awaitUpdate();
    if (latest.CodeSha256 !== wanted.codeSha256) latest = await updates.upload(wanted.zip, latest);
    const content = toContent(latest);
    if (hasSameContent(content, wanted)) return latest;
    const differing = Object.entries(wanted.stackSettings).filter(
      ([name, value]) => !isDeepStrictEqual(Reflect.get(content.stackSettings, name), value),
    );
    return updates.configure({ ...wanted, stackSettings: Object.fromEntries(differing) }, latest);
  };

  return {
    getFunctionName: nameOf,

    // The stack lists the functions: Lambda's own list would need the right to read all functions of the region, with
    // their environments.
    listRules: async () =>
      (await stack.listFunctionIds()).flatMap((id) => findRuleOfLogicalId(id, "LambdaFunction") ?? []).sort(),

    readQuotas: async () => {
      const found = await client
        .getAccountSettings({})
        .catch(createFallbackForErrorNamed("AccessDeniedException", undefined));
      if (found === undefined) return undefined;
      const { AccountLimit: limit, AccountUsage: usage } = found;
      return {
        concurrency: limit?.ConcurrentExecutions ?? 0,
        unreserved: limit?.UnreservedConcurrentExecutions ?? 0,
        codeBytes: limit?.TotalCodeSize ?? 0,
        usedCodeBytes: usage?.TotalCodeSize ?? 0,
        zipBytes: limit?.CodeSizeZipped ?? 0,
      };
    },

    readAlias: async (rule) => {
      const { FunctionVersion, RoutingConfig, RevisionId } = await client
        .getAlias({ FunctionName: nameOf(rule), Name: alias })
        .catch(complainIfMissing(rule));
      const weights = RoutingConfig?.AdditionalVersionWeights ?? {};
      return { version: String(FunctionVersion), weights, revision: RevisionId };
    },

    listVersions: async (rule) => (await readVersions(rule)).versions,
    readVersions,

    readReservedConcurrency: async (rule) =>
      (await client.getFunctionConcurrency({ FunctionName: nameOf(rule) })).ReservedConcurrentExecutions,

    readPermissions: async (rule) => {
      const answer = await client
        .getPolicy({ FunctionName: nameOf(rule), Qualifier: alias })
        .catch(createFallbackForErrorNamed("ResourceNotFoundException", undefined));
      const { Statement = [] } = toMap(JSON.parse(answer?.Policy ?? "{}"));
      return [Statement]
        .flat()
        .map(toMap)
        .map((statement) => ({ statement: String(statement.Sid), permission: toPermission(statement) }));
    },

    addPermission: async (rule, StatementId, permission) => {
      await client.addPermission({ FunctionName: nameOf(rule), Qualifier: alias, StatementId, ...permission });
    },

    removePermission: async (rule, StatementId) => {
      await client.removePermission({ FunctionName: nameOf(rule), Qualifier: alias, StatementId });
    },

    createAlias: async (rule, version) => {
      await client.createAlias({ FunctionName: nameOf(rule), Name: alias, FunctionVersion: version });
    },

    invoke: async (rule, version, event) => {
      const call = { FunctionName: nameOf(rule), Qualifier: version, Payload: JSON.stringify(event) };
      const answer = await client.invoke({ ...call, LogType: "Tail" });
      const { Payload, FunctionError, LogResult = "", ExecutedVersion } = answer;
      const payload: unknown = JSON.parse(Buffer.from(Payload ?? []).toString() || "null");
      const hasOtherVersion = /^\d+$/.test(version) && ExecutedVersion !== undefined && ExecutedVersion !== version;
      const otherVersion = hasOtherVersion ? `version ${ExecutedVersion} answered instead` : undefined;
      const fault = FunctionError ? String(toMap(payload).errorMessage ?? FunctionError) : otherVersion;
      return { payload, fault, log: Buffer.from(LogResult, "base64").toString() };
    },

    moveAlias: async (rule, version, { revision }, weights = {}) => {
      const target = { FunctionVersion: version, RoutingConfig: { AdditionalVersionWeights: weights } };
      await client
        .updateAlias({ FunctionName: nameOf(rule), Name: alias, ...target, RevisionId: revision })
        .catch((error: unknown) => {
          if (!isErrorNamed(error, "PreconditionFailedException")) throw error;
          throw new Complaint(`another command has just moved the alias of ${rule}; check it with postern status`, 1);
        });
    },

    publishVersion: async (rule, wanted) =>
      openRuleUpdates(rule).publish(await setLatest(rule, wanted), wanted.description),
    setLatest: async (rule, wanted) => {
      await setLatest(rule, wanted);
    },

    listWarmVersions: async (rule) => {
      const found: WarmVersion[] = [];
      try {
        for await (const { ProvisionedConcurrencyConfigs = [] } of paginateListProvisionedConcurrencyConfigs(
          { client },
          { FunctionName: nameOf(rule) },
        ))
          found.push(...ProvisionedConcurrencyConfigs.map(toWarmVersion));
      } catch (error) {
        if (!isErrorNamed(error, "ResourceNotFoundException")) throw error;
      }
      return found;
    },

    requestWarmEnvironments: async (rule, version, count) => {
      const request = { FunctionName: nameOf(rule), Qualifier: version, ProvisionedConcurrentExecutions: count };
      await client.putProvisionedConcurrencyConfig(request).catch((error: unknown) => {
        if (!isErrorNamed(error, "InvalidParameterValueException")) throw error;
        throw new Complaint(
          `Lambda refuses ${formatCount(count, "warm environment")} for version ${version} of ${rule}: ${toSentence(error)}`,
          1,
        );
      });
    },

    releaseWarmEnvironments: async (rule, version) => {
      await client
        .deleteProvisionedConcurrencyConfig({ FunctionName: nameOf(rule), Qualifier: version })
        .catch(createFallbackForErrorNamed("ResourceNotFoundException", undefined));
    },

    deleteVersion: async (rule, version) => {
      await client.deleteFunction({ FunctionName: nameOf(rule), Qualifier: version }).catch((error: unknown) => {
        // It is no error if the version is deleted already, or if an alias points at it.
        if (!isErrorNamed(error, "ResourceNotFoundException", "ResourceConflictException")) throw error;
      });
    },

    readLatestEnvironment: async (rule) => (await read(rule)).configuration.Environment?.Variables ?? {},

    restore: async (rule, version) => {
      const { upload, configure } = openRuleUpdates(rule);
      const [{ configuration }, source] = [await read(rule), await read(rule, version.version)];
      const code = await downloadFunctionCode(source.location);
      const { environment, memorySize, timeout } = version;
      await configure({ environment, memorySize, timeout }, await upload(code, configuration));
    },

    republish: async (rule, from, { code, environment, description }) => {
      const { awaitUpdate, upload, configure, publish } = openRuleUpdates(rule);
      const before = await read(rule);
      const codeBefore = await downloadFunctionCode(before.location);
      const changedCode = code(await downloadFunctionCode((await read(rule, from.version)).location));
      const settingsBefore = { environment: before.configuration.Environment?.Variables ?? {} };
      const latest = await upload(changedCode, await configure({ environment }, before.configuration));
      try {
        return await publish(latest, description);
      } finally {
        await configure(settingsBefore, await upload(codeBefore, await awaitUpdate()));
      }
    },
  };
};

export const hasSameContent = (left: LambdaVersionContent, right: LambdaVersionContent): boolean =>
  left.codeSha256 === right.codeSha256 &&
  left.memorySize === right.memorySize &&
  left.timeout === right.timeout &&
  isDeepStrictEqual(left.stackSettings, right.stackSettings) &&
  isDeepStrictEqual({ ...left.environment }, { ...right.environment });

/** Returns the parts of a function's version that a deployment compares: its code, environment and settings. */
const toContent = (configuration: FunctionConfiguration): LambdaVersionContent => ({
  codeSha256: configuration.CodeSha256 ?? "",
  environment: configuration.Environment?.Variables ?? {},
  memorySize: configuration.MemorySize ?? 0,
  timeout: configuration.Timeout ?? 0,
  stackSettings: toStackSettings({
    ...configuration,
    Layers: configuration.Layers?.map(({ Arn = "" }) => Arn),
    TracingConfig: { Mode: configuration.TracingConfig?.Mode },
  }),
});

/** Completes the settings of a function or of a template by Lambda's defaults, so that they can be compared. */
export const toStackSettings = ({
  Runtime,
  Layers = [],
  TracingConfig,
  EphemeralStorage,
  KMSKeyArn = "",
  LoggingConfig: { LogGroup, LogFormat = "Text", ApplicationLogLevel = "INFO", SystemLogLevel = "INFO" } = {},
  VpcConfig: { SubnetIds = [], SecurityGroupIds = [] } = {},
}: Partial<LambdaStackSettings>): LambdaStackSettings => ({
  Runtime,
  Layers,
  TracingConfig: { Mode: TracingConfig?.Mode ?? "PassThrough" },
  EphemeralStorage: { Size: EphemeralStorage?.Size ?? 512 },
  KMSKeyArn,
  LoggingConfig: { LogGroup, LogFormat, ...(LogFormat === "JSON" && { ApplicationLogLevel, SystemLogLevel }) },
  VpcConfig: { SubnetIds: [...SubnetIds].sort(), SecurityGroupIds: [...SecurityGroupIds].sort() },
});

/** Converts a statement of a resource policy to a permission. Keeps conditions that AddPermission doesn't know. */
const toPermission = ({ Action, Principal, Condition }: Record<string, unknown>): LambdaPermission => {
  const conditions = new Map(Object.values(toMap(Condition)).flatMap((operator) => Object.entries(toMap(operator))));
  const { Service, AWS } = toMap(Principal);
  const take = (name: string) => {
    const value = conditions.get(name);
    conditions.delete(name);
    return value;
  };
  const [SourceArn, type, via] = [
    take("AWS:SourceArn"),
    take("lambda:FunctionUrlAuthType"),
    take("lambda:InvokedViaFunctionUrl"),
  ];
  return {
    Action: String(Action),
    Principal: String(Service ?? AWS ?? Principal),
    ...(SourceArn !== undefined && { SourceArn: String(SourceArn) }),
    ...(type !== undefined && { FunctionUrlAuthType: type as "NONE" }),
    ...(via !== undefined && { InvokedViaFunctionUrl: String(via) === "true" }),
    ...Object.fromEntries(conditions),
  };
};

const toWarmVersion = ({
  FunctionArn = "",
  RequestedProvisionedConcurrentExecutions = 0,
  Status = "IN_PROGRESS",
  StatusReason,
}: ProvisionedConcurrencyConfigListItem): WarmVersion => ({
  version: FunctionArn.slice(FunctionArn.lastIndexOf(":") + 1),
  count: RequestedProvisionedConcurrentExecutions,
  status: Status,
  reason: StatusReason,
});

const toVersion = (configuration: FunctionConfiguration): PublishedVersion => ({
  ...toContent(configuration),
  version: String(configuration.Version),
  description: configuration.Description ?? "",
  modified: new Date(configuration.LastModified ?? 0),
});
