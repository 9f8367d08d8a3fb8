import type { LabelSelector } from "#lib/objects/selection.ts";
import {
  getVariants,
  type NamedConditions,
  type NativePolicy,
  type OfSettings,
  type Phase,
  type RequestMatch,
  type Rule,
  selectPhase,
} from "#lib/rule.ts";
import { applyVariant, type CatalogueRule } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import type { RuleConfig, RuleExemptions } from "../config/config.ts";
import { listVitalResourcesByWildcard } from "./vital-resources.ts";

/**
 * The exemptions of an entry. Exceptions of postern.yaml are not among them: they have an end date, which an API server
 * can't compare with the time. The rule's function applies them.
 */
export interface EntryExemptions extends Omit<RuleExemptions, "exceptions"> {
  /** The vital resources for which the API server doesn't call the entry, as `group/resource/subresource`. */
  resources?: string[];
}

/** A webhook entry of a rule in a cluster, without its name and URL. */
export interface WebhookEntrySettings {
  match: readonly RequestMatch[];
  exempt: EntryExemptions;
  conditions: NamedConditions;
  failurePolicy: "Fail" | "Ignore";
  matchPolicy: "Equivalent" | "Exact";
  sideEffects: "None" | "NoneOnDryRun";
  reinvocationPolicy: "IfNeeded" | "Never";
  timeoutSeconds: number;
  namespaceSelector: LabelSelector | undefined;
  objectSelector: LabelSelector | undefined;
}

/** A webhook entry of a rule or of one of its variants. */
export interface VariantWebhookEntry {
  variant?: string;
  /** A policy that an API server could evaluate in place of this entry. */
  native?: NativePolicy | undefined;
  entry: WebhookEntrySettings;
}

const defaultTimeoutSeconds = 3;

/**
 * Returns a rule's entries in one phase: one entry, or one for each variant. An entry that would match nothing is left
 * out. With `harden`, entries of rules that guard security fail closed.
 */
export const buildRuleWebhookEntries = (
  listed: CatalogueRule,
  phase: Phase,
  setup: RuleConfig,
  harden: boolean,
): VariantWebhookEntry[] => {
  const variants = getVariants(listed.rule, setup.settings);
  const matchesNothing = (rule: Rule, settings: object) =>
    (selectPhase(rule.match, phase, settings) ?? []).length === 0;
  if (variants === undefined) {
    // Only a `match` that is a function of the settings may be empty. Another empty `match` is a mistake.
    const hasNoEntry = typeof listed.rule.match === "function" && matchesNothing(listed.rule, setup.settings);
    return hasNoEntry ? [] : [{ entry: buildRuleWebhookEntry(listed, phase, setup, { harden }) }];
  }
  const names = variants.map(({ name }) => name);
  const invalidName = names.find((name, index) => !isVariantName(name) || names.indexOf(name) < index);
  if (invalidName !== undefined)
    throw new Complaint(
      `${listed.place}/${listed.file} has a variant "${invalidName}"; each needs a name of its own of lower-case letters, digits and hyphens, and not mutate or validate`,
    );
  return names.flatMap((variant) => {
    // Some variants are made from an admission policy in the settings: `policy`.
    const { rule, settings, failurePolicy, native: policy } = applyVariant(listed.rule, setup.settings, variant);
    if (matchesNothing(rule, settings)) return [];
    // The failurePolicy Ignore in postern.yaml comes before the variant's.
    const isOverridden = setup.failurePolicy === "Ignore" || failurePolicy === undefined;
    const variantSetup = { ...setup, settings, ...(!isOverridden && { failurePolicy }) };
    const entry = buildRuleWebhookEntry({ ...listed, rule }, phase, variantSetup, { harden });
    // If an API server can't evaluate a matchCondition of an entry with failurePolicy Ignore, it skips the entry. A
    // policy whose own failurePolicy is Fail must not be skipped, so its entry has no conditions: the rule evaluates
    // the policy's matchConditions itself.
    const mayBeSkipped = policy !== undefined && failurePolicy === "Fail" && entry.failurePolicy === "Ignore";
    return [{ variant, native: policy, entry: mayBeSkipped ? { ...entry, conditions: {} } : entry }];
  });
};

