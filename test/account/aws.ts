import { ApiGatewayV2 } from "@aws-sdk/client-apigatewayv2";
import { CloudFormation, paginateListStackResources } from "@aws-sdk/client-cloudformation";
import { CloudWatch, paginateDescribeAlarms, paginateGetMetricData } from "@aws-sdk/client-cloudwatch";
import { CloudWatchLogs, paginateDescribeLogGroups } from "@aws-sdk/client-cloudwatch-logs";
import { IAM, paginateListRoles } from "@aws-sdk/client-iam";
import { Lambda, paginateListFunctions } from "@aws-sdk/client-lambda";
import { S3 } from "@aws-sdk/client-s3";
import { paginateGetParametersByPath, SSM } from "@aws-sdk/client-ssm";
import { getAccessLogGroup } from "../../infra/aws/log-queries.ts";
import { createAwsStageClients } from "../../infra/aws/stage.ts";

// Reads an account with AWS's own clients, independently of Postern's commands.

const options = { maxAttempts: 8 };

export const openClients = () => ({
  gateway: new ApiGatewayV2(options),
  cloudformation: new CloudFormation(options),
  cloudwatch: new CloudWatch(options),
  logs: new CloudWatchLogs(options),
  iam: new IAM(options),
  lambda: new Lambda(options),
  s3: new S3(options),
  ssm: new SSM(options),
});

export type Clients = ReturnType<typeof openClients>;

/** Returns the items of all pages. */
const collect = async <Page, T>(pages: AsyncIterable<Page>, select: (page: Page) => T[] | undefined): Promise<T[]> => {
  const items: T[] = [];
  for await (const page of pages) items.push(...(select(page) ?? []));
  return items;
};

export const listStackResources = (client: CloudFormation, stage: string) =>
  collect(
    paginateListStackResources({ client }, { StackName: `postern-${stage}` }),
    ({ StackResourceSummaries }) => StackResourceSummaries,
  );

/** Returns the alarms of a stage's stack. */
export const readAlarms = async ({ cloudformation, cloudwatch: client }: Clients, stage: string) => {
  const resources = await listStackResources(cloudformation, stage);
  const names = resources.flatMap(({ ResourceType, PhysicalResourceId = "" }) =>
    ResourceType === "AWS::CloudWatch::Alarm" ? [PhysicalResourceId] : [],
  );
  return collect(paginateDescribeAlarms({ client }, { AlarmNames: names }), ({ MetricAlarms }) => MetricAlarms);
};

export interface MetricQuestion {
  namespace: string;
  metric: string;
  dimensions: Record<string, string>;
  stat: "Sum" | "SampleCount";
  since: number;
}

/** Returns the value of a metric for each minute that has one. */
export const readMinutes = ({ cloudwatch: client }: Clients, question: MetricQuestion): Promise<number[]> => {
  const { namespace, metric, dimensions, stat, since } = question;
  const Dimensions = Object.entries(dimensions).map(([Name, Value]) => ({ Name, Value }));
  const Metric = { Namespace: namespace, MetricName: metric, Dimensions };
  const minute = 60_000;
  const query = {
    StartTime: new Date(Math.floor(since / minute) * minute),
    EndTime: new Date(Math.ceil(Date.now() / minute) * minute + minute),
    MetricDataQueries: [{ Id: "found", MetricStat: { Metric, Period: 60, Stat: stat } }],
  };
  return collect(paginateGetMetricData({ client }, query), ({ MetricDataResults = [] }) =>
    MetricDataResults.flatMap(({ Values = [] }) => Values),
  );
};

/** Returns a metric's sum, or its number of values, since a time in milliseconds. */
export const sumMetric = async (clients: Clients, question: MetricQuestion): Promise<number> =>
  (await readMinutes(clients, question)).reduce((sum, value) => sum + value, 0);

/** Returns the resource policies of CloudWatch Logs that name one of these log groups. */
export const listPoliciesNaming = async ({ logs: client }: Clients, logGroups: string[]): Promise<string[]> => {
  // A region has at most ten such policies, so one page is enough.
  const { resourcePolicies = [] } = await client.describeResourcePolicies({ limit: 50 });
  const names = logGroups.map((group) => new RegExp(`log-group:${RegExp.escape(group)}[:*"]`));
  return resourcePolicies.flatMap(({ policyName = "", policyDocument = "" }) =>
    names.some((name) => name.test(policyDocument)) ? [policyName] : [],
  );
};

