import type { DefaultedWebhookEntry } from "#infra/apiserver/admission/hooks.ts";
import type { HookTraceStep } from "#infra/apiserver/admission/types.ts";
import type { Capabilities, ResourceType } from "#lib/needs.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import { getVariants, selectPhase } from "#lib/rule.ts";
import { applyVariant, type CatalogueRule } from "../../catalogue/registry.ts";
import { resolveRuleNames } from "../../catalogue/rule-names.ts";
import { Complaint } from "../../cli/complaint.ts";
import { inspectClusterForSettings } from "../../clusters/inspection.ts";
import type { ClusterConfig, PosternConfig } from "../../config/config.ts";
import { describeEndingExceptions } from "../../config/exceptions.ts";
import type { FieldPath } from "../../manifests/manifests.ts";
import { createListedEndpoint, listServedRulesAndGroups } from "../../project/served.ts";
import { buildWebhookConfigurations, formatEntryName } from "../../webhooks/configurations.ts";
import { joinCelExpressionLines } from "../../webhooks/entry.ts";
import type { Tell } from "./assumptions.ts";
import { checkHost, type EndpointTarget, reviewTime, roundIntegers } from "./endpoint-calls.ts";
import type { ChainOptions } from "./object-evaluation.ts";
import { suggestFix } from "./suggestions.ts";

export type CallableRules = Awaited<ReturnType<typeof createCallableClusterRules>>;

/**
 * Returns a cluster's config with only these rules. A rule that postern.yaml leaves off is enforced with the settings
 * there or with its defaults.
 */
export const restrictClusterToRules = (
  cluster: ClusterConfig,
  chosenNames: readonly string[],
  catalogue: CatalogueRule[],
  allRuleNames: readonly string[],
): ClusterConfig => {
  const chosen = chosenNames.flatMap((name) => {
    const members = cluster.groups.find((group) => group.name === name)?.members.map((member) => member.name);
    return members ?? resolveRuleNames([name], allRuleNames);
  });
  const rules = chosen.map((name) => {
    const rule = catalogue.find((listed) => listed.name === name)?.rule;
    const setup = cluster.rules.get(name);
    if (setup !== undefined && setup.mode !== "off") return [name, setup] as const;
    const settings = setup?.settings ?? rule?.settings ?? {};
    const unfit = rule?.checkSettings?.(settings);
    if (unfit !== undefined) throw new Complaint(`${name} can't do without settings in postern.yaml: ${unfit}`);
    return [name, { ...setup, mode: "enforce" as const, settings }] as const;
  });
  return { ...cluster, rules: new Map(rules) };
};

/** Where rules read from: in their evaluation, and to make the webhook entries that depend on existing objects. */
interface RuleSources {
  /** Returns capabilities with a time limit. They call `tell` with what isn't known of the cluster. */
  createCapabilities(tell: Tell, milliseconds: number, request?: AdmissionRequest): Capabilities;
  /** Returns the checked objects of a kind: rules that build webhook entries from cluster objects use these, too. */
  listCheckedObjects?: ((kind: ResourceType) => KubernetesObject[]) | undefined;
}

