import type { Policy } from "#lib/policy/kinds.ts";
import { type PolicyCase, tables } from "./example-policies.ts";
import { type Evaluator, type Question, startKinitiras, startPolicies } from "./kinitiras.ts";
import { inTurn, type Ratio, ratioOf } from "./ratios.ts";
import { together } from "./together.ts";

/** How one kind of rule compares with kinitiras' own engine: over all cases of it, each by its median. */
export interface Engines {
  what: string;
  ratio: Ratio;
  /** Where it is evaluated without CUE. */
  bar?: number;
}

/** What a rule holds, and what that is called. */
const sources: Record<string, string> = {
  template: "a template that changes",
  plaintext: "plaintext",
  origin: "origin",
  condition: "a template that refuses",
  cue: "a script",
};

/** Evaluates the measured cases by both, in turn: what ours takes over what theirs does. */
export const engineRatios = (program: string, rounds: number): Promise<Engines[]> =>
  together(async (keep) => {
    const [ours, theirs] = [await keep(startPolicies()), await keep(startKinitiras(program))];
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
  });

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
  ours: Evaluator,
  theirs: Evaluator,
  rounds: number,
): Promise<number | undefined> => {
  const [mine, other] = [await ours.ask({ ...question, rounds: 50 }), await theirs.ask({ ...question, rounds: 1 })];
  if (mine.error !== undefined || other.error !== undefined) return undefined;
  if (mine.denied !== other.denied)
    throw new Error(
      `they don't agree, and can't be compared: ${JSON.stringify([question, mine.denied, other.denied])}`,
    );
  const lasting = (one: Evaluator) => async () => {
    const { nanoseconds } = await one.ask({ ...question, rounds: 5 });
    return ratioOf(nanoseconds).median;
  };
  return ratioOf(await inTurn(rounds, lasting(theirs), lasting(ours))).median;
};
