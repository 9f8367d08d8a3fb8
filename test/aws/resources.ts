import { createHash, randomBytes, randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { AwsError } from "./aws-service.ts";
import type { CloudWatch } from "./cloudwatch.ts";
import type { Gateways } from "./gateways.ts";
import { type Lambda, parseFunctionName } from "./lambda.ts";
import type { Logs } from "./logs.ts";
import type { Storage } from "./moto.ts";

// Creates, changes and deletes CloudFormation's resources by type. Functions, versions, aliases and URLs exist in the
// stand-in for Lambda, buckets exist in moto. Resources of other types are only data.

type Properties = Record<string, unknown>;

/** A created resource: its physical id, and the attributes that Fn::GetAtt finds. */
export interface PhysicalResource {
  physical: string;
  attributes: Record<string, string>;
}

/** The stack and the logical id of a resource, and a generated name, which is used if the template states none. */
export interface ResourcePlace {
  stack: string;
  id: string;
  name: string;
}

/** How the resources of a type are created, changed and deleted. */
export interface ResourceKind {
  make(properties: Properties, place: ResourcePlace): Promise<PhysicalResource>;
  /** Changes a resource; returns undefined if it has to be replaced. */
  change(
    physical: string,
    before: Properties,
    after: Properties,
    place: ResourcePlace,
  ): Promise<PhysicalResource | undefined>;
  remove(physical: string, properties: Properties): Promise<void>;
}

/** Calls an action of Lambda's API for a function, as CloudFormation does when it creates or changes resources. */
export type LambdaCall = (
  action: string,
  functionName: string,
  input?: Properties,
  query?: Record<string, string>,
) => Promise<Properties>;

interface ResourceServices {
  callLambda: LambdaCall;
  /** Throws if the caller has no right to an action on a path of API Gateway. */
  requireGatewayRight(action: string, path: string, context: Record<string, string>): void;
  lambda: Lambda;
  logs: Logs;
  storage: Storage;
  gateways: Gateways;
  cloudwatch: CloudWatch;
  region: string;
}

const account = "123456789012";

/** Returns a function that finds the kind of a resource type. */
export const openKinds = ({
  callLambda,
  requireGatewayRight,
  lambda,
  logs,
  storage,
  gateways,
  cloudwatch,
  region,
}: ResourceServices): ((type: string) => ResourceKind) => {
  const waitUntilIdle = async (name: string) => {
    while ((lambda.functions.get(name)?.busyUntil ?? 0) > Date.now()) await wait(5);
  };
  /** Ignores the error for a resource that doesn't exist any more. */
  const ignoreMissing = (error: unknown) => {
    if (!(error instanceof AwsError && error.status === 404)) throw error;
  };
  /** The `change` of a kind whose resources can only be replaced. */
  const requireReplacement = async () => undefined;
  const describeFunction = async (name: string): Promise<PhysicalResource> => {
    const { FunctionArn } = await callLambda("GetFunctionConfiguration", name);
    return { physical: name, attributes: { Arn: String(FunctionArn) } };
  };

  const putAlarm = (name: string, properties: Properties): PhysicalResource => {
    cloudwatch.alarms.put(name, properties);
    return { physical: name, attributes: { Arn: `arn:aws:cloudwatch:${region}:${account}:alarm:${name}` } };
  };
  const setRetention = (group: string, { RetentionInDays }: Properties) => {
    if (RetentionInDays === undefined) logs.retention.delete(group);
    else logs.retention.set(group, Number(RetentionInDays));
  };
  const reserve = async (name: string, before: Properties, { ReservedConcurrentExecutions }: Properties) => {
    if (before.ReservedConcurrentExecutions === ReservedConcurrentExecutions) return;
    if (ReservedConcurrentExecutions === undefined) await callLambda("DeleteFunctionConcurrency", name);
    else await callLambda("PutFunctionConcurrency", name, { ReservedConcurrentExecutions });
  };

  const kinds: Record<string, ResourceKind> = {
    "AWS::Lambda::Function": {
      make: async (properties, { name: defaultName }) => {
        const name = String(properties.FunctionName ?? defaultName);
        const { Code, Architectures } = properties;
        const configuration = selectConfiguration(properties);
        await callLambda("CreateFunction", name, { FunctionName: name, Code, Architectures, ...configuration });
        await waitUntilIdle(name);
        await reserve(name, {}, properties);
        return describeFunction(name);
      },
      change: async (name, before, after) => {
        if (before.FunctionName !== after.FunctionName) return undefined;
        const selectCode = ({ Code, Architectures }: Properties) => ({ Code, Architectures });
        await waitUntilIdle(name);
        if (!isDeepStrictEqual(selectCode(before), selectCode(after))) {
          await callLambda("UpdateFunctionCode", name, { ...Object(after.Code), Architectures: after.Architectures });
          await waitUntilIdle(name);
        }
        if (!isDeepStrictEqual(selectConfiguration(before), selectConfiguration(after))) {
          await callLambda("UpdateFunctionConfiguration", name, selectConfiguration(after));
          await waitUntilIdle(name);
        }
        await reserve(name, before, after);
        return describeFunction(name);
      },
      remove: async (name) => void (await callLambda("DeleteFunction", name).catch(ignoreMissing)),
    },

    "AWS::Lambda::Version": {
      make: async ({ FunctionName, CodeSha256, Description }) => {
        const { name } = parseFunctionName(String(FunctionName));
        await waitUntilIdle(name);
        const before = lambda.functions.get(name)?.published;
        const { Version, FunctionArn } = await callLambda("PublishVersion", name, { CodeSha256, Description });
        if (String(before) === String(Version))
          throw new AwsError(
            409,
            "AlreadyExists",
            `A version for this Lambda function exists ( ${Version} ). Modify the function to create a new version.`,
          );
        return {
          physical: String(FunctionArn),
          attributes: { Version: String(Version), FunctionArn: String(FunctionArn) },
        };
      },
      change: requireReplacement,
      remove: async (arn) => {
        const { name, qualifier = "" } = parseFunctionName(arn);
        await callLambda("DeleteFunction", name, {}, { Qualifier: qualifier }).catch(ignoreMissing);
      },
    },

    "AWS::Lambda::Alias": {
      make: async (properties) => {
        const { name } = parseFunctionName(String(properties.FunctionName));
        const { AliasArn } = await callLambda("CreateAlias", name, {
          Name: properties.Name,
          ...buildAliasInput(properties),
        });
        return { physical: String(AliasArn), attributes: { AliasArn: String(AliasArn) } };
      },
      change: async (physical, before, after) => {
        if (before.FunctionName !== after.FunctionName || before.Name !== after.Name) return undefined;
        const { name, qualifier = "" } = parseFunctionName(physical);
        await callLambda("UpdateAlias", name, buildAliasInput(after), { Name: qualifier });
        return { physical, attributes: { AliasArn: physical } };
      },
      remove: async (physical) => {
        const { name, qualifier = "" } = parseFunctionName(physical);
        await callLambda("DeleteAlias", name, {}, { Name: qualifier }).catch(ignoreMissing);
      },
    },

    "AWS::Lambda::Permission": {
      make: async ({ FunctionName, ...statement }, { name: StatementId }) => {
        const { name, qualifier } = parseFunctionName(String(FunctionName));
        await callLambda("AddPermission", name, { StatementId, ...statement }, toQuery(qualifier));
        return { physical: StatementId, attributes: { Id: StatementId } };
      },
      change: requireReplacement,
      remove: async (StatementId, { FunctionName }) => {
        const { name, qualifier } = parseFunctionName(String(FunctionName));
        await callLambda("RemovePermission", name, {}, { StatementId, ...toQuery(qualifier) }).catch(ignoreMissing);
      },
    },

    "AWS::Lambda::Url": {
      make: async ({ TargetFunctionArn, Qualifier, AuthType }, { stack }) => {
        const { name } = parseFunctionName(String(TargetFunctionArn));
        const FunctionUrl = `${await gateways.openUrl(stack)}/`;
        const query = toQuery(Qualifier === undefined ? undefined : String(Qualifier));
        const { FunctionArn } = await callLambda("CreateFunctionUrlConfig", name, { AuthType, FunctionUrl }, query);
        return { physical: String(FunctionArn), attributes: { FunctionUrl, FunctionArn: String(FunctionArn) } };
      },
      change: requireReplacement,
      remove: async (_, { TargetFunctionArn, Qualifier }) => {
        const { name } = parseFunctionName(String(TargetFunctionArn));
        const query = toQuery(Qualifier === undefined ? undefined : String(Qualifier));
        await callLambda("DeleteFunctionUrlConfig", name, {}, query).catch(ignoreMissing);
      },
    },

    "AWS::S3::Bucket": {
      make: async ({ BucketName }, { name }) => {
        const bucket = String(BucketName ?? name.toLowerCase().slice(0, 63));
        const problem = await storage.createBucket(bucket);
        if (problem) throw new AwsError(409, "AlreadyExists", `${bucket} already exists`);
        return { physical: bucket, attributes: { Arn: `arn:aws:s3:::${bucket}` } };
      },
      change: async (bucket, before, after) =>
        before.BucketName === after.BucketName
          ? { physical: bucket, attributes: { Arn: `arn:aws:s3:::${bucket}` } }
          : undefined,
      remove: async (bucket) => {
        const problem = await storage.deleteBucket(bucket);
        if (problem)
          throw new AwsError(409, "BucketNotEmpty", "The bucket you tried to delete is not empty (Status Code: 409)");
      },
    },

    "AWS::Logs::LogGroup": {
      make: async (properties, place) => {
        const logGroup = await createDataKind("AWS::Logs::LogGroup").make(properties, place);
        if (logs.groups.has(logGroup.physical))
          throw new AwsError(409, "AlreadyExists", `${logGroup.physical} already exists`);
        logs.groups.set(logGroup.physical, []);
        setRetention(logGroup.physical, properties);
        return logGroup;
      },
      change: async (physical, before, after, place) => {
        setRetention(physical, after);
        return createDataKind("AWS::Logs::LogGroup").change(physical, before, after, place);
      },
      remove: async (physical) => void logs.groups.delete(physical),
    },

    "AWS::Logs::QueryDefinition": {
      make: async (properties) => {
        const physical = randomUUID();
        logs.save(physical, properties);
        return { physical, attributes: { QueryDefinitionId: physical } };
      },
      change: async (physical, _, after) => {
        logs.save(physical, after);
        return { physical, attributes: { QueryDefinitionId: physical } };
      },
      remove: async (physical) => void logs.saved.delete(physical),
    },

    "AWS::Logs::SubscriptionFilter": {
      make: async (properties, { name }) => {
        logs.subscribe(name, properties);
        return { physical: name, attributes: {} };
      },
      change: async (physical, _, after) => {
        logs.subscribe(physical, after);
        return { physical, attributes: {} };
      },
      remove: async (physical) => logs.unsubscribe(physical),
    },

    "AWS::ApiGatewayV2::Api": {
      make: async (_, { stack }) => {
        const physical = randomBytes(5).toString("hex");
        return { physical, attributes: { ApiId: physical, ApiEndpoint: await gateways.openUrl(stack) } };
      },
      change: async (physical, before, after, { stack }) =>
        before.ProtocolType === after.ProtocolType
          ? { physical, attributes: { ApiId: physical, ApiEndpoint: await gateways.openUrl(stack) } }
          : undefined,
      remove: async () => {},
    },

    "AWS::CloudWatch::Alarm": {
      make: async (properties, { name: defaultName }) =>
        putAlarm(String(properties.AlarmName ?? defaultName), properties),
      change: async (name, before, after) => (before.AlarmName === after.AlarmName ? putAlarm(name, after) : undefined),
      remove: async (name) => cloudwatch.alarms.delete(name),
    },

    "AWS::CloudWatch::Dashboard": {
      make: async ({ DashboardName, DashboardBody }, { name: defaultName }) => {
        const name = String(DashboardName ?? defaultName);
        cloudwatch.dashboards.put(name, String(DashboardBody));
        return { physical: name, attributes: {} };
      },
      change: async (name, before, after) => {
        if (before.DashboardName !== after.DashboardName) return undefined;
        cloudwatch.dashboards.put(name, String(after.DashboardBody));
        return { physical: name, attributes: {} };
      },
      remove: async (name) => cloudwatch.dashboards.delete(name),
    },
  };

  /**
   * Throws if an access log goes to a log group outside `/aws/vendedlogs/`. For such a group, AWS adds the name to the
   * region's policy for the delivery of logs. In the stand-in, this policy has no room for another name.
   */
  const requireVendedLogs = ({ AccessLogSettings }: Properties) => {
    const { DestinationArn } = Object(AccessLogSettings);
    if (DestinationArn === undefined || String(DestinationArn).includes(":log-group:/aws/vendedlogs/")) return;
    throw new AwsError(
      400,
      "BadRequestException",
      "Cannot enable logging. Policy document length breaking Cloudwatch Logs Constraints, either < 1 or > 5120",
    );
  };
  /**
   * Creates the kind for a type whose resources are only data. A name is generated if the template has none.
   */
  const createDataKind = (type: string): ResourceKind => {
    const [, service = "", resourceType = ""] = type.split("::");
    const getName = (properties: Properties) => properties[nameKeys[type] ?? ""];
    const describePhysical = (physical: string): PhysicalResource => {
      const arn = `arn:aws:${service.toLowerCase()}:${region}:${account}:${resourceType.toLowerCase()}:${physical}`;
      const arns: Record<string, string> = {
        "AWS::IAM::Role": `arn:aws:iam::${account}:role/${physical}`,
        "AWS::Events::Rule": `arn:aws:events:${region}:${account}:rule/${physical}`,
        "AWS::Logs::LogGroup": `arn:aws:logs:${region}:${account}:log-group:${physical}:*`,
      };
      return { physical, attributes: { Arn: arns[type] ?? arn } };
    };
    return {
      make: async (properties, { name }) => {
        const physicalId = type.startsWith("AWS::ApiGatewayV2::")
          ? createHash("sha256").update(name).digest("hex").slice(0, 7)
          : name;
        if (type === "AWS::ApiGatewayV2::Stage") requireVendedLogs(properties);
        return describePhysical(String(getName(properties) ?? physicalId));
      },
      change: async (physical, before, after) =>
        getName(before) === getName(after) ? describePhysical(physical) : undefined,
      remove: async (physical) => {
        if (type === "AWS::IAM::Role") lambda.deletedRoles.add(describePhysical(physical).attributes.Arn ?? "");
      },
    };
  };
  /** Wraps a kind of API Gateway, so that each operation needs a right to its path. Only APIs and stages have tags. */
  const requireRights = (type: string, kind: ResourceKind): ResourceKind => {
    // AWS::ApiGatewayV2::Route has the collection `routes`.
    const collection = `${type.replace("AWS::ApiGatewayV2::", "").toLowerCase()}s`;
    const getPath = ({ ApiId }: Properties) => (collection === "apis" ? "/apis" : `/apis/${ApiId}/${collection}`);
    const toContext = (key: "RequestTag" | "ResourceTag", { Tags }: Properties) =>
      Object.fromEntries(Object.entries(Object(Tags)).map(([name, value]) => [`aws:${key}/${name}`, String(value)]));
    return {
      make: async (properties, place) => {
        requireGatewayRight("POST", getPath(properties), toContext("RequestTag", properties));
        return kind.make(properties, place);
      },
      change: async (physical, before, after, place) => {
        requireGatewayRight("PATCH", `${getPath(before)}/${physical}`, toContext("ResourceTag", before));
        if (!isDeepStrictEqual(before.Tags, after.Tags))
          requireGatewayRight("POST", `/tags/${physical}`, toContext("RequestTag", after));
        return kind.change(physical, before, after, place);
      },
      remove: async (physical, properties) => {
        requireGatewayRight("DELETE", `${getPath(properties)}/${physical}`, toContext("ResourceTag", properties));
        await kind.remove(physical, properties);
      },
    };
  };
  return (type) => {
    const kind = kinds[type] ?? createDataKind(type);
    return type.startsWith("AWS::ApiGatewayV2::") ? requireRights(type, kind) : kind;
  };
};

/** The properties that hold the unique name of a resource, by type. */
export const nameKeys: Record<string, string> = {
  "AWS::IAM::Role": "RoleName",
  "AWS::Logs::LogGroup": "LogGroupName",
  "AWS::CloudWatch::Alarm": "AlarmName",
  "AWS::CloudWatch::Dashboard": "DashboardName",
};

/** Returns the input of UpdateFunctionConfiguration from a function's properties, with Lambda's defaults. */
const selectConfiguration = ({ Description, Handler, Runtime, Role, MemorySize, Timeout, ...others }: Properties) => {
  const { Environment, LoggingConfig = { LogFormat: "Text" }, VpcConfig = {}, Layers = [] } = others;
  const { TracingConfig = { Mode: "PassThrough" }, EphemeralStorage = { Size: 512 } } = others;
  const Variables = Object(Environment).Variables ?? {};
  return {
    Handler,
    Runtime,
    Role,
    LoggingConfig,
    VpcConfig,
    Environment: { Variables },
    Layers,
    TracingConfig,
    EphemeralStorage,
    Description: Description ?? "",
    MemorySize: MemorySize ?? 128,
    Timeout: Timeout ?? 3,
  };
};

/**
 * Returns the input of UpdateAlias from an alias's properties. Without weights in the template, the input removes all
 * weights.
 */
const buildAliasInput = ({ FunctionVersion, Description, RoutingConfig }: Properties) => {
  const inTemplate: unknown = Object(RoutingConfig).AdditionalVersionWeights;
  const weights = (Array.isArray(inTemplate) ? inTemplate : []).map((entry) => [
    entry.FunctionVersion,
    Number(entry.FunctionWeight),
  ]);
  return {
    FunctionVersion: String(FunctionVersion),
    Description: Description ?? "",
    RoutingConfig: { AdditionalVersionWeights: Object.fromEntries(weights) },
  };
};

const toQuery = (qualifier: string | undefined): Record<string, string> => (qualifier ? { Qualifier: qualifier } : {});