/** Returns the saved queries of CloudWatch Logs Insights whose names begin with `prefix`. */
export const listSavedQueries = async (
  { logs }: Clients,
  prefix: string,
): Promise<{ name: string; query: string }[]> => {
  const input = { queryDefinitionNamePrefix: prefix, maxResults: 1000 };
  const { queryDefinitions = [] } = await logs.describeQueryDefinitions(input);
  return queryDefinitions.map(({ name = "", queryString = "" }) => ({ name, query: queryString }));
};

/**
 * Lists the resources in the account whose names contain the name of one of these stages, as `bucket postern-try-…`.
 */
export const listResources = async (clients: Clients, stages: string[]): Promise<string[]> => {
  const isOfStages = (name: string, prefix = "postern-") =>
    stages.some((stage) => name === `${prefix}${stage}` || name.startsWith(`${prefix}${stage}-`));
  const select = (kind: string, names: (string | undefined)[], prefix?: string) =>
    names.flatMap((name = "") => (isOfStages(name, prefix) ? [`${kind} ${name}`] : []));
  const { cloudformation, cloudwatch, logs, iam, lambda, s3, ssm, gateway } = clients;
  const stacks = stages.map(async (stage) => {
    const description = await cloudformation.describeStacks({ StackName: `postern-${stage}` }).catch((error: Error) => {
      if (/does not exist/.test(error.message)) return { Stacks: [] };
      throw error;
    });
    return (description.Stacks ?? []).map(({ StackStatus }) => `stack postern-${stage} (${StackStatus})`);
  });
  const functions = await collect(paginateListFunctions({ client: lambda }, {}), ({ Functions }) => Functions);
  const roles = await collect(paginateListRoles({ client: iam }, {}), ({ Roles }) => Roles);
  const groups = ["/aws/lambda/", "/aws/vendedlogs/"].map(async (prefix) => {
    const wanted = { logGroupNamePrefix: `${prefix}postern-` };
    const found = await collect(paginateDescribeLogGroups({ client: logs }, wanted), ({ logGroups }) => logGroups);
    return select(
      "log group",
      found.map(({ logGroupName }) => logGroupName),
      `${prefix}postern-`,
    );
  });
  const parameters = stages.map(async (stage) => {
    const found = paginateGetParametersByPath({ client: ssm }, { Path: `/postern/${stage}/` });
    return (await collect(found, ({ Parameters }) => Parameters)).map(({ Name }) => `parameter ${Name}`);
  });
  const tables = stages.map(async (stage) => {
    const { ledger } = createAwsStageClients(stage);
    return (await ledger.readFaults()) === undefined ? [] : [`table ${ledger.name}`];
  });
  const policies = await listPoliciesNaming(clients, stages.map(getAccessLogGroup));
  const alarms = paginateDescribeAlarms({ client: cloudwatch }, { AlarmNamePrefix: "postern-" });
  const [{ Items: apis = [] }, { Buckets = [] }, { DashboardEntries = [] }, queries] = await Promise.all([
    gateway.getApis({ MaxResults: "500" }),
    s3.listBuckets({}),
    cloudwatch.listDashboards({ DashboardNamePrefix: "postern-" }),
    listSavedQueries(clients, "postern-"),
  ]);
  const nameOf = ({ Name }: { Name?: string | undefined }) => Name;
  return [
    ...(await Promise.all(stacks)).flat(),
    ...select(
      "function",
      functions.map(({ FunctionName }) => FunctionName),
    ),
    ...(await Promise.all(groups)).flat(),
    ...policies.map((name) => `resource policy ${name}, which names a log group of a stage`),
    ...(await Promise.all(tables)).flat(),
    ...select("HTTP API", apis.map(nameOf)),
    ...select(
      "alarm",
      (await collect(alarms, ({ MetricAlarms }) => MetricAlarms)).map(({ AlarmName }) => AlarmName),
    ),
    ...select(
      "dashboard",
      DashboardEntries.map(({ DashboardName }) => DashboardName),
    ),
    ...select(
      "saved query",
      // A saved query is named `postern-STAGE/NAME`.
      queries.map(({ name }) => name.replaceAll("/", "-")),
    ),
    ...(await Promise.all(parameters)).flat(),
    ...select("bucket", Buckets.map(nameOf)),
    ...select(
      "role",
      roles.map(({ RoleName }) => RoleName),
    ),
  ];
};
