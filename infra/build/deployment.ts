import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { parse } from "yaml";
import { reconcileEvent } from "#lib/lambda/schedule.ts";
import type { SecretPlace } from "#lib/needs.ts";
import { buildSavedQueries } from "../aws/saved-queries.ts";
import { buildFunctionName, buildLedgerTableName, toLogicalId } from "../catalogue/rule-names.ts";
import type { RuleBundle } from "./bundle.ts";

/** The settings of a rule's Lambda function in serverless.yml. */
interface LambdaFunctionSettings {
  /** Megabytes. */
  memorySize: number;
  /** The Lambda timeout in seconds: more than the longest timeoutSeconds of the rule's webhook entries. */
  timeout: number;
  environment: Record<string, string>;
}

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
type Resources = Record<
  string,
  { Type: string; Properties: { Policies?: Json[]; Metrics?: Json[]; [key: string]: Json | undefined } }
>;

/** The sections of resources.yaml: CloudFormation resources and outputs for HTTP APIs, function URLs or both. */
type Template = Record<
  "both" | "http" | "url",
  {
    once: Resources;
    each: Resources;
    eachGroup?: Resources;
    /** What calls a function by a schedule. */
    eachSchedule?: Resources;
    /** The metrics of the dashboard's widgets, by title. */
    widgets?: Record<string, Json[]>;
    outputs: Record<string, Json>;
    eachOutput: Record<string, Json>;
  }
>;

interface PlannedFunction extends RuleBundle, LambdaFunctionSettings {
  /** The function's name as osls converts it: the prefix of all logical ids of the rule in CloudFormation. */
  id: string;
  functionName: string | undefined;
}

const runtime = { runtime: "nodejs24.x", architecture: "arm64" };
/** Returns `${name}`, a variable that osls fills in; inside Fn::Sub, CloudFormation fills it in. */
const toPlaceholder = (name: string) => `\${${name}}`;

/**
 * Writes what serverless.yml includes: `functions.json`, and `http.json` or `url.json` for the endpoint type. Without a
 * stage, osls fills in the stage, and no function's name is shortened. Returns the number of resources in a stack of the
 * endpoint type that has fewer.
 */
export const writeServerlessIncludes = async (
  bundles: RuleBundle[],
  publicKeys: string,
  outDir: string,
  stage?: string,
): Promise<number> => {
  const rules = bundles.map((bundle) => plan(bundle, publicKeys, stage));
  await mkdir(outDir, { recursive: true });
  const write = (file: string, content: Json) => writeFile(join(outDir, file), `${JSON.stringify(content, null, 2)}\n`);
  await write(
    "functions.json",
    Object.fromEntries(rules.map((rule) => [rule.name, buildFunction(rule, basename(outDir))])),
  );
  const template = parse(await readFile(new URL("resources.yaml", import.meta.url), "utf8"), { merge: true });
  const fill = openTemplate(template);
  const counts: number[] = [];
  for (const type of ["http", "url"] as const) {
    const resources = buildResources(rules, type, fill);
    await write(`${type}.json`, resources);
    // osls adds the functions, the bucket and its policy.
    counts.push(Object.keys(resources.Resources).length + rules.length + 2);
  }
  return Math.min(...counts);
};

export const computeFunctionSettings = (
  {
    name,
    timeoutSeconds,
    accepts,
    scripts,
    opensLedger,
    reconciles,
  }: Pick<RuleBundle, "name" | "timeoutSeconds" | "accepts" | "scripts" | "opensLedger" | "reconciles">,
  publicKeys: string,
  stage?: string,
): LambdaFunctionSettings => ({
  // CUE takes up to half of a function's memory, and Lambda gives more CPU with more memory.
  memorySize: scripts ? 1024 : 256,
  timeout: reconciles ? reconcileSeconds : computeReviewSeconds(timeoutSeconds),
  environment: {
    POSTERN_KEYS: publicKeys,
    POSTERN_STAGE: stage ?? toPlaceholder("sls:stage"),
    POSTERN_CLUSTERS: accepts,
    ...(findShortenedName(name, stage) !== undefined && { POSTERN_RULE: name }),
    ...(opensLedger && { POSTERN_LEDGER: buildLedgerTableName(stage ?? toPlaceholder("sls:stage")) }),
  },
});

