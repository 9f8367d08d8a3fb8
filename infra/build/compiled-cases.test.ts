import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { describe, it } from "node:test";
import { createTestFolder } from "../../test/folders.ts";
import { describeCaseDifferences, parseDecision } from "../catalogue/case-differences.ts";
import { applyCaseSettingsAndVariant, buildInvocationEvent, buildReview, readCases } from "../catalogue/cases.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { bundleRule } from "./bundle.ts";

// In one bundle, each case is a cluster with the settings of the case.
const folder = await createTestFolder();
for (const listed of (await readCatalogue()).filter(({ rule }) => rule.compileExpressions)) {
  const cases = await readCases(listed);
  const setups = cases.map((ruleCase, index) => {
    const { settings } = applyCaseSettingsAndVariant(listed.rule, ruleCase);
    return [`c${index}`, { keyVersions: [1], mode: "enforce" as const, settings }];
  });
  await bundleRule(listed, { rule: listed.name, clusters: Object.fromEntries(setups) }, folder);
  const file = join(folder, listed.name, "index.cjs");
  const { handler } = createRequire(import.meta.url)(file);

  describe(`the bundle of ${listed.name}`, () => {
    it("has no parser", async () => assert.doesNotMatch(await readFile(file, "utf8"), /Syntax error/));

    for (const [index, ruleCase] of cases.entries())
      it(ruleCase.name, async () => {
        const event = { ...buildInvocationEvent(listed, ruleCase), settings: undefined, cluster: `c${index}` };
        const answer = await handler(event, {});
        const decision = parseDecision(answer, buildReview(listed, ruleCase).request.uid);
        assert.ok(decision, JSON.stringify(answer));
        assert.deepEqual(describeCaseDifferences(ruleCase, decision), []);
      });
  });
}
