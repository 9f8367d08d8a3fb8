import { isDeepStrictEqual } from "node:util";
import { toList, toMap } from "#lib/json.ts";
import { listRolePolicies, type StackTemplate } from "../../aws/stack.ts";
import { networkPolicyName } from "../../build/deployment.ts";
import { maxResources } from "../../build/limits.ts";
import { toLogicalId } from "../../catalogue/rule-names.ts";
import { formatPage } from "../../catalogue/sources.ts";
import { Complaint } from "../../cli/complaint.ts";
import { listCalledRules } from "../clusters/cluster-manifests.ts";
import type { PackagedRule, StagePackage } from "../versions/package.ts";
import type { Release } from "../versions/releases.ts";

/**
 * Returns the rules that are off now but whose functions must stay, because the newest release still has the rule, or
 * a cluster's entry that calls it.
 */
export const findOffRulesToKeep = (
  stage: string,
  deployed: StackTemplate | undefined,
  packagedRules: PackagedRule[],
  all: Release[],
): string[] => {
  const [newest] = all;
  const calledRules = Object.values(newest?.clusters ?? {}).flatMap(({ manifests }) => listCalledRules(manifests));
  const isReleased = (rule: string) => calledRules.includes(rule) || Object.hasOwn(newest?.rules ?? {}, rule);
  return listStackRules(deployed, stage).filter(
    (rule) => isReleased(rule) && !packagedRules.some(({ name }) => name === rule),
  );
};

export const readEndpointType = (template: StackTemplate | undefined): "http" | "url" =>
  template?.Resources.HttpApi === undefined ? "url" : "http";

/**
 * Returns the CloudFormation template, its differences from the deployed one, and the rules that are off but whose
 * functions stay in it (`kept`): those that the newest release needs. Once it doesn't, they are deleted, but only with
 * another change, in the stack or elsewhere (`hasOtherChanges`): their deletion alone is no reason for a deployment.
 */
export const planStack = (
  stage: string,
  { template: packaged, parts }: StagePackage,
  present: { deployed: StackTemplate | undefined; releases: Release[]; hasOtherChanges: boolean },
): { template: StackTemplate; stack: StackDifferences; kept: string[] } => {
  const { deployed, releases, hasOtherChanges } = present;
  const template = addTracingPolicies(removeUnusedNetworkPolicies(packaged, deployed));
  const [before, after] = [readEndpointType(deployed), readEndpointType(template)];
  if (listStackRules(deployed, stage).length > 0 && before !== after)
    throw new Complaint(
      `stage ${stage} has the endpoint type ${before}, and serverless.yml says ${after}: clusters would call addresses that don't exist any more; a stage of another name with ${after} can take its clusters over, as ${formatPage("how-to/move-a-stage.md")} says`,
    );
  const kept = findOffRulesToKeep(stage, deployed, parts, releases);
  const withKept = retainLogGroups(copyRuleResources(template, deployed, kept), deployed);
  const stack = compareStacks(deployed, withKept);
  const onlyRemoves = stack.removed.length > 0 && stack.added.length + stack.changed.length === 0;
  if (!onlyRemoves || hasOtherChanges || deployed === undefined) return { template: withKept, stack, kept };
  const offRules = listStackRules(deployed, stage).filter((rule) => !parts.some(({ name }) => name === rule));
  const copied = copyRuleResources(template, deployed, offRules);
  // Also keeps log groups of functions that were deleted earlier: their removal alone is no reason for a deployment.
  const withOffRules = retainLogGroups(copied, deployed, { includesRetained: true });
  return { template: withOffRules, stack: compareStacks(deployed, withOffRules), kept: offRules };
};

/**
 * Removes the right to connect to a VPC from the roles of functions that never were in a VPC. If a function was in one
 * before, its role keeps the right: older versions of the function still have network interfaces, which Lambda deletes
 * with the role's rights.
 */
