import { isDeepStrictEqual } from "node:util";
import { toMap } from "#lib/json.ts";
import { isErrorNamed } from "../../aws/errors.ts";
import { hasSameContent, type LambdaPermission } from "../../aws/lambda-functions.ts";
import { alarmType, logGroupType, type StackTemplate } from "../../aws/stack.ts";
import type { AwsStage } from "../../aws/stage.ts";
import { toLogicalId } from "../../catalogue/rule-names.ts";
import { toSentence } from "../../cli/complaint.ts";
import { runInParallel } from "../../cli/progress.ts";
import { quoteForShell } from "../../cli/terminal.ts";
import type { FunctionState } from "../clusters/disarm.ts";
import type { Release } from "../versions/releases.ts";
import { listDifferentSettings } from "./function-settings.ts";

// This file finds what was changed in AWS by hand: it compares AWS with the stack's template and the newest release.

/** A difference between a stage in AWS and what was deployed. */
export interface StageDifference {
  sentence: string;
  /** The command with which a person must repair the difference, because postern deploy doesn't. */
  command?: string;
  /** Repairs the difference. Without `repair` and `command`, postern deploy repairs it by deploying the rule again. */
  repair?: () => Promise<void>;
  /** The rule whose unpublished function ($LATEST) differs. A deployment's plan sets `repair` for such a difference. */
  ruleOfLatest?: string;
}

type Resource = StackTemplate["Resources"][string];

/** Returns what someone changed in AWS by hand since the newest release. */
const findStageDifferences = async (
  stage: AwsStage,
  states: FunctionState[],
  newest: Release | undefined,
  readTemplate: () => Promise<StackTemplate | undefined>,
): Promise<StageDifference[]> => {
  const template = await readTemplate();
  if (template === undefined) return [];
  const resources = await stage.stack.listResources();
  const scope = { stage, template, ids: new Map(resources.map(({ id, name }) => [id, name])) };
  const found = await Promise.all([
    runInParallel(5, states, async (state) => [
      ...compareAlias(scope, state, newest),
      ...compareUnpublished(state),
      ...(await compareConcurrency(scope, state)),
      ...(await comparePermissions(scope, state)),
    ]),
    compareLogGroups(scope),
    compareAlarms(scope),
  ]);
  return found.flat(2);
};

/** Finds what was changed in AWS by hand. If a right to read something is missing, returns a note about that. */
export const tryFindStageDifferences = async (
  ...parameters: Parameters<typeof findStageDifferences>
): Promise<{ differences: StageDifference[]; notes: string[] }> => {
  try {
    return { differences: await findStageDifferences(...parameters), notes: [] };
  } catch (error) {
    if (!isErrorNamed(error, "AccessDenied", "AccessDeniedException")) throw error;
    const note = `what was changed in AWS by hand is not known, because a right is missing (infra/aws/iam/pipeline.yml has it): ${toSentence(error)}`;
    return { differences: [], notes: [note] };
  }
};

/** What the comparisons below read. */
interface Scope {
  stage: AwsStage;
  template: StackTemplate;
  /** The physical ids of the stack's resources, by their logical ids. */
  ids: ReadonlyMap<string, string>;
}

/** Compares the alias `live` of a rule with the version that the newest release records. */
const compareAlias = (
  { stage: { functions } }: Scope,
  { rule, live, versions, ruleVersion, disarmed }: FunctionState,
  newest: Release | undefined,
): StageDifference[] => {
  if (live.isMissing) {
    const repair = () => functions.createAlias(rule, live.version);
    return [{ sentence: `the alias live of ${rule} doesn't exist`, repair }];
  }
  if (newest === undefined || !newest.complete) return [];
  const sentences: string[] = [];
  const released = newest.rules[rule]?.version;
  const wanted = versions.find(({ version }) => version === released);
  // The alias of a disarmed rule points at a version that allows everything, so it isn't compared. Otherwise the alias
  // points at `ruleVersion`, which must be the released version or have the same content.
  if (!disarmed && released !== undefined && !(wanted && hasSameContent(ruleVersion, wanted)))
    sentences.push(
      `the alias live of ${rule} points at version ${live.version}, and release r${newest.id} has version ${released}`,
    );
  for (const [version, weight] of Object.entries(live.weights))
    sentences.push(`the alias live of ${rule} sends ${Math.round(weight * 100)}% of reviews to version ${version}`);
  return sentences.map((sentence) => ({ sentence }));
};

