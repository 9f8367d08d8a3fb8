import {
  type Conditions,
  inPhase,
  type LabelSelector,
  type Match,
  type OfSettings,
  type Phase,
  type Rule,
} from "#lib/rule.ts";
import { Complaint } from "./complaint.ts";
import type { Exempt, Setup } from "./config.ts";
import type { Listed } from "./registry.ts";

/** What a webhook entry says of a rule in a cluster, before it has a name and an address. */
export interface Entry {
  match: readonly Match[];
  exempt: Exempt;
  conditions: Conditions;
  failurePolicy: "Fail" | "Ignore";
  matchPolicy: "Equivalent" | "Exact";
  sideEffects: "None" | "NoneOnDryRun";
  timeoutSeconds: number;
  namespaceSelector: LabelSelector | undefined;
  objectSelector: LabelSelector | undefined;
}

const defaultTimeout = 3;

/** Never behind an entry that fails closed, unless somebody wrote otherwise: the cluster could not heal itself. */
const vital = ["kube-system", "kube-node-lease"];

export const entryOf = ({ name, rule }: Listed, phase: Phase, setup: Setup, harden: boolean): Entry => {
  const { settings } = setup;
  const match = inPhase(rule.match, phase, settings) ?? [];
  if (match.length === 0) throw new Complaint(`functions/${name}/rule.ts matches nothing to ${phase}`);
  const failurePolicy = policyOf(setup, harden && rule.guards === true);
  return {
    match,
    exempt: exemptionsOf(name, match, setup, failurePolicy),
    conditions: {
      ...inPhase(rule.authorizedBy, phase, settings),
      ...inPhase(rule.matchConditions, phase, settings),
    },
    failurePolicy,
    matchPolicy: rule.matchPolicy ?? "Equivalent",
    sideEffects: rule.sideEffects ?? "None",
    timeoutSeconds: timeoutOf(rule, setup),
    namespaceSelector: selector(rule.namespaceSelector, settings),
    objectSelector: selector(rule.objectSelector, settings),
  };
};

/** How long the API server waits for a rule, in seconds. */
export const timeoutOf = (rule: Rule, setup?: Setup) => setup?.timeoutSeconds ?? rule.timeoutSeconds ?? defaultTimeout;

const policyOf = ({ failurePolicy, mode }: Setup, hardened: boolean): "Fail" | "Ignore" =>
  mode === "enforce" ? (failurePolicy ?? (hardened ? "Fail" : "Ignore")) : "Ignore";

const exemptionsOf = (
  name: string,
  match: readonly Match[],
  { exempt = {} }: Setup,
  failurePolicy: "Fail" | "Ignore",
): Exempt => {
  if (exempt.namespaceLabels && Object.keys(exempt.namespaceLabels).length > 0 && match.some(judgesNamespaces))
    throw new Complaint(
      `rules.${name}.exempt.namespaceLabels would let whoever labels a namespace exempt it, since ${name} judges namespaces too; use namespaces, users or groups`,
    );
  return failurePolicy === "Fail" && exempt.namespaces === undefined ? { ...exempt, namespaces: vital } : exempt;
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
