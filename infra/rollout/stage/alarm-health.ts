import type { StageAlarm } from "../../aws/alarms.ts";
import type { CloudWatchMetricQuery, StageMetricsReader } from "../../aws/metrics.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { toSentence } from "../../cli/complaint.ts";

/** What postern status found about an alarm. It can ring if a subscriber gets a message when its state changes. */
export interface AlarmHealth {
  alarm: string;
  state: string;
  topics: string[];
  /** False if the alarm can't ring; null if that is unknown. */
  canRing: boolean | null;
  /** Why the alarm can't ring, or why that is unknown. */
  reasons: string[];
  /** Why the alarm is in its state, for instance "postern-prod-pods has 3 Errors in 15 minutes". */
  causes: string[];
}

/** The minutes before now in which causes are counted. Metrics may be late, so it is longer than alarms evaluate. */
const causeMinutes = 15;

/**
 * Reads a stage's alarms, and checks whether each can ring: it needs a topic with a subscriber, and it must watch
 * functions of `live` rules.
 */
export const checkStageAlarms = async (
  { alarms, functions, metrics }: Pick<AwsStage, "alarms" | "functions" | "metrics">,
  live: string[],
): Promise<AlarmHealth[]> => {
  const found = await alarms.list();
  const topics = [...new Set(found.flatMap((alarm) => alarm.topics))];
  const faults = new Map(
    await Promise.all(
      topics.map(async (topic) => [topic, await findTopicFault(alarms.countSubscriptions(topic), topic)] as const),
    ),
  );
  const liveFunctions = new Set(live.map((rule) => functions.getFunctionName(rule)));
  const causes = await Promise.all(found.map((alarm) => findCausesOfState(metrics, alarm)));
  return found.map((alarm, index) => {
    const problems = listAlarmProblems(alarm, liveFunctions);
    const topicFaults = alarm.topics.flatMap((topic) => faults.get(topic) ?? []);
    const hasSubscriber = topicFaults.length < alarm.topics.length;
    const isUnknown = !hasSubscriber && topicFaults.some(({ isSubscriberUnknown }) => isSubscriberUnknown);
    const canReachSubscriber = isUnknown ? null : hasSubscriber;
    return {
      alarm: alarm.name,
      state: alarm.state,
      topics: alarm.topics,
      canRing: problems.length > 0 ? false : canReachSubscriber,
      reasons: [...problems, ...topicFaults.map(({ sentence }) => sentence)],
      causes: causes[index] ?? [],
    };
  });
};

const listAlarmProblems = ({ isEnabled, topics, functions }: StageAlarm, liveFunctions: Set<string>): string[] => [
  ...(isEnabled ? [] : ["its actions are disabled; aws cloudwatch enable-alarm-actions enables them"]),
  ...(topics.length > 0 ? [] : ["it has no topic; alarmTopics in serverless.yml takes ARNs of SNS topics"]),
  ...functions
    .filter(({ name }) => !liveFunctions.has(name))
    .map(({ name }) => `it watches ${name}, which doesn't exist or has no live version`),
];

/** Describes why an alarm is in its state: what Lambda counted of each function, or that a schedule makes no calls. */
const findCausesOfState = async (metrics: StageMetricsReader, alarm: StageAlarm): Promise<string[]> => {
  const { state, functions, properties } = alarm;
  if (state === "INSUFFICIENT_DATA" && properties.TreatMissingData === "missing")
    return [`${functions.map(({ name }) => name).join(", ")} has not been called by its schedule`];
  if (state !== "ALARM" || functions.length === 0) return [];
  const now = Date.now();
  const queries = Object.fromEntries(
    functions.map(({ name, metric }): [string, CloudWatchMetricQuery] => [
      name,
      { namespace: "AWS/Lambda", metric, dimensions: { FunctionName: name }, stat: "Sum" },
    ]),
  );
  try {
    const counts = await metrics.ask(queries, new Date(now - causeMinutes * 60_000), new Date(now));
    return functions.flatMap(({ name, metric }) =>
      counts[name] ? [`${name} has ${counts[name]} ${metric} in ${causeMinutes} minutes`] : [],
    );
  } catch (error) {
    return [`what it counts of each function can't be read: ${toSentence(error)}`];
  }
};

/** Returns why a topic has no subscriber, or why that is unknown; undefined if it has one. */
const findTopicFault = async (count: Promise<number | undefined>, topic: string) => {
  try {
    const confirmed = await count;
    if (confirmed === undefined) return { sentence: `the topic ${topic} doesn't exist` };
    return confirmed > 0 ? undefined : { sentence: `the topic ${topic} has no confirmed subscription` };
  } catch (error) {
    return { isSubscriberUnknown: true, sentence: `the subscriptions of ${topic} can't be read: ${toSentence(error)}` };
  }
};
