import assert from "node:assert/strict";
import { it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { selectPhase } from "#lib/rule.ts";
import { buildReview, evaluateCase, facetOf, getCasePhase, readCases } from "../catalogue/cases.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { evaluateCondition } from "../testing/cel-condition.ts";
import { listPorts } from "./plugins.ts";

it("ports that read nothing are called only where they act, but for what no condition can tell", async () => {
  const idle: string[] = [];
  for (const listed of listPorts(await readCatalogue()).filter(({ rule }) => !rule.needs))
    for (const entry of await readCases(listed)) {
      const phase = getCasePhase(entry);
      const review = buildReview(listed, entry);
      const { rule, settings } = facetOf(listed.rule, entry);
      const conditions = Object.values(selectPhase(rule.matchConditions, phase, settings) ?? {});
      if (!conditions.every((expression) => evaluateCondition(expression, review.request))) continue;
      const { outcome, refused } = await evaluateCase(listed, entry, review);
      if (!refused && isDeepStrictEqual([outcome.patch ?? [], outcome.warnings ?? []], [[], []]))
        idle.push(`${listed.name}/${phase}: ${entry.name}`);
    }
  assert.deepEqual(idle, [
    "always-pull-images/mutate: leaves a container alone that is added to debug a pod",
    "always-pull-images/validate: admits a container that is added to debug a pod",
    "default-toleration-seconds/mutate: replaces nothing in a pod whose annotation asks for that",
    "extended-resource-toleration/mutate: takes no name for a resource that could not stand in a quota",
    "cluster-trust-bundle-attest/validate: admits what changes nothing",
    "cluster-trust-bundle-attest/validate: admits what the garbage collector changes",
    "certificate-subject-restriction/validate: admits one for others, whatever their unit and their own names are",
    "certificate-subject-restriction/validate: admits one for who is called almost like masters",
    "certificate-subject-restriction/validate: looks at the first request alone, as signers do",
  ]);
});