/** Reports whether a variant may have this name. It becomes part of the entry's name and of its URL. */
const isVariantName = (name: string) => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name) && !isPhase(name);
const isPhase = (name: string) => name === "mutate" || name === "validate";

/** Entries that fail closed exempt these namespaces by default: else a failing rule could stop the control plane. */
const vitalNamespaces = ["kube-system", "kube-node-lease"];

/** Builds the entry of a rule in one phase, from the rule and its part of postern.yaml. */
export const buildRuleWebhookEntry = (
  { name, place, file, rule }: CatalogueRule,
  phase: Phase,
  setup: RuleConfig,
  { harden }: { harden: boolean },
): WebhookEntrySettings => {
  const { settings } = setup;
  const match = selectPhase(rule.match, phase, settings) ?? [];
  if (match.length === 0)
    throw new Complaint(`${place}/${file} has a ${phase} function, but its match selects no requests for it`);
  // With `harden`, a rule that refuses for security reasons (`guards`) fails closed.
  const failurePolicy = chooseFailurePolicy(setup, harden && rule.guards === true);
  // If an entry that fails closed has no answer, a cluster must still be able to repair itself in these namespaces.
  const exemptsVitalNamespaces = failurePolicy === "Fail" && !rule.everywhere;
  return {
    match,
    exempt: chooseExemptions(name, match, setup, exemptsVitalNamespaces),
    conditions: {
      ...selectPhase(rule.authorizedBy, phase, settings),
      ...selectPhase(rule.matchConditions, phase, settings),
    },
    failurePolicy,
    matchPolicy: rule.matchPolicy ?? "Equivalent",
    // Recording a review is a side effect. Reviews of dry runs are not recorded.
    sideEffects: setup.record ? "NoneOnDryRun" : (rule.sideEffects ?? "None"),
    reinvocationPolicy: rule.reinvocationPolicy ?? "IfNeeded",
    timeoutSeconds: chooseTimeout(rule, setup),
    namespaceSelector: chooseSelector(rule.namespaceSelector, settings),
    objectSelector: chooseSelector(rule.objectSelector, settings),
  };
};

const chooseTimeout = (rule: Rule, setup?: RuleConfig) =>
  setup?.timeoutSeconds ?? rule.timeoutSeconds ?? defaultTimeoutSeconds;

/** Returns the timeout of a rule's entry, or the longest one of its variants' entries. */
export const findLongestTimeoutSeconds = (rule: Rule, setup?: RuleConfig): number => {
  const variants = getVariants(rule, setup?.settings ?? rule.settings ?? {}) ?? [{}];
  return Math.max(...variants.map((variant) => chooseTimeout({ ...rule, ...variant }, setup)));
};

const chooseFailurePolicy = ({ failurePolicy, mode }: RuleConfig, hardened: boolean): "Fail" | "Ignore" => {
  if (mode !== "enforce") return "Ignore";
  return failurePolicy ?? (hardened ? "Fail" : "Ignore");
};

/**
 * Returns an entry's exemptions: those in postern.yaml, vital resources and, if wanted, vital namespaces. `exceptions`
 * are left out: they have an end date, but an API server has no clock. The rule's function applies them.
 */
const chooseExemptions = (
  name: string,
  match: readonly RequestMatch[],
  { exempt: { exceptions: _, ...exempt } = {} }: RuleConfig,
  exemptsVitalNamespaces: boolean,
): EntryExemptions => {
  if (exempt.namespaceLabels && Object.keys(exempt.namespaceLabels).length > 0 && match.some(matchesNamespaces))
    throw new Complaint(
      `rules.${name}.exempt.namespaceLabels would let every user with the right to label a namespace exempt it, because ${name} matches namespaces; use namespaces, users or groups`,
    );
  const resources = listVitalResourcesByWildcard(match);
  return {
    ...exempt,
    ...(exemptsVitalNamespaces && exempt.namespaces === undefined && { namespaces: vitalNamespaces }),
    ...(resources.length > 0 && { resources }),
  };
};

