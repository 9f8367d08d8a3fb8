import { stringify } from "yaml";
import { type NamedConditions, selectPhase } from "#lib/rule.ts";
import { type CatalogueRule, describeUseOfDefaultOnPlugin } from "../catalogue/registry.ts";
import { resolveRuleNames } from "../catalogue/rule-names.ts";
import { formatPage } from "../catalogue/sources.ts";
import { describeCompiledInPlugin } from "../catalogue/upstream-plugins.ts";
import { type Command, commonCommandOptions, writeJson, writeOutput } from "../cli/command.ts";
import { Complaint } from "../cli/complaint.ts";
import { knownMinors } from "../cli/minors.ts";
import { readProjectIfAny, reportBroken } from "../project/project.ts";
import { buildRuleWebhookEntries, joinCelExpressionLines } from "../webhooks/entry.ts";

export default {
  summary:
    "Explains a rule: what it does, matches and needs, and its config in postern.yaml. With --policy, explains policies: ValidatingAdmissionPolicies, MutatingAdmissionPolicies and those of kinitiras.",
  usage: "[RULE]",
  options: {
    config: commonCommandOptions.config,
    policy: { type: "string", value: "FILE", says: "explain the policies in this file or folder instead of a rule" },
    output: commonCommandOptions.output,
  },

  async run({ options, words: [text, ...rest] }) {
    const policy = options.text("policy");
    if (policy !== undefined && text === undefined) return explainPolicies(policy, options.text("output") === "json");
    if (text === undefined || policy !== undefined || rest.length > 0)
      throw new Complaint(
        "name one rule, or a file of policies: postern explain RULE, or postern explain --policy FILE",
      );
    const { catalogue, broken, names, config } = await readProjectIfAny([text]);
    const [name = ""] = resolveRuleNames([text], names);
    reportBroken(broken, (rule) => rule === name);
    const listed = catalogue.find((rule) => rule.name === name) as CatalogueRule;
    const { clusters, groups } = config;
    const setups = [...clusters].map(([cluster, { rules }]) => [cluster, rules.get(name) ?? { mode: "not on" }]);
    const group = groups.find(({ members }) => members.includes(listed))?.name;
    const explanation = { ...buildExplanation(listed), ...(group && { group }), clusters: Object.fromEntries(setups) };
    if (options.text("output") === "json") writeJson(explanation);
    else
      writeOutput(
        `${name}\n\n${listed.rule.summary} ${listed.place}/README.md says why.\n\n${stringify(explanation, { lineWidth: 0, aliasDuplicateObjects: false })}`,
      );
  },
} satisfies Command;

const kinitirasHint = `${formatPage("background/kinitiras-differences.md")} lists where kinitiras does something else.`;

/**
 * Prints what each policy in a file does, or its faults. Returns the exit code. The modules are imported only here,
 * because they load the CUE engine.
 */
const explainPolicies = async (file: string, asJson: boolean): Promise<number> => {
  const [{ explainPolicyManifests, readPolicyManifests, formatExplanation }, { partitionManifests }, { evaluateCue }] =
    await Promise.all([
      import("../policies/explanation.ts"),
      import("../policies/admission-policies.ts"),
      import("#lib/cue/engine.ts"),
    ]);
  const manifests = await readPolicyManifests([file]);
  const explanations = await explainPolicyManifests(manifests, (source) => evaluateCue(source));
  // Postern evaluates policies of another engine, kinitiras, too. The hint names the page about the differences.
  const hint = partitionManifests(manifests).kinitiras.length > 0 ? `\n${kinitirasHint}\n` : "";
  if (asJson) writeJson(explanations);
  else writeOutput(`${explanations.map(formatExplanation).join("\n")}${hint}`);
  return explanations.some(({ faults }) => faults.length > 0) ? 1 : 0;
};

/** Returns what `postern explain RULE` prints, except what depends on clusters. */
const buildExplanation = ({ phases, rule, ...listed }: CatalogueRule) => {
  const settings = rule.settings ?? {};
  const usefulFor = describeUseOfDefaultOnPlugin(rule);
  const perPhase = phases.map((phase) => [
    phase,
    {
      matches: (selectPhase(rule.match, phase, settings) ?? []).map(
        ({ operations, resources, apiGroups }) =>
          `${operations.join(", ")} of ${resources.join(", ")}${apiGroups[0] ? ` (${apiGroups.join(", ")})` : ""}`,
      ),
      ...(rule.matchConditions && {
        calledWhere: joinConditionLines(selectPhase(rule.matchConditions, phase, settings)),
      }),
      ...(rule.authorizedBy && { authorizedBy: joinConditionLines(selectPhase(rule.authorizedBy, phase, settings)) }),
    },
  ]);
  return {
    ...Object.fromEntries(perPhase),
    needs: [
      ...new Set(
        Object.values(rule.needs ?? {}).map(({ verb, kind, action }) =>
          [verb, kind?.resource ?? action, kind?.group && `(${kind.group})`].filter(Boolean).join(" "),
        ),
      ),
    ],
    guards: rule.guards === true,
    suggests: rule.suggest !== undefined,
    // Each key of `since` is a minor version of Kubernetes from which on the rule uses other data. The first is "1.0".
    // From each later key on, the rule behaves differently than before.
    ...(rule.since && { differsFrom: Object.keys(rule.since).slice(1) }),
    ...(rule.variants && { entries: listEntryNames({ ...listed, phases, rule }) }),
    ...(rule.upstreamPlugin && {
      upstreamPlugin: `${rule.upstreamPlugin.plugin} (in Kubernetes ${knownMinors}: ${describeCompiledInPlugin(rule.upstreamPlugin.plugin)})`,
    }),
    ...(usefulFor && { worthwhile: usefulFor }),
    defaults: settings,
    from: listed.source,
  };
};

/** Returns the names of a rule's variants, at most ten. */
const listEntryNames = (listed: CatalogueRule): string[] => {
  const setup = { mode: "enforce" as const, settings: listed.rule.settings ?? {} };
  const isHardened = false;
  const names = new Set(
    listed.phases.flatMap((phase) =>
      buildRuleWebhookEntries(listed, phase, setup, isHardened).map(({ variant = "" }) => variant),
    ),
  );
  const shown = [...names].slice(0, 10);
  return names.size > shown.length ? [...shown, `and ${names.size - shown.length} more`] : shown;
};

const joinConditionLines = (conditions: NamedConditions = {}): NamedConditions =>
  Object.fromEntries(
    Object.entries(conditions).map(([name, expression]) => [name, joinCelExpressionLines(expression)]),
  );
