import { isDeepStrictEqual } from "node:util";
import type { Share } from "#lib/endpoint.ts";
import type { GroupShare, Membership } from "#lib/group.ts";
import { inPhase, type Rule, rule, variantsOf } from "#lib/rule.ts";
import type { Variants } from "#lib/variant.ts";
import type { Listed } from "../catalogue/registry.ts";
import type { Cluster, Config, Group, Setup } from "../config/config.ts";
import { entryOf } from "../webhooks/entry.ts";

/** What is served: each rule that is named for some cluster, whatever the mode, and each group in its members' place. */
export const servedRules = ({ clusters, groups }: Config, catalogue: Listed[]): Listed[] =>
  catalogue.flatMap((listed) => {
    const group = groups.find(({ members }) => members.includes(listed));
    const isNamed = [...clusters.values()].some(({ rules }) => rules.has(listed.name));
    const isAlone = group === undefined || listed.phases.includes("validate");
    return [...(group?.members[0] === listed ? [asRule(group)] : []), ...(isNamed && isAlone ? [listed] : [])];
  });

/** What goes into a rule's bundle. A cluster that doesn't use the rule is admitted as if it were off there. */
export const shareOf = (config: Config, { name, rule, members }: Listed): Share => {
  if (members) return groupShareOf({ name, members }, config.clusters);
  const standard = rule.settings ?? {};
  const usual = variantsAmong(rule, standard);
  const clusters = [...config.clusters].map(([cluster, { keyVersions, rules }]) => {
    const { mode, settings } = rules.get(name) ?? { mode: "off" as const, settings: standard };
    const variants = variantsAmong(rule, settings);
    return [cluster, { keyVersions, mode, settings, ...(!isDeepStrictEqual(variants, usual) && variants) }] as const;
  });
  return { rule: name, ...usual, clusters: Object.fromEntries(clusters) };
};

const variantsAmong = (rule: Rule, settings: object): { variants?: Variants } => {
  const variants = variantsOf(rule, settings)?.map(({ name, settings = {} }) => [name, settings]);
  return variants ? { variants: Object.fromEntries(variants) } : {};
};

/** A group, as if it were a rule with a folder of its own. */
export const asRule = ({ name, members }: Group): Listed => {
  // Two may call theirs alike.
  const needs = Object.fromEntries(
    members.flatMap(({ name, rule }) =>
      Object.entries(rule.needs ?? {}).map(([need, one]) => [`${name}.${need}`, one]),
    ),
  );
  const summary = `Does at once what ${members.map(({ name }) => name).join(", ")} would do one after the other.`;
  const face: Rule = rule({ summary, needs, match: [], mutate() {} });
  return { name, folder: "", phases: ["mutate"], rule: face, members };
};

/** A group's share of postern.yaml. Whoever is not on in a cluster is off there. */
export const groupShareOf = ({ name, members }: Group, clusters: ReadonlyMap<string, Cluster>): GroupShare => {
  const each = (setupOf: (listed: Listed) => Setup) =>
    Object.fromEntries(members.map((listed) => [listed.name, membership(listed, setupOf(listed))]));
  const off = ({ rule }: Listed): Setup => ({ mode: "off", settings: rule.settings ?? {} });
  return {
    rule: name,
    clusters: Object.fromEntries(
      [...clusters].map(([cluster, { keyVersions, rules }]) => {
        const settings = each((listed) => rules.get(listed.name) ?? off(listed));
        const mode = Object.values(settings).every((member) => member.mode === "off") ? "off" : "enforce";
        return [cluster, { keyVersions, mode, settings }] as const;
      }),
    ),
    alone: each(({ rule }) => ({ mode: "enforce", settings: rule.settings ?? {} })),
  };
};

const membership = (listed: Listed, setup: Setup): Membership => {
  const { mode, settings } = setup;
  if (mode === "off") return { mode, settings, match: [], failsOpen: true, exempt: {} };
  // Entries may be hardened when they are made, after the functions were built.
  const failsOpen = entryOf(listed, "mutate", setup, true).failurePolicy === "Ignore";
  const { namespaces, users, groups } = entryOf(listed, "mutate", setup, false).exempt;
  const match = inPhase(listed.rule.match, "mutate", settings) ?? [];
  return {
    mode,
    settings,
    match,
    failsOpen,
    exempt: { ...(namespaces && { namespaces }), ...(users && { users }), ...(groups && { groups }) },
  };
};
