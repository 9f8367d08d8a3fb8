import { collectChecks } from "#lib/cel/expression-check.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import { matchesRequest } from "#lib/request-match.ts";
import { type Rule, selectPhase } from "#lib/rule.ts";
import type { StageFunctions } from "../../aws/lambda-functions.ts";
import { applyOutcomePatch, describeCaseDifferences, parseDecision } from "../../catalogue/case-differences.ts";
import {
  applyCaseSettingsAndVariant,
  buildInvocationEvent,
  buildReview,
  evaluateCase,
  getCasePhase,
  readCases,
} from "../../catalogue/cases.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import { runInParallel } from "../../cli/progress.ts";

const atOnce = 4;
/** The number of failed cases that are reported with a sentence. */
const maxReported = 3;

/**
 * Invokes a version with the cases of its rule or group. Returns a sentence for each case that fails. Skips cases that
 * run a CUE script, if the version has no CUE, and cases with CEL expressions, because a version has only the compiled
 * expressions of its own settings. A group's function only mutates, so it gets no cases in which a member validates.
 */
export const runCases = async (
  functions: Pick<StageFunctions, "invoke">,
  listed: CatalogueRule,
  version: string,
  { runsScripts = true }: { runsScripts?: boolean } = {},
): Promise<{ cases: number; faults: string[] }> => {
  const casesByMember = (listed.members ?? [listed]).map(async (member) =>
    (await readCases(member)).map((ruleCase) => [member, ruleCase] as const),
  );
  const candidates = (await Promise.all(casesByMember))
    .flat()
    .filter(([, ruleCase]) => listed.members === undefined || getCasePhase(ruleCase) === "mutate")
    .filter(([{ rule }, ruleCase]) => !hasExpressions(rule, ruleCase));
  const canRun = await Promise.all(
    candidates.map(async ([member, ruleCase]) => runsScripts || !(await needsScript(member, ruleCase))),
  );
  const runnable = candidates.filter((_, index) => canRun[index]);
  const found = await runInParallel(atOnce, runnable, async ([rule, ruleCase]) => {
    const member = listed.members && { member: rule.name };
    const answer = await functions.invoke(listed.name, version, { ...buildInvocationEvent(rule, ruleCase), ...member });
    const decision = parseDecision(answer.payload, buildReview(rule, ruleCase).request.uid);
    const sentences: string[] = [];
    if (answer.fault) sentences.push(`it fails: ${answer.fault}${formatLastLogLine(answer.log)}`);
    else if (decision) sentences.push(...describeCaseDifferences(ruleCase, decision));
    else sentences.push(`its answer is not an AdmissionReview: ${JSON.stringify(answer.payload)?.slice(0, 200)}`);
    return sentences.length === 0 ? [] : [`${rule.name}, "${ruleCase.name}": ${sentences.join("; ")}`];
  });
  const faults = found.flat();
  const unreported = faults.length - maxReported;
  return {
    cases: runnable.length,
    faults:
      unreported > 0 ? [...faults.slice(0, maxReported), `${listed.name}: ${unreported} more cases differ`] : faults,
  };
};

/** Reports whether a case has CEL expressions in its settings. */
const hasExpressions = (rule: Rule, ruleCase: Case): boolean => {
  const { settings } = applyCaseSettingsAndVariant(rule, ruleCase);
  // `collectChecks` returns every expression that is compiled, and so checked, during this call.
  const expressions = collectChecks(() => rule.compileExpressions?.(structuredClone(settings)));
  return expressions.length > 0;
};

/** Reports whether a case runs a CUE script. It evaluates the case on this machine, with a stub in place of CUE. */
const needsScript = async (listed: CatalogueRule, ruleCase: Case): Promise<boolean> => {
  let runs = false;
  const noteScript = async () => {
    runs = true;
    return "{}";
  };
  const capabilities = { ...createRecordedCapabilities(ruleCase.needs ?? {}), cue: noteScript };
  // Only the call of the stub matters, so the outcome and errors are ignored.
  await evaluateCase(listed, ruleCase, buildReview(listed, ruleCase), capabilities).catch(() => {});
  return runs;
};

/**
 * A rule that mutates and validates, and the functions that do so. The mutator is the function of the rule, or of its
 * group.
 */
