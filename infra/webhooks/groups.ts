import type { RequestMatch } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig, RuleConfig, RuleGroup } from "../config/config.ts";
import { findGroupFault } from "../config/validation.ts";
import {
  buildRuleWebhookEntries,
  type EntryExemptions,
  joinCelExpressionLines,
  listEntryConditions,
  toCelList,
  type WebhookEntrySettings,
} from "./entry.ts";
import { listVitalResourcesByWildcard } from "./vital-resources.ts";

type ActiveMember = { listed: CatalogueRule; entry: WebhookEntrySettings; mode: RuleConfig["mode"] };

export const buildGroupWebhookEntry = (
  { members }: RuleGroup,
  cluster: ClusterConfig,
  harden: boolean,
): WebhookEntrySettings | undefined => {
  const on = listActiveMembers(members, cluster, harden);
  const entries = on.map(({ entry }) => entry);
  const [first] = entries;
  if (first === undefined) return undefined;
  const match = dropDuplicates(entries.flatMap(({ match }) => match));
  const failurePolicy = on.find(({ mode }) => mode === "enforce")?.entry.failurePolicy ?? "Ignore";
  // A group's rule in mode warn or audit must not make the group's webhook entry fail closed in a namespace that the
  // group's enforcing rules exempt.
  const [firstEntry, ...others] = entries.filter((entry) => entry.failurePolicy === failurePolicy);
  const namespaces = firstEntry?.exempt.namespaces?.filter((name) =>
    others.every(({ exempt }) => exempt.namespaces?.includes(name)),
  );
  // If no member names a vital resource, those that match it by a wildcard exempt it, and the others don't match it.
  const resources = listVitalResourcesByWildcard(match);
  const terms = entries.map((entry) => buildMemberCondition(entry, match, { namespaces, resources }));
  return {
    ...first,
    match,
    exempt: {
      ...(namespaces && { namespaces }),
      namespaceLabels: first.exempt.namespaceLabels,
      ...(resources.length > 0 && { resources }),
    },
    // A member without conditions handles every request of the entry, so the group's entry has no condition either.
    conditions: terms.includes("") ? {} : { "concerns-a-member": joinWithOr(dropDuplicates(terms)) },
    failurePolicy,
    // A group member whose reviews are recorded has side effects; then the group's whole entry has them.
    sideEffects: entries.find(({ sideEffects }) => sideEffects !== "None")?.sideEffects ?? "None",
    timeoutSeconds: Math.max(...entries.map(({ timeoutSeconds }) => timeoutSeconds)),
  };
};

const buildMemberCondition = (
  entry: WebhookEntrySettings,
  all: readonly RequestMatch[],
  exemptForAll: EntryExemptions,
): string => {
  const { match, exempt } = entry;
  const own = exempt.namespaces?.filter((namespace) => !exemptForAll.namespaces?.includes(namespace)) ?? [];
  const resources = exempt.resources?.filter((key) => !exemptForAll.resources?.includes(key)) ?? [];
  const parts = [
    ...(dropDuplicates(match).length === all.length
      ? []
      : [joinWithOr(dropDuplicates(match).map(buildMatchCondition))]),
    ...(own.length > 0 ? [`!(request.?namespace.orValue("") in ${toCelList(own)})`] : []),
    ...listEntryConditions({ ...entry, exempt: { ...exempt, resources } }).map(([, expression]) => expression),
  ];
  return parts.map(parenthesize).join(" && ");
};

/** Puts a CEL expression in parentheses, the last one in a new line if a comment could hide it. */
const parenthesize = (expression: string) => {
  const line = joinCelExpressionLines(expression);
  return line.includes("\n") || line.includes("//") ? `(${line}\n)` : `(${line})`;
};

const buildMatchCondition = ({ operations, resources }: RequestMatch): string => {
  const paths = resources.map((path) => (path.includes("/") ? path : `${path}/`));
  const conditions = [
    ...(operations.includes("*") ? [] : [`request.operation in ${toCelList(operations)}`]),
    ...(paths.some((path) => path.includes("*"))
      ? []
      : [`request.resource.resource + "/" + request.?subResource.orValue("") in ${toCelList(paths)}`]),
  ];
  return conditions.join(" && ") || "true";
};

const joinWithOr = (terms: string[]) => (terms.length === 1 ? String(terms[0]) : terms.map(parenthesize).join(" || "));

