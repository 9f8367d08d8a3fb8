import { findClusterSetup } from "#lib/core/endpoint.ts";
import { formatException, getExceptionEnd, type RuleException } from "#lib/core/exceptions.ts";
import type { GroupMemberConfig } from "#lib/core/group.ts";
import { getFunctionsLogGroup } from "../../aws/log-queries.ts";
import { exceptionsQuery } from "../../aws/saved-queries.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { formatTable } from "../../cli/command.ts";
import { toOneLine } from "../../cli/terminal.ts";
import type { Release } from "../versions/releases.ts";

/** An exception of a release, and how many reviews it has let through. */
interface ExceptionUse extends RuleException {
  cluster: string;
  rule: string;
  ended: boolean;
  /** The number of reviews. Exceptions of a rule that log the same text are counted together. */
  times: number;
  /** The time of the last of these reviews. */
  last?: Date;
}

/** Returns the exceptions of a release, with the reviews that they let through since a time. */
export const readExceptions = async (
  { name, logs }: Pick<AwsStage, "name"> & { logs: Pick<AwsStage["logs"], "query"> },
  release: Pick<Release, "rules" | "clusters"> | undefined,
  since: Date,
): Promise<ExceptionUse[]> => {
  const all = release === undefined ? [] : listExceptions(release);
  if (all.length === 0) return [];
  const now = new Date();
  const rows = await logs.query(getFunctionsLogGroup(name), exceptionsQuery, since, now);
  return all.map((found) => {
    const row = rows.find(
      ({ Cluster, Rule, exception }) =>
        Cluster === found.cluster && Rule === found.rule && exception === formatException(found),
    );
    return {
      ...found,
      ended: getExceptionEnd(found.until) <= now.getTime(),
      times: Number(row?.times ?? 0),
      ...(row && { last: new Date(Number(row.last)) }),
    };
  });
};

/** Lists the exceptions of all rules in all clusters of a release. */
const listExceptions = ({ rules, clusters }: Pick<Release, "rules" | "clusters">) => {
  const all = Object.keys(clusters).flatMap((cluster) =>
    // `share` is a rule's share of postern.yaml: its config.
    Object.entries(rules).flatMap(([name, { share: ruleConfig }]) => {
      const setup = findClusterSetup(ruleConfig, cluster);
      // Of all configs, only a group's has the field `alone`. The settings of a group are the configs of its members.
      const exceptionsByRule =
        "alone" in ruleConfig ? listExceptionsOfMembers(setup?.settings) : [[name, setup?.exceptions] as const];
      return exceptionsByRule.flatMap(([rule, exceptions = []]) =>
        exceptions.map((exception) => ({ cluster, rule, ...exception })),
      );
    }),
  );
  // A rule may be listed twice, with equal exceptions: as a member of a group that mutates, and as a function that
  // validates.
  return [...new Map(all.map((exception) => [JSON.stringify(exception), exception])).values()];
};

/** Returns the name and the exceptions of each member of a group. */
const listExceptionsOfMembers = (memberships: object | undefined) =>
  Object.entries((memberships ?? {}) as Record<string, GroupMemberConfig>).map(
    ([rule, { exempt }]) => [rule, exempt.exceptions] as const,
  );

/** Returns the table of exceptions; "" if there are none. */
export const formatExceptions = (exceptions: readonly ExceptionUse[] = [], since: Date): string => {
  if (exceptions.length === 0) return "";
  const rows = exceptions.map(({ cluster, rule, users, groups, namespaces, ...exception }) => {
    const subjects = Object.entries({ users, groups, namespaces });
    return [
      cluster,
      rule,
      subjects.flatMap(([kind, names]) => (names ? [`${kind} ${names.join(", ")}`] : [])).join("; "),
      `${exception.until}${exception.ended ? " (ended)" : ""}`,
      `${exception.times}`,
      exception.last?.toISOString() ?? "-",
      exception.owner,
      exception.reason,
    ].map(toOneLine);
  });
  const heads = ["CLUSTER", "RULE", "EXCEPTION FOR", "UNTIL", "TIMES", "LAST", "OWNER", "WHY"];
  return `\nexceptions, and how often each let a review through since ${since.toISOString()}\n\n${formatTable([heads, ...rows])}`;
};