export interface RuleServedInBothPhases {
  rule: CatalogueRule;
  mutator: string;
  validator: string;
}

/** Returns the rules that both mutate and validate, each with the functions that serve its phases. */
export const findRulesServedInBothPhases = (served: CatalogueRule[]): RuleServedInBothPhases[] =>
  served.flatMap((servedRule) =>
    (servedRule.members ?? [servedRule])
      .filter(({ phases }) => phases.includes("mutate") && phases.includes("validate"))
      .flatMap((rule) => {
        // A group's function mutates for its members, which validate in their own functions. So `served` has a member
        // twice: in its group and alone. It is skipped here where it only validates.
        const isGrouped = served.some(({ members }) => members?.some(({ name }) => name === rule.name));
        const isOnlyValidator = servedRule.members === undefined && isGrouped;
        return isOnlyValidator ? [] : [{ rule, mutator: servedRule.name, validator: rule.name }];
      }),
  );

type PairVersions = Record<"mutator" | "validator", string>;

/**
 * Describes objects in a rule's cases that an old mutator writes and only the fresh validator refuses, or that a fresh
 * mutator writes and only the old validator refuses: during a deployment, a request may meet such a pair.
 */
export const checkPhasePairCompatibility = async (
  functions: Pick<StageFunctions, "invoke">,
  { rule, mutator, validator }: RuleServedInBothPhases,
  old: PairVersions,
  fresh: PairVersions,
): Promise<string[]> => {
  const cases = (await readCases(rule)).filter(
    (ruleCase) => ruleCase.mutate !== undefined && ruleCase.becomes !== undefined,
  );
  // Only a mutator can be the function of a group, which needs the name of the member.
  const member = mutator === rule.name ? {} : { member: rule.name };
  const readRefusal = async (version: string, ruleCase: Case, object: unknown) => {
    const event = buildInvocationEvent(rule, ruleCase);
    const review = { ...event.review, request: { ...event.review.request, object } };
    const { payload } = await functions.invoke(validator, version, { ...event, phase: "validate", review });
    const outcome = parseDecision(payload, buildReview(rule, ruleCase).request.uid)?.outcome;
    return outcome?.allowed === false ? outcome.status?.message : undefined;
  };
  const found = await runInParallel(atOnce, cases, async (ruleCase) => {
    if (!validatesWrittenObject(rule, ruleCase)) return [];
    const sentences: string[] = [];
    for (const [writer, checker] of [
      [old, fresh],
      [fresh, old],
    ] as const) {
      const { payload } = await functions.invoke(mutator, writer.mutator, {
        ...buildInvocationEvent(rule, ruleCase),
        ...member,
      });
      const decision = parseDecision(payload, buildReview(rule, ruleCase).request.uid);
      if (decision === undefined || decision.refused) continue;
      const object = applyOutcomePatch(ruleCase.mutate, decision.outcome);
      const refusal = await readRefusal(checker.validator, ruleCase, object);
      if (refusal === undefined || (await readRefusal(writer.validator, ruleCase, object)) !== undefined) continue;
      sentences.push(
        `${rule.name}, "${ruleCase.name}": version ${checker.validator} refuses what version ${writer.mutator} writes: ${refusal}`,
      );
    }
    return sentences;
  });
  return found.flat().slice(0, maxReported);
};

/** Reports whether a rule validates the object that the request of a case writes. A DELETE request writes none. */
const validatesWrittenObject = (rule: CatalogueRule, ruleCase: Case): boolean => {
  const { rule: variantRule, settings } = applyCaseSettingsAndVariant(rule.rule, ruleCase);
  const { request } = buildReview(rule, ruleCase);
  const rows = selectPhase(variantRule.match, "validate", settings) ?? [];
  return request.operation !== "DELETE" && rows.some((match) => matchesRequest(match, request));
};

/** Returns the last line that a function has logged, without the lines that Lambda adds. */
const formatLastLogLine = (log: string): string => {
  const lines = log.split("\n").filter((line) => line.trim() && !/^(START|END|REPORT|INIT_START) /.test(line));
  const last = lines.at(-1);
  return last === undefined ? "" : ` (its log ends: ${last.slice(0, 300)})`;
};