/** Returns a difference if a function's code or settings ($LATEST) are not those of any of its published versions. */
const compareUnpublished = ({ rule, latest, versions }: FunctionState): StageDifference[] => {
  const last = versions.at(-1);
  if (last === undefined || versions.some((version) => hasSameContent(latest, version))) return [];
  const code = latest.codeSha256 === last.codeSha256 ? [] : ["code"];
  const what = [...code, ...listDifferentSettings(last, latest)];
  return [{ sentence: `the unpublished function of ${rule} was changed: ${what.join(", ")}`, ruleOfLatest: rule }];
};

/** Compares the reserved concurrency of a rule's function with the template's. */
const compareConcurrency = async (
  { stage: { functions }, template }: Scope,
  { rule }: FunctionState,
): Promise<StageDifference[]> => {
  const wanted = template.Resources[`${toLogicalId(rule)}LambdaFunction`]?.Properties?.ReservedConcurrentExecutions;
  const found = await functions.readReservedConcurrency(rule);
  if (found === wanted) return [];
  const name = functions.getFunctionName(rule);
  const describe = (count: unknown) => String(count ?? "none");
  const effect = found === 0 ? ", so Lambda refuses all of its reviews" : "";
  return [
    {
      sentence: `the reserved concurrency of ${rule} is ${describe(found)}, not ${describe(wanted)}${effect}`,
      command:
        wanted === undefined
          ? `aws lambda delete-function-concurrency --function-name ${name}`
          : `aws lambda put-function-concurrency --function-name ${name} --reserved-concurrent-executions ${wanted}`,
    },
  ];
};

/** Compares the permissions of a rule's alias in AWS with those in the template. */
const comparePermissions = async (scope: Scope, { rule }: FunctionState): Promise<StageDifference[]> => {
  const { template, ids, stage } = scope;
  const { functions } = stage;
  const alias = `${toLogicalId(rule)}Alias`;
  const wanted = Object.entries(template.Resources).flatMap(([id, { Type, Properties }]) => {
    if (Type !== "AWS::Lambda::Permission" || toMap(Properties?.FunctionName).Ref !== alias) return [];
    const { FunctionName: _, ...permission } = resolve(scope, Properties) as LambdaPermission & Resource["Properties"];
    // The stack deletes a permission by its statement's id, which is the last part of the physical id.
    const statement = (ids.get(id) ?? id).split("|").at(-1) ?? id;
    return [{ statement, permission }];
  });
  const found = await functions.readPermissions(rule);
  const isFound = (permission: LambdaPermission) =>
    found.some((other) => isDeepStrictEqual({ ...other.permission }, { ...permission }));
  const isWanted = (permission: LambdaPermission) =>
    wanted.some((other) => isDeepStrictEqual({ ...other.permission }, { ...permission }));
  return [
    ...found
      .filter(({ permission }) => !isWanted(permission))
      .map(({ statement, permission: { Principal, Action } }) => ({
        sentence: `the alias live of ${rule} lets ${Principal} do ${Action} (${statement}), which was not deployed`,
        repair: () => functions.removePermission(rule, statement),
      })),
    ...wanted
      .filter(({ permission }) => !isFound(permission))
      .map(({ statement, permission }) => ({
        sentence: `the alias live of ${rule} doesn't let ${permission.Principal} do ${permission.Action}`,
        // The role of a deployment has no right to let everybody call a function, so a person must do it.
        ...(permission.Principal === "*"
          ? { command: formatPermissionCommand(functions.getFunctionName(rule), statement, permission) }
          : { repair: () => functions.addPermission(rule, statement, permission) }),
      })),
  ];
};

/** Returns the AWS CLI command that adds a permission to a function again. */
const formatPermissionCommand = (
  name: string,
  statement: string,
  { Action, Principal, FunctionUrlAuthType, InvokedViaFunctionUrl }: LambdaPermission,
) =>
  [
    `aws lambda add-permission --function-name ${name} --qualifier live --statement-id ${statement}`,
    `--action ${Action} --principal ${quoteForShell(Principal)}`,
    ...(FunctionUrlAuthType === undefined ? [] : [`--function-url-auth-type ${FunctionUrlAuthType}`]),
    ...(InvokedViaFunctionUrl ? ["--invoked-via-function-url"] : []),
  ].join(" ");