const matchesNamespaces = ({ apiGroups, resources }: RequestMatch) =>
  ["", "*"].some((group) => apiGroups.includes(group)) &&
  resources.some((resource) => ["namespaces", "*", "*/*"].includes(resource));

/** Returns the label selector of a rule; undefined if it selects everything. */
const chooseSelector = (
  value: OfSettings<LabelSelector, object> | undefined,
  settings: object,
): LabelSelector | undefined => {
  const { matchLabels = {}, matchExpressions = [] } = (typeof value === "function" ? value(settings) : value) ?? {};
  const selector = {
    ...(Object.keys(matchLabels).length > 0 && { matchLabels }),
    ...(matchExpressions.length > 0 && { matchExpressions }),
  };
  return Object.keys(selector).length > 0 ? selector : undefined;
};

/**
 * Returns the namespaceSelector that exempts namespaces from a rule. There are no exemptions by labels of objects,
 * because users could set them on their own objects.
 */
export const buildExemptNamespaceSelector = ({
  namespaces = [],
  namespaceLabels = {},
}: EntryExemptions): LabelSelector | undefined => {
  const matchExpressions = [
    ...(namespaces.length > 0
      ? [{ key: "kubernetes.io/metadata.name", operator: "NotIn" as const, values: namespaces }]
      : []),
    ...Object.entries(namespaceLabels).map(([key, value]) => ({ key, operator: "NotIn" as const, values: [value] })),
  ];
  return matchExpressions.length > 0 ? { matchExpressions } : undefined;
};

/** Returns a selector that selects only what both selectors select. `right` must have no matchLabels. */
export const combineSelectors = (
  left: LabelSelector | undefined,
  right: LabelSelector | undefined,
): LabelSelector | undefined => {
  if (left === undefined || right === undefined) return left ?? right;
  const matchExpressions = [...(left.matchExpressions ?? []), ...(right.matchExpressions ?? [])];
  return { ...(left.matchLabels && { matchLabels: left.matchLabels }), matchExpressions };
};

/** Returns the matchConditions of an entry: first those of its exemptions, then the rule's. */
export const listEntryConditions = ({ exempt, conditions }: WebhookEntrySettings): [name: string, cel: string][] => [
  ...Object.entries(buildExemptConditions(exempt)),
  ...Object.entries(conditions),
];

/** The name of the matchCondition that exempts vital resources. */
export const exemptResourcesCondition = "postern.dev/keeps-the-control-plane-alive";

/** Returns the matchConditions of exemptions. The prefix postern.dev/ separates them from conditions of policies. */
export const buildExemptConditions = ({
  users = [],
  groups = [],
  resources = [],
}: EntryExemptions): NamedConditions => ({
  ...(users.length > 0 && {
    "postern.dev/user-is-not-exempt": `!(request.userInfo.?username.orValue("") in ${toCelList(users)})`,
  }),
  ...(groups.length > 0 && {
    "postern.dev/groups-are-not-exempt": `!request.userInfo.?groups.orValue([]).exists(group, group in ${toCelList(groups)})`,
  }),
  ...(resources.length > 0 && {
    [exemptResourcesCondition]: `!(request.resource.group + "/" + request.resource.resource + "/" + request.?subResource.orValue("") in ${toCelList(resources)})`,
  }),
});

/** Returns a list as CEL. JSON is CEL, except that CEL needs escapes for the line separators U+2028 and U+2029. */
export const toCelList = (texts: readonly string[]) =>
  JSON.stringify(texts).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

/**
 * Returns a CEL expression in one line. An expression with a comment or a triple-quoted string stays as it is, because
 * its line breaks have a meaning.
 */
export const joinCelExpressionLines = (expression: string) =>
  /\/\/|"""|'''/.test(expression)
    ? expression
    : expression
        .replace(/\s*\n\s*(?=\.)/g, "")
        .replace(/\s*\n\s*/g, " ")
        .trim();
