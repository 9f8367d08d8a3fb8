import type { LabelSelector } from "#lib/objects/selection.ts";
import { type Conditions, inPhase, type Match, type OfSettings, type Phase, type Rule, variantsOf } from "#lib/rule.ts";
import type { Listed } from "../catalogue/registry.ts";
import { asVariant } from "../catalogue/variants.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Exempt, Setup } from "../config/config.ts";

/** What a webhook entry says of a rule in a cluster, before it has a name and an address. */
export interface Entry {
  match: readonly Match[];
  exempt: Exempt;
  conditions: Conditions;
  failurePolicy: "Fail" | "Ignore";
  matchPolicy: "Equivalent" | "Exact";
  sideEffects: "None" | "NoneOnDryRun";
  reinvocationPolicy: "IfNeeded" | "Never";
  timeoutSeconds: number;
  namespaceSelector: LabelSelector | undefined;
  objectSelector: LabelSelector | undefined;
}

/** One of a rule's entries, and which of its variants that is for. */
export interface Facet {
  variant?: string;
  entry: Entry;
}

const defaultTimeout = 3;

/** The entries of a rule in one phase: one, or one for each of its variants that matches something. */
export const entriesOf = (listed: Listed, phase: Phase, setup: Setup, harden: boolean): Facet[] => {
  const variants = variantsOf(listed.rule, setup.settings);
  const isIdle = (rule: Rule, settings: object) => (inPhase(rule.match, phase, settings) ?? []).length === 0;
  if (variants === undefined) {
    // Of one whose match follows from its settings, these may leave nothing.
    const isUnasked = typeof listed.rule.match === "function" && isIdle(listed.rule, setup.settings);
    return isUnasked ? [] : [{ entry: entryOf(listed, phase, setup, harden) }];
  }
  const names = variants.map(({ name }) => name);
  const unfit = names.find((name, index) => !isVariantName(name) || names.indexOf(name) < index);
  if (unfit !== undefined)
    throw new Complaint(
      `functions/${listed.name}/rule.ts has a variant "${unfit}"; each needs a name of its own of lower-case letters, digits and hyphens, and not mutate or validate`,
    );
  return names.flatMap((variant) => {
    const { rule, settings } = asVariant(listed.rule, setup.settings, variant);
    return isIdle(rule, settings)
      ? []
      : [{ variant, entry: entryOf({ ...listed, rule }, phase, { ...setup, settings }, harden) }];
  });
};

/** It becomes part of a path, where a phase stands before it, and of an entry's name. */
const isVariantName = (name: string) => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name) && !isPhase(name);
const isPhase = (name: string) => name === "mutate" || name === "validate";

/** Never behind an entry that fails closed, unless somebody wrote otherwise: the cluster could not heal itself. */
const vital = ["kube-system", "kube-node-lease"];

export const entryOf = ({ name, rule }: Listed, phase: Phase, setup: Setup, harden: boolean): Entry => {
  const { settings } = setup;
  const match = inPhase(rule.match, phase, settings) ?? [];
  if (match.length === 0) throw new Complaint(`functions/${name}/rule.ts matches nothing to ${phase}`);
  const failurePolicy = policyOf(setup, harden && rule.guards === true);
  return {
    match,
    exempt: exemptionsOf(name, match, setup, failurePolicy === "Fail" && !rule.everywhere),
    conditions: {
      ...inPhase(rule.authorizedBy, phase, settings),
      ...inPhase(rule.matchConditions, phase, settings),
    },
    failurePolicy,
    matchPolicy: rule.matchPolicy ?? "Equivalent",
    // What is recorded is written outside, though not on a dry run.
    sideEffects: setup.record ? "NoneOnDryRun" : (rule.sideEffects ?? "None"),
    reinvocationPolicy: rule.reinvocationPolicy ?? "IfNeeded",
    timeoutSeconds: timeoutOf(rule, setup),
    namespaceSelector: selector(rule.namespaceSelector, settings),
    objectSelector: selector(rule.objectSelector, settings),
  };
};

/** How long the API server waits for a rule, in seconds. */
const timeoutOf = (rule: Rule, setup?: Setup) => setup?.timeoutSeconds ?? rule.timeoutSeconds ?? defaultTimeout;

/** How long it waits for a rule at most, whichever of its entries it calls. */
export const longestTimeoutOf = (rule: Rule, setup?: Setup): number => {
  const variants = variantsOf(rule, setup?.settings ?? rule.settings ?? {}) ?? [{}];
  return Math.max(...variants.map((variant) => timeoutOf({ ...rule, ...variant }, setup)));
};

const policyOf = ({ failurePolicy, mode }: Setup, hardened: boolean): "Fail" | "Ignore" =>
  mode === "enforce" ? (failurePolicy ?? (hardened ? "Fail" : "Ignore")) : "Ignore";

const exemptionsOf = (name: string, match: readonly Match[], { exempt = {} }: Setup, sparesVital: boolean): Exempt => {
  if (exempt.namespaceLabels && Object.keys(exempt.namespaceLabels).length > 0 && match.some(judgesNamespaces))
    throw new Complaint(
      `rules.${name}.exempt.namespaceLabels would let whoever labels a namespace exempt it, since ${name} judges namespaces too; use namespaces, users or groups`,
    );
  return sparesVital && exempt.namespaces === undefined ? { ...exempt, namespaces: vital } : exempt;
};

const judgesNamespaces = ({ apiGroups, resources }: Match) =>
  ["", "*"].some((group) => apiGroups.includes(group)) &&
  resources.some((resource) => ["namespaces", "*", "*/*"].includes(resource));

/** A selector that selects everything is as good as none. */
const selector = (
  value: OfSettings<LabelSelector, object> | undefined,
  settings: object,
): LabelSelector | undefined => {
  const { matchLabels = {}, matchExpressions = [] } = (typeof value === "function" ? value(settings) : value) ?? {};
  const given = {
    ...(Object.keys(matchLabels).length > 0 && { matchLabels }),
    ...(matchExpressions.length > 0 && { matchExpressions }),
  };
  return Object.keys(given).length > 0 ? given : undefined;
};

/** By no label of the object itself, for its author could set them. */
export const exemptSelector = ({ namespaces = [], namespaceLabels = {} }: Exempt): LabelSelector | undefined => {
  const matchExpressions = [
    ...(namespaces.length > 0
      ? [{ key: "kubernetes.io/metadata.name", operator: "NotIn" as const, values: namespaces }]
      : []),
    ...Object.entries(namespaceLabels).map(([key, value]) => ({ key, operator: "NotIn" as const, values: [value] })),
  ];
  return matchExpressions.length > 0 ? { matchExpressions } : undefined;
};

export const exemptConditions = ({ users = [], groups = [] }: Exempt): Conditions => {
  return {
    ...(users.length > 0 && { "user-is-not-exempt": `!(request.userInfo.?username.orValue("") in ${literal(users)})` }),
    ...(groups.length > 0 && {
      "groups-are-not-exempt": `!request.userInfo.?groups.orValue([]).exists(group, group in ${literal(groups)})`,
    }),
  };
};

/** A list in CEL, whose escapes are JSON's but for what JSON leaves as it is. */
export const literal = (texts: readonly string[]) =>
  JSON.stringify(texts).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

/** Line breaks and indentation are the rule's layout, unless a comment or a long text depends on them. */
export const oneLine = (expression: string) =>
  /\/\/|"""|'''/.test(expression)
    ? expression
    : expression
        .replace(/\s*\n\s*(?=\.)/g, "")
        .replace(/\s*\n\s*/g, " ")
        .trim();
