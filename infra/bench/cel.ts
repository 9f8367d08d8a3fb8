import { deepEqual } from "node:assert/strict";
import { join } from "node:path";
import { encodeChecks } from "#lib/cel/checked-expressions.ts";
import { collectChecks } from "#lib/cel/expression-check.ts";
import { compileExpression, createAdmissionEnvironment } from "#lib/cel/kubernetes.ts";
import { bool } from "#lib/cel/types.ts";
import type { Value } from "#lib/cel/values.ts";
import { bundleCode, insertData } from "../build/bundle.ts";
import { createCelPlugin, expressionsMark } from "../build/cel.ts";
import { packageRoot } from "../cli/roots.ts";
import { compareCodeWithEmptyHandler } from "./cold-starts.ts";
import { type ChildProgram, startChild, startNodeProcess } from "./processes.ts";
import { type BenchResult, measureInTurn, summarizeRatios } from "./ratios.ts";
import { buildPodReview } from "./reviews.ts";

/** The expressions of a policy, what they are evaluated with, and how often. */
export interface CelBenchQuestion {
  policy: readonly string[];
  variables: Record<string, Value>;
  repeat: number;
}

/** The nanoseconds that all expressions of a policy take together, and what they result in. */
export interface TimedPolicy {
  compilation: number;
  evaluation: number;
  results: Value[];
  cost: number;
}

/** Ten validations that the pod of a bench review passes. */
const policy = [
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

/** Measures the evaluation and the compilation of a policy, over cel-go, and a cold start with it. */
export const measureCel = async (cel: string | undefined, folder: string, rounds: number): Promise<BenchResult[]> => [
  ...(cel === undefined ? [] : await compareWithCelGo(cel, rounds)),
  await measureCelColdStart(folder, rounds),
];

export const compareWithCelGo = async (cel: string, rounds: number): Promise<BenchResult[]> => {
  await using running = new AsyncDisposableStack();
  const [ours, theirs] = [running.use(startNodeProcess("cel-process.ts")), running.use(startChild(cel))];
  const { request } = JSON.parse(buildPodReview(5_000));
  const question: CelBenchQuestion = { policy, variables: { object: request.object, request }, repeat: 200 };
  const ask = (program: ChildProgram) => async () => (await program.ask(question)) as TimedPolicy;
  const pairs = await measureInTurn(rounds, ask(theirs), ask(ours));
  for (const [other, mine] of pairs) deepEqual([mine.results, mine.cost], [other.results, other.cost]);
  const summarize = (get: (timed: TimedPolicy) => number) =>
    summarizeRatios(pairs.map(([other, mine]) => get(mine) / get(other)));
  return [
    { what: "ten validations of a pod of 5 KB, over cel-go", ratio: summarize((timed) => timed.evaluation), bar: 1.5 },
    { what: "compiling them, over cel-go", ratio: summarize((timed) => timed.compilation) },
  ];
};

/** Measures the first start of a bundle with the policy, which has no other code of a rule, over an empty handler. */
export const measureCelColdStart = async (folder: string, rounds: number): Promise<BenchResult> => {
  const environment = createAdmissionEnvironment(context);
  const checks = encodeChecks(collectChecks(() => policy.map((text) => compileExpression(text, environment, [bool]))));
  const bundled = await bundleCode(buildHandler(), [createCelPlugin(checks)]);
  const code = insertData(bundled.code, { [expressionsMark]: checks });
  return {
    what: "a cold start with them, over an empty handler",
    ratio: summarizeRatios(await compareCodeWithEmptyHandler(code, folder, rounds)),
    bar: 1.5,
    kilobytes: { bundle: Buffer.byteLength(code) / 1024, bar: 60 },
  };
};

const context = { hasParams: true, hasAuthorizer: true };

const buildHandler = () => `
import { compileExpression, createAdmissionEnvironment, evaluateExpression } from ${JSON.stringify(join(packageRoot, "lib/cel/kubernetes.ts"))};
import { bool } from ${JSON.stringify(join(packageRoot, "lib/cel/types.ts"))};
const environment = createAdmissionEnvironment(${JSON.stringify(context)});
const policy = ${JSON.stringify(policy)}.map((text) => [text, compileExpression(text, environment, [bool])]);
module.exports.handler = async ({ body }) => {
  const { request } = JSON.parse(body);
  const variables = { find: (name) => (name === "request" ? request : request[name]) };
  const set = { left: 1e7 };
  const isValid = policy.every(([text, compiled]) => evaluateExpression(text, compiled, variables, set).value === true);
  return { statusCode: isValid ? 200 : 500 };
};
`;
