import type { CloudFormation } from "./cloudformation.ts";
import { type Invocation, type Lambda, parseFunctionName } from "./lambda.ts";

/**
 * Invokes the target functions of all enabled EventBridge rules with a schedule, as EventBridge does once a minute.
 * Throws if a function's policy doesn't allow the call.
 */
export const runSchedules = async (
  { stacks }: Pick<CloudFormation, "stacks">,
  lambda: Lambda,
): Promise<Invocation[]> => {
  const resources = [...stacks.values()].flatMap((stack) => [...stack.resources.values()]);
  const rules = resources.filter(({ type }) => type === "AWS::Events::Rule");
  const calls = rules.flatMap(({ properties, attributes }) => {
    const { ScheduleExpression, State, Targets } = properties as {
      ScheduleExpression: string;
      State?: string;
      Targets: { Arn: string; Input: string }[];
    };
    if (ScheduleExpression !== "rate(1 minute)") throw new Error(`the stand-in knows no ${ScheduleExpression}`);
    if (State === "DISABLED") return [];
    return Targets.map(({ Arn, Input }) => ({ ruleArn: attributes.Arn, target: Arn, event: JSON.parse(Input) }));
  });
  return Promise.all(
    calls.map(({ ruleArn, target, event }) => {
      const { name, qualifier } = parseFunctionName(target);
      const isPermitted = lambda.isPermitted(name, qualifier, ({ Action, Principal, Condition }) => {
        const sourceArn = Object(Object(Condition).ArnLike)["AWS:SourceArn"];
        const isEvents = Object(Principal).Service === "events.amazonaws.com";
        return isEvents && Action === "lambda:InvokeFunction" && sourceArn === ruleArn;
      });
      if (!isPermitted) throw new Error(`${ruleArn} may not call ${target}`);
      return lambda.invokeQueued(name, qualifier, event);
    }),
  );
};
