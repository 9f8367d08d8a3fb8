import { isDeepStrictEqual } from "node:util";
import {
  type ClusterSetup,
  createEndpoint,
  type Endpoint,
  type EndpointConfig,
  type EndpointHost,
} from "#lib/core/endpoint.ts";
import type { EvaluateRequest } from "#lib/core/evaluation.ts";
import type { RuleException } from "#lib/core/exceptions.ts";
import { createGroupEndpoint, type GroupConfig, type GroupMemberConfig } from "#lib/core/group.ts";
import { isMap } from "#lib/json.ts";
import { getVariants, type Rule, rule, selectPhase } from "#lib/rule.ts";
import type { SettingsVariants } from "#lib/settings.ts";
import { selectSince } from "#lib/since.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig, PosternConfig, RuleConfig, RuleExemptions, RuleGroup } from "../config/config.ts";
import { buildRuleWebhookEntry } from "../webhooks/entry.ts";

/** Returns the rules and groups that have a function: all rules that a cluster names, also if they are off. */
export const listServedRulesAndGroups = (
  { clusters, groups }: PosternConfig,
  catalogue: CatalogueRule[],
): CatalogueRule[] =>
  catalogue.flatMap((listed) => {
    const group = groups.find(({ members }) => members.includes(listed));
    const isNamed = [...clusters.values()].some(({ rules }) => rules.has(listed.name));
    // The function of a group only mutates, so a member that also validates has its own function, too.
    const hasOwnFunction = group === undefined || listed.phases.includes("validate");
    return [
      ...(group?.members[0] === listed ? [toGroupRule(group)] : []),
      ...(isNamed && hasOwnFunction ? [listed] : []),
    ];
  });

/** Creates the endpoint of a rule or of a group of rules. */
export const createListedEndpoint = (
  config: PosternConfig,
  listed: CatalogueRule,
  host: EndpointHost,
  evaluate?: EvaluateRequest,
): Endpoint => {
  const { name, rule, members } = listed;
  if (!members) return createEndpoint(rule, buildEndpointConfig(config, listed), host, evaluate);
  const rules = Object.fromEntries(members.map(({ name, rule }) => [name, rule]));
  return createGroupEndpoint(rules, buildGroupEndpointConfig({ name, members }, config), host, evaluate);
};

/** Returns the part of postern.yaml for the bundle of a rule or group. A rule is off in clusters that don't name it. */
export const buildEndpointConfig = (config: PosternConfig, listed: CatalogueRule): EndpointConfig => {
  const { name, rule, members } = listed;
  if (members) return buildGroupEndpointConfig({ name, members }, config);
  const standard = rule.settings ?? {};
  const defaultVariants = buildVariants(rule, standard);
  const { usual: setupOfOtherClusters, clusters } = buildSetups(config, [listed], (rulesOfCluster) => {
    const { mode, settings, exempt }: RuleConfig = rulesOfCluster.get(name) ?? { mode: "off", settings: standard };
    const variants = buildVariants(rule, settings);
    return {
      mode,
      settings,
      // The function uses `defaultVariants` for a cluster whose setup has no `variants`.
      ...(!isDeepStrictEqual(variants, defaultVariants) && variants),
      ...(mode !== "off" && buildExceptions(exempt)),
    };
  });
  return { rule: name, ...selectLogs(config), ...defaultVariants, usual: setupOfOtherClusters, clusters };
};

/** Returns the exceptions without their places in postern.yaml. */
const buildExceptions = ({ exceptions = [] }: RuleExemptions = {}): { exceptions?: RuleException[] } =>
  exceptions.length === 0 ? {} : { exceptions: exceptions.map(({ place: _, ...exception }) => exception) };

/** Returns `logs` only if postern.yaml has it, so that other bundles don't differ from those of earlier versions. */
const selectLogs = ({ logs }: PosternConfig) => (logs === undefined ? {} : { logs });

/**
 * Returns the setup of the general section `rules` (`usual`), and the setups of clusters that differ from it. If two
 * clusters have equal setups, the second has the name of the first in its place. A new cluster without own settings
 * changes nothing.
 */
const buildSetups = <Settings extends object>(
  { rules, clusters, refused = [] }: PosternConfig,
  rulesOfFunction: readonly CatalogueRule[],
  build: (rulesOfCluster: ReadonlyMap<string, RuleConfig>) => Omit<ClusterSetup<Settings>, "keyVersions">,
): Pick<EndpointConfig<Settings>, "clusters"> & { usual: ClusterSetup<Settings> } => {
  const usual = { keyVersions: [1], ...build(rules) };
  const buildSetup = ({ keyVersions, rules, kubernetes }: ClusterConfig): ClusterSetup<Settings> => {
    const setup = { keyVersions, ...build(rules) };
    // The function must know the cluster's minor version if a rule behaves differently in it than in the newest one.
    const needsVersion =
      setup.mode !== "off" && kubernetes !== undefined && differsByMinor(rulesOfFunction, kubernetes);
    return needsVersion ? { ...setup, kubernetes } : setup;
  };
  const setups = [
    ...[...clusters].map(([name, cluster]) => [name, buildSetup(cluster)] as const),
    // Without key versions, a function accepts no key of the cluster.
    ...refused.map((name) => [name, { keyVersions: [], ...build(new Map()) }] as const),
  ];
  // The setups are sorted by name, so that another order in postern.yaml changes nothing.
  setups.sort(([left], [right]) => (left < right ? -1 : 1));
  const usualText = formatSorted(usual);
  const firstNames = new Map<string, string>();
  const others = setups.flatMap(([name, setup]) => {
    const text = formatSorted(setup);
    if (text === usualText) return [];
    const first = firstNames.get(text);
    if (first === undefined) firstNames.set(text, name);
    return [[name, first ?? setup] as const];
  });
  return { usual, clusters: Object.fromEntries(others) };
};