const removeUnusedNetworkPolicies = (template: StackTemplate, deployed: StackTemplate | undefined): StackTemplate => {
  const isNetworkPolicy = ({ PolicyName }: { PolicyName: string }) => PolicyName === networkPolicyName;
  const resources = Object.entries(template.Resources).map(([id, resource]) => {
    const lambdaFunction = template.Resources[id.replace(/Role$/, "LambdaFunction")];
    const [wanted, before] = [listRolePolicies(resource), listRolePolicies(deployed?.Resources[id])];
    const isUsed = lambdaFunction?.Properties?.VpcConfig !== undefined || before.some(isNetworkPolicy);
    if (isUsed || !wanted.some(isNetworkPolicy)) return [id, resource];
    const Policies = wanted.filter((policy) => !isNetworkPolicy(policy));
    return [id, { ...resource, Properties: { ...resource.Properties, Policies } }];
  });
  return { ...template, Resources: Object.fromEntries(resources) };
};

/**
 * Adds the right to send traces to the roles of functions with tracing in serverless.yml. The packager osls adds this
 * right only to a role that it makes itself, which Postern doesn't use.
 */
const addTracingPolicies = (template: StackTemplate): StackTemplate => {
  const Action = ["xray:PutTraceSegments", "xray:PutTelemetryRecords"];
  const Statement = [{ Effect: "Allow", Action, Resource: "*" }];
  const policy = { PolicyName: "tracing", PolicyDocument: { Version: "2012-10-17", Statement } };
  const resources = Object.entries(template.Resources).map(([id, resource]) => {
    const lambdaFunction = template.Resources[id.replace(/Role$/, "LambdaFunction")];
    if (!id.endsWith("Role") || toMap(lambdaFunction?.Properties?.TracingConfig).Mode !== "Active")
      return [id, resource];
    const Policies = [...listRolePolicies(resource), policy];
    return [id, { ...resource, Properties: { ...resource.Properties, Policies } }];
  });
  return { ...template, Resources: Object.fromEntries(resources) };
};

/** Returns rights of roles that a deployment adds and removes, in lines such as `<role>: <action> on <resource>`. */
export const compareRights = (
  deployed: StackTemplate | undefined,
  template: StackTemplate,
): { added: string[]; removed: string[] } => {
  const [before, after] = [listRoleRights(deployed), listRoleRights(template)];
  return {
    added: after.filter((right) => !before.includes(right)),
    removed: before.filter((right) => !after.includes(right)),
  };
};

/** The differences between two CloudFormation templates of a stack, as logical ids of resources. */
export interface StackDifferences {
  isNew: boolean;
  added: string[];
  changed: string[];
  removed: string[];
}

/** Lists the resources, outputs and tags that differ between two templates; without the first, the stack is new. */
export const compareStacks = (before: StackTemplate | undefined, after: StackTemplate): StackDifferences => {
  const [old, fresh] = [listComparedParts(before), listComparedParts(after)];
  const isChanged = (id: string) => old.has(id) && fresh.has(id) && !isDeepStrictEqual(old.get(id), fresh.get(id));
  return {
    isNew: before === undefined,
    added: [...fresh.keys()].filter((id) => !old.has(id)),
    changed: [...fresh.keys()].filter(isChanged),
    removed: [...old.keys()].filter((id) => !fresh.has(id)),
  };
};

export const isUnchanged = ({ isNew, added, changed, removed }: StackDifferences): boolean =>
  !isNew && added.length + changed.length + removed.length === 0;

/** The properties of a Lambda function that are not compared: Postern, not the stack, sets them in each version. */
const setByPostern = ["Code", "Environment", "Description", "MemorySize", "Timeout"];

/** Returns what is compared, by id: resources, outputs and tags of a template, such as `output BaseUrl`, `tag team`. */
const listComparedParts = (template: StackTemplate | undefined): Map<string, unknown> => {
  const resources = Object.entries(template?.Resources ?? {}).map(([id, resource]) => {
    if (resource.Type !== "AWS::Lambda::Function") return [id, resource] as const;
    const setByStack = Object.entries(resource.Properties ?? {}).filter(([name]) => !setByPostern.includes(name));
    return [id, { ...resource, Properties: Object.fromEntries(setByStack) }] as const;
  });
  const outputs = Object.entries(template?.Outputs ?? {}).map(([id, output]) => [`output ${id}`, output] as const);
  const tags = Object.entries(toMap(template?.Metadata).StackTags ?? {}).map(
    ([id, tag]) => [`tag ${id}`, tag] as const,
  );
  return new Map<string, unknown>([...resources, ...outputs, ...tags]);
};

