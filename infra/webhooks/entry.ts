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

/** The exemptions of an entry. Exceptions aren't in it, because an API server has no clock to end them. */
export interface EntryExemptions extends Omit<RuleExemptions, "exceptions"> {
  /** The vital resources that the entry isn't called for, as `group/resource/subresource`. */
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

export interface VariantWebhookEntry {
  variant?: string;
  /** The policy by which an API server could do the same. */
  native?: NativePolicy | undefined;
  entry: WebhookEntrySettings;
}

const defaultTimeout = 3;

/** Returns a rule's entries in one phase: one, or one for each variant that matches something. */
export const buildRuleWebhookEntries = (
  listed: CatalogueRule,
  phase: Phase,
  setup: RuleConfig,
  harden: boolean,
): VariantWebhookEntry[] => {
  const variants = getVariants(listed.rule, setup.settings);
  const isIdle = (rule: Rule, settings: object) => (selectPhase(rule.match, phase, settings) ?? []).length === 0;
  if (variants === undefined) {
    // A `match` that is a function of the settings may return an empty list: then the rule has no entry.
    const isUnasked = typeof listed.rule.match === "function" && isIdle(listed.rule, setup.settings);
    return isUnasked ? [] : [{ entry: buildRuleWebhookEntry(listed, phase, setup, harden) }];
  }
  const names = variants.map(({ name }) => name);
  const unfit = names.find((name, index) => !isVariantName(name) || names.indexOf(name) < index);
  if (unfit !== undefined)
    throw new Complaint(
      `${listed.place}/${listed.file} has a variant "${unfit}"; each needs a name of its own of lower-case letters, digits and hyphens, and not mutate or validate`,
    );
  return names.flatMap((variant) => {
    const { rule, settings, failurePolicy, native } = applyVariant(listed.rule, setup.settings, variant);
    if (isIdle(rule, settings)) return [];
    const isOpen = setup.failurePolicy === "Ignore" || failurePolicy === undefined;
    const variantSetup = { ...setup, settings, ...(!isOpen && { failurePolicy }) };
    const entry = buildRuleWebhookEntry({ ...listed, rule }, phase, variantSetup, harden);
    // If a matchCondition can't be evaluated, an entry with Ignore lets the request pass. A policy that fails closed would be
    // skipped then, so its entry gets no conditions.
    const isOpened = native !== undefined && failurePolicy === "Fail" && entry.failurePolicy === "Ignore";
    return [{ variant, native, entry: isOpened ? { ...entry, conditions: {} } : entry }];
  });
};

/** Reports whether a variant may have this name, which becomes part of entry names and, after the phase, of paths. */
const isVariantName = (name: string) => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name) && !isPhase(name);
const isPhase = (name: string) => name === "mutate" || name === "validate";

/**
 * The namespaces that are exempt by default from webhook entries that fail closed, because the cluster could not
 * repair itself otherwise.
 */
const vitalNamespaces = ["kube-system", "kube-node-lease"];

export const buildRuleWebhookEntry = (
  { name, place, file, rule }: CatalogueRule,
  phase: Phase,
  setup: RuleConfig,
  harden: boolean,
): WebhookEntrySettings => {
  const { settings } = setup;
  const match = selectPhase(rule.match, phase, settings) ?? [];
  if (match.length === 0)
    throw new Complaint(`${place}/${file} has a ${phase} function, but its match selects no requests for it`);
  const failurePolicy = chooseFailurePolicy(setup, harden && rule.guards === true);
  return {
    match,
    exempt: chooseExemptions(name, match, setup, failurePolicy === "Fail" && !rule.everywhere),
    conditions: {
      ...selectPhase(rule.authorizedBy, phase, settings),
      ...selectPhase(rule.matchConditions, phase, settings),
    },
    failurePolicy,
    matchPolicy: rule.matchPolicy ?? "Equivalent",
    // Recording a review is a side effect; a dry run isn't recorded.
    sideEffects: setup.record ? "NoneOnDryRun" : (rule.sideEffects ?? "None"),
    reinvocationPolicy: rule.reinvocationPolicy ?? "IfNeeded",
    timeoutSeconds: chooseTimeout(rule, setup),
    namespaceSelector: chooseSelector(rule.namespaceSelector, settings),
    objectSelector: chooseSelector(rule.objectSelector, settings),
  };
};