/**
 * Divides rules into sets that can be groups in all clusters, whether these are hardened or not: each rule joins the first
 * set that it fits. `started` are sets that others may join.
 */
export const groupCompatibleRules = (
  rules: readonly CatalogueRule[],
  clusters: readonly ClusterConfig[],
  started: readonly CatalogueRule[][] = [],
): CatalogueRule[][] => {
  const isFit = (members: CatalogueRule[]) =>
    clusters.every((cluster) =>
      [false, true].every((harden) => listSharedEntryConflicts({ name: "", members }, cluster, harden).length === 0),
    );
  const sets = started.map((members) => [...members]);
  for (const listed of rules) {
    if (findGroupFault(listed, undefined) !== undefined) continue;
    const set = sets.find((members) => isFit([...members, listed]));
    if (set) set.push(listed);
    else sets.push([listed]);
  }
  return sets;
};

/** Returns why the members can't share a webhook entry; callers put the group's name before each sentence. */
export const listSharedEntryConflicts = ({ members }: RuleGroup, cluster: ClusterConfig, harden = false): string[] => {
  const on = listActiveMembers(members, cluster, harden);
  const about: [string, ActiveMember[], (member: ActiveMember) => unknown][] = [
    ["failurePolicy", on.filter(({ mode }) => mode === "enforce"), ({ entry }) => entry.failurePolicy],
    ["matchPolicy", on, ({ entry }) => entry.matchPolicy],
    ["sideEffects", on, ({ listed }) => listed.rule.sideEffects ?? "None"],
    ["namespaceSelector", on, ({ entry }) => entry.namespaceSelector],
    ["objectSelector", on, ({ entry }) => entry.objectSelector],
    ["exempt.namespaceLabels", on, ({ entry }) => entry.exempt.namespaceLabels ?? {}],
    // An entry that fails closed exempts some namespaces by default. The function that a group's rules share isn't
    // configured with these, so members that fail closed must exempt the same ones.
    [
      "exempt.namespaces where it fails closed",
      harden ? on.filter(failsClosed) : [],
      ({ entry }) => entry.exempt.namespaces,
    ],
  ];
  return [
    ...about.flatMap(([what, which, getValue]) => {
      const byValue = Map.groupBy(which, (member) => formatValue(getValue(member)));
      if (byValue.size < 2) return [];
      const sides = [...byValue].map(([value, some]) => {
        const names = some.map(({ listed }) => listed.name).join(", ");
        return `${names} ${some.length === 1 ? "has" : "have"} ${value}`;
      });
      return [`must agree in ${what}: ${sides.join(", ")}`];
    }),
    ...listVersionConflicts(on),
  ];
};

const failsClosed = ({ entry }: ActiveMember) => entry.failurePolicy === "Fail";

/**
 * Describes rules of a group that match different API versions of a resource: the API server converts objects to the
 * version that the webhook entry names, so all rules of a group must match the same versions.
 */
const listVersionConflicts = (on: ActiveMember[]): string[] => {
  const named = on.flatMap(({ listed: { name }, entry }) =>
    entry.match.flatMap(({ apiGroups, apiVersions, resources }) =>
      resources.map((path) => ({ name, resource: path.split("/")[0], as: formatValue([apiGroups, apiVersions]) })),
    ),
  );
  for (const member of named) {
    const different = named.find(
      ({ resource, as }) =>
        as !== member.as && (resource === member.resource || resource === "*" || member.resource === "*"),
    );
    if (different)
      return [
        `must match ${member.resource} in the same versions: ${member.name} has ${member.as}, ${different.name} has ${different.as}`,
      ];
  }
  return [];
};

const listActiveMembers = (members: CatalogueRule[], { rules }: ClusterConfig, harden: boolean): ActiveMember[] =>
  members.flatMap((listed) => {
    const setup = rules.get(listed.name);
    if (setup === undefined || setup.mode === "off") return [];
    // A rule that matches nothing under its settings has no entry.
    return buildRuleWebhookEntries(listed, "mutate", setup, harden).map(({ entry }) => {
      return { listed, mode: setup.mode, entry };
    });
  });

const formatValue = (value: unknown) => JSON.stringify(value) ?? "none";

const dropDuplicates = <T>(values: readonly T[]): T[] => {
  const seen = new Map(values.map((value) => [JSON.stringify(value), value]));
  return [...seen.values()];
};
