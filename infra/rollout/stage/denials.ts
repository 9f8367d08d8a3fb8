import { toMap } from "#lib/json.ts";
import { getFunctionsLogGroup, type LogQueryRow } from "../../aws/log-queries.ts";
import { buildDenialsQuery, mostDenials } from "../../aws/saved-queries.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { formatTable } from "../../cli/command.ts";
import { Complaint } from "../../cli/complaint.ts";
import { formatCount } from "../../cli/progress.ts";
import { toOneLine, truncateText } from "../../cli/terminal.ts";
import type { Release } from "../versions/releases.ts";

/** Denials that differ only in the object's name, counted together. */
export interface Denial {
  cluster: string;
  rule: string;
  /** The rule's mode. In the modes warn and audit, the request was admitted all the same. */
  mode: string;
  /** Undefined if the log has no users and messages (`logs: minimal`). */
  user?: string | undefined;
  message?: string | undefined;
  operation: string;
  /** The resource as kubectl names it, for instance `deployments.apps/scale`. */
  resource: string;
  namespace?: string | undefined;
  /** The name of an object that was denied; undefined if none of the objects had a name. */
  example?: string | undefined;
  times: number;
  last: Date;
}

export interface DenialsRequest {
  since: Date;
  rule: string | undefined;
  cluster: string | undefined;
}

/** Reads from the log what rules have denied since a time, the most frequent first. Throws if the stage has no log. */
export const readDenials = async (
  { name, logs }: Pick<AwsStage, "name"> & { logs: Pick<AwsStage["logs"], "query" | "readGroup"> },
  { since, rule, cluster }: DenialsRequest,
): Promise<Denial[]> => {
  const group = getFunctionsLogGroup(name);
  if ((await logs.readGroup(group)) === undefined)
    throw new Complaint(`stage ${name} has no log group ${group}: nothing is deployed there`, 1);
  const query = buildDenialsQuery({ Rule: rule, Cluster: cluster });
  return (await logs.query(group, query, since, new Date())).map(toDenial);
};

/** Returns a denial from a row of a log query. */
const toDenial = (row: LogQueryRow): Denial => {
  const { Cluster = "", Rule = "", Mode = "", operation = "", resource = "", group, subResource, times, last } = row;
  return {
    cluster: Cluster,
    rule: Rule,
    mode: Mode,
    user: row.user,
    message: row.message,
    operation,
    resource: `${resource}${group ? `.${group}` : ""}${subResource ? `/${subResource}` : ""}`,
    namespace: row.namespace || undefined,
    example: row.example || undefined,
    times: Number(times),
    last: new Date(Number(last)),
  };
};

/** Throws if there are stored releases, but none has the requested rule (as a function or in a group) or cluster. */
export const requireReleased = (all: readonly Release[], { rule, cluster }: DenialsRequest): void => {
  // `share` is a rule's share of postern.yaml: its config.
  const rules = all.flatMap((release) =>
    Object.entries(release.rules).flatMap(([name, { share: config }]) => [name, ...listGroupMembers(config)]),
  );
  const clusters = all.flatMap((release) => Object.keys(release.clusters));
  for (const [what, name, known] of [
    ["rule", rule, rules],
    ["cluster", cluster, clusters],
  ] as const)
    if (name !== undefined && all.length > 0 && !known.includes(name))
      throw new Complaint(`no release has the ${what} "${name}"; there are ${[...new Set(known)].sort().join(", ")}`);
};

/** Returns the names of a group's members: its config has them in the field `alone`, which other rules' configs lack. */
const listGroupMembers = (config: object): string[] => Object.keys(toMap(toMap(config).alone));

/** Formats denials as a table for a terminal. */
export const formatDenials = (denials: readonly Denial[], { since }: DenialsRequest): string => {
  const times = denials.reduce((sum, denial) => sum + denial.times, 0);
  const head = `${formatCount(times, "denial")} since ${since.toISOString()}\n`;
  if (denials.length === 0) return head;
  const rows = denials.map(
    ({ cluster, rule, mode, user, message, operation, resource, namespace, example, ...denial }) =>
      [
        `${denial.times}`,
        denial.last.toISOString(),
        cluster,
        rule,
        mode,
        user ?? "-",
        `${operation} ${resource} ${[namespace, example].filter((part) => part !== undefined).join("/")}`,
        truncateText(message ?? "-", longestMessage),
      ].map(toOneLine),
  );
  const truncationNote =
    denials.length < mostDenials
      ? ""
      : `\nonly the ${mostDenials} most frequent are here; --since, --rule and --cluster select fewer\n`;
  return `${head}\n${formatTable([["TIMES", "LAST", "CLUSTER", "RULE", "MODE", "USER", "WHAT", "WHY"], ...rows])}${truncationNote}`;
};

/** A table has at most so many characters of a message. The JSON output has the whole message. */
const longestMessage = 300;
