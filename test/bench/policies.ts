import { join } from "node:path";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { createEndpoint } from "#lib/core/endpoint.ts";
import { evaluateCue } from "#lib/cue/engine.ts";
import type { KinitirasPolicy, OverridePolicy, OverrideRule } from "#lib/policy/types.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { getFunctionsFolder } from "../../infra/catalogue/sources.ts";
import type { WebhookUrlSigner } from "../../infra/keys/keys.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { compareCueColdStartsWithCueWasm } from "./cold-starts.ts";
import { benchCluster, buildBenchEndpointConfig } from "./handlers.ts";
import { kinitirasCaseTables, type PolicyCase } from "./inputs/example-policies.ts";
import { buildPodReview, createHttpRequestBuilder } from "./inputs/reviews.ts";
import type { KinitirasBenchQuestion, TimedPolicyEvaluations } from "./peers/kinitiras.ts";
import { type ChildProgram, startChild, startNodeProcess } from "./processes/processes.ts";
import { type BenchResult, measureMilliseconds, measureRatiosInTurn, summarizeRatios } from "./ratios.ts";

/** Measures reviews with many policies, and compares evaluations of policies with kinitiras' own engine. */
export const benchKinitirasPolicies = async (
  kinitirasEngine: string | undefined,
  rounds: number,
): Promise<BenchResult[]> => [
  ...(await compareManyPoliciesWithOne(rounds)),
  ...(kinitirasEngine ? await measureAgainstKinitirasEngine(kinitirasEngine, rounds) : []),
];

/** Measures cold starts with a CUE script. "cue-wasm alone" is a function that runs the script without Postern. */
export const measureScriptColdStart = async (
  signer: WebhookUrlSigner,
  folder: string,
  rounds: number,
): Promise<BenchResult> => ({
  what: "a cold start with a CUE script, over cue-wasm alone",
  ratio: summarizeRatios(await compareCueColdStartsWithCueWasm(signer, folder, rounds)),
  limit: 0.7,
});

type Overriders = OverrideRule["overriders"];

const buildTemplateOverrider = (index: number): Overriders => ({
  template: { type: "labels", operation: "add", path: `bench-${index}`, value: { string: "yes" } },
});
const buildScriptOverrider = (index: number): Overriders => ({
  cue: `object: _\npatches: [{op: "add", path: "/metadata/labels/bench-\\(len(object.spec.containers))-${index}", value: "yes"}]`,
});

/** Builds a policy whose selector matches the review's pod or, without `matches`, no pod. */
const buildPolicy = (index: number, overriders: Overriders, matches: boolean): OverridePolicy => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterOverridePolicy",
  metadata: { name: `policy-${index}` },
  spec: {
    resourceSelectors: [
      { apiVersion: "v1", kind: "Pod", labelSelector: { matchLabels: { app: matches ? "shop" : `shop-${index}` } } },
    ],
    overrideRules: [{ targetOperations: ["CREATE"], overriders }],
  },
});

/** Builds `count` policies for pods. The first `matching` of them match the review's pod. */
const buildPolicies = (
  overriders: (index: number) => Overriders,
  { count, matching }: { count: number; matching: number },
) => Array.from({ length: count }, (_, index) => buildPolicy(index, overriders(index), index < matching));

/** Compares reviews with many policies and reviews with a single policy. */
export const compareManyPoliciesWithOne = async (rounds: number): Promise<BenchResult[]> => {
  const listed = await readRule(join(getFunctionsFolder(), "policy-override"), "policy-override");
  const signer = createTestSigner(1);
  const host = {
    publicKeys: signer.publicKey,
    openCapabilities: createUnconnectedCapabilities,
    writeLogLine: () => {},
  };
  const request = createHttpRequestBuilder(
    `/${signer.segment(benchCluster, 1)}/policy-override/mutate`,
    buildPodReview(5_000),
  );
  /** Returns a function that sends a review. The answer must have this many patch operations. */
  const openReview = async (policies: OverridePolicy[], operations: number) => {
    const { answerRequest } = createEndpoint(
      listed.rule,
      buildBenchEndpointConfig(listed, { policies, inCluster: false }),
      host,
    );
    const act = () => answerRequest(request());
    const { code, body } = await act();
    const patch = code === 200 && JSON.parse(body).response.patch;
    if (!patch || JSON.parse(atob(patch)).length !== operations) throw new Error(`no answer to measure: ${body}`);
    return act;
  };

  // CUE is loaded before the measurement, because the first script waits for that.
  await evaluateCue("1");
  const results: BenchResult[] = [];
  const kinds = [
    { name: "a template", overriders: buildTemplateOverrider, times: 100 },
    { name: "a script", overriders: buildScriptOverrider, times: 4 },
  ];
  for (const { name, overriders, times } of kinds) {
    const onePolicy = await openReview(buildPolicies(overriders, { count: 1, matching: 1 }), 1);
    for (const count of [10, 100, 1000]) {
      const many = await openReview(buildPolicies(overriders, { count, matching: 1 }), 1);
      const ratios = await measureRatiosInTurn(rounds, createTimer(onePolicy, times), createTimer(many, times));
      results.push({
        what: `${name}, ${count} policies of which one matches the pod, over one policy alone`,
        ratio: summarizeRatios(ratios),
        limit: 1.2,
      });
    }
    const count = 10;
    const eachPolicy = await openReview(buildPolicies(overriders, { count, matching: count }), count);
    const ratios = await measureRatiosInTurn(
      rounds,
      createTimer(onePolicy, times),
      createTimer(eachPolicy, Math.ceil(times / count), { dividedBy: count }),
    );
    results.push({
      what: `${name}, the time for each of ${count} policies that all match the pod, over one policy alone`,
      ratio: summarizeRatios(ratios),
      limit: 1.2,
    });
  }
  return results;
};

