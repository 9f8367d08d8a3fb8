import type { StageAlarm } from "../../aws/alarms.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { toSentence } from "../../cli/complaint.ts";

/** What postern status found about an alarm. An alarm can ring if a change of its state would reach a subscriber. */
export interface AlarmHealth {
  alarm: string;
  state: string;
  topics: string[];
  /** False if the alarm can't ring; null if that is unknown. */
  canRing: boolean | null;
  /** Why the alarm can't ring, or why that is unknown. */
  reasons: string[];
}

/** Reads a stage's alarms, and checks whether each can ring: its topics, and the functions that it watches, which are those of `live` rules. */
export const checkStageAlarms = async (
  { alarms, functions }: Pick<AwsStage, "alarms" | "functions">,
  live: string[],
): Promise<AlarmHealth[]> => {
  const found = await alarms.list();
  const topics = [...new Set(found.flatMap((alarm) => alarm.topics))];
  const faults = new Map(
    await Promise.all(
      topics.map(async (topic) => [topic, await findTopicFault(alarms.countSubscriptions(topic), topic)] as const),
    ),
  );
  const names = new Set(live.map((rule) => functions.getFunctionName(rule)));
  return found.map((alarm) => {
    const problems = listAlarmProblems(alarm, names);
    const ofTopics = alarm.topics.flatMap((topic) => faults.get(topic) ?? []);
    const isReached = ofTopics.length < alarm.topics.length;
    const isUnknown = !isReached && ofTopics.some(({ isKnown }) => !isKnown);
    return {
      alarm: alarm.name,
      state: alarm.state,
      topics: alarm.topics,
      canRing: problems.length > 0 ? false : isReached ? true : isUnknown ? null : false,
      reasons: [...problems, ...ofTopics.map(({ sentence }) => sentence)],
    };
  });
};

const listAlarmProblems = ({ isEnabled, topics, functions }: StageAlarm, names: Set<string>): string[] => [
  ...(isEnabled ? [] : ["its actions are disabled; aws cloudwatch enable-alarm-actions enables them"]),
  ...(topics.length > 0 ? [] : ["it has no topic; alarmTopics in serverless.yml takes ARNs of SNS topics"]),
  ...functions
    .filter((name) => !names.has(name))
    .map((name) => `it watches ${name}, which doesn't exist or has no live version`),
];

/** Returns why a topic reaches no subscriber, or why that is unknown. */
const findTopicFault = async (count: Promise<number | undefined>, topic: string) => {
  try {
    const confirmed = await count;
    if (confirmed === undefined) return { isKnown: true, sentence: `the topic ${topic} doesn't exist` };
    return confirmed > 0 ? undefined : { isKnown: true, sentence: `the topic ${topic} has no confirmed subscription` };
  } catch (error) {
    return { isKnown: false, sentence: `the subscriptions of ${topic} can't be read: ${toSentence(error)}` };
  }
};
