import assert from "node:assert/strict";
import { it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { selectPhase } from "#lib/rule.ts";
import {
  applyCaseSettingsAndVariant,
  buildReview,
  evaluateCase,
  getCasePhase,
  readCases,
} from "../../infra/catalogue/cases.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { evaluateMatchCondition } from "../../infra/testing/cel-condition.ts";
import { listRulesThatReplacePlugins } from "./plugins.ts";

it("matchConditions let a rule be called only for requests that it refuses or changes, with exceptions", async () => {
  // The cases in which the rule is called without effect, because no CEL condition can recognize them. Only rules that
  // reimplement a plugin and don't read the cluster are examined.
  const casesWithoutEffect: string[] = [];
  for (const listed of listRulesThatReplacePlugins(await readCatalogue()).filter(({ rule }) => !rule.needs))
    for (const entry of await readCases(listed)) {
      const phase = getCasePhase(entry);
      const review = buildReview(listed, entry);
      const { rule, settings } = applyCaseSettingsAndVariant(listed.rule, entry);
      const conditions = Object.values(selectPhase(rule.matchConditions, phase, settings) ?? {});
      if (!conditions.every((expression) => evaluateMatchCondition(expression, review.request))) continue;
      const { outcome, refused } = await evaluateCase(listed, entry, review);
      if (!refused && isDeepStrictEqual([outcome.patch ?? [], outcome.warnings ?? []], [[], []]))
        casesWithoutEffect.push(`${listed.name}/${phase}: ${entry.name}`);
    }
  assert.deepEqual(casesWithoutEffect, [
    "always-pull-images/mutate: does not change a container that is added for debugging",
    "always-pull-images/validate: admits a container that is added for debugging",
    "default-toleration-seconds/mutate: does not replace seconds in a pod with the keep annotation",
    "extended-resource-toleration/mutate: does not count a name that could not be in a quota",
    "cluster-trust-bundle-attest/validate: admits an update that changes nothing",
    "cluster-trust-bundle-attest/validate: admits changes by the garbage collector",
    "certificate-subject-restriction/validate: admits other organizations, with any unit and common name",
    "certificate-subject-restriction/validate: admits an organization similar to system:masters",
    "certificate-subject-restriction/validate: checks only the first PEM block, as signers do",
  ]);
});
