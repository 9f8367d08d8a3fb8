import { findClusterSetup } from "#lib/core/endpoint.ts";
import { matchesRequest } from "#lib/request-match.ts";
import { type RequestMatch, selectPhase } from "#lib/rule.ts";
import type { LambdaQuotas } from "../../aws/lambda-functions.ts";
import { listRolePolicies, type StackTemplate } from "../../aws/stack.ts";
import { findExcessResources, findLargeEnvironments } from "../../build/limits.ts";
import { buildProbeReview } from "../../clusters/probe.ts";
import type { PackagedRule } from "../versions/package.ts";
import type { DeploymentPlan, RuleChangePlan, WarmRulePlan } from "./plan.ts";

/** The most integrations, and routes, that an HTTP API may have. */
export const maxIntegrations = 300;
export const maxOutputs = 200;
export const maxTemplateBytes = 1_000_000;
/** The most characters of all inline policies of an IAM role. */
export const maxPolicyCharacters = 10_240;
/** The concurrent executions that Lambda keeps free for the functions of an account that reserve none. */
export const leastUnreserved = 100;

/** Describes each limit of AWS that a deployment would exceed. Without `quotas`, limits of accounts are not checked. */
export const findExceededLimits = (
  plan: LimitedPlan,
  deployed: StackTemplate | undefined,
  quotas: LambdaQuotas | undefined,
): string[] => [
  ...findStackLimits(plan.template),
  ...findLargeEnvironments(plan.parts.map(({ part: { name, wanted } }) => ({ name, environment: wanted.environment }))),
  ...(quotas ? [...findConcurrencyLimits(plan, deployed, quotas), ...findCodeLimits(plan, quotas)] : []),
];

type LimitedPlan = Pick<DeploymentPlan, "template" | "parts" | "warm">;

/** Returns which limits of CloudFormation and API Gateway a template exceeds. */
const findStackLimits = (template: StackTemplate): string[] => {
  const types = Object.values(template.Resources).map(({ Type }) => Type);
  const integrations = types.filter((type) => type === "AWS::ApiGatewayV2::Integration").length;
  const outputs = Object.keys(template.Outputs ?? {}).length;
  const bytes = Buffer.byteLength(JSON.stringify(template));
  const remedy = "turn rules off, or deploy some of them as another stage";
  return [
    ...findExcessResources(types.length),
    ...(outputs > maxOutputs
      ? [`the stack would have ${outputs} outputs, and CloudFormation accepts ${maxOutputs}: ${remedy}`]
      : []),
    ...(bytes > maxTemplateBytes
      ? [`the template has ${bytes} bytes, and CloudFormation accepts ${maxTemplateBytes}: ${remedy}`]
      : []),
    ...(integrations > maxIntegrations
      ? [`the HTTP API would have ${integrations} integrations, and API Gateway accepts ${maxIntegrations}: ${remedy}`]
      : []),
    ...findLargeRoles(template),
  ];
};

/**
 * Describes the roles whose policies are too long for IAM. A role has one statement for each cluster whose token the
 * rule reads, and one for each cluster whose reviews it records.
 */
const findLargeRoles = ({ Resources }: StackTemplate): string[] =>
  Object.entries(Resources).flatMap(([id, resource]) => {
    if (resource.Type !== "AWS::IAM::Role") return [];
    const length = listRolePolicies(resource).reduce(
      (sum, { PolicyDocument }) => sum + JSON.stringify(PolicyDocument).length,
      0,
    );
    return length > maxPolicyCharacters
      ? [
          `the policies of ${id} have about ${length} characters, and IAM accepts ${maxPolicyCharacters}: let clusters share a token or a bucket, or deploy some of the clusters as another stage`,
        ]
      : [];
  });

/** Returns which limits of the account's concurrency a deployment would exceed. */
const findConcurrencyLimits = (
  { template, parts, warm }: LimitedPlan,
  deployed: StackTemplate | undefined,
  quotas: LambdaQuotas,
): string[] => {
  const [before, wanted] = [sumReserved(deployed), sumReserved(template)];
  const free = Math.max(0, quotas.unreserved + before - wanted);
  const packaged = parts.map(({ part }) => part);
  const worst = findMostCallingRequest(packaged, free);
  // A stage that already has too little concurrency can still be deployed if the deployment needs no more of it.
  const hasNewFunction = parts.some(({ known }) => known === undefined);
  const needsMore = wanted > before || hasNewFunction;
  return [
    ...(wanted > before && free < leastUnreserved
      ? [
          `the rules reserve ${wanted} concurrent executions, which leaves ${free} of the account's ${quotas.concurrency} to functions that reserve none, and Lambda keeps ${leastUnreserved} for those: lower \`reserved\` in postern.yaml, or ask AWS for a higher quota`,
        ]
      : []),
    ...findWarmLimits(parts, warm, Math.max(0, free - leastUnreserved)),
    ...(needsMore && worst.count > free
      ? [
          `a ${worst.request} calls ${worst.count} functions at the same time, and the account has ${free} concurrent executions that no function reserves: ask AWS for a higher quota`,
        ]
      : []),
  ];
};

