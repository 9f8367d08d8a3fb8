import { getAccessLogGroup, getFunctionsLogGroup } from "../../aws/log-queries.ts";
import { logGroupType } from "../../aws/stack.ts";
import { toSentence } from "../../cli/complaint.ts";
import type { DeploymentTargets } from "../targets.ts";

/** The stage that `postern destroy` deletes, with the options of the command. */
export interface Destruction extends Pick<DeploymentTargets, "stage" | "config" | "progress"> {
  /** The names of clusters (option --forget) that don't exist any more: nothing is deleted in them. */
  forgotten: string[];
  /** True if the logs are deleted, too, and so is the table with the ledger (option --with-data). */
  withData?: boolean;
}

/** What a stage consists of in AWS. */
export interface StageContents {
  hasStack: boolean;
  /** The resources that are deleted with the stack: a line for each type, for instance "3 AWS::IAM::Role". */
  stack: string[];
  hasTable: boolean;
  /** The log groups that stay when the stack is deleted. */
  logGroups: string[];
}

/** The types of resources whose names are shown to users. */
const namedTypes = new Set(["AWS::Lambda::Function", "AWS::S3::Bucket", "AWS::CloudWatch::Dashboard", logGroupType]);

/** Reads what a stage has in AWS, and which of it stays when the stack is deleted. */
export const readStageContents = async (options: Destruction): Promise<StageContents> => {
  const { name, stack, logGroups } = options.stage;
  const [resources, template] = await Promise.all([stack.listResources(), stack.readTemplate()]);
  // Earlier versions of Postern gave log groups no policy Retain, so CloudFormation deletes these with the stack.
  const isRetained = (id: string) => template?.Resources[id]?.DeletionPolicy === "Retain";
  const kept = resources.filter(({ id }) => isRetained(id));
  const lost = resources.filter(({ id }) => !isRetained(id));
  // Kept resources of other types aren't in `found` below, because no log group has their names.
  const possibleLogGroups = [getFunctionsLogGroup(name), getAccessLogGroup(name), ...kept.map((one) => one.name)];
  const groups = [...new Set(possibleLogGroups)].filter((group) => !lost.some((resource) => resource.name === group));
  const found = await Promise.all(groups.map(async (group) => ((await logGroups.exists(group)) ? [group] : [])));
  return {
    hasStack: resources.length > 0,
    stack: [...Map.groupBy(lost, ({ type }) => type)].map(([type, ofType]) => {
      const names = namedTypes.has(type) ? `: ${ofType.map((resource) => resource.name).join(", ")}` : "";
      return `${ofType.length} ${type}${names}`;
    }),
    hasTable: await hasLedgerTable(options),
    logGroups: found.flat(),
  };
};

/** Reports whether the stage has a table. If that can't be read, the command stops only with --with-data. */
const hasLedgerTable = async ({ stage: { ledger }, withData, progress }: Destruction): Promise<boolean> => {
  try {
    const faults = await ledger.readFaults(); // undefined if there is no table
    return faults !== undefined;
  } catch (error) {
    if (withData) throw error;
    progress.say(`the ledger's table can't be read: ${toSentence(error)}`);
    return false;
  }
};

/** Returns a line for each thing that `postern destroy` deletes or keeps. */
export const formatStageContents = (
  { stage, config, forgotten, withData }: Destruction,
  { hasStack, stack, hasTable, logGroups }: StageContents,
): string => {
  const clusters = [...config.clusters.keys()].filter((name) => !forgotten.includes(name));
  const data = [
    ...logGroups.map((group) => `the log group ${group}`),
    ...(hasTable ? [`the table ${stage.ledger.name} with the ledger`] : []),
  ];
  const deleted = [
    ...clusters.map((name) => describeDeletedObjects(config, [name])),
    ...(hasStack ? [`the stack postern-${stage.name} with`] : []),
    ...stack.map((line) => `  ${line}`),
    `the parameter /postern/${stage.name}/keys with the keys that sign URLs`,
  ];
  const format = (title: string, lines: string[]) =>
    lines.length === 0 ? [] : [`${title}:`, ...lines.map((line) => `  ${line}`)];
  return [
    ...format("deleted", withData ? [...deleted, ...data] : deleted),
    ...(withData ? [] : format("kept, because --with-data is not given", data)),
  ].join("\n");
};

/** Describes what `postern destroy` deletes in clusters. */
export const describeDeletedObjects = (config: Destruction["config"], names: string[]): string => {
  const eks = names.filter((name) => config.clusters.get(name)?.connect?.eks !== undefined);
  const entries = eks.length === 0 ? "" : `, and the functions' access entries of EKS in ${eks.join(", ")}`;
  return `the webhook configurations, policies and roles in ${names.join(", ")}${entries}`;
};
