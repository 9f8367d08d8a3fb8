import type { Policy } from "#lib/policy/kinds.ts";
import { type PolicyCase, tables } from "./example-policies.ts";
import type { Evaluations, Question } from "./kinitiras.ts";
import { type Child, startChild, startNode } from "./processes.ts";
import { compareInTurn, type Result, ratioOf } from "./ratios.ts";

/** What a rule holds, and what that is called. */
const sources: Record<string, string> = {
  template: "a template that changes",
  plaintext: "plaintext",
  origin: "origin",
  condition: "a template that refuses",
  cue: "a script",
};

/** Compares our evaluation of policies with kinitiras' own engine, by what a rule holds: the medians of all its cases. */
export const measureEngines = async (program: string, rounds: number): Promise<Result[]> => {
  await using running = new AsyncDisposableStack();
  const [ours, theirs] = [running.use(startNode("policies-process.ts")), running.use(startChild(program))];
  const ratios = new Map<string, number[]>(Object.keys(sources).map((source) => [source, []]));
  for (const [source, question] of comparable()) {
    const ratio = await ratioFor(question, ours, theirs, rounds);
    if (ratio !== undefined) ratios.get(source)?.push(ratio);
  }
  return [...ratios].map(([source, found]) => ({
    what: `${sources[source]}, over kinitiras' own engine, ${found.length} cases`,
    ratio: ratioOf(found),
    ...(source !== "cue" && { bar: 1 }),
  }));
};

/** What both can evaluate alone and mean the same by, where its rules are of one kind. */
const comparable = (): [source: string, question: Omit<Question, "rounds">][] =>
  tables.cases.flatMap((one) => {
    const { policies, object, operation } = one;
    const kinds = new Set(policies.flatMap(kindsIn));
    const [kind = ""] = kinds;
    const fits = operation === "CREATE" && kinds.size === 1 && kind in sources && isPlain(one);
    return fits && object ? [[kind, { policies, object, operation }]] : [];
  });

const isPlain = ({ expect, deviation, http, cluster, policies }: PolicyCase): boolean =>
  expect.policy === "accepted" &&
  !expect.error &&
  !deviation &&
  !http &&
  !cluster &&
  !/"from":"(k8s|owner|http)"|processing/.test(JSON.stringify(policies));

const kindsIn = (policy: Policy): string[] =>
  policy.kind === "ClusterValidatePolicy"
    ? policy.spec.validateRules.flatMap(({ template, cue }) => [
        ...(template ? ["condition"] : []),
        ...(cue ? ["cue"] : []),
      ])
    : policy.spec.overrideRules.flatMap(({ overriders }) => Object.keys(overriders));

/** The median; undefined where either has no answer. */
const ratioFor = async (
  question: Omit<Question, "rounds">,
  ours: Child,
  theirs: Child,
  rounds: number,
): Promise<number | undefined> => {
  const evaluate = async (one: Child, rounds: number) => (await one.ask({ ...question, rounds })) as Evaluations;
  const [mine, other] = [await evaluate(ours, 50), await evaluate(theirs, 1)];
  if (mine.error !== undefined || other.error !== undefined) return undefined;
  if (mine.denied !== other.denied)
    throw new Error(
      `they don't agree, and can't be compared: ${JSON.stringify([question, mine.denied, other.denied])}`,
    );
  const time = (one: Child) => async () => ratioOf((await evaluate(one, 5)).nanoseconds).median;
  return ratioOf(await compareInTurn(rounds, time(theirs), time(ours))).median;
};
