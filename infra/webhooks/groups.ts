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

/** A rule of a group that is on in a cluster, and the entry that it would have alone. */
type ActiveMember = { listed: CatalogueRule; entry: WebhookEntrySettings; mode: RuleConfig["mode"] };

/** Builds the one webhook entry of a group: it matches what its members match. Returns undefined if no member is on. */
export const buildGroupWebhookEntry = (
  { members }: RuleGroup,
  cluster: ClusterConfig,
  harden: boolean,
): WebhookEntrySettings | undefined => {
  const active = listActiveMembers(members, cluster, harden);
  const entries = active.map(({ entry }) => entry);
  const [first] = entries;
  if (first === undefined) return undefined;
  const match = dropDuplicates(entries.flatMap(({ match }) => match));
  // All members in the mode enforce have the same failurePolicy; otherwise `listSharedEntryConflicts` reports them.
  const failurePolicy = active.find(({ mode }) => mode === "enforce")?.entry.failurePolicy ?? "Ignore";
  // Only members with the group's failurePolicy decide which namespaces the entry exempts. A member in the mode warn or
  // audit must not make the entry fail closed in a namespace that all enforcing members exempt.
  const [firstEntry, ...others] = entries.filter((entry) => entry.failurePolicy === failurePolicy);
  const namespaces = firstEntry?.exempt.namespaces?.filter((name) =>
    others.every(({ exempt }) => exempt.namespaces?.includes(name)),
  );
  // Resources that a control plane must always be able to write, such as leases, and that members match only by a
  // wildcard. A member that matches one by a wildcard exempts it. So no member handles them: the entry can exempt them.
  const resources = listVitalResourcesByWildcard(match);
  const memberConditions = entries.map((entry) => buildMemberCondition(entry, match, { namespaces, resources }));
  return {
    ...first,
    match,
    exempt: {
      ...(namespaces && { namespaces }),
      namespaceLabels: first.exempt.namespaceLabels,
      ...(resources.length > 0 && { resources }),
    },
    // A member without conditions handles every request of the entry, so the group's entry has no condition either.
    conditions: memberConditions.includes("")
      ? {}
      : { "concerns-a-member": joinWithOr(dropDuplicates(memberConditions)) },
    failurePolicy,
    // If one member has side effects, because its reviews are recorded, the entry of the group has them.
    sideEffects: entries.find(({ sideEffects }) => sideEffects !== "None")?.sideEffects ?? "None",
    timeoutSeconds: Math.max(...entries.map(({ timeoutSeconds }) => timeoutSeconds)),
  };
};

/** Builds the CEL condition that selects a member's requests from those that its group's entry matches. */
const buildMemberCondition = (
  entry: WebhookEntrySettings,
  groupMatch: readonly RequestMatch[],
  exemptForAll: EntryExemptions,
): string => {
  const { match, exempt } = entry;
  const namespaces = exempt.namespaces?.filter((namespace) => !exemptForAll.namespaces?.includes(namespace)) ?? [];
  const resources = exempt.resources?.filter((key) => !exemptForAll.resources?.includes(key)) ?? [];
  const parts = [
    // The group's match has the elements of all members' matches. A member with as many elements has the same match.
    ...(dropDuplicates(match).length === groupMatch.length
      ? []
      : [joinWithOr(dropDuplicates(match).map(buildMatchCondition))]),
    // `listEntryConditions` lacks the exempt namespaces: an entry of one rule exempts them by its namespaceSelector.
    ...(namespaces.length > 0 ? [`!(request.?namespace.orValue("") in ${toCelList(namespaces)})`] : []),
    ...listEntryConditions({ ...entry, exempt: { ...exempt, resources } }).map(([, expression]) => expression),
  ];
  return parts.map(parenthesize).join(" && ");
};

/** Puts a CEL expression in parentheses. The closing one is in a new line if a comment (//) may be before it. */
const parenthesize = (expression: string) => {
  const line = joinCelExpressionLines(expression);
  return line.includes("\n") || line.includes("//") ? `(${line}\n)` : `(${line})`;
};

/**
 * Builds a CEL condition on the operation and the resource of a request. It only saves calls, because the group's
 * function tests each member's match, too. So it may hold for more requests, as it does for a match with a wildcard.
 */
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
 * Divides rules into sets that can be groups in all clusters, whether the groups are hardened or not. Each rule is put
 * into the first set that accepts it. `started` are sets that exist already. Rules that no group can have are left out.
 */
