// This file checks postern.yaml. rule-configs.ts checks its sections about rules.
import { isMap, type JsonMap, toList, toMap } from "#lib/json.ts";
import type { SettingsMistake } from "#lib/settings.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { findRuleByNameOrPlugin, isRuleName, ruleNamePattern } from "../catalogue/rule-names.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import { supportedClusters } from "../cli/minors.ts";
import { stagePattern } from "../cli/options.ts";
import {
  allowNull,
  anyShape,
  createEnumShape,
  createMapShape,
  describeFoundValue,
  findMisfits,
  type InputShape,
  isFit,
  minorShape,
  textListShape,
} from "../cli/shape.ts";
import type {
  ClusterConfig,
  ClusterConnectConfig,
  ConfigPath,
  PosternConfig,
  ReportMistake,
  RuleGroup,
} from "./config.ts";
import { connectShape, findConnectFault, parseServiceName, serviceShape } from "./connections.ts";
import {
  type CatalogueAndManifestFiles,
  type ConfigReading,
  checkMergedRuleConfigs,
  clusterRuleShape,
  describeUnknownRuleName,
  dnsLabel,
  finishGeneralRuleConfigs,
  generalRuleShape,
  parseRulesSection,
  type RuleConfigDraft,
} from "./rule-configs.ts";

/** Reports whether a cluster may have this name. It must be a DNS label, because URLs have the name in their path. */
export const isClusterName = (name: string): boolean => dnsLabel.test(name);

const keyVersion = { type: "integer", minimum: 1 };
const keyVersionKeywords = {
  description: "raised to replace the cluster's key: a number, or two (`[1, 2]`) while both are accepted",
  default: 1,
  editorKeywords: {
    anyOf: [keyVersion, { type: "array", items: keyVersion, minItems: 1, maxItems: 2 }, { type: "null" }],
  },
};

/** The shape of a stage in postern.yaml. */
const stageShape: InputShape = {
  ...createMapShape({
    account: { expected: "the 12 digits of an AWS account, in quotes", type: "string", pattern: "^[0-9]{12}$" },
    region: {
      expected: "a region of AWS, for instance eu-west-1",
      type: "string",
      pattern: "^[a-z]{2,}(-[a-z]+)+-[0-9]+$",
    },
  }),
  expected: "a map with account and region",
  required: ["account", "region"],
};

/**
 * Returns the shape of postern.yaml. `generalRules` is the shape of the section `rules`, `clusterRules` that of a
 * cluster's section `rules`, and `members` is the JSON Schema for a member of a group.
 */
export const createConfigShape = (
  generalRules = createMapShape({}, generalRuleShape),
  clusterRules = createMapShape({}, clusterRuleShape),
  members: object = { type: "string" },
): InputShape => {
  const clusterShape = createMapShape({
    rules: { ...allowNull(clusterRules), description: "the differences from the general rules in this cluster" },
    keyVersion: { ...anyShape, ...keyVersionKeywords },
    kubernetes: {
      ...minorShape,
      description: `the cluster's minor version of Kubernetes; by default \`postern deploy\` asks the cluster, and other commands take the newest. ${supportedClusters}`,
    },
    connect: allowNull(connectShape),
    service: allowNull(serviceShape),
  });
  return createMapShape({
    catalogues: { ...textListShape, description: "the catalogues that rules come from, besides functions/" },
    rules: { ...allowNull(generalRules), description: "the rules that are on, in all clusters" },
    clusters: {
      ...allowNull(createMapShape({}, allowNull(clusterShape))),
      description: "the clusters; without them there is one, called local",
      editorKeywords: { minProperties: 1, propertyNames: { pattern: dnsLabel.source } },
    },
    stages: {
      // A command for a stage that is listed here refuses to run in another account or region than the stage's.
      ...allowNull(createMapShape({}, stageShape)),
      description: "the account and the region of stages, by the name of the stage; commands refuse others",
      editorKeywords: { propertyNames: { pattern: stagePattern.source } },
    },
    groups: {
      ...allowNull(createMapShape({}, allowNull(textListShape))),
      description: "rules that share one webhook entry and one function, by the name of the group",
      editorKeywords: {
        propertyNames: { pattern: ruleNamePattern.source },
        additionalProperties: { type: "array", items: members, minItems: 1 },
      },
    },
    logs: {
      ...createEnumShape("minimal or full", "minimal", "full"),
      description: "`minimal` leaves the user and the message of a denial out of the functions' log",
      default: "full",
    },
  });
};

const configShape = createConfigShape();