const chooseTimeout = (rule: Rule, setup?: RuleConfig) =>
  setup?.timeoutSeconds ?? rule.timeoutSeconds ?? defaultTimeout;

export const findLongestTimeoutSeconds = (rule: Rule, setup?: RuleConfig): number => {
  const variants = getVariants(rule, setup?.settings ?? rule.settings ?? {}) ?? [{}];
  return Math.max(...variants.map((variant) => chooseTimeout({ ...rule, ...variant }, setup)));
};

const chooseFailurePolicy = ({ failurePolicy, mode }: RuleConfig, hardened: boolean): "Fail" | "Ignore" =>
  mode === "enforce" ? (failurePolicy ?? (hardened ? "Fail" : "Ignore")) : "Ignore";

const chooseExemptions = (
  name: string,
  match: readonly RequestMatch[],
  { exempt: { exceptions: _, ...exempt } = {} }: RuleConfig,
  sparesVital: boolean,
): EntryExemptions => {
  if (exempt.namespaceLabels && Object.keys(exempt.namespaceLabels).length > 0 && match.some(matchesNamespaces))
    throw new Complaint(
      `rules.${name}.exempt.namespaceLabels would let every user with the right to label a namespace exempt it, because ${name} matches namespaces; use namespaces, users or groups`,
    );
  const resources = listVitalResourcesByWildcard(match);
  return {
    ...exempt,
    ...(sparesVital && exempt.namespaces === undefined && { namespaces: vitalNamespaces }),
    ...(resources.length > 0 && { resources }),
  };
};

const matchesNamespaces = ({ apiGroups, resources }: RequestMatch) =>
  ["", "*"].some((group) => apiGroups.includes(group)) &&
  resources.some((resource) => ["namespaces", "*", "*/*"].includes(resource));

/** Returns an entry's label selector; undefined if it selects everything. */
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
 * Returns the namespaceSelector that exempts namespaces from a rule. Labels of objects never exempt, because the
 * author of an object could set them.
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

export const combineSelectors = (
  left: LabelSelector | undefined,
  right: LabelSelector | undefined,
): LabelSelector | undefined => {
  if (left === undefined || right === undefined) return left ?? right;
  const matchExpressions = [...(left.matchExpressions ?? []), ...(right.matchExpressions ?? [])];
  return { ...(left.matchLabels && { matchLabels: left.matchLabels }), matchExpressions };
};

/** Returns an entry's conditions and those of its exemptions, which come first. */
export const listEntryConditions = ({ exempt, conditions }: WebhookEntrySettings): [name: string, cel: string][] => [
  ...Object.entries(buildExemptConditions(exempt)),
  ...Object.entries(conditions),
];

/** The condition that exempts what keeps a control plane alive. */
export const vitalCondition = "postern.dev/keeps-the-control-plane-alive";

/** Returns the conditions of exemptions. Their names have a prefix, because policies name conditions freely. */
export const buildExemptConditions = ({
  users = [],
  groups = [],
  resources = [],
}: EntryExemptions): NamedConditions => {
  return {
    ...(users.length > 0 && {
      "postern.dev/user-is-not-exempt": `!(request.userInfo.?username.orValue("") in ${toCelList(users)})`,
    }),
    ...(groups.length > 0 && {
      "postern.dev/groups-are-not-exempt": `!request.userInfo.?groups.orValue([]).exists(group, group in ${toCelList(groups)})`,
    }),
    ...(resources.length > 0 && {
      [vitalCondition]: `!(request.resource.group + "/" + request.resource.resource + "/" + request.?subResource.orValue("") in ${toCelList(resources)})`,
    }),
  };
};

/** Returns a list in CEL. JSON's escapes are valid there; U+2028 and U+2029, which JSON doesn't escape, are added. */
export const toCelList = (texts: readonly string[]) =>
  JSON.stringify(texts).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

/**
 * Returns a CEL expression in one line; unchanged if it has a comment or a triple-quoted string, which need the
 * lines.
 */
export const joinCelExpressionLines = (expression: string) =>
  /\/\/|"""|'''/.test(expression)
    ? expression
    : expression
        .replace(/\s*\n\s*(?=\.)/g, "")
        .replace(/\s*\n\s*/g, " ")
        .trim();
