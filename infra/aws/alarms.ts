import { CloudWatch, type MetricAlarm, paginateDescribeAlarms } from "#aws/client-cloudwatch";
import { sendRequest } from "#lib/cluster/https-request.ts";
import { type AwsKeys, signHeaders } from "#lib/cluster/signature.ts";
import { findServiceUrl, openAwsClient } from "./client.ts";
import { alarmType, type StageStack } from "./stack.ts";

/** The number of names that one call of DescribeAlarms takes. */
const mostAlarmNames = 100;

/** An alarm of a stage in CloudWatch. */
export interface StageAlarm {
  name: string;
  state: string;
  /** True if the alarm's actions are enabled. */
  isEnabled: boolean;
  /** The ARNs of the SNS topics that the alarm notifies. */
  topics: string[];
  /** The Lambda functions that the alarm watches, each with the name of the metric. */
  functions: { name: string; metric: string }[];
  /** The alarm as CloudWatch returns it. */
  properties: MetricAlarm;
}

/** Reads the alarms of a stage and the subscriptions of their topics. */
export interface StageAlarmsReader {
  list(): Promise<StageAlarm[]>;
  /** Returns the number of confirmed subscriptions of an SNS topic; undefined if the topic doesn't exist. */
  countSubscriptions(topic: string): Promise<number | undefined>;
}

/** Reads the CloudWatch alarms of a stage. */
export const createStageAlarmsReader = (
  stack: StageStack,
  readIdentity: () => Promise<AwsKeys>,
): StageAlarmsReader => ({
  list: async () => {
    const client = openAwsClient(CloudWatch, { maxAttempts: 5 });
    const resources = await stack.listResources();
    const names = resources.flatMap(({ type, name }) => (type === alarmType ? [name] : []));
    const found: StageAlarm[] = [];
    // DescribeAlarms without names would return every alarm of the account.
    for (let first = 0; first < names.length; first += mostAlarmNames) {
      const AlarmNames = names.slice(first, first + mostAlarmNames);
      for await (const { MetricAlarms = [] } of paginateDescribeAlarms({ client }, { AlarmNames }))
        found.push(...MetricAlarms.map(readAlarm));
    }
    return found;
  },
  countSubscriptions: async (topic) => countSubscriptions(topic, await readIdentity()),
});

/** Returns the state of an alarm, its topics, and the functions and metrics that it watches. */
const readAlarm = (properties: MetricAlarm): StageAlarm => {
  const { AlarmName: name = "", StateValue, ActionsEnabled = true, AlarmActions = [], Metrics = [] } = properties;
  const metrics = [properties, ...Metrics.flatMap(({ MetricStat }) => MetricStat?.Metric ?? [])];
  const functions = metrics.flatMap(({ MetricName: metric = "", Dimensions = [] }) =>
    Dimensions.flatMap(({ Name, Value = "" }) => (Name === "FunctionName" ? [{ name: Value, metric }] : [])),
  );
  return { name, state: String(StateValue), isEnabled: ActionsEnabled, topics: AlarmActions, functions, properties };
};

/** Returns how many confirmed subscriptions an SNS topic has; undefined if there is no such topic. Uses no SDK. */
const countSubscriptions = async (topic: string, identity: AwsKeys): Promise<number | undefined> => {
  const [, , , region = ""] = topic.split(":");
  const { origin, host } = findServiceUrl("SNS", region);
  const query = { Action: "GetTopicAttributes", TopicArn: topic, Version: "2010-03-31" };
  const headers = signHeaders({ method: "GET", host, path: "/", query, service: "sns", region }, identity, new Date());
  const url = `${origin}/?${new URLSearchParams(query)}`;
  const answer = await sendRequest(url, { method: "GET", headers }, undefined, Date.now() + 10_000);
  const text = answer.body;
  if (answer.status === 404) return undefined;
  const [, count] = /<key>SubscriptionsConfirmed<\/key>\s*<value>(\d+)</.exec(text) ?? [];
  if (count !== undefined) return Number(count);
  const [, message] = /<Message>([^<]*)</.exec(text) ?? [];
  throw new Error(message ?? `SNS answers ${answer.status}`);
};