/** Returns the rules that have a function in a stack. */
export const listStackRules = (template: StackTemplate | undefined, stage: string): string[] => {
  const prefix = `postern-${stage}-`;
  return Object.values(template?.Resources ?? {}).flatMap(({ Type, Properties }) => {
    const { FunctionName, Environment } = toMap(Properties);
    if (Type !== "AWS::Lambda::Function" || !String(FunctionName).startsWith(prefix)) return [];
    const { POSTERN_RULE = String(FunctionName).slice(prefix.length) } = toMap(toMap(Environment).Variables);
    return [String(POSTERN_RULE)];
  });
};

/** Returns `template` with the resources and outputs that the template `from` has for these rules. */
export const copyRuleResources = (
  template: StackTemplate,
  from: StackTemplate | undefined,
  rules: string[],
): StackTemplate => {
  // A logical id writes a hyphen as Dash: for the rule `pod`, PodRole matches, but PodDashLabelsRole doesn't.
  const idPatterns = rules.map((rule) => new RegExp(`^${toLogicalId(rule)}(?!Dash)[A-Z]`));
  const selectById = (byId: Record<string, unknown> = {}) =>
    Object.fromEntries(Object.entries(byId).filter(([id]) => idPatterns.some((pattern) => pattern.test(id))));
  const resources = selectById(from?.Resources) as StackTemplate["Resources"];
  return {
    ...template,
    Resources: { ...template.Resources, ...resources },
    Outputs: { ...template.Outputs, ...selectById(from?.Outputs) },
  };
};

/**
 * Adds the log groups of deleted functions to a template again, with the deletion policy Retain. CloudFormation keeps
 * the logs of a log group that leaves the stack only if the deployed template has this policy, so the log groups leave
 * the stack one deployment later. `includesRetained` also adds log groups that are deployed with this policy already.
 * If the stack would have too many resources, the last log groups are not added, and CloudFormation may delete their
 * logs.
 */
const retainLogGroups = (
  template: StackTemplate,
  deployed: StackTemplate | undefined,
  { includesRetained = false } = {},
): StackTemplate => {
  const groups = Object.entries(deployed?.Resources ?? {}).filter(
    ([id, { Type, Properties, DeletionPolicy }]) =>
      Type === "AWS::Logs::LogGroup" &&
      String(Properties?.LogGroupName).startsWith("/aws/lambda/") &&
      !Object.hasOwn(template.Resources, id) &&
      (includesRetained || DeletionPolicy !== "Retain"),
  );
  const room = Math.max(0, maxResources - Object.keys(template.Resources).length);
  const retained = groups.slice(0, room).map(([id, group]) => [id, { ...group, DeletionPolicy: "Retain" }]);
  return { ...template, Resources: { ...template.Resources, ...Object.fromEntries(retained) } };
};

/** Lists what the roles in a template allow, in lines such as `<role>: <action> on <resource>`. Logs are left out. */
export const listRoleRights = (template: StackTemplate | undefined): string[] =>
  Object.entries(template?.Resources ?? {}).flatMap(([id, resource]) => {
    if (resource.Type !== "AWS::IAM::Role") return [];
    const statements = listRolePolicies(resource).flatMap(({ PolicyDocument: { Statement } }) =>
      Statement.filter(({ Effect }) => Effect !== "Deny"),
    );
    return statements.flatMap(({ Action, Resource }) =>
      [Action]
        .flat()
        .filter((action) => !action.startsWith("logs:"))
        .map((action) => `${id}: ${action} on ${describeResource(Resource)}`),
    );
  });

const describeResource = (resource: unknown): string => {
  if (typeof resource === "string") return resource;
  const { Ref, "Fn::GetAtt": attribute, "Fn::Sub": text } = toMap(resource);
  return String(Ref ?? toList(attribute)[0] ?? text ?? JSON.stringify(resource));
};