/** Returns the config in postern.yaml and all mistakes. Settings of rules that can't be loaded are not checked. */
export const validateConfig = (
  settings: unknown,
  catalogueAndFiles: CatalogueAndManifestFiles,
): { config: PosternConfig; mistakes: SettingsMistake[] } => {
  const mistakes = findMisfits(settings, configShape).map((misfit): SettingsMistake => {
    const { path, expected, known } = misfit;
    if (known === undefined) return { path, sentence: `must be ${expected}${describeFoundValue(misfit)}` };
    const meant = formatDidYouMean(path.at(-1) ?? "", known).trim();
    return { path, sentence: `is unknown; ${meant || `${expected} is expected`}` };
  });
  const complain: ReportMistake = (path, sentence) => {
    // The check of the shape may have found the same mistake. Its sentence then ends with the value that was found.
    const isReported = mistakes.some(
      (mistake) => mistake.sentence.startsWith(sentence) && mistake.path.join() === path.join(),
    );
    if (!isReported) mistakes.push({ path, sentence });
  };
  const { rules: section, clusters, groups, stages, logs } = toMap(settings);
  for (const name of Object.keys(toMap(stages)).filter((name) => !stagePattern.test(name)))
    complain(
      ["stages", name],
      "is no name for a stage: it must begin with a letter, and have at most 21 lower-case letters, digits and hyphens",
    );
  const clusterNames = clusters == null ? undefined : Object.keys(toMap(clusters));
  const reading = { ...catalogueAndFiles, clusterNames, complain };
  const ruleGroups = readGroups(groups, reading);
  const general = parseRulesSection(section, ["rules"], new Map(), reading);
  const clusterEntries = Object.entries(toMap(clusters ?? { local: {} })).map(
    ([name, value]) => [name, { ...readCluster(name, toMap(value), general, reading), groups: ruleGroups }] as const,
  );
  if (clusterEntries.length === 0) complain(["clusters"], "must name at least one cluster, or be left out");
  // Above, each cluster has completed a copy of `general` with its own section. Here `general` is completed alone.
  const rules = finishGeneralRuleConfigs(general, reading);
  const config: PosternConfig = { rules, clusters: new Map(clusterEntries), groups: ruleGroups };
  if (logs === "minimal") config.logs = logs;
  return { config, mistakes };
};

/** Reads one member of the section `clusters`. `general` are the configs of the section `rules` for all clusters. */
const readCluster = (
  name: string,
  { rules, keyVersion, kubernetes, connect, service }: JsonMap,
  general: ReadonlyMap<string, RuleConfigDraft>,
  reading: ConfigReading,
): Omit<ClusterConfig, "groups"> => {
  const { complain } = reading;
  const path = ["clusters", name];
  if (!isClusterName(name))
    complain(
      path,
      "is no name for a cluster: it must have at most 63 lower-case letters, digits and hyphens, and no hyphen first or last",
    );
  // `service` names the cluster's relay: a Service in the cluster that forwards the API server's calls to the rules.
  const { name: serviceName, ca } = toMap(service);
  const relay = parseServiceName(String(serviceName));
  const connectFault = isMap(connect) && isFit(connectShape, connect) ? findConnectFault(connect) : undefined;
  if (connectFault !== undefined) complain([...path, "connect"], connectFault);
  return {
    ...(typeof kubernetes === "string" && { kubernetes }),
    ...(isMap(connect) && { connect: connect as ClusterConnectConfig }),
    ...(relay && { service: { ...relay, ca: String(ca) } }),
    keyVersions: readKeyVersions(keyVersion, [...path, "keyVersion"], complain),
    rules: checkMergedRuleConfigs(parseRulesSection(rules, [...path, "rules"], general, reading), reading),
  };
};

/** Reads `keyVersion`: a number, or two numbers while the key is being replaced. */
const readKeyVersions = (value: unknown, path: ConfigPath, complain: ReportMistake): number[] => {
  const list: unknown[] = Array.isArray(value) ? value : [value ?? 1];
  const versions = list.filter((version): version is number => Number.isSafeInteger(version) && Number(version) >= 1);
  const [first, second = Number.POSITIVE_INFINITY] = versions;
  if (first === undefined || second <= first || list.length > 2 || versions.length < list.length)
    complain(
      path,
      `must be a whole number from 1, or two such numbers while the key changes, the new one last${describeFoundValue({ value })}`,
    );
  return versions;
};

/** Reads the section `groups`. A group with a member that can't be loaded is left out. */
const readGroups = (value: unknown, { catalogue, names, complain }: ConfigReading): RuleGroup[] => {
  const groupsByMember = new Map<string, string>();
  const cannotBeLoaded = (text: string) => {
    const found = findRuleByNameOrPlugin(text, names);
    return found !== undefined && !catalogue.some(({ name }) => name === found);
  };
  return Object.entries(toMap(value)).flatMap(([name, members]) => {
    const path = ["groups", name];
    if (!isRuleName(name))
      complain(
        path,
        "is no name for a group: it must begin with a letter, have at most 42 lower-case letters, digits and hyphens, and no hyphen last",
      );
    if (findRuleByNameOrPlugin(name, names) !== undefined) complain(path, "is the name of a rule, too");
    const memberNames = toList(members).filter((member) => typeof member === "string");
    if (memberNames.length === 0) complain(path, "must be a list of rules, with at least one");
    const validMembers = memberNames.flatMap((text, index) => {
      const member = findRuleByNameOrPlugin(text, names) ?? text;
      if (cannotBeLoaded(text)) return [];
      const listed = catalogue.find((rule) => rule.name === member);
      const fault = listed
        ? findGroupFault(listed, groupsByMember.get(member))
        : describeUnknownRuleName(member, names);
      if (fault !== undefined) complain([...path, index], `"${member}" ${fault}`);
      groupsByMember.set(member, name);
      return listed && fault === undefined ? [listed] : [];
    });
    if (memberNames.some(cannotBeLoaded)) return [];
    return [{ name, members: catalogue.filter((listed) => validMembers.includes(listed)) }];
  });
};

/** Returns why a rule can't be in a group; undefined if it can. `otherGroup` is another group that has the rule. */
export const findGroupFault = ({ phases, rule }: CatalogueRule, otherGroup?: string): string | undefined => {
  if (otherGroup !== undefined) return `is in ${otherGroup} already`;
  if (!phases.includes("mutate")) return "only validates; groups are for rules that mutate";
  if (rule.variants) return "has several entries, and a group has one";
  if (rule.inspectForSettings)
    return "has an entry that depends on objects in the cluster, but a group's entry is fixed when the group is built";
  return rule.authorizedBy && "is decided by the API server's own authorizer, which a group can't ask";
};
