import { readFileSync, writeFileSync } from "node:fs";
import { longestIntegration } from "#infra/build/deployment.ts";
import { maxEnvironmentBytes, maxResources } from "#infra/build/limits.ts";
import { replaceList } from "#infra/catalogue/generated-lists.ts";
import { maxFunctionName } from "#infra/catalogue/rule-names.ts";
import { mostExceptions } from "#infra/config/rule-configs.ts";
import { defaultTimeout } from "#infra/kubernetes/kubernetes.ts";
import { longestRun } from "#infra/manifests/builds.ts";
import { longestFile } from "#infra/manifests/input.ts";
import {
  leastUnreserved,
  maxIntegrations,
  maxOutputs,
  maxPolicyCharacters,
  maxTemplateBytes,
} from "#infra/rollout/plan/limits.ts";
import { maxParallelFunctionChanges } from "#infra/rollout/preparation.ts";
import { maxReleases } from "#infra/rollout/versions/releases.ts";
import { messageLimits } from "#infra/serve/gateway.ts";
import { mostPassCost } from "#lib/admission-policies/expressions.ts";
import { mostExpressionCost } from "#lib/cel/cost-formulas.ts";
import { mostConditionsCost } from "#lib/cel/kubernetes.ts";
import { longestApiServerReadMilliseconds } from "#lib/cluster/api-server.ts";
import { maximumHttpsAnswerBytes } from "#lib/cluster/https-request.ts";
import { mostQuotas } from "../../functions/workload-quota/settings.ts";

const page = new URL("../../docs/background/limits.md", import.meta.url);

const toMegabytes = (bytes: number) => `${bytes / 2 ** 20} MB`;
const toSeconds = (milliseconds: number) => `${milliseconds / 1000} s`;
const toText = (count: number) => count.toLocaleString("en-US");

/** The limits of AWS. `isChecked` if `deploy` refuses what exceeds the limit. */
const limitsOfAws: readonly { limit: string; service: string; isChecked?: true; effect: string }[] = [
  {
    limit: `${toMegabytes(messageLimits.event)} for an event and for an answer`,
    service: "Lambda",
    effect:
      "a larger review gets 413. The local gateway of `npm start` also answers 413 if the whole event is larger. Lambda gets the body of a request as a JSON string, in which each quote and backslash takes two bytes. So a review of more than about 4.5 MB doesn't fit",
  },
  {
    limit: `${toMegabytes(messageLimits.body)} for a body, ${toText(messageLimits.headers)} bytes of headers`,
    service: "HTTP API",
    effect: "the local gateway of `npm start` applies the same limits",
  },
  {
    limit: `${toSeconds(longestIntegration)} for an integration`,
    service: "HTTP API",
    effect: "Postern sets `TimeoutInMillis` to the function's timeout, but to no more than this limit",
  },
  {
    limit: `${maxResources} resources, ${maxOutputs} outputs and ${toText(maxTemplateBytes)} bytes for a stack`,
    service: "CloudFormation",
    isChecked: true,
    effect: "a rule needs 7 resources, and 4 more for `reconcile`. `build` also refuses too many resources",
  },
  {
    limit: `${maxIntegrations} integrations and routes`,
    service: "HTTP API",
    isChecked: true,
    effect: "each rule needs one of each",
  },
  {
    limit: `${toText(maxPolicyCharacters)} characters in the policies of one role`,
    service: "IAM",
    isChecked: true,
    effect:
      "a function's role needs one statement for each cluster whose token the rule reads (on EKS, it reads none) or whose reviews are recorded, and one more if settings name secrets by ARN",
  },
  {
    limit: `${toText(maxEnvironmentBytes)} bytes of environment, measured as JSON`,
    service: "Lambda",
    isChecked: true,
    effect: "`build` also refuses larger environments",
  },
  {
    limit: "50 MB for a zip, and 75 GB of code in a region, unless the account's settings say otherwise",
    service: "Lambda",
    isChecked: true,
    effect:
      "Postern deletes old versions after a deployment. It keeps the first version, the live version, later versions, and the last four versions that were live",
  },
  {
    limit: "1,000 concurrent executions of an account, in new accounts 10, unless its settings say otherwise",
    service: "Lambda",
    isChecked: true,
    effect: `\`deploy\` refuses three cases: \`reserved\` leaves fewer than ${leastUnreserved} executions for other functions; \`warm\` needs more executions than are left beside these ${leastUnreserved}; and one request would call more functions at a time than the account can run`,
  },
  {
    limit: `${maxFunctionName} characters in a function's name`,
    service: "Lambda",
    effect: "Postern cuts a longer `postern-STAGE-RULE`, and appends six digits of a hash",
  },
  {
    limit: "15 calls of the management API a second",
    service: "Lambda",
    effect: `\`deploy\` changes ${maxParallelFunctionChanges} functions at a time, and slows down when AWS throttles the calls`,
  },
];

/** The limits of Postern itself, and those of an API server that Postern applies, too. */
const limitsOfPostern: readonly (readonly [limit: string, effect: string])[] = [
  [
    `${toText(mostExpressionCost)}: cost of one expression of CEL`,
    `as in an API server. The conditions of an entry or a policy may cost ${toText(mostConditionsCost)} together, the validations or mutations of a policy ${toText(mostPassCost)}`,
  ],
  [`${mostExceptions} exceptions of a rule`, "commands refuse postern.yaml"],
  [`${mostQuotas} quotas of workload-quota`, "commands refuse the settings; a change in DynamoDB has room for no more"],
  [
    `${toSeconds(longestApiServerReadMilliseconds)} for one answer that a rule reads from its cluster, and ${toMegabytes(maximumHttpsAnswerBytes)} for all pages of a list`,
    "the review fails, so the entry's failurePolicy decides",
  ],
  [`${maxReleases} newest releases of a stage`, "`rollback` can't return to an older release"],
  [
    `${toMegabytes(longestFile)} for a file that commands read`,
    "`check` reports that it can't read the file, and exits with 3",
  ],
  [`${toSeconds(longestRun)} for one run of kustomize, kubectl or helm`, "`check` reports what it couldn't build"],
  [`${toSeconds(defaultTimeout)} for an object in Kubernetes' own handlers`, "`check` calls the object undecided"],
];

const formatTable = (rows: readonly (readonly string[])[]): string =>
  rows.map((cells) => `| ${cells.join(" | ")} |`).join("\n");

/** Returns docs/background/limits.md as it is, and with tables of the limits as the code has them. */
export const buildLimitsPage = (): { present: string; wanted: string } => {
  const present = readFileSync(page, "utf8");
  const ofAws = formatTable([
    ["limit", "service", "does `deploy` check it?", "what follows"],
    ["---", "---", "---", "---"],
    ...limitsOfAws.map(({ limit, service, isChecked, effect }) => [limit, service, isChecked ? "yes" : "", effect]),
  ]);
  const ofPostern = formatTable([["limit", "what follows"], ["---", "---"], ...limitsOfPostern]);
  const wanted = replaceList(replaceList(present, "table of AWS's limits", ofAws), "table of own limits", ofPostern);
  return { present, wanted };
};

if (import.meta.main) writeFileSync(page, buildLimitsPage().wanted);
