import { createHash, randomUUID } from "node:crypto";
import { readOwnZip } from "../../infra/build/zip.ts";
import {
  AwsError,
  type AwsReply,
  type AwsRequest,
  type AwsService,
  type CallRecorder,
  refuseInRest,
  startServer,
} from "./aws-service.ts";
import type { CloudWatch } from "./cloudwatch.ts";
import { openProcesses } from "./processes.ts";

// A stand-in of Lambda's API, as strict as its documentation: revisions, hashes, updates that take time, aliases that
// point only at published versions. Published code really runs, under Lambda's own runtime client.

export type { Fault } from "./aws-service.ts";

type Json = Record<string, unknown>;

/** Code and configuration: of a version they never change. */
export interface Configuration {
  code: Buffer;
  environment: Record<string, string>;
  description: string;
  memorySize: number;
  /** Seconds. */
  timeout: number;
  runtime: string;
  handler: string;
  role: string;
  architectures: string[];
  revision: string;
  modified: string;
  /** Only in versions: the description of $LATEST at the time of publishing. */
  source?: string;
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
  /** The time at which the present update of $LATEST ends. */
  busy: number;
  /** True if that update is the creation. */
  pending: boolean;
  versions: Map<string, Configuration>;
  published: number;
  aliases: Map<string, Alias>;
  /** Policies by alias or version; the function itself has the key "". */
  policies: Map<string, Policy>;
  urls: Map<string, { url: string; authType: string }>;
  /** The reserved concurrency. */
  reserved?: number | undefined;
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
  surroundings?: (name: string) => Record<string, string>;
  artefact?: (bucket: string, key: string) => Promise<Buffer | undefined>;
  watch?: CloudWatch;
}

export interface Lambda extends AwsService {
  functions: Map<string, FunctionRecord>;
  /** The duration of an update in milliseconds. */
  updating: number;
  /** The number of functions or versions on a page. */
  pageSize: number;
  /** Chooses between the versions of an alias: from 0 to less than 1. */
  random: () => number;
  /** The base URL for downloads of code. */
  base: string;
  /** Makes a function with one published version, which is live. */
  create(name: string, code: Buffer, environment: Record<string, string>): void;
  /** Does what the API does, for services that call it themselves. */
  act(action: string, name: string, input?: Json, query?: Record<string, string>): Promise<Json>;
  invoke(name: string, qualifier: string | undefined, event: unknown): Promise<Invocation>;
  stop(): Promise<void>;
}

const account = "123456789012";
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("base64");
const createInvalid = (message: string) => new AwsError(400, "InvalidParameterValueException", message);
const createConflict = (message: string) => new AwsError(409, "ResourceConflictException", message);
const createMissing = (message: string) => new AwsError(404, "ResourceNotFoundException", message);

/** `name`, and the version or alias that stands behind it in an ARN. */
export const parseFunctionName = (text: string): { name: string; qualifier: string | undefined } => {
  const [name = "", qualifier] = text.replace(/^(arn:aws:lambda:[^:]*:\d*:function:|\d{12}:function:)/, "").split(":");
  return { name, qualifier };
};