/** Reports whether a rule behaves differently in two minor versions. The second one is the newest by default. */
export const differsByMinor = (rules: readonly CatalogueRule[], first: string, second?: string): boolean =>
  rules.some(({ rule: { since = {} } }) => {
    // A newer version has all entries of `since` that an older one has, so it is enough to compare their numbers.
    const [firstCount, secondCount] = [first, second].map((minor) => Object.keys(selectSince(since, minor)).length);
    return firstCount !== secondCount;
  });

/** Returns JSON with sorted keys, so that equal values have equal texts. */
const formatSorted = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) =>
    isMap(inner) ? Object.fromEntries(Object.entries(inner).sort(([left], [right]) => (left < right ? -1 : 1))) : inner,
  );

const buildVariants = (rule: Rule, settings: object): { variants?: SettingsVariants } => {
  const variants = getVariants(rule, settings)?.map(({ name, settings = {} }) => [name, settings]);
  return variants ? { variants: Object.fromEntries(variants) } : {};
};

/** Returns a group in the form of a rule, so that it gets a function and webhook entries as a rule does. */
export const toGroupRule = ({ name, members }: RuleGroup): CatalogueRule => {
  // The name of each need gets the member's name as a prefix, because two members may have needs of the same name.
  const needs = Object.fromEntries(
    members.flatMap(({ name, rule }) =>
      Object.entries(rule.needs ?? {}).map(([need, declaration]) => [`${name}.${need}`, declaration]),
    ),
  );
  const summary = `Does at once what ${members.map(({ name }) => name).join(", ")} would do one after the other.`;
  const ruleOfGroup: Rule = rule({ summary, needs, match: [], mutate() {} });
  const place = { folder: "", place: `the group ${name}`, source: "groups", file: "" };
  return { name, ...place, phases: ["mutate"], rule: ruleOfGroup, members };
};

/** Returns the part of postern.yaml for a group. A member is off in clusters that don't name it. */
export const buildGroupEndpointConfig = ({ name, members }: RuleGroup, config: PosternConfig): GroupConfig => {
  const mapMembers = (setupOf: (listed: CatalogueRule) => RuleConfig) =>
    Object.fromEntries(members.map((listed) => [listed.name, buildMembership(listed, setupOf(listed))]));
  const buildOffConfig = ({ rule }: CatalogueRule): RuleConfig => ({ mode: "off", settings: rule.settings ?? {} });
  return {
    rule: name,
    ...selectLogs(config),
    ...buildSetups(config, members, (rulesOfCluster) => {
      const settings = mapMembers((listed) => rulesOfCluster.get(listed.name) ?? buildOffConfig(listed));
      const mode = Object.values(settings).every((member) => member.mode === "off") ? "off" : "enforce";
      return { mode, settings };
    }),
    // For invocations that name no cluster, such as those for cases: the defaults of each rule, without exemptions.
    alone: Object.fromEntries(
      members.map((listed) => {
        const membership = buildMembership(listed, { mode: "enforce", settings: listed.rule.settings ?? {} });
        return [listed.name, { ...membership, exempt: {} }];
      }),
    ),
  };
};

/** Returns what a group's function needs to know about one member: its settings, its match and its exemptions. */
const buildMembership = (listed: CatalogueRule, setup: RuleConfig): GroupMemberConfig => {
  const { mode, settings } = setup;
  const match = mode === "off" ? [] : (selectPhase(listed.rule.match, "mutate", settings) ?? []);
  if (match.length === 0) return { mode, settings, match: [], failsOpen: true, exempt: {} };
  // Hardening an entry can set failurePolicy Fail, and then exempts namespaces such as kube-system. Entries may be
  // hardened after the functions were built, so failsOpen is true only for a member that stays at Ignore even then.
  const failsOpen = buildRuleWebhookEntry(listed, "mutate", setup, { harden: true }).failurePolicy === "Ignore";
  // The function checks the member's exemptions, except those by namespaceLabels and those that hardening adds: the
  // group's entry checks these. Exceptions are exemptions with an end date; only the function can check them.
  const { namespaceLabels: _, ...exempt } = buildRuleWebhookEntry(listed, "mutate", setup, { harden: false }).exempt;
  return { mode, settings, match, failsOpen, exempt: { ...exempt, ...buildExceptions(setup.exempt) } };
};
