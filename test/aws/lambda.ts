import { createHash, randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { readOwnZip } from "../../infra/build/zip.ts";
import { toLogicalId } from "../../infra/catalogue/rule-names.ts";
import { readRows } from "../rows.ts";
import {
  AwsError,
  type AwsReply,
  type AwsRequest,
  type AwsService,
  type CallRecorder,
  refuseInQuery,
  refuseInRest,
  startServer,
  toXml,
  xmlType,
} from "./aws-service.ts";
import type { CloudWatch } from "./cloudwatch.ts";
import { openInProcess } from "./in-process.ts";
import type { Logs } from "./logs.ts";
import { openProcesses } from "./processes.ts";
import { createProvisionedActions, isWarm, type ProvisionedConcurrency, sumProvisioned } from "./provisioned.ts";

// A stand-in for Lambda's API, as strict as its documentation: revisions, hashes, updates that take time, and aliases
// that point only at published versions. Published code really runs, under Lambda's own runtime client.

export type { Fault } from "./aws-service.ts";

type Json = Record<string, unknown>;

/** The code and configuration of $LATEST or of a published version. Those of a published version never change. */
export interface Configuration {
  code: Buffer;
  environment: Record<string, string>;
  description: string;
  memorySize: number;
  /** In seconds. */
  timeout: number;
  runtime: string;
  handler: string;
  role: string;
  architectures: string[];
  logging: Logging;
  /** Empty outside a VPC. */
  network: { SubnetIds?: string[]; SecurityGroupIds?: string[] };
  /** The ARNs of its layers. */
  layers: string[];
  tracing: string;
  /** The size of /tmp in megabytes. */
  storage: number;
  revision: string;
  modified: string;
}

/** A function's LoggingConfig. Without a LogGroup, the function logs to `/aws/lambda/NAME`. */
interface Logging {
  LogGroup?: string;
  LogFormat: "Text" | "JSON";
  SystemLogLevel?: string;
}

export interface Alias {
  version: string;
  weights: Record<string, number>;
  description: string;
  revision: string;
}

interface Policy {
  statements: Json[];
  revision: string;
}

interface FunctionRecord {
  latest: Configuration;
  /** The time at which the current update of $LATEST ends. */
  busyUntil: number;
  /** True if the current update is the creation of the function. */
  pending: boolean;
  versions: Map<string, Configuration>;
  /** The number of the last published version. */
  published: number;
  /** The configuration that $LATEST had when the last version was published. */
  publishedFrom?: Configuration;
  aliases: Map<string, Alias>;
  /** Policies by alias or version. The policy of the function itself has the key "". */
  policies: Map<string, Policy>;
  /** Copies of aliases and policies before each recent change. Invocations use a copy until the change has spread. */
  past: { changed: number; aliases: Map<string, Alias>; policies: Map<string, Policy> }[];
  urls: Map<string, { url: string; authType: string }>;
  /** The reserved concurrency. */
  reserved?: number | undefined;
  /** The provisioned concurrency by version or alias. */
  provisioned: Map<string, ProvisionedConcurrency>;
  /** The number of calls that run now. */
  running: number;
}

/** The result of an invocation. */
export interface Invocation {
  payload: unknown;
  fault: string | undefined;
  version: string;
  /** The last 4 KB of its log. */
  log: Buffer;
}

export interface LambdaOptions {
  region?: string;
  /** Returns variables to add to a function's environment. */
  buildVariables?: (name: string) => Record<string, string>;
  readArtefact?: (bucket: string, key: string) => Promise<Buffer | undefined>;
  /** Functions run in this process, instead of in processes under Lambda's runtime client. */
  isInProcess?: boolean | undefined;
  metrics?: CloudWatch;
  logs?: Logs;
  /** Reports whether Lambda may do an action by a function's role, such as create network interfaces in a VPC. */
  allowsLambda?: (role: string, action: string) => boolean;
}

interface Quotas {
  concurrency: number;
  codeBytes: number;
}

export const defaultQuotas: Quotas = { concurrency: 1000, codeBytes: 75 * 1024 ** 3 };

export interface Lambda extends AwsService {
  functions: Map<string, FunctionRecord>;
  /** The duration of an update in milliseconds. */
  updateMilliseconds: number;
  /** Milliseconds until invocations see a change of an alias, a permission or a route of a gateway. */
  propagationMilliseconds: number;
  /** Milliseconds until provisioned concurrency is ready or has failed. */
  warmingMilliseconds: number;
  /** The reason why new provisioned concurrency fails; undefined if it becomes ready. */
  warmFailure: string | undefined;
  /** The number of functions or versions on a page. */
  pageSize: number;
  /** Returns a number from 0 to below 1, which chooses between the versions of an alias. */
  random: () => number;
  /** The account's quotas, which a test can change. */
  quotas: Quotas;
  /** True if calls beyond AWS's rates are throttled. */
  isRateLimited: boolean;
  /** The ARNs of roles that were deleted; functions with such a role fail. */
  deletedRoles: Set<string>;
  /** The base URL for downloads of code. */
  base: string;
  /** Creates a function with the published version 1 and the alias `live`, which points at version 1. */
  create(name: string, code: Buffer, environment: Record<string, string>): void;
  /** Runs an action of Lambda's API on behalf of another service, such as CloudFormation. */
  act(action: string, name: string, input?: Json, query?: Record<string, string>): Promise<Json>;
  invoke(name: string, qualifier: string | undefined, event: unknown): Promise<Invocation>;
  /** Invokes a function by an event that Lambda would queue. The stand-in calls it at once, and without retries. */
  invokeQueued(name: string, qualifier: string | undefined, event: unknown): Promise<Invocation>;
  /** Reports whether `fits` is true for a statement of the policy that invocations of a function see now. */
  isPermitted(name: string, qualifier: string | undefined, fits: (statement: Json) => boolean): boolean;
  stop(): Promise<void>;
}

const account = "123456789012";
const hashCode = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("base64");
const createInvalid = (message: string) => new AwsError(400, "InvalidParameterValueException", message);
const createValidationError = (message: string) => new AwsError(400, "ValidationException", message);
const createConflict = (message: string) => new AwsError(409, "ResourceConflictException", message);
const createMissing = (message: string) => new AwsError(404, "ResourceNotFoundException", message);

/** Splits `NAME:QUALIFIER`, an ARN or a partial ARN into the function's name and its version or alias. */
export const parseFunctionName = (text: string): { name: string; qualifier: string | undefined } => {
  const [name = "", qualifier] = text.replace(/^(arn:aws:lambda:[^:]*:\d*:function:|\d{12}:function:)/, "").split(":");
  return { name, qualifier };
};

export const createLambda = async (options: LambdaOptions = {}): Promise<Lambda> => {
  const { region = "eu-west-1", metrics, readArtefact } = options;
  const buildArn = (name: string) => `arn:aws:lambda:${region}:${account}:function:${name}`;
  const processes = await (options.isInProcess ? openInProcess() : openProcesses());
  const functions = new Map<string, FunctionRecord>();
  /** Code by its hash. A URL that GetFunction returned always downloads the code of that time. */
  const codes = new Map<string, Buffer>();

  const getFunction = (name: string): FunctionRecord => {
    const fn = functions.get(name);
    if (!fn) throw createMissing(`Function not found: ${buildArn(name)}`);
    return fn;
  };
  const readConfiguration = (name: string, qualifier = "$LATEST"): [string, Configuration] => {
    const fn = getFunction(name);
    const alias = fn.aliases.get(qualifier);
    const version = alias?.version ?? qualifier;
    const configuration = version === "$LATEST" ? fn.latest : fn.versions.get(version);
    if (!configuration) throw createMissing(`Function not found: ${buildArn(name)}:${qualifier}`);
    return [version, configuration];
  };
  const describeFunction = (name: string, version: string, configuration: Configuration): Json => {
    const { code, environment, description, revision, modified, ...rest } = configuration;
    const isBusy = version === "$LATEST" && getFunction(name).busyUntil > Date.now();
    const isPending = isBusy && getFunction(name).pending;
    return {
      FunctionName: name,
      FunctionArn: version === "$LATEST" ? buildArn(name) : `${buildArn(name)}:${version}`,
      Runtime: rest.runtime,
      Handler: rest.handler,
      Role: rest.role,
      MemorySize: rest.memorySize,
      Timeout: rest.timeout,
      CodeSize: code.length,
      CodeSha256: hashCode(code),
      Description: description,
      Architectures: rest.architectures,
      PackageType: "Zip",
      Environment: { Variables: environment },
      LoggingConfig: { ...rest.logging, LogGroup: getLogGroup(name, configuration) },
      VpcConfig: { SubnetIds: [], SecurityGroupIds: [], VpcId: "", ...rest.network },
      ...(rest.layers.length > 0 && { Layers: rest.layers.map((Arn) => ({ Arn, CodeSize: 1 })) }),
      TracingConfig: { Mode: rest.tracing },
      EphemeralStorage: { Size: rest.storage },
      LastModified: modified,
      RevisionId: revision,
      State: isPending ? "Pending" : "Active",
      LastUpdateStatus: isBusy && !isPending ? "InProgress" : "Successful",
      Version: version,
    };
  };
  const getLogGroup = (name: string, { logging }: Configuration) => logging.LogGroup ?? `/aws/lambda/${name}`;
  /** Copies a function's aliases and policies before a change. Invocations use the copy until the change has spread. */
  const keepPast = (name: string) => {
    const { aliases, policies, past } = getFunction(name);
    if (standIn.propagationMilliseconds > 0)
      past.push({ changed: Date.now(), ...structuredClone({ aliases, policies }) });
  };
  /** Returns the aliases and policies of a function as invocations see them now. */
  const getVisible = (name: string): Pick<FunctionRecord, "aliases" | "policies"> => {
    const fn = getFunction(name);
    fn.past = fn.past.filter(({ changed }) => Date.now() < changed + standIn.propagationMilliseconds);
    return fn.past[0] ?? fn;
  };
  /** Returns the account's concurrency that no function but `ignored` reserves or provisions. */
  const computeUnreserved = (ignored?: unknown) =>
    [...functions.values()]
      .filter((fn) => fn !== ignored)
      .reduce((left, fn) => left - (fn.reserved ?? sumProvisioned(fn)), standIn.quotas.concurrency);
  const computeCodeBytes = () =>
    [...functions.values()]
      .flatMap(({ latest, versions }) => [latest, ...versions.values()])
      .reduce((sum, { code }) => sum + code.length, 0);
  /** Throws if this code, in place of `replacedBytes` of stored code, would exceed the account's quota of code. */
  const requireCodeStorage = (code: Buffer, replacedBytes = 0) => {
    if (computeCodeBytes() - replacedBytes + code.length > standIn.quotas.codeBytes)
      throw new AwsError(400, "CodeStorageExceededException", "Code storage limit exceeded.");
  };
  const requireRate = openRateLimits();
  /** Returns a function, unless an update of it is in progress. */
  const requireIdle = (name: string): FunctionRecord => {
    const fn = getFunction(name);
    if (fn.busyUntil > Date.now()) throw createConflict(`An update is in progress for resource: ${buildArn(name)}`);
    return fn;
  };
  /** Throws if a request gives a revision that isn't the current one. */
  const requireRevision = (given: unknown, current: string) => {
    if (given !== undefined && given !== current)
      throw new AwsError(412, "PreconditionFailedException", "The Revision Id provided does not match the latest one");
  };
  const changeLatest = (name: string, edit: Partial<Configuration>): Json => {
    const fn = getFunction(name);
    fn.latest = { ...fn.latest, ...edit, ...createStamp() };
    Object.assign(fn, { busyUntil: Date.now() + standIn.updateMilliseconds, pending: false });
    return describeFunction(name, "$LATEST", fn.latest);
  };
  const readCode = async (input: Json): Promise<Buffer> => {
    const code =
      typeof input.ZipFile === "string"
        ? Buffer.from(input.ZipFile, "base64")
        : await readArtefact?.(String(input.S3Bucket), String(input.S3Key));
    if (code === undefined)
      throw createInvalid("Error occurred while GetObject. S3 Error Code: NoSuchKey. S3 Error Message: no such key");
    if (readOwnZip(code) === undefined)
      throw createInvalid("Could not unzip uploaded file. Please check your file, then try to upload again.");
    return code;
  };
  const parseConfiguration = (input: Json): Partial<Configuration> => {
    const variables = convertValues(Object(input.Environment).Variables, String);
    const serialized = JSON.stringify(variables ?? {});
    if (Buffer.byteLength(serialized) > 4 * 1024)
      throw createInvalid(
        `Lambda was unable to configure your environment variables because the environment variables you have provided exceeded the 4KB limit. String measured: ${serialized}`,
      );
    const wrongKey = Object.keys(variables ?? {}).find((key) => !/^[a-zA-Z][a-zA-Z0-9_]+$/.test(key));
    if (wrongKey !== undefined) throw createValidationError(`${wrongKey} is no name of an environment variable`);
    const reserved = Object.keys(variables ?? {}).find((key) => reservedVariables.test(key));
    if (reserved !== undefined)
      throw createInvalid(`Lambda was unable to configure your environment variables: ${reserved} is reserved.`);
    if (!isWithin(input.MemorySize, 128, 10_240)) throw createValidationError("MemorySize must be from 128 to 10240");
    if (!isWithin(input.Timeout, 1, 900)) throw createValidationError("Timeout must be from 1 to 900");
    requireDescription(input);
    const edit = {
      environment: variables,
      description: toOptionalString(input.Description),
      memorySize: toOptionalNumber(input.MemorySize),
      timeout: toOptionalNumber(input.Timeout),
      runtime: toOptionalString(input.Runtime),
      handler: toOptionalString(input.Handler),
      role: toOptionalString(input.Role),
      logging: input.LoggingConfig === undefined ? undefined : parseLogging(Object(input.LoggingConfig)),
      network: input.VpcConfig === undefined ? undefined : parseNetwork(Object(input.VpcConfig)),
      layers: Array.isArray(input.Layers) ? input.Layers.map(String) : undefined,
      tracing: toOptionalString(Object(input.TracingConfig).Mode),
      storage: toOptionalNumber(Object(input.EphemeralStorage).Size),
    };
    return Object.fromEntries(Object.entries(edit).filter(([, value]) => value !== undefined));
  };
  const requireRoleRights = ({ network, tracing, role }: Configuration) => {
    if (tracing === "Active" && !(options.allowsLambda?.(role, "xray:PutTraceSegments") ?? true))
      throw createInvalid("The provided execution role does not have permissions to call PutTraceSegments on XRAY");
    if (network.SubnetIds === undefined) return;
    for (const action of ["CreateNetworkInterface", "DescribeNetworkInterfaces", "DeleteNetworkInterface"])
      if (!(options.allowsLambda?.(role, `ec2:${action}`) ?? true))
        throw createInvalid(`The provided execution role does not have permissions to call ${action} on EC2`);
  };
  /** Throws unless an alias may point at these versions with these weights. */
  const requireVersions = (name: string, version: string, weights: Record<string, number>) => {
    for (const wanted of [version, ...Object.keys(weights)]) {
      if (!/^\d+$/.test(wanted)) throw createInvalid(`${wanted} is not a version`);
      // Throws if the version doesn't exist.
      readConfiguration(name, wanted);
    }
    if (version in weights) throw createInvalid("The alias's own version can't have a weight");
    const fractions = Object.values(weights);
    if (fractions.length > 1) throw createInvalid("An alias takes at most one additional version");
    if (fractions.some((fraction) => !(fraction >= 0 && fraction <= 1)))
      throw createInvalid("A weight must be from 0.0 to 1.0");
    const roles = [version, ...Object.keys(weights)].map((wanted) => readConfiguration(name, wanted)[1].role);
    if (new Set(roles).size > 1) throw createInvalid("The versions of an alias must have the same execution role");
  };
  const describeAlias = (name: string, alias: string): Json => {
    const { version, weights, description, revision } = getAlias(name, alias);
    return {
      AliasArn: `${buildArn(name)}:${alias}`,
      Name: alias,
      FunctionVersion: version,
      Description: description,
      ...(Object.keys(weights).length > 0 && { RoutingConfig: { AdditionalVersionWeights: weights } }),
      RevisionId: revision,
    };
  };
  const getAlias = (name: string, alias: string): Alias => {
    const found = getFunction(name).aliases.get(alias);
    if (!found) throw createMissing(`Cannot find alias arn: ${buildArn(name)}:${alias}`);
    return found;
  };
  /** Returns the page at the request's Marker, and the marker of the next page if there is one. */
  const selectPage = <T>(items: T[], query: URLSearchParams): [T[], string | undefined] => {
    const first = Number(query.get("Marker") ?? 0);
    const next = first + standIn.pageSize;
    return [items.slice(first, next), next < items.length ? String(next) : undefined];
  };
  /** Returns the request's version or alias ("" for the function itself), and the function's policies. */
  const findPolicies = (name: string, query: URLSearchParams): [string, Map<string, Policy>] => {
    const qualifier = query.get("Qualifier") ?? "";
    if (qualifier) readConfiguration(name, qualifier);
    return [qualifier, getFunction(name).policies];
  };

  type Action = (name: string, input: Json, query: URLSearchParams) => Json | undefined | Promise<Json | undefined>;
  const readWarmingSettings = () => standIn;
  const actions: Record<string, Action> = {
    ...createProvisionedActions({ getFunction, buildArn, computeUnreserved, readWarmingSettings }),
    CreateFunction: async (_, input) => {
      const name = String(input.FunctionName);
      if (functions.has(name)) throw createConflict(`Function already exist: ${name}`);
      if (input.Publish) throw createInvalid("this stand-in publishes by PublishVersion alone");
      const code = await readCode(Object(input.Code));
      requireCodeStorage(code);
      const latest = { ...defaults, timeout: 3, ...parseConfiguration(input), code, ...createStamp() };
      requireRoleRights(latest);
      if (Array.isArray(input.Architectures)) latest.architectures = input.Architectures.map(String);
      functions.set(name, { ...createRecord(latest), busyUntil: Date.now() + standIn.updateMilliseconds });
      return describeFunction(name, "$LATEST", latest);
    },
    DeleteFunction: (name, _, query) => {
      const fn = getFunction(name);
      const version = query.get("Qualifier");
      if (version === null) functions.delete(name);
      else {
        if (version === "$LATEST")
          throw createInvalid("$LATEST version cannot be deleted without deleting the function.");
        if (!/^\d+$/.test(version)) throw createInvalid("Deletion of aliases is not currently supported.");
        readConfiguration(name, version);
        const referring = [...fn.aliases].filter(([, alias]) => alias.version === version || version in alias.weights);
        if (referring.length > 0) {
          const names = referring.map(([alias]) => alias).join(", ");
          throw createConflict(`Version ${version} can't be deleted: aliases refer to it: [${names}]`);
        }
        if (fn.provisioned.has(version))
          throw createConflict(`Version ${version} can't be deleted: it has provisioned concurrency`);
        fn.versions.delete(version);
      }
      return undefined;
    },
    ListFunctions: (_, __, query) => {
      const [page, NextMarker] = selectPage([...functions], query);
      return { Functions: page.map(([name, { latest }]) => describeFunction(name, "$LATEST", latest)), NextMarker };
    },
    GetFunction: (name, _, query) => {
      const [version, configuration] = readConfiguration(name, query.get("Qualifier") ?? undefined);
      const hash = Buffer.from(hashCode(configuration.code), "base64").toString("hex");
      codes.set(hash, configuration.code);
      return {
        Configuration: describeFunction(name, version, configuration),
        Code: { RepositoryType: "S3", Location: `${standIn.base}${codePath}${hash}` },
      };
    },
    GetFunctionConfiguration: (name, _, query) =>
      describeFunction(name, ...readConfiguration(name, query.get("Qualifier") ?? undefined)),
    UpdateFunctionCode: async (name, input) => {
      if (input.Publish) throw createInvalid("this stand-in publishes by PublishVersion alone");
      requireRevision(input.RevisionId, requireIdle(name).latest.revision);
      const code = await readCode(input);
      const architectures = Array.isArray(input.Architectures)
        ? { architectures: input.Architectures.map(String) }
        : {};
      // Another call may have changed the function while the code was read.
      const { latest } = requireIdle(name);
      requireRevision(input.RevisionId, latest.revision);
      requireCodeStorage(code, latest.code.length);
      if (input.DryRun) return describeFunction(name, "$LATEST", { ...latest, ...architectures, code });
      return changeLatest(name, { code, ...architectures });
    },
    UpdateFunctionConfiguration: (name, input) => {
      requireRevision(input.RevisionId, requireIdle(name).latest.revision);
      const edit = parseConfiguration(input);
      requireRoleRights({ ...getFunction(name).latest, ...edit });
      return changeLatest(name, edit);
    },
    PublishVersion: (name, input) => {
      const fn = requireIdle(name);
      const hash = hashCode(fn.latest.code);
      if (input.CodeSha256 !== undefined && input.CodeSha256 !== hash)
        throw createInvalid(
          `CodeSHA256 (${input.CodeSha256}) is different from current CodeSHA256 in $LATEST (${hash}). Please try again with the CodeSHA256 in $LATEST.`,
        );
      requireRevision(input.RevisionId, fn.latest.revision);
      requireDescription(input);
      // Lambda publishes no version if code and configuration are those of the last published version.
      const isUnchanged = isSameContent(fn.publishedFrom, fn.latest);
      if (!isUnchanged || !fn.versions.has(String(fn.published))) {
        requireCodeStorage(fn.latest.code);
        fn.published += 1;
        fn.publishedFrom = fn.latest;
        const description = toOptionalString(input.Description) || fn.latest.description;
        fn.versions.set(String(fn.published), { ...fn.latest, description, ...createStamp() });
      }
      const version = String(fn.published);
      return describeFunction(name, version, readConfiguration(name, version)[1]);
    },
    PutFunctionConcurrency: (name, input) => {
      const reserved = Number(input.ReservedConcurrentExecutions);
      const leastUnreserved = Math.min(100, standIn.quotas.concurrency);
      if (computeUnreserved(getFunction(name)) - reserved < leastUnreserved)
        throw createInvalid(
          `Specified ReservedConcurrentExecutions for function decreases account's UnreservedConcurrentExecution below its minimum value of [${leastUnreserved}].`,
        );
      getFunction(name).reserved = reserved;
      return { ReservedConcurrentExecutions: reserved };
    },
    GetFunctionConcurrency: (name) => ({ ReservedConcurrentExecutions: getFunction(name).reserved }),
    DeleteFunctionConcurrency: (name) => {
      getFunction(name).reserved = undefined;
      return undefined;
    },
    GetAccountSettings: () => ({
      AccountLimit: {
        TotalCodeSize: standIn.quotas.codeBytes,
        CodeSizeUnzipped: 250 * 1024 ** 2,
        CodeSizeZipped: 50 * 1024 ** 2,
        ConcurrentExecutions: standIn.quotas.concurrency,
        UnreservedConcurrentExecutions: [...functions.values()].reduce(
          (left, { reserved = 0 }) => left - reserved,
          standIn.quotas.concurrency,
        ),
      },
      AccountUsage: { TotalCodeSize: computeCodeBytes(), FunctionCount: functions.size },
    }),
    ListVersionsByFunction: (name, _, query) => {
      const { latest, versions } = getFunction(name);
      const [page, NextMarker] = selectPage([["$LATEST", latest] as const, ...versions], query);
      return { Versions: page.map(([version, found]) => describeFunction(name, version, found)), NextMarker };
    },

    CreateAlias: (name, input) => {
      const [alias, version] = [String(input.Name), String(input.FunctionVersion)];
      const weights = convertValues(Object(input.RoutingConfig).AdditionalVersionWeights, Number) ?? {};
      const { aliases } = getFunction(name);
      if (aliases.has(alias)) throw createConflict(`Alias already exists: ${buildArn(name)}:${alias}`);
      requireVersions(name, version, weights);
      keepPast(name);
      aliases.set(alias, {
        version,
        weights,
        description: toOptionalString(input.Description) ?? "",
        revision: randomUUID(),
      });
      return describeAlias(name, alias);
    },
    GetAlias: (name, _, query) => describeAlias(name, query.get("Name") ?? ""),
    UpdateAlias: (name, input, query) => {
      const alias = query.get("Name") ?? "";
      const current = getAlias(name, alias);
      requireRevision(input.RevisionId, current.revision);
      const version = toOptionalString(input.FunctionVersion) ?? current.version;
      const weights = convertValues(Object(input.RoutingConfig).AdditionalVersionWeights, Number) ?? current.weights;
      requireVersions(name, version, weights);
      if (getFunction(name).provisioned.has(alias) && Object.keys(weights).length > 0)
        throw createInvalid("Invalid alias configuration for Provisioned Concurrency");
      const description = toOptionalString(input.Description) ?? current.description;
      keepPast(name);
      Object.assign(current, { version, weights, description, revision: randomUUID() });
      return describeAlias(name, alias);
    },
    DeleteAlias: (name, _, query) => {
      keepPast(name);
      getFunction(name).aliases.delete(query.get("Name") ?? "");
      getFunction(name).policies.delete(query.get("Name") ?? "");
      return undefined;
    },

    AddPermission: (name, input, query) => {
      const [qualifier, policies] = findPolicies(name, query);
      const policy = policies.get(qualifier);
      if (policy) requireRevision(input.RevisionId, policy.revision);
      const { StatementId: Sid, Action, Principal, SourceArn, FunctionUrlAuthType, InvokedViaFunctionUrl } = input;
      if (policy?.statements.some((statement) => statement.Sid === Sid))
        throw createConflict(`The statement id (${Sid}) provided already exists.`);
      const Condition = {
        ...(SourceArn !== undefined && { ArnLike: { "AWS:SourceArn": SourceArn } }),
        ...(FunctionUrlAuthType !== undefined && {
          StringEquals: { "lambda:FunctionUrlAuthType": FunctionUrlAuthType },
        }),
        ...(InvokedViaFunctionUrl !== undefined && {
          Bool: { "lambda:InvokedViaFunctionUrl": String(InvokedViaFunctionUrl) },
        }),
      };
      const statement = {
        Sid,
        Effect: "Allow",
        Principal: String(Principal).includes(".") ? { Service: Principal } : Principal,
        Action,
        Resource: qualifier ? `${buildArn(name)}:${qualifier}` : buildArn(name),
        ...(Object.keys(Condition).length > 0 && { Condition }),
      };
      keepPast(name);
      policies.set(qualifier, { statements: [...(policy?.statements ?? []), statement], revision: randomUUID() });
      return { Statement: JSON.stringify(statement) };
    },
    GetPolicy: (name, _, query) => {
      const [qualifier, policies] = findPolicies(name, query);
      const policy = policies.get(qualifier);
      if (!policy) throw createMissing("No policy is associated with the given resource.");
      const Policy = JSON.stringify({ Version: "2012-10-17", Id: "default", Statement: policy.statements });
      return { Policy, RevisionId: policy.revision };
    },
    RemovePermission: (name, _, query) => {
      const [qualifier, policies] = findPolicies(name, query);
      const policy = policies.get(qualifier);
      const remaining = policy?.statements.filter(({ Sid }) => Sid !== query.get("StatementId")) ?? [];
      if (!policy || remaining.length === policy.statements.length)
        throw createMissing(`Statement ${query.get("StatementId")} is not found in resource policy.`);
      requireRevision(query.get("RevisionId") ?? undefined, policy.revision);
      keepPast(name);
      if (remaining.length === 0) policies.delete(qualifier);
      else policies.set(qualifier, { statements: remaining, revision: randomUUID() });
      return undefined;
    },

    CreateFunctionUrlConfig: (name, input, query) => {
      const qualifier = query.get("Qualifier") ?? "";
      if (qualifier) getAlias(name, qualifier);
      if (getFunction(name).urls.has(qualifier))
        throw createConflict(`FunctionUrlConfig exists for ${buildArn(name)}:${qualifier}`);
      const id = createHash("sha256").update(`${name}:${qualifier}`).digest("hex").slice(0, 32);
      const url = toOptionalString(input.FunctionUrl) ?? `https://${id}.lambda-url.${region}.on.aws/`;
      getFunction(name).urls.set(qualifier, { url, authType: String(input.AuthType) });
      return { FunctionUrl: url, FunctionArn: buildArn(name), AuthType: input.AuthType };
    },
    DeleteFunctionUrlConfig: (name, _, query) => {
      if (!getFunction(name).urls.delete(query.get("Qualifier") ?? ""))
        throw createMissing("The resource you requested does not exist.");
      return undefined;
    },
  };

  /** Returns the version that runs one call. An alias with a weight chooses between two versions at random. */
  const chooseVersion = (name: string, qualifier = "$LATEST"): [string, Configuration] => {
    const alias = getVisible(name).aliases.get(qualifier);
    if (!alias && getFunction(name).aliases.has(qualifier))
      throw createMissing(`Function not found: ${buildArn(name)}:${qualifier}`);
    const [[weightedVersion, weight] = ["", 0]] = Object.entries(alias?.weights ?? {});
    const isWeightedChosen = weightedVersion !== "" && standIn.random() < weight;
    return readConfiguration(name, isWeightedChosen ? weightedVersion : (alias?.version ?? qualifier));
  };
  /** Records a metric of a call. `version` is the version that ran; AsyncEventsReceived is recorded without one. */
  const recordCall = (name: string, qualifier: string | undefined, metric: string, value: number, version?: string) => {
    const Resource = qualifier ? `${name}:${qualifier}` : name;
    const dimensionSets: Record<string, string>[] = [{ FunctionName: name }, { FunctionName: name, Resource }];
    if (version !== undefined && functions.get(name)?.aliases.has(qualifier ?? ""))
      dimensionSets.push({ FunctionName: name, Resource, ExecutedVersion: version });
    for (const dimensions of dimensionSets)
      metrics?.record({ namespace: "AWS/Lambda", metric, dimensions, value, time: Date.now() });
  };
  const invoke = async (name: string, qualifier: string | undefined, event: unknown): Promise<Invocation> => {
    const [version, configuration] = chooseVersion(name, qualifier);
    const fn = getFunction(name);
    const record = (metric: string, value: number) => recordCall(name, qualifier, metric, value, version);
    if (version === "$LATEST" && fn.pending && fn.busyUntil > Date.now())
      throw createConflict(
        `The operation cannot be performed at this time. The function is currently in the following state: Pending`,
      );
    // Functions without a reservation share the concurrency that the other functions leave.
    const sharing = [...functions.values()].filter(({ reserved }) => reserved === undefined);
    const runningShared = sharing.reduce((sum, { running }) => sum + running, 0);
    const isThrottled = fn.reserved === undefined ? runningShared >= computeUnreserved() : fn.running >= fn.reserved;
    if (isThrottled) {
      record("Throttles", 1);
      throw new AwsError(429, "TooManyRequestsException", "Rate Exceeded.");
    }
    const { code, environment, timeout, memorySize, handler, role, logging } = configuration;
    if (standIn.deletedRoles.has(role))
      throw new AwsError(
        403,
        "AccessDeniedException",
        "The role defined for the function cannot be assumed by Lambda.",
      );
    const warm = fn.provisioned.get(version);
    const isProvisioned = warm !== undefined && isWarm(warm, standIn.warmingMilliseconds) && warm.running < warm.count;
    const program = {
      code,
      hash: hashCode(code),
      timeout,
      environment: {
        ...options.buildVariables?.(name),
        ...environment,
        _HANDLER: handler,
        AWS_REGION: region,
        AWS_LAMBDA_INITIALIZATION_TYPE: isProvisioned ? "provisioned-concurrency" : "on-demand",
        AWS_LAMBDA_FUNCTION_NAME: name,
        AWS_LAMBDA_FUNCTION_VERSION: version,
        AWS_LAMBDA_FUNCTION_MEMORY_SIZE: String(memorySize),
        AWS_LAMBDA_LOG_FORMAT: logging.LogFormat,
        AWS_LAMBDA_LOG_GROUP_NAME: getLogGroup(name, configuration),
        AWS_LAMBDA_LOG_STREAM_NAME: "stand-in",
      },
    };
    fn.running += 1;
    if (isProvisioned) warm.running += 1;
    const { payload, fault, lines, milliseconds } = await processes
      .run(isProvisioned ? warm : configuration, program, event, qualifier ?? "$LATEST")
      .finally(() => {
        fn.running -= 1;
        if (isProvisioned) warm.running -= 1;
      });
    record("Invocations", 1);
    record("Errors", fault === undefined ? 0 : 1);
    record("Duration", milliseconds);
    const report = { version, memorySize, milliseconds, fault, errorType: String(Object(payload).errorType) };
    const loggedLines = logging.SystemLogLevel === "WARN" ? addFailure(lines, report) : addReport(lines, report);
    const group = getLogGroup(name, configuration);
    const stream = `${new Date().toISOString().slice(0, 10).replaceAll("-", "/")}/${name}[${version}][stand-in]`;
    for (const line of loggedLines) options.logs?.write(group, stream, line);
    return { payload, fault, version, log: Buffer.from(loggedLines.join("\n")).subarray(-4096) };
  };

  const invokeQueued: Lambda["invokeQueued"] = async (name, qualifier, event) => {
    recordCall(name, qualifier, "AsyncEventsReceived", 1);
    return invoke(name, qualifier, event);
  };

  /** Answers an Invoke request. `nameQualifier` is the version or alias that follows the name, as in `NAME:live`. */
  const answerInvoke = async (
    name: string,
    { query, headers, body }: AwsRequest,
    nameQualifier?: string,
  ): Promise<AwsReply> => {
    const qualifier = query.get("Qualifier") ?? nameQualifier;
    if (body.length > 6 * 1024 * 1024)
      throw new AwsError(413, "RequestTooLargeException", `${body.length} byte payload is too large`);
    const event = parseBody(body);
    if (headers["x-amz-invocation-type"] === "Event") {
      await invokeQueued(name, qualifier, event);
      return { status: 202, headers: {}, body: "" };
    }
    const { payload, fault, version, log } = await invoke(name, qualifier, event);
    return {
      status: 200,
      headers: {
        "content-type": "application/json",
        "x-amz-executed-version": version,
        ...(fault && { "x-amz-function-error": fault }),
        ...(headers["x-amz-log-type"] === "Tail" && { "x-amz-log-result": log.toString("base64") }),
      },
      body: JSON.stringify(payload) ?? "null",
    };
  };

  const runAction = async (action: string, name: string, input: Json, query: URLSearchParams) => {
    const run = actions[action];
    if (!run) throw new AwsError(404, "UnknownOperationException", `the stand-in of Lambda knows no ${action}`);
    return run(name, input, query);
  };
  const standIn: Lambda = {
    functions,
    updateMilliseconds: 30,
    propagationMilliseconds: 0,
    warmingMilliseconds: 30,
    warmFailure: undefined,
    pageSize: 50,
    random: Math.random,
    quotas: { ...defaultQuotas },
    isRateLimited: false,
    deletedRoles: new Set(),
    base: "",
    create: (name, code, environment) => {
      const latest = { ...defaults, code, environment, description: "first", ...createStamp() };
      const live = { version: "1", weights: {}, description: "", revision: randomUUID() };
      functions.set(name, {
        ...createRecord(latest),
        versions: new Map([["1", { ...latest, ...createStamp() }]]),
        published: 1,
        publishedFrom: latest,
        aliases: new Map([["live", live]]),
      });
    },
    act: async (action, name, input = {}, query = {}) =>
      (await runAction(action, name, input, new URLSearchParams(query))) ?? {},
    invoke,
    invokeQueued,
    isPermitted: (name, qualifier = "", fits) =>
      functions.has(name) && (getVisible(name).policies.get(qualifier)?.statements.some(fits) ?? false),
    identify: (request) => {
      const { action, name } = readPath(request);
      const created = action === "CreateFunction" ? String(Object(parseBody(request.body)).FunctionName) : name;
      const context: Record<string, string> = {};
      if (action === "AddPermission") context["lambda:Principal"] = String(Object(parseBody(request.body)).Principal);
      return { action: `lambda:${action === "Invoke" ? "InvokeFunction" : action}`, name: created, context };
    },
    answer: async (request) => {
      if (request.path.startsWith(codePath)) {
        const code = codes.get(request.path.slice(codePath.length));
        return code ? { status: 200, body: code } : { status: 404 };
      }
      const { action, name, qualifier, parameters } = readPath(request);
      if (action === "Invoke") return answerInvoke(name, request, qualifier);
      if (standIn.isRateLimited) requireRate(action);
      if (qualifier !== undefined && !request.query.has("Qualifier")) request.query.set("Qualifier", qualifier);
      for (const [key, value] of Object.entries(parameters)) request.query.set(key, value);
      const answer = await runAction(action, name, Object(parseBody(request.body)), request.query);
      if (answer === undefined) return { status: 204 };
      const statusOfChange = action === "PutProvisionedConcurrencyConfig" ? 202 : 200;
      return {
        status: /^(Create|Publish|Add)/.test(action) ? 201 : statusOfChange,
        headers: { "content-type": "application/json" },
        body: JSON.stringify(answer),
      };
    },
    refuse: refuseInRest,
    stop: processes.stop,
  };
  return standIn;
};

/** Lambda on its own server, with one action of CloudFormation and no other services. */
export type LambdaService = Lambda & CallRecorder & { url: string };

export const startLambda = async (): Promise<LambdaService> => {
  const recorder: CallRecorder = { recordedCalls: [], fault: undefined, allow: undefined };
  const service = Object.assign(await createLambda(), recorder);
  const cloudFormation = createCloudFormationListing(service);
  const { url, stop } = await startServer((name) => (name === "cloudformation" ? cloudFormation : service), service);
  service.base = url;
  const stopProcesses = service.stop;
  return Object.assign(service, { url, stop: async () => void (await Promise.all([stop(), stopProcesses()])) });
};

/**
 * Answers ListStackResources in place of CloudFormation. The variable POSTERN_STAGE of a function names its stack.
 * A stack has the functions of its stage, and no other resources.
 */
const createCloudFormationListing = (service: Lambda): AwsService => {
  const parseForm = ({ body }: AwsRequest) => new URLSearchParams(String(body));
  return {
    identify: (request) => {
      const form = parseForm(request);
      return { action: `cloudformation:${form.get("Action")}`, name: form.get("StackName") ?? "" };
    },
    answer: async (request) => {
      const form = parseForm(request);
      const [action, stack] = [form.get("Action"), form.get("StackName")];
      if (action !== "ListStackResources")
        throw new AwsError(403, "AccessDenied", `not authorized to perform: cloudformation:${action}`);
      const names = [...service.functions].flatMap(([name, { latest }]) => {
        const { POSTERN_STAGE, POSTERN_RULE = name.slice(`${stack}-`.length) } = latest.environment;
        return `postern-${POSTERN_STAGE}` === stack ? [POSTERN_RULE] : [];
      });
      if (names.length === 0) throw new AwsError(400, "ValidationError", `Stack with id ${stack} does not exist`);
      const first = Number(form.get("NextToken") ?? 0);
      const next = first + service.pageSize;
      const StackResourceSummaries = names.slice(first, next).map((name) => ({
        LogicalResourceId: `${toLogicalId(name)}LambdaFunction`,
        ResourceType: "AWS::Lambda::Function",
        ResourceStatus: "CREATE_COMPLETE",
      }));
      const result = { StackResourceSummaries, NextToken: next < names.length ? next : undefined };
      const body = toXml("ListStackResourcesResponse", { ListStackResourcesResult: result });
      return { status: 200, headers: xmlType, body };
    },
    refuse: refuseInQuery,
  };
};

/** The path of the code locations that GetFunction returns. */
export const codePath = "/_code/";

const defaults = {
  environment: {},
  description: "",
  memorySize: 128,
  timeout: 10,
  runtime: "nodejs24.x",
  handler: "index.handler",
  role: `arn:aws:iam::${account}:role/stand-in`,
  architectures: ["arm64"],
  network: {},
  layers: [],
  tracing: "PassThrough",
  storage: 512,
  logging: { LogFormat: "Text" as const },
};

/** The calls per second that Lambda accepts from an account. Actions that aren't listed share the rate `other`. */
const callRates: Record<string, number> = { GetFunction: 100, GetPolicy: 15, other: 15 };

/** Returns a function that throws if an action is called too often. It has a token bucket for each rate. */
const openRateLimits = (): ((action: string) => void) => {
  const buckets = new Map(Object.entries(callRates).map(([name, rate]) => [name, { rate, tokens: rate, refilled: 0 }]));
  return (action) => {
    const bucket = buckets.get(action) ?? buckets.get("other");
    if (!bucket) return;
    const now = performance.now();
    bucket.tokens = Math.min(bucket.rate, bucket.tokens + ((now - bucket.refilled) / 1000) * bucket.rate);
    bucket.refilled = now;
    if (bucket.tokens < 1) throw new AwsError(429, "TooManyRequestsException", "Rate exceeded");
    bucket.tokens -= 1;
  };
};

const parseLogging = ({ LogGroup, LogFormat = "Text", SystemLogLevel }: Json): Logging => {
  if (LogFormat !== "JSON" && SystemLogLevel !== undefined)
    throw createInvalid("SystemLogLevel can be set only if LogFormat is set to JSON.");
  return {
    LogFormat: LogFormat === "JSON" ? "JSON" : "Text",
    ...(LogGroup !== undefined && { LogGroup: String(LogGroup) }),
    ...(SystemLogLevel !== undefined && { SystemLogLevel: String(SystemLogLevel) }),
  };
};

/** The facts about an invocation that Lambda itself logs. */
interface Report {
  version: string;
  memorySize: number;
  milliseconds: number;
  /** "Unhandled" if the function failed; otherwise undefined. */
  fault: string | undefined;
  /** How the function failed, such as "Sandbox.Timedout" or "TypeError". */
  errorType: string;
}

/** Returns a function's lines with those that Lambda adds in the text format: START, END and REPORT. */
const addReport = (lines: string[], { version, memorySize, milliseconds }: Report): string[] => {
  const id = randomUUID();
  const figures = `Duration: ${milliseconds.toFixed(2)} ms\tMemory Size: ${memorySize} MB`;
  const start = `START RequestId: ${id} Version: ${version}`;
  return [start, ...lines, `END RequestId: ${id}`, `REPORT RequestId: ${id}\t${figures}\n`];
};

/** Returns a function's lines with those that Lambda adds at the level WARN: a report if the invocation failed. */
const addFailure = (lines: string[], { milliseconds, fault, errorType }: Report): string[] => {
  if (fault === undefined) return lines;
  const status = errorType === "Sandbox.Timedout" ? "timeout" : "error";
  const record = { requestId: randomUUID(), status, errorType, metrics: { durationMs: milliseconds } };
  return [...lines, JSON.stringify({ time: new Date().toISOString(), type: "platform.report", record })];
};

const parseNetwork = ({ SubnetIds = [], SecurityGroupIds = [] }: Json): Configuration["network"] => {
  const [subnets, groups] = [SubnetIds, SecurityGroupIds].map((ids) => [ids].flat().map(String));
  if (!subnets || !groups || subnets.length + groups.length === 0) return {};
  if (subnets.length === 0 || groups.length === 0)
    throw createInvalid("Both SubnetIds and SecurityGroupIds must be provided, or neither of them.");
  if (subnets.length > 16 || groups.length > 5) throw createInvalid("VpcConfig takes 16 subnets and 5 security groups");
  return { SubnetIds: subnets, SecurityGroupIds: groups };
};

/** Creates a function without versions and aliases. */
const createRecord = (latest: Configuration): FunctionRecord => {
  return {
    latest,
    busyUntil: 0,
    pending: true,
    versions: new Map(),
    published: 0,
    aliases: new Map(),
    policies: new Map(),
    past: [], // Copies of aliases and policies before recent changes that may not have spread yet.
    urls: new Map(),
    running: 0,
    provisioned: new Map(),
  };
};

/** Reports whether two configurations are equal but for their revisions and times. */
const isSameContent = (before: Configuration | undefined, after: Configuration): boolean => {
  const { revision, modified } = after;
  return before !== undefined && isDeepStrictEqual({ ...before, revision, modified }, after);
};

/** Returns the fields that each change of a configuration sets anew. */
const createStamp = () => ({ revision: randomUUID(), modified: new Date().toISOString().replace("Z", "+0000") });

/** Environment variables that Lambda itself sets. */
const reservedVariables = /^(_HANDLER|_X_AMZN_TRACE_ID|AWS_(REGION|ACCESS_KEY.*|SECRET_.*|SESSION_TOKEN|LAMBDA_.*))$/;

const isWithin = (value: unknown, least: number, most: number) =>
  value === undefined || value === null || (Number.isInteger(value) && Number(value) >= least && Number(value) <= most);

const requireDescription = ({ Description }: Json) => {
  if (String(Description ?? "").length > 256) throw createValidationError("Description takes at most 256 characters");
};

const toOptionalString = (value: unknown) => (typeof value === "string" ? value : undefined);
const toOptionalNumber = (value: unknown) => (value === undefined || value === null ? undefined : Number(value));

/** Converts the values of a JSON object, for example to strings; returns undefined if there is no object. */
const convertValues = <T>(value: unknown, convert: (item: unknown) => T): Record<string, T> | undefined =>
  value === undefined || value === null
    ? undefined
    : Object.fromEntries(Object.entries(Object(value)).map(([key, item]) => [key, convert(item)]));

const parseBody = (body: Buffer): unknown => {
  try {
    return body.length === 0 ? {} : JSON.parse(String(body));
  } catch {
    throw new AwsError(400, "InvalidRequestContentException", "Could not parse request body into json");
  }
};

/** The actions of Lambda's API, by the method and the last fixed part of the path: `POST invocations` is Invoke. */
const actionNames = readRows<Record<string, string>>(import.meta.filename);

/**
 * Returns a request's action, its function, and the name at the end of the path as a query parameter. The path
 * `/2015-03-31/functions/NAME/aliases/live` has the part `aliases`, and the parameter `Name` with the value `live`.
 */
const readPath = ({ method, path, query }: AwsRequest) => {
  const [, , collection, functionName = "", part = "", last] = path.split("/").map(decodeURIComponent);
  const { name, qualifier } = parseFunctionName(functionName);
  const lastFixedPart = part || (functionName === "" ? collection : "function");
  const operation = `${method} ${query.has("List") ? "list of " : ""}${lastFixedPart}`;
  const action = actionNames[operation] ?? operation;
  const lastName = part === "policy" ? "StatementId" : "Name";
  const parameters: Record<string, string> = last === undefined ? {} : { [lastName]: last };
  return { action, name, qualifier, parameters };
};