/** Returns which log groups are missing or keep lines for another time than the template says. */
const compareLogGroups = async ({ stage, template }: Scope): Promise<StageDifference[]> => {
  const groups = Object.values(template.Resources).flatMap(({ Type, Properties }) => {
    const { LogGroupName: name, RetentionInDays: days } = toMap(Properties);
    // The template may have log groups of single functions, from an earlier Postern, that a user has deleted by hand.
    const isOld = String(name).startsWith(`/aws/lambda/postern-${stage.name}-`);
    return Type === logGroupType && !isOld ? [{ name: String(name), days: Number(days) }] : [];
  });
  const found = await Promise.all(groups.map(({ name }) => stage.logs.readGroup(name)));
  return groups.flatMap(({ name, days }, index) => {
    const group = found[index];
    const retention = `aws logs put-retention-policy --log-group-name ${name} --retention-in-days ${days}`;
    if (group === undefined)
      return [
        {
          sentence: `the log group ${name} doesn't exist`,
          command: `aws logs create-log-group --log-group-name ${name} && ${retention}`,
        },
      ];
    if (group.days === days) return [];
    const kept = group.days === undefined ? "without an end" : `for ${group.days} days`;
    return [{ sentence: `the log group ${name} keeps lines ${kept}, not for ${days} days`, command: retention }];
  });
};

/** Compares the alarms that exist with the template's. */
const compareAlarms = async (scope: Scope): Promise<StageDifference[]> => {
  const { stage, template, ids } = scope;
  const found = new Map((await stage.alarms.list()).map(({ name, properties }) => [name, properties]));
  return Object.entries(template.Resources).flatMap(([id, resource]) => {
    const name = ids.get(id);
    if (resource.Type !== alarmType || name === undefined) return [];
    const wanted = toMap(resolve(scope, resource.Properties));
    const differing = compareAlarm(wanted, found.get(name));
    if (differing.length === 0) return [];
    const input = JSON.stringify({ AlarmName: name, ...wanted });
    return [
      {
        sentence: `the alarm ${name} ${differing.join(", ")}`,
        command: `aws cloudwatch put-metric-alarm --cli-input-json ${quoteForShell(input)}`,
      },
    ];
  });
};

/**
 * Compares the properties of an alarm that are strings, numbers or lists of strings. Other properties, such as Metrics,
 * are not compared, because CloudWatch adds members to them.
 */
const compareAlarm = (wanted: Record<string, unknown>, found: object | undefined): string[] => {
  if (found === undefined) return ["doesn't exist"];
  return Object.entries(wanted).flatMap(([name, value]) => {
    const isList = Array.isArray(value) && value.every((item) => typeof item === "string");
    const actual: unknown = Reflect.get(found, name) ?? (isList ? [] : undefined);
    if ((typeof value === "object" && !isList) || isDeepStrictEqual(actual, value)) return [];
    return [`has ${name} ${JSON.stringify(actual) ?? "nothing"}, not ${JSON.stringify(value)}`];
  });
};

/** Replaces `Ref`, `Fn::GetAtt` and `Fn::Sub` in a value of the template by names and ARNs of resources. */
const resolve = (scope: Scope, value: unknown): unknown => {
  if (Array.isArray(value)) return value.map((item) => resolve(scope, item));
  if (value === null || typeof value !== "object") return value;
  const { Ref, "Fn::Sub": text, "Fn::GetAtt": attribute } = toMap(value);
  if (typeof Ref === "string") return resolveName(scope, Ref);
  if (typeof text === "string")
    return text.replace(/\$\{([\w:]+)\}/g, (_, name: string) => String(resolveName(scope, name)));
  if (Array.isArray(attribute)) return resolveArn(scope, String(attribute[0]));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(scope, item)]));
};

/** Returns the physical id of a resource, or the value of a pseudo parameter such as `AWS::Region`. */
const resolveName = (scope: Scope, name: string): string | undefined => {
  // The physical id of an alias is its ARN, which has the region and the account. Every stage has an alias.
  const [, partition, , region, account] =
    [...scope.ids.values()].find((id) => /^arn:.*:live$/.test(id))?.split(":") ?? [];
  const pseudo: Record<string, string | undefined> = {
    "AWS::Partition": partition,
    "AWS::Region": region,
    "AWS::AccountId": account,
  };
  return pseudo[name] ?? scope.ids.get(name);
};

/** Returns the ARN of a schedule, made from its name. For other resources, returns the physical id. */
const resolveArn = (scope: Scope, id: string): string | undefined => {
  const resource: Resource | undefined = scope.template.Resources[id];
  const name = scope.ids.get(id);
  if (resource?.Type !== "AWS::Events::Rule" || name === undefined || name.startsWith("arn:")) return name;
  const [partition, region, account] = ["AWS::Partition", "AWS::Region", "AWS::AccountId"].map((pseudo) =>
    resolveName(scope, pseudo),
  );
  return `arn:${partition}:events:${region}:${account}:rule/${name}`;
};