/** The seconds of a scheduled call, which is as long as the time between two. */
const reconcileSeconds = 60;

const computeReviewSeconds = (timeoutSeconds: number): number => Math.max(10, timeoutSeconds + 1);

/** Returns the function's name if it differs from the one that osls gives it. */
const findShortenedName = (rule: string, stage?: string): string | undefined => {
  const name = stage === undefined ? rule : buildFunctionName(stage, rule);
  return name.endsWith(rule) ? undefined : name;
};

const plan = (bundle: RuleBundle, publicKeys: string, stage?: string): PlannedFunction => ({
  ...bundle,
  ...computeFunctionSettings(bundle, publicKeys, stage),
  id: toLogicalId(bundle.name),
  functionName: findShortenedName(bundle.name, stage),
});

const buildFunction = (
  { name, functionName, summary, id, memorySize, timeout, environment, reserved, callsOut }: PlannedFunction,
  folder: string,
): Json => {
  return {
    ...(functionName !== undefined && { name: functionName }),
    handler: "index.handler",
    description: summary.slice(0, 256),
    ...runtime,
    memorySize,
    timeout,
    // The role's ARN is a Fn::Sub: for its name or Fn::GetAtt, osls adds a redundant DependsOn, and cfn-lint warns.
    role: { "Fn::Sub": toPlaceholder(`${id}Role.Arn`) },
    environment,
    ...(reserved !== undefined && { reservedConcurrency: reserved }),
    // osls would make a log group for each function. All write to the one that serverless.yml names.
    disableLogs: true,
    // Other functions need no network, and would need endpoints in the VPC for their recordings.
    ...(callsOut && { vpc: toPlaceholder("param:vpc") }),
    package: { artifact: `${folder}/${name}.zip` },
  };
};

/** Returns a function that copies a template and replaces `__name__` in its keys and strings with a variable's value. */
const openTemplate = (template: Template) => {
  const text = JSON.stringify(template);
  return (variables: Record<string, string | number>): Template =>
    JSON.parse(
      text.replace(/"__(\w+?)__"|__(\w+?)__/g, (all, whole, part) => {
        const value = variables[whole ?? part];
        if (value === undefined) return all;
        return whole ? JSON.stringify(value) : JSON.stringify(String(value)).slice(1, -1);
      }),
    );
};

const buildResources = (
  rules: PlannedFunction[],
  type: "http" | "url",
  fill: ReturnType<typeof openTemplate>,
): { Resources: Record<string, Json>; Outputs: Record<string, Json> } => {
  const common = {
    lossOutput: lostReviewsMetricOutputName,
    retentionOutput: logRetentionOutputName,
  };
  const once = fill(common);
  const each = rules.map((rule) => {
    const { id, name, timeoutSeconds, reconciles } = rule;
    // API Gateway HTTP APIs wait at most 30 s for a function.
    const milliseconds = Math.min(30_000, computeReviewSeconds(timeoutSeconds) * 1000);
    const event = JSON.stringify(reconcileEvent);
    const { both, [type]: own } = fill({ ...common, id, name, route: buildRoute(name), milliseconds, event });
    for (const resource of Object.values(both.each)) resource.Properties.Policies?.push(...buildPolicies(rule));
    return {
      resources: { ...both.each, ...own.each, ...(reconciles && both.eachSchedule) },
      outputs: { ...own.eachOutput, ...(rule.asks && both.eachOutput) },
    };
  });
  const groups = Array.from({ length: Math.ceil(rules.length / maxAlarmMetrics) }, (_, index) => {
    const some = rules.slice(index * maxAlarmMetrics, (index + 1) * maxAlarmMetrics);
    return buildGroupAlarms(
      some.map(({ id }, place) => fill({ id, place: `m${place}`, group: index + 1 }).both.eachGroup ?? {}),
    );
  });
  const resources: Resources = Object.assign(
    {},
    once[type].once,
    ...each.map(({ resources }) => resources),
    once.both.once,
    ...groups,
  );
  const alarms = Object.keys(resources).filter((id) => resources[id]?.Type === "AWS::CloudWatch::Alarm");
  return {
    Resources: { ...resources, Dashboard: buildDashboard(once, type, alarms), ...buildQueryDefinitions(rules) },
    Outputs: Object.assign({}, once[type].outputs, ...each.map(({ outputs }) => outputs)),
  };
};