export const createLambda = async (options: LambdaOptions = {}): Promise<Lambda> => {
  const { region = "eu-west-1", watch, artefact } = options;
  const arnOf = (name: string) => `arn:aws:lambda:${region}:${account}:function:${name}`;
  const ran = await openProcesses();
  const functions = new Map<string, FunctionRecord>();
  /** Code by its hash: a location keeps the code that it had when it was returned. */
  const codes = new Map<string, Buffer>();

  const getFunction = (name: string): FunctionRecord => {
    const one = functions.get(name);
    if (!one) throw createMissing(`Function not found: ${arnOf(name)}`);
    return one;
  };
  const readConfiguration = (name: string, qualifier = "$LATEST"): [string, Configuration] => {
    const one = getFunction(name);
    const alias = one.aliases.get(qualifier);
    const version = alias?.version ?? qualifier;
    const configuration = version === "$LATEST" ? one.latest : one.versions.get(version);
    if (!configuration) throw createMissing(`Function not found: ${arnOf(name)}:${qualifier}`);
    return [version, configuration];
  };
  const describeFunction = (name: string, version: string, configuration: Configuration): Json => {
    const { code, environment, description, revision, modified, ...rest } = configuration;
    const isBusy = version === "$LATEST" && getFunction(name).busy > Date.now();
    const isPending = isBusy && getFunction(name).pending;
    return {
      FunctionName: name,
      FunctionArn: version === "$LATEST" ? arnOf(name) : `${arnOf(name)}:${version}`,
      Runtime: rest.runtime,
      Handler: rest.handler,
      Role: rest.role,
      MemorySize: rest.memorySize,
      Timeout: rest.timeout,
      CodeSize: code.length,
      CodeSha256: sha256(code),
      Description: description,
      Architectures: rest.architectures,
      PackageType: "Zip",
      Environment: { Variables: environment },
      LastModified: modified,
      RevisionId: revision,
      State: isPending ? "Pending" : "Active",
      LastUpdateStatus: isBusy && !isPending ? "InProgress" : "Successful",
      Version: version,
    };
  };
  const requireIdle = (name: string): FunctionRecord => {
    const one = getFunction(name);
    if (one.busy > Date.now()) throw createConflict(`An update is in progress for resource: ${arnOf(name)}`);
    return one;
  };
  const expect = (given: unknown, revision: string) => {
    if (given !== undefined && given !== revision)
      throw new AwsError(412, "PreconditionFailedException", "The Revision Id provided does not match the latest one");
  };
  const change = (name: string, edit: Partial<Configuration>): Json => {
    const one = getFunction(name);
    one.latest = { ...one.latest, ...edit, ...createStamp() };
    Object.assign(one, { busy: Date.now() + room.updating, pending: false });
    return describeFunction(name, "$LATEST", one.latest);
  };
  const readCode = async (input: Json): Promise<Buffer> => {
    const code =
      typeof input.ZipFile === "string"
        ? Buffer.from(input.ZipFile, "base64")
        : await artefact?.(String(input.S3Bucket), String(input.S3Key));
    if (code === undefined)
      throw createInvalid("Error occurred while GetObject. S3 Error Code: NoSuchKey. S3 Error Message: no such key");
    if (readOwnZip(code) === undefined)
      throw createInvalid("Could not unzip uploaded file. Please check your file, then try to upload again.");
    return code;
  };
  const parseConfiguration = (input: Json): Partial<Configuration> => {
    const variables = toTexts(Object(input.Environment).Variables);
    const size = Object.entries(variables ?? {}).reduce((sum, [key, value]) => sum + key.length + value.length, 0);
    if (size > 4096)
      throw createInvalid("Lambda was unable to configure your environment variables: they exceed the 4KB limit.");
    const edit = {
      environment: variables,
      description: toText(input.Description),
      memorySize: toNumber(input.MemorySize),
      timeout: toNumber(input.Timeout),
      runtime: toText(input.Runtime),
      handler: toText(input.Handler),
      role: toText(input.Role),
    };
    return Object.fromEntries(Object.entries(edit).filter(([, value]) => value !== undefined));
  };
  /** The versions that an alias points to must be there. */
  const requireVersions = (name: string, version: string, weights: Record<string, number>) => {
    for (const one of [version, ...Object.keys(weights)]) {
      if (!/^\d+$/.test(one)) throw createInvalid(`${one} is not a version`);
      readConfiguration(name, one);
    }
    if (version in weights) throw createInvalid("The alias's own version can't have a weight");
    const shares = Object.values(weights);
    if (shares.length > 1) throw createInvalid("An alias takes at most one additional version");
    if (shares.some((share) => !(share >= 0 && share <= 1))) throw createInvalid("A weight must be from 0.0 to 1.0");
  };
  const describeAlias = (name: string, alias: string): Json => {
    const { version, weights, description, revision } = getAlias(name, alias);
    return {
      AliasArn: `${arnOf(name)}:${alias}`,
      Name: alias,
      FunctionVersion: version,
      Description: description,
      ...(Object.keys(weights).length > 0 && { RoutingConfig: { AdditionalVersionWeights: weights } }),
      RevisionId: revision,
    };
  };
  const getAlias = (name: string, alias: string): Alias => {
    const one = getFunction(name).aliases.get(alias);
    if (!one) throw createMissing(`Cannot find alias arn: ${arnOf(name)}:${alias}`);
    return one;
  };
  const selectPage = <T>(items: T[], query: URLSearchParams): [T[], string | undefined] => {
    const first = Number(query.get("Marker") ?? 0);
    const next = first + room.pageSize;
    return [items.slice(first, next), next < items.length ? String(next) : undefined];
  };
  const findPolicies = (name: string, query: URLSearchParams): [string, Map<string, Policy>] => {
    const qualifier = query.get("Qualifier") ?? "";
    if (qualifier) readConfiguration(name, qualifier);
    return [qualifier, getFunction(name).policies];
  };

  type Action = (name: string, input: Json, query: URLSearchParams) => Json | undefined | Promise<Json | undefined>;
  const actions: Record<string, Action> = {
    CreateFunction: async (_, input) => {
      const name = String(input.FunctionName);
      if (functions.has(name)) throw createConflict(`Function already exist: ${name}`);
      if (input.Publish) throw createInvalid("this stand-in publishes by PublishVersion alone");
      const code = await readCode(Object(input.Code));
      const latest = { ...usual, timeout: 3, ...parseConfiguration(input), code, ...createStamp() };
      if (Array.isArray(input.Architectures)) latest.architectures = input.Architectures.map(String);
      functions.set(name, { ...createRecord(latest), busy: Date.now() + room.updating });
      return describeFunction(name, "$LATEST", latest);
    },
    DeleteFunction: (name, _, query) => {
      const one = getFunction(name);
      const version = query.get("Qualifier");
      if (version === null) functions.delete(name);
      else {
        if (version === "$LATEST")
          throw createInvalid("$LATEST version cannot be deleted without deleting the function.");
        if (!/^\d+$/.test(version)) throw createInvalid("Deletion of aliases is not currently supported.");
        readConfiguration(name, version);
        const held = [...one.aliases].filter(([, alias]) => alias.version === version || version in alias.weights);
        if (held.length > 0) {
          const names = held.map(([alias]) => alias).join(", ");
          throw createConflict(`Version ${version} can't be deleted: aliases refer to it: [${names}]`);
        }
        one.versions.delete(version);
      }
      return undefined;
    },
    ListFunctions: (_, __, query) => {
      const [page, NextMarker] = selectPage([...functions], query);
      return { Functions: page.map(([name, { latest }]) => describeFunction(name, "$LATEST", latest)), NextMarker };
    },
    GetFunction: (name, _, query) => {
      const [version, configuration] = readConfiguration(name, query.get("Qualifier") ?? undefined);
      const hash = Buffer.from(sha256(configuration.code), "base64").toString("hex");
      codes.set(hash, configuration.code);
      return {
        Configuration: describeFunction(name, version, configuration),
        Code: { RepositoryType: "S3", Location: `${room.base}${codePath}${hash}` },
      };
    },
    GetFunctionConfiguration: (name, _, query) =>
      describeFunction(name, ...readConfiguration(name, query.get("Qualifier") ?? undefined)),
    UpdateFunctionCode: async (name, input) => {
      if (input.Publish) throw createInvalid("this stand-in publishes by PublishVersion alone");
      expect(input.RevisionId, requireIdle(name).latest.revision);
      const code = await readCode(input);
      const architectures = Array.isArray(input.Architectures)
        ? { architectures: input.Architectures.map(String) }
        : {};
      // Another call may have changed the function while the code was read.
      const { latest } = requireIdle(name);
      expect(input.RevisionId, latest.revision);
      if (input.DryRun) return describeFunction(name, "$LATEST", { ...latest, ...architectures, code });
      return change(name, { code, ...architectures });
    },
    UpdateFunctionConfiguration: (name, input) => {
      expect(input.RevisionId, requireIdle(name).latest.revision);
      return change(name, parseConfiguration(input));
    },
    PublishVersion: (name, input) => {
      const one = requireIdle(name);
      expect(input.RevisionId, one.latest.revision);
      if (input.CodeSha256 !== undefined && input.CodeSha256 !== sha256(one.latest.code))
        throw new AwsError(412, "PreconditionFailedException", "The CodeSha256 does not match that of the latest code");
      const last = one.versions.get(String(one.published));
      if (!last || !isSame(last, one.latest)) {
        one.published += 1;
        const description = toText(input.Description) || one.latest.description;
        const version = { ...one.latest, description, source: one.latest.description, ...createStamp() };
        one.versions.set(String(one.published), version);
      }
      const version = String(one.published);
      return describeFunction(name, version, readConfiguration(name, version)[1]);
    },
    ListVersionsByFunction: (name, _, query) => {
      const { latest, versions } = getFunction(name);
      const [page, NextMarker] = selectPage([["$LATEST", latest] as const, ...versions], query);
      return { Versions: page.map(([version, one]) => describeFunction(name, version, one)), NextMarker };
    },

    CreateAlias: (name, input) => {
      const [alias, version] = [String(input.Name), String(input.FunctionVersion)];
      const weights = toNumbers(Object(input.RoutingConfig).AdditionalVersionWeights) ?? {};
      const { aliases } = getFunction(name);
      if (aliases.has(alias)) throw createConflict(`Alias already exists: ${arnOf(name)}:${alias}`);
      requireVersions(name, version, weights);
      aliases.set(alias, { version, weights, description: toText(input.Description) ?? "", revision: randomUUID() });
      return describeAlias(name, alias);
    },
    GetAlias: (name, _, query) => describeAlias(name, query.get("Name") ?? ""),
    UpdateAlias: (name, input, query) => {
      const alias = query.get("Name") ?? "";
      const one = getAlias(name, alias);
      expect(input.RevisionId, one.revision);
      const version = toText(input.FunctionVersion) ?? one.version;
      const weights = toNumbers(Object(input.RoutingConfig).AdditionalVersionWeights) ?? one.weights;
      requireVersions(name, version, weights);
      const description = toText(input.Description) ?? one.description;
      Object.assign(one, { version, weights, description, revision: randomUUID() });
      return describeAlias(name, alias);
    },
    DeleteAlias: (name, _, query) => {
      getFunction(name).aliases.delete(query.get("Name") ?? "");
      getFunction(name).policies.delete(query.get("Name") ?? "");
      return undefined;
    },

    AddPermission: (name, input, query) => {
      const [qualifier, policies] = findPolicies(name, query);
      const policy = policies.get(qualifier);
      if (policy) expect(input.RevisionId, policy.revision);
      const { StatementId: Sid, Action, Principal, SourceArn, FunctionUrlAuthType, InvokedViaFunctionUrl } = input;
      if (policy?.statements.some((one) => one.Sid === Sid))
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
        Resource: qualifier ? `${arnOf(name)}:${qualifier}` : arnOf(name),
        ...(Object.keys(Condition).length > 0 && { Condition }),
      };
      policies.set(qualifier, { statements: [...(policy?.statements ?? []), statement], revision: randomUUID() });
      return { Statement: JSON.stringify(statement) };
    },
    RemovePermission: (name, _, query) => {
      const [qualifier, policies] = findPolicies(name, query);
      const policy = policies.get(qualifier);
      const left = policy?.statements.filter(({ Sid }) => Sid !== query.get("StatementId")) ?? [];
      if (!policy || left.length === policy.statements.length)
        throw createMissing(`Statement ${query.get("StatementId")} is not found in resource policy.`);
      expect(query.get("RevisionId") ?? undefined, policy.revision);
      if (left.length === 0) policies.delete(qualifier);
      else policies.set(qualifier, { statements: left, revision: randomUUID() });
      return undefined;
    },

    CreateFunctionUrlConfig: (name, input, query) => {
      const qualifier = query.get("Qualifier") ?? "";
      if (qualifier) getAlias(name, qualifier);
      if (getFunction(name).urls.has(qualifier))
        throw createConflict(`FunctionUrlConfig exists for ${arnOf(name)}:${qualifier}`);
      const id = createHash("sha256").update(`${name}:${qualifier}`).digest("hex").slice(0, 32);
      const url = toText(input.FunctionUrl) ?? `https://${id}.lambda-url.${region}.on.aws/`;
      getFunction(name).urls.set(qualifier, { url, authType: String(input.AuthType) });
      return { FunctionUrl: url, FunctionArn: arnOf(name), AuthType: input.AuthType };
    },
    DeleteFunctionUrlConfig: (name, _, query) => {
      if (!getFunction(name).urls.delete(query.get("Qualifier") ?? ""))
        throw createMissing("The resource you requested does not exist.");
      return undefined;
    },
  };

  /** The version that an alias chooses this time. */
  const chooseVersion = (name: string, qualifier = "$LATEST"): [string, Configuration] => {
    const alias = getFunction(name).aliases.get(qualifier);
    const [[other, weight] = ["", 0]] = Object.entries(alias?.weights ?? {});
    return readConfiguration(name, other !== "" && room.random() < weight ? other : qualifier);
  };
  const invoke = async (name: string, qualifier: string | undefined, event: unknown): Promise<Invocation> => {
    const [version, configuration] = chooseVersion(name, qualifier);
    const one = getFunction(name);
    const isAlias = one.aliases.has(qualifier ?? "");
    const Resource = qualifier ? `${name}:${qualifier}` : name;
    const record = (metric: string, value: number) => {
      const some: Record<string, string>[] = [{ FunctionName: name }, { FunctionName: name, Resource }];
      if (isAlias) some.push({ FunctionName: name, Resource, ExecutedVersion: version });
      for (const dimensions of some)
        watch?.record({ namespace: "AWS/Lambda", metric, dimensions, value, time: Date.now() });
    };
    if (version === "$LATEST" && one.pending && one.busy > Date.now())
      throw createConflict(
        `The operation cannot be performed at this time. The function is currently in the following state: Pending`,
      );
    if (one.reserved !== undefined && one.running >= one.reserved) {
      record("Throttles", 1);
      throw new AwsError(429, "TooManyRequestsException", "Rate Exceeded.");
    }
    const { code, environment, timeout, memorySize, handler } = configuration;
    const program = {
      ...{ code, hash: sha256(code), timeout },
      environment: {
        ...options.surroundings?.(name),
        ...environment,
        _HANDLER: handler,
        AWS_REGION: region,
        AWS_LAMBDA_FUNCTION_NAME: name,
        AWS_LAMBDA_FUNCTION_VERSION: version,
        AWS_LAMBDA_FUNCTION_MEMORY_SIZE: String(memorySize),
        AWS_LAMBDA_LOG_GROUP_NAME: `/aws/lambda/${name}`,
        AWS_LAMBDA_LOG_STREAM_NAME: "stand-in",
      },
    };
    one.running += 1;
    const { payload, fault, lines, milliseconds } = await ran
      .run(configuration, program, event, qualifier ?? "$LATEST")
      .finally(() => {
        one.running -= 1;
      });
    record("Invocations", 1);
    record("Errors", fault === undefined ? 0 : 1);
    record("Duration", milliseconds);
    for (const line of lines) watch?.hear(line);
    const id = randomUUID();
    const log = [
      `START RequestId: ${id} Version: ${version}`,
      ...lines,
      `END RequestId: ${id}`,
      `REPORT RequestId: ${id}\tDuration: ${milliseconds.toFixed(2)} ms\tMemory Size: ${memorySize} MB\n`,
    ].join("\n");
    return { payload, fault, version, log: Buffer.from(log).subarray(-4096) };
  };

  const answerInvoke = async (
    name: string,
    { query, headers, body }: AwsRequest,
    behind?: string,
  ): Promise<AwsReply> => {
    const qualifier = query.get("Qualifier") ?? behind;
    if (body.length > 6 * 1024 * 1024)
      throw new AwsError(413, "RequestTooLargeException", `${body.length} byte payload is too large`);
    const event = parseBody(body);
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

  const act = async (action: string, name: string, input: Json, query: URLSearchParams) => {
    const known = actions[action];
    if (!known) throw new AwsError(404, "UnknownOperationException", `the stand-in of Lambda knows no ${action}`);
    return known(name, input, query);
  };
  const room: Lambda = {
    functions,
    updating: 30,
    pageSize: 50,
    random: Math.random,
    base: "",
    create: (name, code, environment) => {
      const latest = { ...usual, code, environment, description: "first", ...createStamp() };
      const live = { version: "1", weights: {}, description: "", revision: randomUUID() };
      functions.set(name, {
        ...createRecord(latest),
        versions: new Map([["1", { ...latest, ...createStamp() }]]),
        published: 1,
        aliases: new Map([["live", live]]),
      });
    },
    act: async (action, name, input = {}, query = {}) =>
      (await act(action, name, input, new URLSearchParams(query))) ?? {},
    invoke,
    about: (asked) => {
      const { action, name } = readPath(asked);
      const created = action === "CreateFunction" ? String(Object(parseBody(asked.body)).FunctionName) : name;
      return { action: `lambda:${action === "Invoke" ? "InvokeFunction" : action}`, name: created };
    },
    answer: async (asked) => {
      if (asked.path.startsWith(codePath)) {
        const code = codes.get(asked.path.slice(codePath.length));
        return code ? { status: 200, body: code } : { status: 404 };
      }
      const { action, name, qualifier, sub } = readPath(asked);
      if (action === "Invoke") return answerInvoke(name, asked, qualifier);
      if (qualifier !== undefined && !asked.query.has("Qualifier")) asked.query.set("Qualifier", qualifier);
      for (const [key, value] of Object.entries(sub)) asked.query.set(key, value);
      const answer = await act(action, name, Object(parseBody(asked.body)), asked.query);
      if (answer === undefined) return { status: 204 };
      const isNew = /^(Create|Publish|Add)/.test(action);
      return {
        status: isNew ? 201 : 200,
        headers: { "content-type": "application/json" },
        body: JSON.stringify(answer),
      };
    },
    refuse: refuseInRest,
    stop: ran.stop,
  };
  return room;
};

