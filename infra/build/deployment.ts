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

/** The content of resources.yaml, by endpoint type: the resources and outputs of the CloudFormation stack. */
type Template = Record<
  "both" | "http" | "url",
  {
    /** The resources that a stack has once. */
    once: Resources;
    /** The resources for each function. */
    each: Resources;
    /** The alarms for each group of functions that one alarm can watch. */
    eachGroup?: Resources;
    /** The resources for each function that a schedule calls. */
    eachSchedule?: Resources;
    /** The metrics of the dashboard's widgets, by title. */
    widgets?: Record<string, Json[]>;
    outputs: Record<string, Json>;
    eachOutput: Record<string, Json>;
  }
>;

/** A bundle with the settings of its Lambda function. */
interface PlannedFunction extends RuleBundle, LambdaFunctionSettings {
  /** The beginning of all logical ids of the rule in CloudFormation, made from the rule's name as osls does. */
  id: string;
  /** The function's name; undefined if osls gives it the right name. */
  functionName: string | undefined;
}

const runtime = { runtime: "nodejs24.x", architecture: "arm64" };
/** Returns the text `${name}`. In serverless.yml, osls replaces it by a value; in Fn::Sub, CloudFormation does. */
const toPlaceholder = (name: string) => `\${${name}}`;

/**
 * Writes the files that serverless.yml includes: `functions.json`, and `http.json` and `url.json` for the two endpoint
 * types. Without `stage`, osls inserts the stage's name later, and names of functions are not shortened. Returns the
 * number of resources in the smaller of the two stacks: if CloudFormation refuses even that, a build fails.
 */
export const writeServerlessIncludes = async (
  bundles: RuleBundle[],
  publicKeys: string,
  outDir: string,
  stage?: string,
): Promise<number> => {
  const functions = bundles.map((bundle) => planFunction(bundle, publicKeys, stage));
  await mkdir(outDir, { recursive: true });
  const write = (file: string, content: Json) => writeFile(join(outDir, file), `${JSON.stringify(content, null, 2)}\n`);
  await write(
    "functions.json",
    Object.fromEntries(functions.map((planned) => [planned.name, buildFunction(planned, basename(outDir))])),
  );
  const template = parse(await readFile(new URL("resources.yaml", import.meta.url), "utf8"), { merge: true });
  const fillTemplate = openTemplate(template);
  const counts: number[] = [];
  for (const type of ["http", "url"] as const) {
    const resources = buildResources(functions, type, fillTemplate);
    await write(`${type}.json`, resources);
    // osls adds the functions, the bucket and its policy.
    counts.push(Object.keys(resources.Resources).length + functions.length + 2);
  }
  return Math.min(...counts);
};

/** What the settings of a function depend on. */
type ConfiguredBundle = Pick<
  RuleBundle,
  "name" | "timeoutSeconds" | "keysHash" | "runsCue" | "opensLedger" | "reconciles"
>;

/** Returns memory, timeout and environment variables of a function. */
export const computeFunctionSettings = (
  { name, timeoutSeconds, keysHash, runsCue, opensLedger, reconciles }: ConfiguredBundle,
  publicKeys: string,
  stage?: string,
): LambdaFunctionSettings => ({
  // CUE takes up to half of a function's memory, and Lambda gives more CPU with more memory.
  memorySize: runsCue ? 1024 : 256,
  timeout: reconciles ? reconcileSeconds : computeReviewSeconds(timeoutSeconds),
  environment: {
    POSTERN_KEYS: publicKeys,
    POSTERN_STAGE: stage ?? toPlaceholder("sls:stage"),
    // The hash of the file that says which keys of clusters this version accepts. A rollback compares it.
    POSTERN_CLUSTERS: keysHash,
    ...(findShortenedName(name, stage) !== undefined && { POSTERN_RULE: name }),
    ...(opensLedger && { POSTERN_LEDGER: buildLedgerTableName(stage ?? toPlaceholder("sls:stage")) }),
  },
});

/** The timeout of a function that a schedule calls, in seconds. The schedule has the same interval. */
const reconcileSeconds = 60;

/** The longest time in milliseconds that an integration of an HTTP API may take. */
export const longestIntegration = 30_000;