const buildDashboard = (template: Template, type: "http" | "url", alarms: string[]): Json => {
  const size = { width: 8, height: 6 };
  const common = { region: toPlaceholder("AWS::Region"), period: 60, stat: "Sum" };
  const lines = Object.entries(template.both.widgets ?? {}).map(([title, metrics]) => {
    const own = template[type].widgets?.[title] ?? [];
    return { type: "metric", ...size, properties: { title, ...common, metrics: [...metrics, ...own] } };
  });
  const states = { title: "Alarms", alarms: alarms.map((id) => toPlaceholder(`${id}.Arn`)) };
  const body = { widgets: [{ type: "alarm", ...size, properties: states }, ...lines] };
  return {
    Type: "AWS::CloudWatch::Dashboard",
    Properties: {
      DashboardName: `postern-${toPlaceholder("sls:stage")}`,
      DashboardBody: { "Fn::Sub": JSON.stringify(body) },
    },
  };
};

const buildQueryDefinitions = (rules: PlannedFunction[]): Record<string, Json> => {
  const prefix = `postern-${toPlaceholder("sls:stage")}`;
  const guards = rules.filter((rule) => rule.guards);
  const queries = buildSavedQueries(guards.map(({ name, functionName }) => functionName ?? `${prefix}-${name}`));
  const resources = Object.entries(queries).map(([name, QueryString]) => {
    const Properties = { Name: `${prefix}/${name}`, LogGroupNames: [{ Ref: "FunctionsLogGroup" }], QueryString };
    const id = name.replace(/(?:^| )(\w)/g, (_, letter: string) => letter.toUpperCase());
    return [`${id}Query`, { Type: "AWS::Logs::QueryDefinition", Properties }] as const;
  });
  return Object.fromEntries(resources);
};

/** The most metrics of a CloudWatch alarm on an expression. */
const maxAlarmMetrics = 10;

/** Makes each alarm of a group of functions watch the sum of its metric, from the same alarms with one function each. */
const buildGroupAlarms = ([first = {}, ...others]: Resources[]): Resources => {
  for (const [id, { Properties }] of Object.entries(first)) {
    const metrics = [first, ...others].flatMap((alarms) => alarms[id]?.Properties.Metrics ?? []);
    const Expression = metrics.map((_, place) => `FILL(m${place}, 0)`).join(" + ");
    Properties.Metrics = [{ Id: "sum", Expression }, ...metrics];
  }
  return first;
};

/** Returns the policies of a function's role for tokens, AWS, recordings, the ledger and a VPC, but not for its log. */
const buildPolicies = ({ tokens, actions, records, ledgerRules, callsOut }: PlannedFunction): Json[] => [
  ...(tokens.length > 0 ? [buildPolicy("tokens", ...tokens.map(allowReading), ...allowDecrypting(tokens))] : []),
  // IAM allows AWS actions that describe resources only for Resource "*".
  ...(actions.length > 0 ? [buildPolicy("needs", { Effect: "Allow", Action: actions, Resource: "*" })] : []),
  ...(records.length > 0 ? [buildPolicy("records", ...records.map(allowRecording))] : []),
  // A rule that is off keeps the right, because a rollback can turn it on again.
  ...(ledgerRules.length > 0 ? [buildPolicy("ledger", allowLedger(ledgerRules))] : []),
  ...(callsOut ? [buildPolicy(networkPolicyName, ...networkStatements)] : []),
];