/** Lambda alone, on a server of its own. */
export type LambdaService = Lambda & CallRecorder & { url: string };

export const startLambda = async (): Promise<LambdaService> => {
  const ear: CallRecorder = { heard: [], fault: undefined, allow: undefined };
  const service = Object.assign(await createLambda(), ear);
  const { url, stop } = await startServer(() => service, service);
  service.base = url;
  const stopProcesses = service.stop;
  return Object.assign(service, { url, stop: async () => void (await Promise.all([stop(), stopProcesses()])) });
};

/** The path of the code locations that GetFunction returns. */
export const codePath = "/_code/";

const usual = {
  ...{
    environment: {},
    description: "",
    memorySize: 128,
    timeout: 10,
    runtime: "nodejs24.x",
    handler: "index.handler",
  },
  ...{ role: `arn:aws:iam::${account}:role/stand-in`, architectures: ["arm64"] },
};

const createRecord = (latest: Configuration): FunctionRecord => {
  return {
    ...{ latest, busy: 0, pending: true, versions: new Map(), published: 0, aliases: new Map() },
    ...{ policies: new Map(), urls: new Map(), running: 0 },
  };
};

const createStamp = () => ({ revision: randomUUID(), modified: new Date().toISOString().replace("Z", "+0000") });

/** Lambda publishes nothing that differs in nothing from the version before. */
const isSame = (version: Configuration, latest: Configuration) => {
  const essence = ({ code, revision: _, modified: __, source, description, ...rest }: Configuration) =>
    JSON.stringify([sha256(code), source ?? description, Object.entries(rest.environment).sort(), rest]);
  return essence(version) === essence({ ...latest, source: latest.description });
};