/** Returns the timeout of a function in seconds: longer than an API server waits for it, and at least 10. */
const computeReviewSeconds = (timeoutSeconds: number): number => Math.max(10, timeoutSeconds + 1);

/**
 * Returns the function's name if Lambda's limit requires a shorter one than osls, the deployment tool, would give it;
 * undefined if not. Without `stage`, the name isn't known, and osls names the function.
 */
const findShortenedName = (rule: string, stage?: string): string | undefined => {
  if (stage === undefined) return undefined;
  const name = buildFunctionName(stage, rule);
  const isShortened = !name.endsWith(rule);
  return isShortened ? name : undefined;
};

const planFunction = (bundle: RuleBundle, publicKeys: string, stage?: string): PlannedFunction => ({
  ...bundle,
  ...computeFunctionSettings(bundle, publicKeys, stage),
  id: toLogicalId(bundle.name),
  functionName: findShortenedName(bundle.name, stage),
});

/** Returns a function's section in functions.json. */
const buildFunction = (
  { name, functionName, summary, id, memorySize, timeout, environment, reserved, callsOut }: PlannedFunction,
  folder: string,
): Json => ({
  ...(functionName !== undefined && { name: functionName }),
  handler: "index.handler",
  description: summary.slice(0, 256),
  ...runtime,
  memorySize,
  timeout,
  // For a role's name or a Fn::GetAtt, osls would add a redundant DependsOn, of which cfn-lint warns.
  role: { "Fn::Sub": toPlaceholder(`${id}Role.Arn`) },
  environment,
  ...(reserved !== undefined && { reservedConcurrency: reserved }),
  // All functions write to the log group in serverless.yml, so osls must not create one for each function.
  disableLogs: true,
  // Functions that call nothing stay outside the VPC: inside, they would need a NAT gateway or an endpoint of S3 to
  // record reviews.
  ...(callsOut && { vpc: toPlaceholder("param:vpc") }),
  package: { artifact: `${folder}/${name}.zip` },
});

/**
 * Returns a function that copies a template and replaces each `__name__` in its keys and texts by the variable `name`.
 * A text that is only `"__name__"` is replaced by the value itself, which may be a number.
 */
const openTemplate = (template: Template) => {
  const text = JSON.stringify(template);
  return (variables: Record<string, string | number>): Template =>
    JSON.parse(
      text.replace(/"__(\w+?)__"|__(\w+?)__/g, (matched, nameOfText, nameInText) => {
        const value = variables[nameOfText ?? nameInText];
        if (value === undefined) return matched;
        return nameOfText ? JSON.stringify(value) : JSON.stringify(String(value)).slice(1, -1);
      }),
    );
};

/**
 * Returns a stack's resources and outputs for one endpoint type, except the functions and the bucket. The template has
 * parts for `both` types and for each type: `once` and `outputs` are for the stack; `each`, `eachOutput`,
 * `eachSchedule` and `eachGroup` are copied for each function. `buildGroupAlarms` merges the copies of `eachGroup`.
 */
const buildResources = (
  functions: PlannedFunction[],
  type: "http" | "url",
  fillTemplate: ReturnType<typeof openTemplate>,
): { Resources: Record<string, Json>; Outputs: Record<string, Json> } => {
  const common = { lossOutput: lostReviewsMetricOutputName, retentionOutput: logRetentionOutputName };
  const stackTemplate = fillTemplate(common);
  const ofFunctions = functions.map((planned) => {
    const { id, name, timeoutSeconds, reconciles } = planned;
    const milliseconds = Math.min(longestIntegration, computeReviewSeconds(timeoutSeconds) * 1000);
    const event = JSON.stringify(reconcileEvent);
    const variables = { ...common, id, name, route: buildRoute(name), milliseconds, event };
    const { both, [type]: ofType } = fillTemplate(variables);
    for (const resource of Object.values(both.each)) resource.Properties.Policies?.push(...buildPolicies(planned));
    return {
      resources: { ...both.each, ...ofType.each, ...(reconciles && both.eachSchedule) },
      outputs: { ...ofType.eachOutput, ...(planned.readsCluster && both.eachOutput) },
    };
  });
  const groups = Array.from({ length: Math.ceil(functions.length / maxAlarmMetrics) }, (_, index) => {
    const watched = functions.slice(index * maxAlarmMetrics, (index + 1) * maxAlarmMetrics);
    return buildGroupAlarms(
      watched.map(({ id }, place) => {
        const { both } = fillTemplate({ id, place: toMetricId(place), group: index + 1 });
        return both.eachGroup ?? {};
      }),
    );
  });
  const resources: Resources = Object.assign(
    {},
    stackTemplate[type].once,
    ...ofFunctions.map(({ resources }) => resources),
    stackTemplate.both.once,
    ...groups,
  );
  const alarms = Object.keys(resources).filter((id) => resources[id]?.Type === "AWS::CloudWatch::Alarm");
  return {
    Resources: {
      ...resources,
      Dashboard: buildDashboard(stackTemplate, type, alarms),
      ...buildQueryDefinitions(functions),
    },
    Outputs: Object.assign({}, stackTemplate[type].outputs, ...ofFunctions.map(({ outputs }) => outputs)),
  };
};

