// Checks postern.yaml against the catalogue. rules.ts checks the parts about rules.
import type { Mistake } from "#lib/settings.ts";
import type { BrokenRule, CatalogueRule } from "../catalogue/registry.ts";
import { findRule, isName } from "../catalogue/rule-names.ts";
import type { ClusterConfig, ConnectConfig, PosternConfig, RuleGroup } from "./config.ts";
import { connectKeys, unfitConnect } from "./connections.ts";
import { type Checker, openChecker, type Path } from "./field-checker.ts";
import { dnsLabel, type Known, noRule, type Places, type Said, settleRules, validateRules } from "./rules.ts";

/** A cluster's name becomes part of a URL path. */
export const isCluster = (name: string): boolean => dnsLabel.test(name);

/** Returns the config and all mistakes in postern.yaml. The settings of rules that can't be loaded aren't read. */
export const interpret = (
  given: unknown,
  catalogue: CatalogueRule[],
  places: Places,
  broken: readonly BrokenRule[],
): { config: PosternConfig; mistakes: Mistake[] } => {
  const checker = openChecker();
  const known = { catalogue, names: [...catalogue, ...broken].map(({ name }) => name), places };
  const { rules, clusters, groups } = checker.map(given, [], ["rules", "clusters", "groups"]);
  const together = readGroups(groups, known, broken, checker);
  const general = validateRules(rules, ["rules"], new Map(), known, checker);
  const named = Object.entries(checker.map(clusters ?? { local: {} }, ["clusters"])).map(
    ([name, value]) => [name, readCluster(name, value, together, general, known, checker)] as const,
  );
  if (named.length === 0) checker.complain(["clusters"], "must name at least one cluster, or be left out");
  return { config: { clusters: new Map(named), groups: together }, mistakes: checker.found };
};

const readCluster = (
  name: string,
  value: unknown,
  groups: RuleGroup[],
  general: ReadonlyMap<string, Said>,
  known: Known,
  checker: Checker,
): ClusterConfig => {
  const path = ["clusters", name];
  if (!isCluster(name))
    checker.complain(path, "is no name for a cluster: lower-case letters, digits and hyphens, at most 63");
  const said = checker.map(value, path, ["rules", "keyVersion", "connect"]);
  return {
    ...(said.connect != null && { connect: readConnect(said.connect, [...path, "connect"], checker) }),
    keyVersions: readKeyVersions(said.keyVersion, [...path, "keyVersion"], checker),
    rules: settleRules(validateRules(said.rules, [...path, "rules"], general, known, checker), known, checker),
    groups,
  };
};

const readConnect = (value: unknown, path: Path, { complain, map }: Checker): ConnectConfig => {
  const said = map(value, path, connectKeys);
  if (said !== value) return {};
  for (const [key, one] of Object.entries(said))
    if (typeof one !== "string" || one === "") complain([...path, key], "must be a text");
  const unfit = unfitConnect(said as ConnectConfig);
  if (unfit !== undefined && Object.values(said).every((one) => typeof one === "string")) complain(path, unfit);
  return said as ConnectConfig;
};

const readKeyVersions = (value: unknown, path: Path, { complain }: Checker): number[] => {
  const given: unknown[] = Array.isArray(value) ? value : [value ?? 1];
  const versions = given.filter((one): one is number => Number.isSafeInteger(one) && Number(one) >= 1);
  const [first, second = Number.POSITIVE_INFINITY] = versions;
  if (first === undefined || second <= first || given.length > 2 || versions.length < given.length)
    complain(path, "must be a whole number from 1 on, or two, the new one last, while it is raised");
  return versions;
};

/** A group with a member that can't be loaded is left out. */
const readGroups = (
  value: unknown,
  { catalogue, names }: Known,
  broken: readonly BrokenRule[],
  { complain, map, texts }: Checker,
): RuleGroup[] => {
  const taken = new Map<string, string>();
  const isBroken = (text: string) => broken.some(({ name }) => name === findRule(text, names));
  return Object.entries(map(value, ["groups"])).flatMap(([name, members]) => {
    const path = ["groups", name];
    if (!isName(name)) complain(path, "is no name for a group: lower-case letters, digits and hyphens, at most 42");
    if (findRule(name, names) !== undefined) complain(path, "is the name of a rule, too");
    const given = texts(members ?? [], path) ?? [];
    if (given.length === 0) complain(path, "must be a list of rules, with at least one");
    const fit = given.flatMap((text, index) => {
      const one = findRule(text, names) ?? text;
      if (isBroken(text)) return [];
      const listed = catalogue.find((rule) => rule.name === one);
      const unfit = listed ? unfitFor(listed, taken.get(one)) : noRule(one, names);
      if (unfit !== undefined) complain([...path, index], `"${one}" ${unfit}`);
      taken.set(one, name);
      return listed && unfit === undefined ? [listed] : [];
    });
    return given.some(isBroken) ? [] : [{ name, members: catalogue.filter((listed) => fit.includes(listed)) }];
  });
};

/** Returns why a rule can't be in a group. `other` is the group that has it already. */
const unfitFor = ({ phases, rule }: CatalogueRule, other: string | undefined): string | undefined => {
  if (other !== undefined) return `is in ${other} already`;
  if (!phases.includes("mutate")) return "only validates; groups are for rules that mutate";
  if (rule.variants) return "has several entries, and a group has one";
  if (rule.inspectForSettings)
    return "has an entry that follows what is in the cluster, and a group's is set when it is built";
  return rule.authorizedBy && "is decided by the API server's own authorizer, which a group can't ask";
};