/** Opens the rules of one cluster in this process. */
export const createCallableClusterRules = async (
  { catalogue, cluster: [clusterName, cluster], harden }: ChainOptions,
  { createCapabilities, listCheckedObjects = () => [] }: RuleSources,
) => {
  const unknown = new Set<string>();
  const config: PosternConfig = {
    rules: cluster.rules,
    clusters: new Map([[clusterName, cluster]]),
    groups: cluster.groups,
  };
  const served = listServedRulesAndGroups(config, catalogue);
  const inspection = await inspectClusterForSettings(catalogue, cluster, async () => {
    const tell: Tell = (sentence, scope) => {
      if (scope === undefined) unknown.add(sentence);
    };
    const { list, discover } = createCapabilities(tell, inspectionTime);
    return { list: async (kind, ...rest) => [...(await list(kind, ...rest)), ...listCheckedObjects(kind)], discover };
  });
  const slow: string[] = [];
  const configurations = buildWebhookConfigurations(catalogue, inspection.cluster, {
    name: configurationName,
    // An API server requires a URL of an entry. No request is sent to this one: the entry has a target.
    address: () => "https://localhost",
    harden,
    // Webhook entries with too costly matchConditions are only reported: check evaluates them in this process, not in
    // an API server.
    warnOfLongWait: (sentence) => slow.push(`${sentence}; postern manifests refuses that`),
  });
  const targets = new Map<string, EndpointTarget>();
  const ruleNames = new Map<string, string>();
  for (const listed of served) {
    const { name, rule, phases } = listed;
    const endpoint = createListedEndpoint(config, listed, checkHost);
    const needsExactIntegers = rule.exactIntegers === true;
    const open: EndpointTarget["open"] = (tell, request) => {
      const capabilities = createCapabilities(tell, reviewTime, request);
      return { endpoint, capabilities: needsExactIntegers ? capabilities : roundAnswers(capabilities) };
    };
    for (const variant of listVariantNames(listed, inspection.cluster)) {
      const entryName = formatEntryName(name, variant);
      ruleNames.set(entryName, name);
      for (const phase of phases) targets.set(`${phase} ${entryName}`, { phase, variant, needsExactIntegers, open });
    }
  }
  const entries = configurations.flatMap(({ webhooks }) => webhooks);
  const callSavingConditions = new Set([
    ...catalogue.flatMap((listed) => listCallSavingConditions(listed, inspection.cluster)),
    // The members of a group evaluate the conditions of the group's webhook entry again, so these conditions only
    // save calls.
    ...entries
      .flatMap(({ matchConditions = [] }) => matchConditions)
      .flatMap(({ name, expression }) => (name === "concerns-a-member" ? [expression] : [])),
  ]);

  /**
   * Returns what a rule suggests for its refusal in this step; undefined if it suggests nothing. `at` is the object's
   * path in its manifest.
   */
  const findSuggestion = async (name: string, { hook, phase, request }: HookTraceStep, at: FieldPath) => {
    const rule = catalogue.find((listed) => listed.name === name)?.rule;
    const setup = cluster.rules.get(name);
    const target = targets.get(`${phase} ${hook}`);
    if (!rule?.suggest || !setup || !request || !target) return undefined;
    const { variant } = target;
    const { rule: variantRule, settings } = applyVariant(rule, setup.settings, variant);
    let isUnknown = false;
    const tell: Tell = (_, scope) => {
      isUnknown ||= scope === undefined;
    };
    const found = await suggestFix(
      variantRule,
      phase,
      roundIntegers(request),
      {
        name,
        settings,
        kubernetes: cluster.kubernetes,
        variant,
        now: new Date(),
        capabilities: rule.needs && createCapabilities(tell, reviewTime, request),
      },
      at,
    ).catch(() => undefined);
    return isUnknown || found?.isStillRefused ? undefined : found?.text;
  };
  return {
    // 30 seconds: the speed of rules on this machine says nothing about their speed where they are deployed.
    configurations: configurations.map(({ webhooks, ...configuration }) => ({
      ...configuration,
      webhooks: webhooks.map((webhook) => ({ ...webhook, timeoutSeconds: reviewTime / 1000 })),
    })),
    findSuggestion,
    /** Returns what a rule's entry calls; undefined for other entries. */
    findTarget: ({ configuration, phase, name }: DefaultedWebhookEntry) =>
      configuration === configurationName ? targets.get(`${phase} ${name}`) : undefined,
    /** Returns the rule of a hook; for a group, the member that the message begins with. */
    findRuleName: (hook: string, message = "") => {
      const name = ruleNames.get(hook);
      const members = cluster.groups.find((group) => group.name === name)?.members ?? [];
      return members.find((member) => message.startsWith(`${member.name}: `))?.name ?? name;
    },
    /** Reports whether a matchCondition only prevents useless calls: without it, the outcome would be the same. */
    isCallSavingCondition: (expression: string) => callSavingConditions.has(expression),
    /** True if any rule is turned on, even if no entry calls it. */
    hasRules: served.length > 0,
    /** Why it isn't known which entries the rules have: a sentence for each reason. */
    unknown,
    notes: [
      ...inspection.notes,
      ...slow,
      ...(entries.length === 0 ? describeUncalledRules(served, cluster) : []),
      ...describeEndingExceptions([cluster], new Date()),
    ],
  };
};

/** The name of the rules' webhook configurations. */
const configurationName = "postern";

/** Returns capabilities that round integers above 2^53 in their answers, as the JSON.parse of a function does. */
const roundAnswers = (capabilities: Capabilities): Capabilities => ({
  ...capabilities,
  get: async (...question) => roundIntegers(await capabilities.get(...question)),
  list: async (...question) => (await capabilities.list(...question)).map(roundIntegers),
});

const describeUncalledRules = (uncalled: readonly CatalogueRule[], { rules, groups }: ClusterConfig): string[] => {
  const isOff = ({ name }: CatalogueRule) => {
    const members = groups.find((group) => group.name === name)?.members ?? [{ name }];
    return members.every((member) => rules.get(member.name)?.mode === "off");
  };
  const describe = (listed: readonly CatalogueRule[], why: string) => {
    const is = listed.length === 1 ? "is" : "are";
    return listed.length === 0 ? [] : [`${listed.map(({ name }) => name).join(", ")} ${is} never called, ${why}`];
  };
  return [
    ...describe(uncalled.filter(isOff), "because postern.yaml has mode: off"),
    ...describe(
      uncalled.filter((rule) => !isOff(rule)),
      "as far as is known; that depends on the objects in the cluster, which --state can give",
    ),
  ];
};

/** Returns the names of the variants that a rule has in a cluster; undefined stands for a rule without variants. */
const listVariantNames = ({ name, rule }: CatalogueRule, { rules }: ClusterConfig): (string | undefined)[] =>
  getVariants(rule, rules.get(name)?.settings ?? {})?.map((variant) => variant.name) ?? [undefined];

/**
 * Returns the expressions of a rule's `matchConditions`, which only avoid needless calls. One with the same name as a
 * condition in `authorizedBy` is left out: it replaces that condition in the webhook entry, and so changes the outcome.
 */
const listCallSavingConditions = (listed: CatalogueRule, cluster: ClusterConfig): string[] => {
  const setup = cluster.rules.get(listed.name);
  if (setup === undefined || setup.mode === "off") return [];
  return listVariantNames(listed, cluster).flatMap((variant) => {
    const { rule, settings } = applyVariant(listed.rule, setup.settings, variant);
    return listed.phases.flatMap((phase) => {
      const conditions = selectPhase(rule.matchConditions, phase, settings) ?? {};
      const authorizerConditions = selectPhase(rule.authorizedBy, phase, settings) ?? {};
      return Object.entries(conditions).flatMap(([name, text]) =>
        Object.hasOwn(authorizerConditions, name) ? [] : [joinCelExpressionLines(text)],
      );
    });
  });
};

/** The time limit of a rule's `inspectForSettings`, in milliseconds: it may read all policies of a large cluster. */
const inspectionTime = 120_000;