/** Returns a function that measures the average milliseconds of `times` runs, divided by `dividedBy`. */
const createTimer =
  (act: () => Promise<unknown>, times: number, { dividedBy = 1 } = {}) =>
  async () =>
    (await measureMilliseconds(act, times)) / times / dividedBy;

/** How the report names each kind of measured policy rule. */
const kindTitles: Record<string, string> = {
  template: "a template that changes",
  plaintext: "plaintext",
  origin: "origin",
  condition: "a template that refuses",
  cue: "a script",
};

/**
 * Compares Postern's evaluation of policies with kinitiras' own engine. For each kind of rule, a result summarizes the
 * ratios of all cases.
 */
export const measureAgainstKinitirasEngine = async (program: string, rounds: number): Promise<BenchResult[]> => {
  await using running = new AsyncDisposableStack();
  const [ours, theirs] = [running.use(startNodeProcess("policies-process.ts")), running.use(startChild(program))];
  const ratios = new Map<string, number[]>(Object.keys(kindTitles).map((kind) => [kind, []]));
  // A question consists of the policies and the request that both engines evaluate.
  for (const [kind, question] of listComparableCases()) {
    const ratio = await measureEngineRatio(question, ours, theirs, rounds);
    if (ratio !== undefined) ratios.get(kind)?.push(ratio);
  }
  return [...ratios].map(([kind, found]) => ({
    what: `${kindTitles[kind]}, over kinitiras' own engine, ${found.length} cases`,
    ratio: summarizeRatios(found),
    // Both engines evaluate a script with CUE, so its ratio has no limit.
    ...(kind !== "cue" && { limit: 1 }),
  }));
};

/** Returns pairs: a kind, and a case with only such rules, which both engines evaluate alike without a cluster. */
const listComparableCases = (): [ruleKind: string, question: Omit<KinitirasBenchQuestion, "rounds">][] =>
  kinitirasCaseTables.cases.flatMap((policyCase) => {
    const { policies, object, operation } = policyCase;
    const kinds = new Set(policies.flatMap(listRuleKinds));
    const [kind = ""] = kinds;
    const isComparable = operation === "CREATE" && kinds.size === 1 && kind in kindTitles && isAlike(policyCase);
    return isComparable && object ? [[kind, { policies, object, operation }]] : [];
  });

/** Reports whether Postern and kinitiras answer a case alike and without error, and it needs no cluster and no HTTP. */
const isAlike = ({ expect, deviation, http, cluster, policies }: PolicyCase): boolean =>
  expect.policy === "accepted" &&
  !expect.error &&
  !deviation &&
  !http &&
  !cluster &&
  // A script sends an HTTP request by its field `processing`.
  !/"from":"(k8s|owner|http)"|processing/.test(JSON.stringify(policies));

const listRuleKinds = (policy: KinitirasPolicy): string[] =>
  policy.kind === "ClusterValidatePolicy"
    ? policy.spec.validateRules.flatMap(({ template, cue }) => [
        ...(template ? ["condition"] : []),
        ...(cue ? ["cue"] : []),
      ])
    : policy.spec.overrideRules.flatMap(({ overriders }) => Object.keys(overriders));

/** Returns the median ratio of Postern's times to the times of kinitiras' engine; undefined if an engine fails. */
const measureEngineRatio = async (
  question: Omit<KinitirasBenchQuestion, "rounds">,
  ours: ChildProgram,
  theirs: ChildProgram,
  rounds: number,
): Promise<number | undefined> => {
  const evaluate = async (engine: ChildProgram, rounds: number) =>
    (await engine.ask({ ...question, rounds })) as TimedPolicyEvaluations;
  // Node's first evaluations are slow. 50 of them warm the code up.
  const [ourAnswer, theirAnswer] = [await evaluate(ours, 50), await evaluate(theirs, 1)];
  if (ourAnswer.error !== undefined || theirAnswer.error !== undefined) return undefined;
  if (ourAnswer.denied !== theirAnswer.denied)
    throw new Error(
      `they don't agree, and can't be compared: ${JSON.stringify([question, ourAnswer.denied, theirAnswer.denied])}`,
    );
  const computeMedian = (values: readonly number[]) => summarizeRatios(values).median;
  const time = (engine: ChildProgram) => async () => computeMedian((await evaluate(engine, 5)).nanoseconds);
  return computeMedian(await measureRatiosInTurn(rounds, /* divisor */ time(theirs), time(ours)));
};
