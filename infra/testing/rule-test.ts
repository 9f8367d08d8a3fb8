import { basename } from "node:path";
import type { RuleDecision } from "#lib/core/evaluation.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { reconcileCluster } from "#lib/core/reconciliation.ts";
import type { Capabilities } from "#lib/needs.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { buildReview, evaluateCase, readCases } from "../catalogue/cases.ts";
import { readRule } from "../catalogue/registry.ts";
import { parseConfig } from "../project/project.ts";
import { buildWebhookConfigurations } from "../webhooks/configurations.ts";

// The module `postern/test`, which the tests of rules import.
export { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
export type { MetricCount } from "#lib/metrics.ts";
export { applyOutcomePatch } from "../catalogue/case-differences.ts";
export { evaluateMatchCondition } from "./cel-condition.ts";
export { readRows } from "./rows.ts";
export { type Case, createRecordedCapabilities, type RuleDecision };

/** The inputs of a tested rule besides the request. By default, `now` is in 1970, and `capabilities` answer no read. */
interface TestedRuleInputs {
  settings?: object;
  /** The name of the variant that evaluates the request: one of the rule's `variants`. */
  variant?: string | undefined;
  now?: Date;
  capabilities?: Capabilities | undefined;
}

/** Returns functions that test the rule in a folder: `await openRule(import.meta.dirname)`. */
export const openRule = async (folder: string) => {
  const name = basename(folder);
  const listed = await readRule(folder, name);
  const { rule } = listed;
  return {
    cases: await readCases(listed),
    decideCase: (ruleCase: Case, capabilities?: Capabilities): Promise<RuleDecision> =>
      evaluateCase(listed, ruleCase, buildReview(listed, ruleCase), capabilities),
    /** Evaluates the rule for a request that can't be written as a case. `settings` override the rule's defaults. */
    decide: async (
      phase: Phase,
      request: AdmissionRequest,
      { settings, variant, now = new Date(0), capabilities = createRecordedCapabilities({}) }: TestedRuleInputs = {},
    ): Promise<RuleDecision> =>
      evaluateRule(rule, phase, request, {
        name,
        mode: "enforce",
        settings: mergeWithDefaults(rule.settings ?? {}, settings),
        variant,
        now,
        capabilities,
      }),
    /** Calls the rule's `reconcile` for one cluster. `settings` override the rule's defaults. */
    reconcile: async (
      capabilities: Capabilities,
      settings: object,
      readTime: () => number,
      until: number,
    ): Promise<string | undefined> =>
      reconcileCluster(rule, name, capabilities, {
        settings: mergeWithDefaults(rule.settings ?? {}, settings),
        readTime,
        until,
      }),
    /** Returns the webhook entries of the rule with a configuration in postern.yaml. */
    entries: (config: object = {}, harden = false) => {
      const cluster = parseConfig(JSON.stringify({ rules: { [name]: config } }), [listed]).clusters.get("local");
      if (!cluster) throw new Error("postern.yaml has no cluster local");
      const manifests = buildWebhookConfigurations([listed], cluster, {
        name: "postern",
        address: () => "https://host/",
        harden,
      });
      return manifests.flatMap(({ webhooks }) => webhooks);
    },
  };
};