/** Returns the CloudWatch dashboard of a stage: a widget with all alarms, and widgets with metrics. */
const buildDashboard = (template: Template, type: "http" | "url", alarms: string[]): Json => {
  const size = { width: 8, height: 6 };
  const common = { region: toPlaceholder("AWS::Region"), period: 60, stat: "Sum" };
  const lines = Object.entries(template.both.widgets ?? {}).map(([title, metrics]) => {
    const metricsOfType = template[type].widgets?.[title] ?? [];
    return { type: "metric", ...size, properties: { title, ...common, metrics: [...metrics, ...metricsOfType] } };
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

/** Returns the saved queries of a stage's log in CloudWatch. */
const buildQueryDefinitions = (functions: PlannedFunction[]): Record<string, Json> => {
  const prefix = `postern-${toPlaceholder("sls:stage")}`;
  // Guards are functions with a rule that refuses for security reasons. One of the queries is about their failures.
  const guards = functions.filter((planned) => planned.guards);
  const queries = buildSavedQueries(guards.map(({ name, functionName }) => functionName ?? `${prefix}-${name}`));
  const resources = Object.entries(queries).map(([name, QueryString]) => {
    const Properties = { Name: `${prefix}/${name}`, LogGroupNames: [{ Ref: "FunctionsLogGroup" }], QueryString };
    // For instance "slow reviews" becomes "SlowReviews".
    const id = name.replace(/(?:^| )(\w)/g, (_, letter: string) => letter.toUpperCase());
    return [`${id}Query`, { Type: "AWS::Logs::QueryDefinition", Properties }] as const;
  });
  return Object.fromEntries(resources);
};

/** The most metrics that an expression of a CloudWatch alarm may have. */
const maxAlarmMetrics = 10;

/** Returns the id of a function's metric in an alarm for several functions, of which it is the one at index `place`. */
const toMetricId = (place: number) => `m${place}`;

/**
 * Merges the alarms of several functions: each alarm then watches the sum of its metric for all these functions. The
 * metrics already have the ids of `toMetricId`, in the order of the functions.
 */
const buildGroupAlarms = ([first = {}, ...others]: Resources[]): Resources => {
  for (const [id, { Properties }] of Object.entries(first)) {
    const metrics = [first, ...others].flatMap((alarms) => alarms[id]?.Properties.Metrics ?? []);
    const Expression = metrics.map((_, place) => `FILL(${toMetricId(place)}, 0)`).join(" + ");
    Properties.Metrics = [{ Id: "sum", Expression }, ...metrics];
  }
  return first;
};

/** Returns the policies of a function's role, except the right to write its log, which resources.yaml has. */
const buildPolicies = ({ tokens, actions, records, ledgerRules, callsOut }: PlannedFunction): Json[] => [
  ...(tokens.length > 0 ? [buildPolicy("tokens", ...tokens.map(allowReading), ...allowDecrypting(tokens))] : []),
  // IAM allows AWS actions that describe resources only for Resource "*".
  ...(actions.length > 0 ? [buildPolicy("needs", { Effect: "Allow", Action: actions, Resource: "*" })] : []),
  ...(records.length > 0 ? [buildPolicy("records", ...records.map(allowRecording))] : []),
  // The ledger is a table with rules' own data. A rule that is off keeps its right: a rollback can turn it on again.
  ...(ledgerRules.length > 0 ? [buildPolicy("ledger", allowLedger(ledgerRules))] : []),
  // A function that calls services over the network can be in a VPC. Lambda needs rights to connect it to the VPC.
  ...(callsOut ? [buildPolicy(networkPolicyName, ...networkStatements)] : []),
];

/** The name of the policy that lets Lambda connect a function to a VPC. */
export const networkPolicyName = "network";
/** The rights that Lambda needs to connect a function to a VPC. */
const networkActions = [
  "ec2:CreateNetworkInterface",
  "ec2:DescribeNetworkInterfaces",
  "ec2:DeleteNetworkInterface",
  "ec2:AssignPrivateIpAddresses",
  "ec2:UnassignPrivateIpAddresses",
  "ec2:DescribeSubnets",
];
/** The IAM statements for functions in a VPC. */
const networkStatements: Json[] = [
  { Effect: "Allow", Action: networkActions, Resource: "*" },
  {
    // Denies the actions to the code of functions. Lambda's own calls have no SourceFunctionArn, so they stay allowed.
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

/** Returns the IAM statement that allows reading one secret or parameter. */
const allowReading = (token: SecretPlace): Json => {
  const isSecret = "secret" in token;
  const [service, name] = isSecret ? ["secretsmanager", token.secret] : ["ssm", token.parameter];
  // The ARN of a secret ends with a hyphen and six random characters.
  const path = isSecret ? `secret:${name}-??????` : `parameter/${name.replace(/^\//, "")}`;
  const [partition, account] = ["AWS::Partition", "AWS::AccountId"].map(toPlaceholder);
  return {
    Effect: "Allow",
    Action: isSecret ? "secretsmanager:GetSecretValue" : "ssm:GetParameter",
    Resource: name.startsWith("arn:")
      ? name
      : { "Fn::Sub": `arn:${partition}:${service}:${token.region}:${account}:${path}` },
  };
};

/**
 * Returns the IAM statement that allows decrypting secrets that are named by ARN: a secret may be in another account,
 * which then has its key, too. The statement allows any key of the secret's account, but only to decrypt these secrets.
 */
const allowDecrypting = (tokens: SecretPlace[]): Json[] => {
  const arns = tokens.flatMap((token) => ("secret" in token && token.secret.startsWith("arn:") ? [token.secret] : []));
  if (arns.length === 0) return [];
  const keys = arns.map((arn) => `${arn.split(":").slice(0, 5).join(":").replace(":secretsmanager:", ":kms:")}:key/*`);
  const Condition = { StringEquals: { "kms:EncryptionContext:SecretARN": arns } };
  return [{ Effect: "Allow", Action: "kms:Decrypt", Resource: [...new Set(keys)], Condition }];
};

/** Returns an IAM statement that allows writing recordings of one cluster and rule. They can't be read or listed. */
const allowRecording = (place: string): Json => ({
  Effect: "Allow",
  Action: "s3:PutObject",
  Resource: { "Fn::Sub": `arn:${toPlaceholder("AWS::Partition")}:s3:::${place}*` },
});

/** Returns an IAM statement that allows reading and writing the values of these rules in the ledger. */
const allowLedger = (rules: string[]): Json => ({
  Effect: "Allow",
  Action: ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:ConditionCheckItem"],
  Resource: {
    "Fn::Sub": `arn:${toPlaceholder("AWS::Partition")}:dynamodb:${toPlaceholder("AWS::Region")}:${toPlaceholder("AWS::AccountId")}:table/${buildLedgerTableName(toPlaceholder("sls:stage"))}`,
  },
  Condition: { "ForAllValues:StringLike": { "dynamodb:LeadingKeys": rules.map((rule) => `${rule}/*`) } },
});

/**
 * Returns the API Gateway route of a rule's function. The value of its variable `cluster` is a cluster's name and key.
 * Because it is a variable, keys are not in templates, logical ids or logs.
 */
export const buildRoute = (name: string) => `POST /{cluster}/${name}/{phase+}`;

/** The name of a CloudFormation output. A stack with this output has an access log that shows lost reviews. */
export const lostReviewsMetricOutputName = "LossMetric";

/** The name of the CloudFormation output with the time for which logs are kept, such as `14 days`. */
export const logRetentionOutputName = "LogRetention";