/** The name of the policy by which Lambda connects a function to a VPC. */
export const networkPolicyName = "network";
const networkActions = [
  "ec2:CreateNetworkInterface",
  "ec2:DescribeNetworkInterfaces",
  "ec2:DeleteNetworkInterface",
  "ec2:AssignPrivateIpAddresses",
  "ec2:UnassignPrivateIpAddresses",
  "ec2:DescribeSubnets",
];
const networkStatements: Json[] = [
  { Effect: "Allow", Action: networkActions, Resource: "*" },
  {
    // Lambda's own calls have no source function: this denies the actions to the function's code alone.
    Effect: "Deny",
    Action: networkActions,
    Resource: "*",
    Condition: {
      ArnLike: {
        "lambda:SourceFunctionArn": {
          "Fn::Sub": `arn:${toPlaceholder("AWS::Partition")}:lambda:${toPlaceholder("AWS::Region")}:${toPlaceholder("AWS::AccountId")}:function:postern-${toPlaceholder("sls:stage")}-*`,
        },
      },
    },
  },
];

const buildPolicy = (name: string, ...Statement: Json[]): Json => {
  return { PolicyName: name, PolicyDocument: { Version: "2012-10-17", Statement } };
};

const allowReading = (token: SecretPlace): Json => {
  const isSecret = "secret" in token;
  const [service, name] = isSecret ? ["secretsmanager", token.secret] : ["ssm", token.parameter];
  const path = isSecret ? `secret:${name}-??????` : `parameter/${name.replace(/^\//, "")}`;
  const own = ["AWS::Partition", "AWS::AccountId"].map(toPlaceholder);
  return {
    Effect: "Allow",
    Action: isSecret ? "secretsmanager:GetSecretValue" : "ssm:GetParameter",
    Resource: name.startsWith("arn:")
      ? name
      : { "Fn::Sub": `arn:${own[0]}:${service}:${token.region}:${own[1]}:${path}` },
  };
};

/**
 * Returns the IAM statement that allows decrypting secrets that are named by their ARNs, with keys of their accounts: a
 * secret in another account must have a key of that account. Secrets Manager names the secret whenever it uses a key.
 */
const allowDecrypting = (tokens: SecretPlace[]): Json[] => {
  const arns = tokens.flatMap((token) => ("secret" in token && token.secret.startsWith("arn:") ? [token.secret] : []));
  if (arns.length === 0) return [];
  const keys = arns.map((arn) => `${arn.split(":").slice(0, 5).join(":").replace(":secretsmanager:", ":kms:")}:key/*`);
  const Condition = { StringEquals: { "kms:EncryptionContext:SecretARN": arns } };
  return [{ Effect: "Allow", Action: "kms:Decrypt", Resource: [...new Set(keys)], Condition }];
};

/** Returns an IAM statement that allows writing recordings of one cluster and rule, not reading or listing. */
const allowRecording = (place: string): Json => ({
  Effect: "Allow",
  Action: "s3:PutObject",
  Resource: { "Fn::Sub": `arn:${toPlaceholder("AWS::Partition")}:s3:::${place}*` },
});

/** Returns an IAM statement that allows reading and writing the ledger's values whose keys begin with these rules' names. */
const allowLedger = (rules: string[]): Json => ({
  Effect: "Allow",
  Action: ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:ConditionCheckItem"],
  Resource: {
    "Fn::Sub": `arn:${toPlaceholder("AWS::Partition")}:dynamodb:${toPlaceholder("AWS::Region")}:${toPlaceholder("AWS::AccountId")}:table/${buildLedgerTableName(toPlaceholder("sls:stage"))}`,
  },
  Condition: { "ForAllValues:StringLike": { "dynamodb:LeadingKeys": rules.map((rule) => `${rule}/*`) } },
});

/**
 * Returns the API Gateway route of a rule's function. The path variable `cluster` holds `{cluster}.{key}`, so that no
 * key is in a template, a logical id or a log.
 */
export const buildRoute = (name: string) => `POST /{cluster}/${name}/{phase+}`;

/** The name of the CloudFormation output whose presence says that the access log shows which reviews are lost. */
export const lostReviewsMetricOutputName = "LossMetric";

/** The name of the CloudFormation output that says how long logs are kept, such as `14 days`. */
export const logRetentionOutputName = "LogRetention";
