import type { DefaultedWebhookEntry } from "#infra/apiserver/admission/hooks.ts";
import type { HookCallResult, HookTraceStep, ReviewToSend } from "#infra/apiserver/admission/types.ts";
import { type Endpoint, isPhase } from "#lib/core/endpoint.ts";
import type { Capabilities, ResourceType } from "#lib/needs.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import { getVariants, selectPhase } from "#lib/rule.ts";
import { applyVariant, type CatalogueRule } from "../../catalogue/registry.ts";
import { resolveRuleNames } from "../../catalogue/rule-names.ts";
import { Complaint } from "../../cli/complaint.ts";
import { findRulesInspectingCluster, inspectClusterForSettings } from "../../clusters/inspection.ts";
import type { ClusterConfig, PosternConfig } from "../../config/config.ts";
import type { FieldPath } from "../../manifests/manifests.ts";
import { listServedRulesAndGroups } from "../../project/served.ts";
import { createListedEndpoint } from "../../serve/handlers.ts";
import { buildWebhookConfigurations, getRuleNameOfEntry } from "../../webhooks/configurations.ts";
import { joinCelExpressionLines } from "../../webhooks/entry.ts";
import { roundIntegers } from "./rounding.ts";
import { suggestFix } from "./suggestions.ts";

export interface CallableRules {
  configurations: object[];
  /** Calls a rule; returns undefined for a hook that isn't a rule's. */
  call(hook: DefaultedWebhookEntry, review: ReviewToSend): Promise<HookCallResult> | undefined;
  /** Returns the rule of a hook; for a group, the member that the message begins with. */
  findRuleName(hook: string, message?: string): string | undefined;
  /**
   * Returns what a rule suggests for its refusal in this step; undefined if it suggests nothing. `at` is the object's
   * path in its manifest.
   */
  findSuggestion(rule: string, step: HookTraceStep, at: FieldPath): Promise<string | undefined>;
  /** Reports whether a matchCondition only prevents useless calls: without it, the outcome would be the same. */
  isSavingCondition(expression: string): boolean;
  /** True if any rule is turned on, even if no entry calls it. */
  hasRules: boolean;
  /** The rules that have read existing objects so far. */
  asking: ReadonlySet<string>;
  notes: string[];
}

/**
 * The address of the rules in a check's webhook configurations. Calls to this address are handled in this process.
 */
const here = "https://rules.postern.invalid";

/**
 * Returns a cluster's config with only these rules. A rule that postern.yaml leaves off is enforced with the settings
 * there or with its defaults.
 */
