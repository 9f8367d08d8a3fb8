import { mkdir, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import type { SecretPlace } from "#lib/needs.ts";
import { idOf } from "../catalogue/rule-names.ts";
import type { Bundle } from "./bundle.ts";

export interface Surroundings {
  /** Megabytes. */
  memorySize: number;
  /** Seconds; more than the longest timeout of the rule's entries. */
  timeout: number;
  environment: Record<string, string>;
}

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
type Resource = { Type: string; Properties: { [key: string]: Json }; [key: string]: Json };
type Resources = Record<string, Resource>;

/** An endpoint type: what it needs once, what it needs for each rule, its outputs, and its metrics of failures. */
interface Door {
  once: Resources;
  each(rule: Planned): Resources;
  outputs(rules: Planned[]): { [key: string]: Json };
  failures: Metric[];
}

type Metric = { Id: string; [key: string]: Json };

interface Planned extends Bundle, Surroundings {
  /** The function's name as osls converts it. All logical ids of a rule begin with it. */
  id: string;
  lambda: string;
  alias: string;
}

const runtime = { runtime: "nodejs24.x", architecture: "arm64" };
/** Returns a variable that osls fills in, or CloudFormation inside Fn::Sub. */
const blank = (name: string) => `\${${name}}`;
const stage = blank("sls:stage");
const param = (name: string) => blank(`param:${name}`);
const gateway = ["AWS::Region", "AWS::AccountId", "HttpApi"].map(blank).join(":");

/** Writes what serverless.yml includes: `functions.json`, and `http.json` or `url.json` for the endpoint type. */
export const writeDeployment = async (bundles: Bundle[], publicKeys: string, outDir: string): Promise<void> => {
  const rules = bundles.map((bundle) => plan(bundle, publicKeys));
  await mkdir(outDir, { recursive: true });
  const write = (file: string, content: Json) => writeFile(join(outDir, file), `${JSON.stringify(content, null, 2)}\n`);
  await write("functions.json", Object.fromEntries(rules.map((rule) => [rule.name, lambdaOf(rule, basename(outDir))])));
  for (const [name, door] of Object.entries({ http, url })) await write(`${name}.json`, resourcesOf(rules, door));
};

export const surroundingsOf = (
  { timeoutSeconds, accepts, scripts }: Pick<Bundle, "timeoutSeconds" | "accepts" | "scripts">,
  publicKeys: string,
  stage: string,
): Surroundings => ({
  // CUE takes up to half of it, and Lambda gives more CPU with more memory.
  memorySize: scripts ? 1024 : 256,
  timeout: Math.max(10, timeoutSeconds + 1),
  environment: { POSTERN_KEYS: publicKeys, POSTERN_STAGE: stage, POSTERN_ACCEPTS: accepts.join(",") },
});

const plan = (bundle: Bundle, publicKeys: string): Planned => {
  const id = idOf(bundle.name);
  return {
    ...bundle,
    ...surroundingsOf(bundle, publicKeys, stage),
    ...{ id, lambda: `${id}LambdaFunction`, alias: `${id}Alias` },
  };
};

const lambdaOf = ({ name, summary, id, memorySize, timeout, environment }: Planned, folder: string): Json => {
  return {
    handler: "index.handler",
    description: summary.slice(0, 256),
    ...runtime,
    memorySize,
    timeout,
    // Not by its name or by Fn::GetAtt: for these, osls adds a redundant DependsOn, and cfn-lint warns.
    role: { "Fn::Sub": blank(`${id}Role.Arn`) },
    environment,
    package: { artifact: `${folder}/${name}.zip` },
  };
};

const resourcesOf = (rules: Planned[], door: Door): Json => {
  const resources = rules.map((rule) => ({ ...aroundLambda(rule), ...door.each(rule) }));
  return {
    Resources: Object.assign({}, door.once, ...resources, alarms(door)),
    Outputs: { ...door.outputs(rules), ...roleOutputs(rules) },
  };
};

const roleOutputs = (rules: Planned[]): { [key: string]: Json } =>
  Object.fromEntries(
    rules
      .filter(({ asks }) => asks)
      .map(({ name, id }) => [
        `${id}RoleArn`,
        { Description: `The role of ${name}, which asks a cluster`, Value: { "Fn::GetAtt": [`${id}Role`, "Arn"] } },
      ]),
  );

/**
 * The role may write the function's own log and recordings, read its tokens and do what its rule needs, and nothing
 * else. Endpoints call the alias `live`. The stack creates it on the first version and never moves it, because nothing
 * here ever differs from the template before; `postern deploy` moves it.
 */
const aroundLambda = ({ id, lambda, alias, tokens, actions, records }: Planned): Resources => {
  const version = `${id}Version`;
  const assume = { Effect: "Allow", Principal: { Service: "lambda.amazonaws.com" }, Action: "sts:AssumeRole" };
  const log = {
    Effect: "Allow",
    Action: ["logs:CreateLogStream", "logs:PutLogEvents"],
    Resource: { "Fn::GetAtt": [`${id}LogGroup`, "Arn"] },
  };
  return {
    [`${id}Role`]: resource("AWS::IAM::Role", {
      AssumeRolePolicyDocument: { Version: "2012-10-17", Statement: [assume] },
      PermissionsBoundary: param("boundary"),
      Policies: [
        policy("log", log),
        ...(tokens.length > 0 ? [policy("tokens", ...tokens.map(readingOf))] : []),
        // Actions that describe resources accept only "*".
        ...(actions.length > 0 ? [policy("needs", { Effect: "Allow", Action: actions, Resource: "*" })] : []),
        ...(records.length > 0 ? [policy("records", ...records.map(recordingTo))] : []),
      ],
    }),
    [version]: resource("AWS::Lambda::Version", { FunctionName: { Ref: lambda } }),
    [alias]: resource("AWS::Lambda::Alias", {
      Name: "live",
      FunctionName: { Ref: lambda },
      FunctionVersion: { "Fn::GetAtt": [version, "Version"] },
    }),
  };
};

const policy = (name: string, ...Statement: Json[]): Json => {
  return { PolicyName: name, PolicyDocument: { Version: "2012-10-17", Statement } };
};

const readingOf = (token: SecretPlace): Json => {
  const isSecret = "secret" in token;
  const [service, name] = isSecret ? ["secretsmanager", token.secret] : ["ssm", token.parameter];
  const path = isSecret ? `secret:${name}-??????` : `parameter/${name.replace(/^\//, "")}`;
  const own = ["AWS::Partition", "AWS::AccountId"].map(blank);
  return {
    Effect: "Allow",
    Action: isSecret ? "secretsmanager:GetSecretValue" : "ssm:GetParameter",
    Resource: name.startsWith("arn:")
      ? name
      : { "Fn::Sub": `arn:${own[0]}:${service}:${token.region}:${own[1]}:${path}` },
  };
};

/** Allows writing below one cluster's and rule's name, but not reading or listing. */
const recordingTo = (place: string): Json => ({
  Effect: "Allow",
  Action: "s3:PutObject",
  Resource: { "Fn::Sub": `arn:${blank("AWS::Partition")}:s3:::${place}*` },
});

/** The path variable `cluster` holds `{cluster}.{key}`, so that no key is in a template, a logical id or a log. */
export const routeOf = (name: string) => `POST /{cluster}/${name}/{phase+}`;

/** Leaves out the path, which has the key. `function` is the status from the function, or "-" if it returned none. */
const accessLog = {
  stage,
  requestId: "$context.requestId",
  sourceIp: "$context.identity.sourceIp",
  routeKey: "$context.routeKey",
  status: "$context.status",
  function: "$context.integration.status",
  latency: "$context.responseLatency",
};

/**
 * The metric of reviews that the gateway answered instead of a function, by the dimensions Stage and Route. The
 * gateway's own metrics don't suffice: its 4xx also counts requests of strangers, and its 5xx also counts answers of
 * functions.
 */
export const lossMetric = { namespace: "Postern", metric: "Lost" } as const;

/** The stack's output that says that it has this metric. */
export const lossOutput = "LossMetric";

const http: Door = {
  once: {
    HttpApi: resource("AWS::ApiGatewayV2::Api", { Name: `postern-${stage}`, ProtocolType: "HTTP" }),
    HttpApiLogGroup: resource("AWS::Logs::LogGroup", {
      LogGroupName: `/aws/http-api/postern-${stage}`,
      RetentionInDays: param("logRetentionInDays"),
    }),
    HttpApiStage: resource("AWS::ApiGatewayV2::Stage", {
      ApiId: { Ref: "HttpApi" },
      StageName: "$default",
      AutoDeploy: true,
      AccessLogSettings: {
        DestinationArn: { "Fn::GetAtt": ["HttpApiLogGroup", "Arn"] },
        Format: JSON.stringify(accessLog),
      },
      DefaultRouteSettings: {
        ThrottlingRateLimit: param("requestsPerSecond"),
        ThrottlingBurstLimit: param("requestsAtOnce"),
      },
    }),
    HttpApiLosses: resource("AWS::Logs::MetricFilter", {
      LogGroupName: { Ref: "HttpApiLogGroup" },
      FilterPattern: '{ ($.status = "429") || (($.status = "5*") && ($.function != "5*")) }',
      MetricTransformations: [
        {
          MetricNamespace: lossMetric.namespace,
          MetricName: lossMetric.metric,
          MetricValue: "1",
          Dimensions: [
            { Key: "Stage", Value: "$.stage" },
            { Key: "Route", Value: "$.routeKey" },
          ],
        },
      ],
    }),
  },
  each: ({ name, id, alias, timeout }) => {
    return {
      [`${id}Integration`]: resource("AWS::ApiGatewayV2::Integration", {
        ApiId: { Ref: "HttpApi" },
        IntegrationType: "AWS_PROXY",
        IntegrationUri: { Ref: alias },
        PayloadFormatVersion: "2.0",
        // HTTP APIs wait 30 s at most.
        TimeoutInMillis: Math.min(30_000, timeout * 1000),
      }),
      [`${id}Route`]: resource("AWS::ApiGatewayV2::Route", {
        ApiId: { Ref: "HttpApi" },
        RouteKey: routeOf(name),
        Target: { "Fn::Join": ["/", ["integrations", { Ref: `${id}Integration` }]] },
      }),
      [`${id}Permission`]: resource("AWS::Lambda::Permission", {
        FunctionName: { Ref: alias },
        Action: "lambda:InvokeFunction",
        Principal: "apigateway.amazonaws.com",
        SourceArn: { "Fn::Sub": `arn:${blank("AWS::Partition")}:execute-api:${gateway}/*` },
      }),
    };
  },
  outputs: () => {
    return {
      BaseUrl: { Description: "What webhook URLs begin with", Value: { "Fn::GetAtt": ["HttpApi", "ApiEndpoint"] } },
      [lossOutput]: { Description: "Counts reviews that the gateway answered itself", Value: { Ref: "HttpApiLosses" } },
    };
  },
  // A function that crashed or was throttled writes no log line; the gateway's 5xx counts it.
  failures: [metric("gateway", "AWS/ApiGateway", "5xx", "ApiId", { Ref: "HttpApi" })],
};

/** A URL for each function: no gateway, no access log, and no throttling except the functions' own concurrency. */
const url: Door = {
  once: {},
  each: ({ id, lambda, alias }) => {
    const permission = { FunctionName: { Ref: alias }, Principal: "*" };
    return {
      [`${id}Url`]: {
        ...resource("AWS::Lambda::Url", { TargetFunctionArn: { Ref: lambda }, Qualifier: "live", AuthType: "NONE" }),
        DependsOn: alias,
      },
      [`${id}Permission`]: resource("AWS::Lambda::Permission", {
        ...permission,
        Action: "lambda:InvokeFunctionUrl",
        FunctionUrlAuthType: "NONE",
      }),
      // URLs created since October 2025 need both permissions.
      [`${id}InvokePermission`]: resource("AWS::Lambda::Permission", {
        ...permission,
        Action: "lambda:InvokeFunction",
        InvokedViaFunctionUrl: true,
      }),
    };
  },
  outputs: (rules) =>
    Object.fromEntries(
      rules.map(({ name, id }) => [
        `${id}BaseUrl`,
        { Description: name, Value: { "Fn::GetAtt": [`${id}Url`, "FunctionUrl"] } },
      ]),
    ),
  // A function that crashed writes no log line; Lambda's Errors metric counts it.
  failures: [{ Id: "crashes", ReturnData: false, Period: 60, Expression: ofStage("Errors") }],
};

/** Alarms of the stage for errors, throttling and latency. Each needs three bad minutes out of five. */
const alarms = ({ failures }: Door): Resources => {
  const rings = {
    AlarmActions: param("alarmTopics"),
    EvaluationPeriods: 5,
    DatapointsToAlarm: 3,
    ComparisonOperator: "GreaterThanThreshold",
    TreatMissingData: "notBreaching",
  };
  const sources = [metric("reviews", "Postern", "Errors", "Stage", stage), ...failures];
  return {
    ErrorsAlarm: resource("AWS::CloudWatch::Alarm", {
      ...rings,
      AlarmDescription: "Reviews failed: the clusters' failurePolicy decided for us.",
      Threshold: 0,
      Metrics: [
        { Id: "errors", Expression: `MAX([${sources.map(({ Id }) => `FILL(${Id}, 0)`).join(", ")}])` },
        ...sources,
      ],
    }),
    ThrottlesAlarm: resource("AWS::CloudWatch::Alarm", {
      ...rings,
      AlarmDescription: "Lambda refused to run functions: raise their concurrency.",
      Threshold: 0,
      Metrics: [
        {
          Id: "throttles",
          Period: 60,
          Expression: ofStage("Throttles"),
        },
      ],
    }),
    LatencyAlarm: resource("AWS::CloudWatch::Alarm", {
      ...rings,
      AlarmDescription: "One review in a hundred takes nearly as long as API servers wait.",
      Namespace: "Postern",
      MetricName: "Latency",
      Dimensions: [{ Name: "Stage", Value: stage }],
      ExtendedStatistic: "p99",
      Period: 60,
      Threshold: param("slowMilliseconds"),
    }),
  };
};

/**
 * Returns the sum of one of Lambda's metrics over the stage's functions. Metrics Insights has no OR and no prefix
 * match, so it finds functions by tag; CloudWatch sees tags once "resource tags for telemetry" is on in the account's
 * settings.
 */
function ofStage(name: string): string {
  return `SELECT SUM(${name}) FROM SCHEMA("AWS/Lambda", FunctionName) WHERE tag.postern = '${stage}'`;
}

function metric(id: string, namespace: string, name: string, dimension: string, value: Json): Metric {
  const of = { Namespace: namespace, MetricName: name, Dimensions: [{ Name: dimension, Value: value }] };
  return { Id: id, ReturnData: false, MetricStat: { Metric: of, Period: 60, Stat: "Sum" } };
}

function resource(type: string, properties: Resource["Properties"]): Resource {
  return { Type: type, Properties: properties };
}