/**
 * Describes the rules that would have too many warm environments. During a deployment, the old and the new version of a
 * rule have warm environments at the same time.
 */
const findWarmLimits = (ruleChanges: RuleChangePlan[], warm: WarmRulePlan[], maxWarm: number): string[] => {
  const startingRules = warm.flatMap(({ rule, wanted, there: warmVersions, changes }) => {
    if (wanted === 0 || changes.length === 0) return [];
    const change = ruleChanges.find(({ part }) => part.name === rule);
    // If the rule's version stays, its environments are not added to the wanted ones.
    const keptVersion = change?.changes.length === 0 ? change.known?.ruleVersion.version : undefined;
    const others = warmVersions.filter(({ version }) => version !== keptVersion);
    const count = others.reduce((sum, other) => sum + other.count, wanted);
    return [{ rule, count, reserved: change?.part.reserved }];
  });
  const total = startingRules.reduce((sum, { count, reserved }) => sum + (reserved === undefined ? count : 0), 0);
  return [
    ...startingRules.flatMap(({ rule, count, reserved }) =>
      reserved !== undefined && count > reserved
        ? [
            `${rule} has ${count} warm environments until the release is settled, and reserves ${reserved} concurrent executions: raise \`reserved\` in postern.yaml, or lower \`warm\``,
          ]
        : [],
    ),
    ...(total > maxWarm
      ? [
          `the rules have ${total} warm environments until the release is settled, and the account has ${maxWarm} concurrent executions for them, because Lambda keeps ${leastUnreserved} for other functions: lower \`warm\` in postern.yaml, or ask AWS for a higher quota`,
        ]
      : []),
  ];
};

/** Describes zips that are too large for Lambda, and whether all new versions together need too much code storage. */
const findCodeLimits = ({ parts }: LimitedPlan, quotas: LambdaQuotas): string[] => {
  const changing = parts.filter(({ known, changes }) => known === undefined || changes.length > 0);
  // Lambda stores the code of a new function twice: as $LATEST and as its first version.
  const bytes = changing.reduce((sum, { part, known }) => sum + part.wanted.zip.length * (known ? 1 : 2), 0);
  const left = Math.max(0, quotas.codeBytes - quotas.usedCodeBytes);
  return [
    ...changing.flatMap(({ part: { name, wanted } }) =>
      wanted.zip.length > quotas.zipBytes
        ? [
            `the zip of ${name} has ${formatBytes(wanted.zip.length)}, and Lambda accepts ${formatBytes(quotas.zipBytes)}`,
          ]
        : [],
    ),
    ...(bytes > left
      ? [
          `the new versions need ${formatBytes(bytes)} of code storage, and ${formatBytes(left)} of the account's ${formatBytes(quotas.codeBytes)} are left in this region: delete functions and versions that nothing uses; Postern deletes its own old versions after each deployment`,
        ]
      : []),
  ];
};

const sumReserved = (template: StackTemplate | undefined): number =>
  Object.values(template?.Resources ?? {}).reduce(
    (sum, { Properties }) => sum + Number(Properties?.ReservedConcurrentExecutions ?? 0),
    0,
  );

/**
 * Returns the request that calls the most functions at the same time. Functions that reserve concurrency don't count,
 * and mutating entries neither: an API server calls only validating entries in parallel. Clusters with at most `free`
 * functions, which the account can run at the same time, are skipped; the count is 0 if all clusters are.
 */
const findMostCallingRequest = (packagedRules: PackagedRule[], free: number): { request: string; count: number } => {
  let largest = { request: "", count: 0 };
  // The empty name stands for all clusters with the usual setup.
  for (const cluster of new Set(["", ...packagedRules.flatMap(({ config }) => Object.keys(config.clusters))])) {
    const matches = packagedRules.flatMap(({ listed, config, reserved }) => {
      const { mode = "off", settings = {} } = findClusterSetup(config, cluster) ?? {};
      if (mode === "off" || reserved !== undefined || !listed.phases.includes("validate")) return [];
      const match = selectPhase<readonly RequestMatch[]>(listed.rule.match, "validate", settings);
      return match ? [match] : [];
    });
    // A request can't call more than these functions, so the cluster stays within the limit.
    if (matches.length <= free) continue;
    for (const request of matches.flat().flatMap(listMatchedRequests)) {
      const count = matches.filter((match) => match.some((element) => matchesRequest(element, request))).length;
      const name = [request.resource.resource, request.subResource ?? []].flat().join("/");
      if (count > largest.count) largest = { request: `${request.operation} request for ${name}`, count };
    }
  }
  return largest;
};

/** Returns a request for each pair of a resource and an operation in one element of a webhook's `rules`. */
const listMatchedRequests = (match: RequestMatch) =>
  match.resources.flatMap((resource) =>
    match.operations.map(
      (operation) => buildProbeReview([{ ...match, resources: [resource], operations: [operation] }]).request,
    ),
  );

const formatBytes = (bytes: number) =>
  bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