export const restrictClusterToRules = (
  cluster: ClusterConfig,
  chosenNames: readonly string[],
  catalogue: CatalogueRule[],
  names: readonly string[],
): ClusterConfig => {
  const chosen = chosenNames.flatMap((name) => {
    const members = cluster.groups.find((group) => group.name === name)?.members.map((member) => member.name);
    return members ?? resolveRuleNames([name], names);
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

/**
 * Opens the rules of one cluster in this process. `listComing` returns objects that manifests create; the entries of
 * rules that inspect the cluster are made from these objects, too.
 */
export const createCallableClusterRules = async (
  catalogue: CatalogueRule[],
  [clusterName, cluster]: [string, ClusterConfig],
  harden: boolean,
  createCapabilities: (
    tell: (sentence: string) => void,
    milliseconds: number,
    request?: AdmissionRequest,
  ) => Capabilities,
  listComing: (kind: ResourceType) => KubernetesObject[] = () => [],
): Promise<CallableRules> => {
  /** Opens the capabilities for one evaluation. `unsupported` has a sentence about each question without an answer. */
  const openCapabilities = (request: AdmissionRequest) => {
    const unsupported: string[] = [];
    const tell = (sentence: string) => void unsupported.push(sentence);
    return { capabilities: createCapabilities(tell, reviewTime, request), unsupported };
  };
  const asking = new Set(findRulesInspectingCluster(catalogue, cluster).map(({ name }) => name));
  const rules = openRules(catalogue, [clusterName, cluster]);

  const inspection = await inspectClusterForSettings(catalogue, cluster, async () => {
    const { list, discover } = createCapabilities(() => {}, inspectionTime);
    return { list: async (kind, ...rest) => [...(await list(kind, ...rest)), ...listComing(kind)], discover };
  });
  const slow: string[] = [];
  const entries = buildWebhookConfigurations(catalogue, inspection.cluster, {
    name: "postern",
    address: (rule, path) => `${here}/${rule}/${path}`,
    harden,
    // Webhook entries with too costly matchConditions are only reported: check evaluates them in this process, not in
    // an API server.
    slow: (sentence) => slow.push(`${sentence}; postern manifests refuses that`),
  });
  const webhooks = new Map(entries.flatMap((entry) => entry.webhooks).map((webhook) => [webhook.name, webhook]));
  const sparing = new Set([
    ...catalogue.flatMap((listed) => listSavingConditions(listed, inspection.cluster)),
    // The members of a group evaluate the conditions of the group's webhook entry again, so these conditions only
    // save calls.
    ...[...webhooks.values()]
      .flatMap(({ matchConditions = [] }) => matchConditions)
      .flatMap(({ name, expression }) => (name === "concerns-a-member" ? [expression] : [])),
  ]);

  const call = async (url: string, review: ReviewToSend): Promise<HookCallResult> => {
    const { name, phase, variant } = parseRuleUrl(url);
    const rule = rules.get(name);
    if (rule === undefined || !isPhase(phase)) return { unsupported: `no rule is called by ${url}` };
    const { capabilities, unsupported } = openCapabilities(review.request);
    const { response, status } = await rule.endpoint.evaluateReview({
      phase,
      variant,
      cluster: clusterName,
      review: rule.isExact ? review : roundIntegers(review),
      capabilities: watchReads(capabilities, () => void asking.add(name), !rule.isExact),
      deadline: Date.now() + reviewTime,
    });
    const [sentence] = unsupported;
    if (sentence !== undefined) return { unsupported: sentence };
    // A failure of Postern makes the object undecided, so that failurePolicy Ignore can't hide the failure.
    return response === undefined ? { unsupported: status.message } : { body: response };
  };
  const findSuggestion = async (name: string, { hook, phase, request }: HookTraceStep, at: FieldPath) => {
    const rule = catalogue.find((listed) => listed.name === name)?.rule;
    const setup = cluster.rules.get(name);
    const webhook = webhooks.get(hook);
    if (!rule?.suggest || !setup || !request || !webhook) return undefined;
    const { variant } = parseRuleUrl(webhook.clientConfig.url);
    const { rule: variantRule, settings } = applyVariant(rule, setup.settings, variant);
    const evaluationContext = { name, settings, kubernetes: cluster.kubernetes, variant, now: new Date() };
    const { capabilities, unsupported } = openCapabilities(request);
    const found = await suggestFix(
      variantRule,
      phase,
      roundIntegers(request),
      { ...evaluationContext, capabilities: rule.needs && capabilities },
      at,
    ).catch(() => undefined);
    return unsupported.length > 0 || found?.isVain ? undefined : found?.text;
  };
  return {
    configurations: entries,
    findSuggestion,
    call: ({ clientConfig: { url = "" } }, review) => (url.startsWith(`${here}/`) ? call(url, review) : undefined),
    findRuleName: (hook, message = "") => {
      const webhook = webhooks.get(hook);
      const name = webhook && getRuleNameOfEntry(webhook);
      const members = cluster.groups.find((group) => group.name === name)?.members ?? [];
      return members.find((member) => message.startsWith(`${member.name}: `))?.name ?? name;
    },
    isSavingCondition: (expression) => sparing.has(expression),
    hasRules: rules.size > 0,
    asking,
    notes: [...inspection.notes, ...slow, ...(webhooks.size === 0 ? describeIdle([...rules.keys()]) : [])],
  };
};

/** Opens the endpoint of each rule that is turned on. */
const openRules = (
  catalogue: CatalogueRule[],
  [clusterName, cluster]: [string, ClusterConfig],
): Map<string, { endpoint: Endpoint; isExact: boolean }> => {
  const config: PosternConfig = {
    rules: cluster.rules,
    clusters: new Map([[clusterName, cluster]]),
    groups: cluster.groups,
  };
  const host = { publicKeys: "", writeLogLine: () => {} };
  return new Map(
    listServedRulesAndGroups(config, catalogue).map((listed) => {
      const isExact = listed.rule.exactIntegers === true;
      return [listed.name, { endpoint: createListedEndpoint(config, listed, host), isExact }];
    }),
  );
};

/** Returns capabilities that call `reportRead` before a rule reads or writes objects. */
const watchReads = (capabilities: Capabilities, reportRead: () => void, isRounded: boolean): Capabilities => {
  const watch =
    <A extends unknown[], R>(ask: (...args: A) => R) =>
    (...args: A): R => {
      reportRead();
      return ask(...args);
    };
  const round = isRounded ? roundIntegers : <T>(answer: T) => answer;
  const { get, list, create, updateStatus } = capabilities;
  return {
    ...capabilities,
    ledger: (rule, reach) => {
      // What other reviews have stored for all clusters depends on what exists.
      if (reach === "clusters") reportRead();
      return capabilities.ledger(rule, reach);
    },
    get: watch(async (...question) => round(await get(...question))),
    list: watch(async (...question) => (await list(...question)).map(round)),
    create: watch(create),
    updateStatus: watch(updateStatus),
  };
};

const describeIdle = (names: readonly string[]): string[] => {
  if (names.length === 0) return [];
  const is = names.length === 1 ? "is" : "are";
  return [
    `${names.join(", ")} ${is} called for nothing, as far as is known; that follows from what exists, which --state says`,
  ];
};

const parseRuleUrl = (url = "") => {
  const [name = "", phase, variant] = url.slice(here.length + 1).split("/");
  return { name, phase, variant };
};

/** Returns the matchConditions that only save calls: all except those of authorizedBy, which change the outcome. */
const listSavingConditions = ({ name, rule, phases }: CatalogueRule, { rules }: ClusterConfig): string[] => {
  const setup = rules.get(name);
  if (setup === undefined || setup.mode === "off") return [];
  const variants = getVariants(rule, setup.settings)?.map((variant) => variant.name) ?? [undefined];
  return variants.flatMap((variant) => {
    const facet = applyVariant(rule, setup.settings, variant);
    return phases.flatMap((phase) => {
      const conditions = selectPhase(facet.rule.matchConditions, phase, facet.settings) ?? {};
      const authorizerConditions = selectPhase(facet.rule.authorizedBy, phase, facet.settings) ?? {};
      return Object.entries(conditions).flatMap(([name, text]) =>
        Object.hasOwn(authorizerConditions, name) ? [] : [joinCelExpressionLines(text)],
      );
    });
  });
};

const reviewTime = 30_000;
/** The time limit of a rule's `inspectForSettings`, in milliseconds: it may read all policies of a large cluster. */
const inspectionTime = 120_000;
