import type { EnforcementMode } from "../core/evaluation.ts";
import { freezeDeep } from "../json.ts";
import type { LabelSelector } from "../objects/selection.ts";
import {
  getVariants,
  listPhases,
  type OfSettings,
  type Phase,
  type RequestMatch,
  type Rule,
  selectPhase,
} from "../rule.ts";
import { findSettingsMistakes, mergeWithDefaults } from "../settings.ts";

/** A rule, and the settings with which a guard applies it. */
export interface GuardRule {
  rule: Rule;
  settings?: object;
  mode?: EnforcementMode;
  /** The name of a variant of the rule, whose settings and match are used. */
  variant?: string;
}

/** A rule with the content that its webhook entries would have, for a program that evaluates rules without webhooks. */
export interface RuleAsWebhookEntry {
  name: string;
  /** The name of the webhook entry. Refusals contain it. */
  webhook: string;
  rule: Rule;
  settings: object;
  variant: string | undefined;
  mode: EnforcementMode;
  match: Partial<Record<Phase, readonly RequestMatch[]>>;
  /** `namespaceSelector` and `objectSelector` are the rule's selectors, each undefined if it is missing or empty. */
  namespaceSelector: LabelSelector | undefined;
  objectSelector: LabelSelector | undefined;
  /** The rule's timeout. */
  milliseconds: number;
}

/** The position of webhooks among the API server's admission plugins. */
const defaultOrder = 37;
const getOrder = ({ order = defaultOrder }: Rule) => order;

/** Returns entries in the order in which the API server would call the rules. Throws if settings are invalid. */
export const createGuardEntries = (rules: Record<string, GuardRule>): RuleAsWebhookEntry[] =>
  Object.entries(rules)
    .filter(([, { mode }]) => mode !== "off")
    .sort(([left, { rule: first }], [right, { rule: second }]) =>
      getOrder(first) === getOrder(second) ? (left < right ? -1 : 1) : getOrder(first) - getOrder(second),
    )
    .map(([name, rule]) => createCheckedEntry(name, rule));

/** Returns a rule with its settings and variant as a webhook entry. Wrong settings are an error. */
const createCheckedEntry = (name: string, { rule, settings: overrides = {}, mode = "enforce", variant }: GuardRule) => {
  const [mistake] = findSettingsMistakes(rule, overrides);
  if (mistake) throw new Error(`rules.${[name, "settings", ...mistake.path].join(".")} ${mistake.sentence}`);
  const settings = freezeDeep(structuredClone(mergeWithDefaults(rule.settings ?? {}, overrides)));
  const fault = rule.checkSettings?.(settings);
  if (fault !== undefined) throw new Error(`rules.${name}.settings: ${fault}`);
  if (variant === undefined) return createEntry(name, rule, settings, mode);
  const variants = getVariants(rule, settings) ?? [];
  const found = variants.find((candidate) => candidate.name === variant);
  if (found === undefined)
    throw new Error(`rules.${name}.variant must be one of ${variants.map(({ name }) => name).join(", ") || "none"}`);
  const { name: _, settings: variantSettings, ...differences } = found;
  return createEntry(name, { ...rule, ...differences }, mergeWithDefaults(settings, variantSettings), mode, variant);
};

/** Returns what a webhook entry of a rule would say, such as `match`, for programs that run rules without webhooks. */
const createEntry = (
  name: string,
  rule: Rule,
  settings: object,
  mode: EnforcementMode,
  variant?: string,
): RuleAsWebhookEntry => {
  const match: RuleAsWebhookEntry["match"] = {};
  for (const phase of listPhases(rule)) {
    if (Object.keys(selectPhase(rule.authorizedBy, phase, settings) ?? {}).length > 0)
      throw new Error(
        `${name} uses the cluster's authorizer in a CEL expression, which only an API server can evaluate; use a webhook`,
      );
    match[phase] = selectPhase(rule.match, phase, settings) ?? [];
  }
  return {
    name,
    webhook: [...(variant === undefined ? [] : [variant]), name, "postern.dev"].join("."),
    rule,
    settings,
    variant,
    mode,
    match,
    namespaceSelector: getSelector(rule.namespaceSelector, settings),
    objectSelector: getSelector(rule.objectSelector, settings),
    milliseconds: (rule.timeoutSeconds ?? defaultTimeoutSeconds) * 1000,
  };
};

const defaultTimeoutSeconds = 3;

const getSelector = (value: OfSettings<LabelSelector, object> | undefined, settings: object) => {
  const selector = typeof value === "function" ? value(settings) : value;
  const { matchLabels = {}, matchExpressions = [] } = selector ?? {};
  return Object.keys(matchLabels).length + matchExpressions.length > 0 ? selector : undefined;
};