const toText = (value: unknown) => (typeof value === "string" ? value : undefined);
const toNumber = (value: unknown) => (value === undefined || value === null ? undefined : Number(value));

const toTexts = (value: unknown): Record<string, string> | undefined =>
  value === undefined || value === null
    ? undefined
    : Object.fromEntries(Object.entries(Object(value)).map(([key, one]) => [key, String(one)]));

const toNumbers = (value: unknown): Record<string, number> | undefined =>
  value === undefined || value === null
    ? undefined
    : Object.fromEntries(Object.entries(Object(value)).map(([key, one]) => [key, Number(one)]));

const parseBody = (body: Buffer): unknown => {
  try {
    return body.length === 0 ? {} : JSON.parse(String(body));
  } catch {
    throw new AwsError(400, "InvalidRequestContentException", "Could not parse request body into json");
  }
};

/** Returns a request's action, its function and the other names in its path. */
const readPath = ({ method, path }: AwsRequest) => {
  const [, , , named = "", what = "", which] = path.split("/").map(decodeURIComponent);
  const { name, qualifier } = parseFunctionName(named);
  const known: Record<string, string> = {
    "GET ": named === "" ? "ListFunctions" : "GetFunction",
    "POST ": "CreateFunction",
    "DELETE ": "DeleteFunction",
    "PUT code": "UpdateFunctionCode",
    "PUT configuration": "UpdateFunctionConfiguration",
    "GET configuration": "GetFunctionConfiguration",
    "GET versions": "ListVersionsByFunction",
    "POST versions": "PublishVersion",
    "POST invocations": "Invoke",
    "GET aliases": "GetAlias",
    "POST aliases": "CreateAlias",
    "PUT aliases": "UpdateAlias",
    "DELETE aliases": "DeleteAlias",
    "POST policy": "AddPermission",
    "DELETE policy": "RemovePermission",
    "POST url": "CreateFunctionUrlConfig",
    "DELETE url": "DeleteFunctionUrlConfig",
  };
  const asked = `${method} ${what}`;
  const action = known[asked] ?? asked;
  const sub: Record<string, string> =
    which === undefined ? {} : { [what === "policy" ? "StatementId" : "Name"]: which };
  return { action, name, qualifier, sub };
};