export const groupCompatibleRules = (
  rules: readonly CatalogueRule[],
  clusters: readonly ClusterConfig[],
  started: readonly CatalogueRule[][] = [],
): CatalogueRule[][] => {
  const canBeGroup = (members: CatalogueRule[]) =>
    clusters.every((cluster) =>
      [false, true].every((harden) => listSharedEntryConflicts({ name: "", members }, cluster, harden).length === 0),
    );
  const sets = started.map((members) => [...members]);
  for (const listed of rules) {
    if (findGroupFault(listed) !== undefined) continue;
    const set = sets.find((members) => canBeGroup([...members, listed]));
    if (set) set.push(listed);
    else sets.push([listed]);
  }
  return sets;
};

/**
 * Returns why the members of a group can't share a webhook entry, for instance "must agree in matchPolicy: …". `harden`:
 * the entries of rules that guard security fail closed.
 */
export const listSharedEntryConflicts = ({ members }: RuleGroup, cluster: ClusterConfig, harden = false): string[] => {
  const active = listActiveMembers(members, cluster, harden);
  const checks: [setting: string, members: ActiveMember[], getValue: (member: ActiveMember) => unknown][] = [
    ["failurePolicy", active.filter(({ mode }) => mode === "enforce"), ({ entry }) => entry.failurePolicy],
    ["matchPolicy", active, ({ entry }) => entry.matchPolicy],
    ["sideEffects", active, ({ listed }) => listed.rule.sideEffects ?? "None"],
    ["namespaceSelector", active, ({ entry }) => entry.namespaceSelector],
    ["objectSelector", active, ({ entry }) => entry.objectSelector],
    ["exempt.namespaceLabels", active, ({ entry }) => entry.exempt.namespaceLabels ?? {}],
    // A hardened entry that fails closed exempts namespaces such as kube-system. The members of a shared entry must
    // agree on these: its function can't exempt one member, because it doesn't know whether entries are hardened.
    [
      "exempt.namespaces where it fails closed",
      harden ? active.filter(failsClosed) : [],
      ({ entry }) => entry.exempt.namespaces,
    ],
  ];
  return [
    ...checks.flatMap(([setting, compared, getValue]) => {
      const byValue = Map.groupBy(compared, (member) => formatValue(getValue(member)));
      if (byValue.size < 2) return [];
      const differing = [...byValue].map(([value, membersWithValue]) => {
        const names = membersWithValue.map(({ listed }) => listed.name).join(", ");
        return `${names} ${membersWithValue.length === 1 ? "has" : "have"} ${value}`;
      });
      return [`must agree in ${setting}: ${differing.join(", ")}`];
    }),
    ...listVersionConflicts(active),
  ];
};

const failsClosed = ({ entry }: ActiveMember) => entry.failurePolicy === "Fail";

/**
 * Describes two rules of a group that match different API versions of a resource. The API server converts an object to
 * the version in the webhook entry, so all rules of a group must match the same versions.
 */
const listVersionConflicts = (active: ActiveMember[]): string[] => {
  const matches = active.flatMap(({ listed: { name }, entry }) =>
    entry.match.flatMap(({ apiGroups, apiVersions, resources }) => {
      const versions = formatValue([apiGroups, apiVersions]);
      return resources.map((path) => ({ name, resource: path.split("/")[0], versions }));
    }),
  );
  for (const { name, resource, versions } of matches) {
    const conflict = matches.find(
      (other) =>
        other.versions !== versions && (other.resource === resource || other.resource === "*" || resource === "*"),
    );
    if (conflict)
      return [
        `must match ${resource} in the same versions: ${name} has ${versions}, ${conflict.name} has ${conflict.versions}`,
      ];
  }
  return [];
};

/** Returns the members that are on, with the mutating entries that they would have alone: groups only mutate. */
const listActiveMembers = (members: CatalogueRule[], { rules }: ClusterConfig, harden: boolean): ActiveMember[] =>
  members.flatMap((listed) => {
    const setup = rules.get(listed.name);
    if (setup === undefined || setup.mode === "off") return [];
    // A rule may have no entry, because with its settings it matches no requests.
    return buildRuleWebhookEntries(listed, "mutate", setup, harden).map(({ entry }) => {
      return { listed, mode: setup.mode, entry };
    });
  });

const formatValue = (value: unknown) => JSON.stringify(value) ?? "none";

const dropDuplicates = <T>(values: readonly T[]): T[] => [
  ...new Map(values.map((value) => [JSON.stringify(value), value])).values(),
];
