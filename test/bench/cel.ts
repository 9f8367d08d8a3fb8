import { deepEqual } from "node:assert/strict";
import { join } from "node:path";
import { encodeChecks } from "#lib/cel/checked-expressions.ts";
import { collectChecks } from "#lib/cel/expression-check.ts";
import { compileExpression, createAdmissionEnvironment } from "#lib/cel/kubernetes.ts";
import { bool } from "#lib/cel/types.ts";
import type { Value } from "#lib/cel/values.ts";
import { bundleCode, insertData } from "../../infra/build/bundle.ts";
import { createCelPlugin, expressionsMark } from "../../infra/build/cel.ts";
import { packageRoot } from "../../infra/cli/roots.ts";
import type { WebhookUrlSigner } from "../../infra/keys/keys.ts";
import { compareCodeWithEmptyHandler, compareRuleWithEmptyHandler, summarizeStarts } from "./cold-starts.ts";
import { buildPodReview } from "./inputs/reviews.ts";
import { type ChildProgram, startChild, startNodeProcess } from "./processes/processes.ts";
import { type BenchResult, measureInTurn, summarizeRatios } from "./ratios.ts";

/** The expressions of a policy, the variables for their evaluation, and the number of evaluations. */
export interface CelBenchQuestion {
  policy: readonly string[];
  variables: Record<string, Value>;
  repeat: number;
}

/** The nanoseconds that all expressions of a policy take together, and their results. */
export interface TimedPolicy {
  compilation: number;
  evaluation: number;
  results: Value[];
  cost: number;
}

/** Ten validations that the pod of a bench review passes. */
export const usualValidations = [
  "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
  "!object.spec.?hostNetwork.orValue(false) && !object.spec.?hostPID.orValue(false)",
  "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits)",
  "object.spec.containers.all(c, quantity(c.resources.limits.memory).compareTo(quantity('1Gi')) <= 0)",
  "object.spec.containers.all(c, !(has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged))",
  "has(object.metadata.labels) && object.metadata.labels.?app.orValue('').matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
  "object.spec.containers.all(c, object.spec.containers.exists_one(d, d.name == c.name))",
  "has(object.spec.securityContext) && object.spec.securityContext.runAsNonRoot",
  "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
  "request.userInfo.groups.exists(g, g.startsWith('system:serviceaccounts:')) || size(object.spec.containers) < 3",
];

const apiVersion = "admissionregistration.k8s.io/v1";

/** Returns a policy about pods with a binding, as settings of validating-admission-policy. */
export const buildPolicySettings = (expressions: readonly string[], spec: object = {}) => {
  const metadata = { name: "usual" };
  const pods = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] };
  const validations = expressions.map((expression) => ({ expression }));
  const policy = { matchConstraints: { resourceRules: [pods] }, validations, ...spec };
  const binding = { policyName: metadata.name, validationActions: ["Deny"] };
  return {
    policies: [
      { apiVersion, kind: "ValidatingAdmissionPolicy", metadata, spec: policy },
      { apiVersion, kind: "ValidatingAdmissionPolicyBinding", metadata, spec: binding },
    ],
  };
};

/** Measures the evaluation and the compilation of a policy, as ratios to the times of cel-go. */
export const compareWithCelGo = async (cel: string, rounds: number): Promise<BenchResult[]> => {
  await using running = new AsyncDisposableStack();
  const [ours, theirs] = [running.use(startNodeProcess("cel-process.ts")), running.use(startChild(cel))];
  const { request } = JSON.parse(buildPodReview(5_000));
  const question: CelBenchQuestion = {
    policy: usualValidations,
    variables: { object: request.object, request },
    repeat: 200,
  };
  const evaluate = (program: ChildProgram) => async () => (await program.ask(question)) as TimedPolicy;
  const pairs = await measureInTurn(rounds, evaluate(theirs), evaluate(ours));
  for (const [theirTimes, ourTimes] of pairs)
    deepEqual([ourTimes.results, ourTimes.cost], [theirTimes.results, theirTimes.cost]);
  const summarize = (get: (timed: TimedPolicy) => number) =>
    summarizeRatios(pairs.map(([theirTimes, ourTimes]) => get(ourTimes) / get(theirTimes)));
  return [
    {
      what: "ten validations of a pod of 5 KB, over cel-go",
      ratio: summarize((timed) => timed.evaluation),
      limit: 1.5,
    },
    { what: "compiling the ten validations, over cel-go", ratio: summarize((timed) => timed.compilation) },
  ];
};

/**
 * Measures cold starts, as ratios to those of an empty handler: of a bundle that only evaluates `usualValidations`, and
 * of the rule validating-admission-policy with these ten validations.
 */
export const measureCelColdStarts = async (
  signer: WebhookUrlSigner,
  folder: string,
  rounds: number,
): Promise<BenchResult[]> => {
  const environment = createAdmissionEnvironment(context);
  const checkedExpressions = encodeChecks(
    collectChecks(() => usualValidations.map((text) => compileExpression(text, environment, [bool]))),
  );
  // The bundle has these expressions instead of a parser and a checker, and only the functions that they call.
  const bundled = await bundleCode(buildHandler(), [createCelPlugin(checkedExpressions)]);
  const code = insertData(bundled.code, { [expressionsMark]: checkedExpressions });
  const name = "validating-admission-policy";
  const rule = await compareRuleWithEmptyHandler(name, buildPolicySettings(usualValidations), signer, folder, rounds);
  return [
    {
      what: "a cold start with ten validations, over an empty handler",
      ...summarizeStarts(await compareCodeWithEmptyHandler(code, folder, rounds)),
      limit: 1.5,
      kilobytes: { bundle: Buffer.byteLength(code) / 1024, limit: 60 },
    },
    {
      what: `a cold start of ${name} with ten validations, over an empty handler`,
      ...summarizeStarts(rule.times),
      limit: 1.6,
      kilobytes: { bundle: rule.bytes / 1024, limit: 100 },
    },
  ];
};

const context = { hasParams: true, hasAuthorizer: true };

const buildHandler = () => `
import { compileExpression, createAdmissionEnvironment, evaluateExpression } from ${JSON.stringify(join(packageRoot, "lib/cel/kubernetes.ts"))};
import { bool } from ${JSON.stringify(join(packageRoot, "lib/cel/types.ts"))};
const environment = createAdmissionEnvironment(${JSON.stringify(context)});
const policy = ${JSON.stringify(usualValidations)}.map((text) => [text, compileExpression(text, environment, [bool])]);
module.exports.handler = async ({ body }) => {
  const { request } = JSON.parse(body);
  const variables = { find: (name) => (name === "request" ? request : request[name]) };
  const costBudget = { left: 1e7 };
  const isTrue = ([text, compiled]) => evaluateExpression(text, compiled, variables, costBudget).value === true;
  const isValid = policy.every(isTrue);
  return { statusCode: isValid ? 200 : 500 };
};
`;
