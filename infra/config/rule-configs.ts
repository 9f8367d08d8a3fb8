// This file reads the sections `rules` of postern.yaml: the general one for all clusters, and the one of each cluster.
import { relative } from "node:path";
import type { EnforcementMode } from "#lib/core/evaluation.ts";
import type { RuleException } from "#lib/core/exceptions.ts";
import { getOwn, isMap, toList, toMap } from "#lib/json.ts";
import { quoteValue } from "#lib/policy/values/texts.ts";
import type { ParsedManifests, Rule } from "#lib/rule.ts";
import { findSettingsMistakes, mergeWithDefaults } from "#lib/settings.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { findRuleByNameOrPlugin } from "../catalogue/rule-names.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import {
  allowNull,
  anyShape,
  createEnumShape,
  createMapShape,
  type InputShape,
  mapShape,
  textListShape,
} from "../cli/shape.ts";
import type { Manifest } from "../manifests/manifests.ts";
import { findPosition } from "../manifests/positions.ts";
import type { ConfigPath, ReportMistake, ReviewRecordingConfig, RuleConfig, RuleExemptions } from "./config.ts";
import { type RecordSection, readRecordConfig, recordSectionShape } from "./record-section.ts";

/** The manifests that settings name, by the path of the file or folder, or the reason why they can't be read. */
type ManifestsByConfigPath = ReadonlyMap<string, Manifest[] | string>;

/** The settings in the kubeconfigs of services, by the kubeconfig's path, or the reason why it can't be read. */
type ServicesByConfigPath = ReadonlyMap<string, Record<string, string> | string>;

/** The rules that postern.yaml may name, and the files for their settings. */
export interface CatalogueAndManifestFiles {
  catalogue: CatalogueRule[];
  /** The names of all rules, also of those that are not loaded. */
  names: readonly string[];
  /** The folder of postern.yaml. */
  folder: string;
  /** The manifests that settings name, by the path as it stands in the setting; or a text: why it can't be read. */
  manifestsByPath: ManifestsByConfigPath;
  /** The url, ca and more in kubeconfigs that settings name, by this path, too; or a text: why it can't be read. */
  serviceSettingsByPath: ServicesByConfigPath;
  /** Returns the file and the line of a path in postern.yaml. */
  findPlace(path: ConfigPath): string;
}

/** What the functions that read sections of postern.yaml need. */
export interface ConfigReading extends CatalogueAndManifestFiles {
  /** The names of the clusters; undefined if postern.yaml names none. */
  clusterNames: readonly string[] | undefined;
  complain: ReportMistake;
}

/** A rule's section in postern.yaml, after `generalRuleShape` or `clusterRuleShape` has checked it. */
type RuleSection = Pick<RuleConfig, "failurePolicy" | "timeoutSeconds" | "reserved" | "warm"> & {
  mode?: EnforcementMode;
  exempt?: ExemptSection | null;
  record?: RecordSection | "off";
  settings?: unknown;
};

/** The section `exempt` as it is in postern.yaml: `namespaceLabels:` without a value is null, and means no labels. */
type ExemptSection = Omit<RuleExemptions, "namespaceLabels" | "exceptions"> & {
  namespaceLabels?: Record<string, string> | null;
  exceptions?: RuleException[];
};

export const dnsLabel = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const labelKey = /^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$/;
const labelValue = /^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$/;

/** Returns the shape of a list of names, each of which fits `pattern`. */
const createSubjectsShape = (description: string, pattern?: string): InputShape => ({
  expected: "a list of names, with at least one",
  description,
  type: "array",
  items: { type: "string", minLength: 1, ...(pattern !== undefined && { pattern }) },
  meetsCondition: (value) => toList(value).length > 0,
  editorKeywords: { minItems: 1 },
});

/** Returns the shape of a text in one line. */
const createLineShape = (most: number, description: string): InputShape => ({
  expected: `a text of one line, with at most ${most} characters`,
  description,
  type: "string",
  pattern: `^(?=.*\\S)[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]{1,${most}}$`,
});

export const mostExceptions = 100;

/** The shape of an exception: an exemption that ends. */
const exceptionShape: InputShape = {
  ...createMapShape({
    users: createSubjectsShape("the users, by name"),
    groups: createSubjectsShape("the groups of users, by name"),
    namespaces: createSubjectsShape("the namespaces, by name", dnsLabel.source),
    // An enum without values accepts no value.
    namespaceLabels: createEnumShape(
      "left out: functions don't see the labels of a namespace; namespaces of an exception are listed by name",
    ),
    until: {
      expected: "a date such as 2027-01-31, or a time of RFC 3339 such as 2027-01-31T18:00:00Z",
      description: "the last day in UTC, such as `2027-01-31`, or the time of the end, such as `2027-01-31T18:00:00Z`",
      type: "string",
      pattern: String.raw`^\d{4}-\d\d-\d\d(T([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d))?$`,
      meetsCondition: (value) => {
        // Date.parse accepts February 30 and returns March 2, so the day is compared.
        const day = new Date(String(value).slice(0, 10));
        return Number.isFinite(Date.parse(String(value))) && day.getUTCDate() === Number(String(value).slice(8, 10));
      },
    },
    owner: createLineShape(100, "the person or team that asked for it"),
    reason: createLineShape(300, "why it is needed"),
  }),
  expected: "a map with until, owner, reason, and users, groups or namespaces",
  required: ["until", "owner", "reason"],
  meetsCondition: (value) => ["users", "groups", "namespaces"].some((kind) => getOwn(value, kind) !== undefined),
  editorKeywords: { anyOf: [{ required: ["users"] }, { required: ["groups"] }, { required: ["namespaces"] }] },
};

/** The members of a rule's config in postern.yaml. */
const ruleMembers: Record<string, InputShape> = {
  mode: {
    ...createEnumShape("one of enforce, warn, audit, off", "enforce", "warn", "audit", "off"),
    description:
      "`warn` turns a denial into a warning and sends no patch; `audit` writes the denial or the patch into the audit log instead; `off` makes no webhook entry",
    default: "enforce",
  },
  failurePolicy: {
    ...createEnumShape("Fail or Ignore", "Fail", "Ignore"),
    description:
      "`Ignore` or `Fail`: the API server's reaction to a call without a valid answer; in the modes `warn` and `audit`, it is always `Ignore`",
    default: "Ignore",
  },
  timeoutSeconds: {
    expected: "a whole number from 1 to 30",
    description: "how long the API server waits, 1 to 30",
    type: "integer",
    minimum: 1,
    maximum: 30,
  },
  exempt: {
    ...allowNull(
      createMapShape({
        namespaces: {
          ...textListShape,
          description: "the namespaces, by name",
          editorKeywords: { items: { type: "string", pattern: dnsLabel.source } },
        },
        namespaceLabels: {
          ...allowNull(mapShape),
          description: "the labels of namespaces",
          editorKeywords: {
            propertyNames: { pattern: labelKey.source },
            additionalProperties: { type: "string", pattern: labelValue.source },
          },
        },
        users: { ...textListShape, description: "the users, by name" },
        groups: { ...textListShape, description: "the groups of users, by name" },
        exceptions: {
          expected: `a list of at most ${mostExceptions} exceptions`,
          description:
            "exemptions with an end date: a request that matches every list of an exception is sent to the rule's function, which admits it until the date",
          type: "array",
          items: exceptionShape,
          meetsCondition: (value) => toList(value).length <= mostExceptions,
          editorKeywords: { maxItems: mostExceptions },
        },
      }),
    ),
    description:
      "requests that the rule doesn't decide: those that match `namespaces`, `namespaceLabels`, `users` or `groups` or, until a time, one of the `exceptions`",
  },
  record: recordSectionShape,
  settings: {
    ...anyShape,
    description: "the rule's own settings, which its README lists; a setting that is left out keeps its default",
  },
};
const createCountShape = (description: string): InputShape => {
  return { expected: "a whole number from 1", description, type: "integer", minimum: 1 };
};
/** An enum without values: accepts no value. */
const refusedInClustersShape = createEnumShape(
  "in the general rules section, because a rule's function serves all clusters",
);

/** The shape of a rule's config in the general `rules`, which hold for all clusters. */
export const generalRuleShape = allowNull(
  createMapShape({
    ...ruleMembers,
    reserved: createCountShape(
      "how many reviews the rule's function may answer at the same time, from 1. Lambda reserves this concurrency for the function. Only in the general `rules`, because a function serves all clusters",
    ),
    warm: createCountShape(
      "the number of execution environments, from 1, that Lambda keeps started for the rule; they cost money all the time. Only in the general `rules`",
    ),
  }),
);
export const clusterRuleShape = allowNull(
  createMapShape({ ...ruleMembers, reserved: refusedInClustersShape, warm: refusedInClustersShape }),
);

/** A rule's config while postern.yaml is being read. `checkMergedRuleConfigs` turns it into a RuleConfig. */
export interface RuleConfigDraft extends Omit<RuleConfig, "record"> {
  /** With "off", a cluster has no `record`, although the general section has one. */
  record?: ReviewRecordingConfig | "off";
  /** The path of the rule's section in postern.yaml. */
  place: ConfigPath;
  /** The path of the rule's settings in postern.yaml. */
  settingsPlace?: ConfigPath | undefined;
  /** True if mistakes in the rule's settings were found. Further checks of the settings are skipped then. */
  wrong: boolean;
}

/** Reads a section `rules`. For a cluster's section, `general` are the configs of the general one. */
export const parseRulesSection = (
  value: unknown,
  path: ConfigPath,
  general: ReadonlyMap<string, RuleConfigDraft>,
  reading: ConfigReading,
): Map<string, RuleConfigDraft> => {
  const { names, complain } = reading;
  const rules = new Map(general);
  const seen = new Set<string>();
  for (const [key, section] of Object.entries(toMap(value))) {
    const name = findRuleByNameOrPlugin(key, names);
    const rulePath = [...path, key];
    if (name === undefined) {
      complain(rulePath, describeUnknownRuleName(key, names));
      continue;
    }
    if (seen.has(name)) complain(rulePath, `is ${name}, which is listed here already`);
    seen.add(name);
    const draft = { rule: findKnownRule(name, reading), path: rulePath, before: general.get(name) };
    rules.set(name, readRule(toMap(section), draft, reading));
  }
  return rules;
};

export const describeUnknownRuleName = (name: string, names: readonly string[]): string => {
  const suggestion = formatDidYouMean(name, names).trim();
  return `is no rule; there is no folder functions/${name}${suggestion && `; ${suggestion}`}`;
};

const findKnownRule = (name: string, { catalogue }: CatalogueAndManifestFiles) =>
  catalogue.find((listed) => listed.name === name)?.rule;

/** Checks each rule's merged config after all sections of postern.yaml were read. Rules that are off aren't checked. */
export const checkMergedRuleConfigs = (
  rules: ReadonlyMap<string, RuleConfigDraft>,
  reading: ConfigReading,
): Map<string, RuleConfig> =>
  new Map(
    [...rules].map(([name, { place, settingsPlace = place, wrong, record, ...config }]) => {
      const result = { ...config, ...(record && record !== "off" && { record }) };
      const rule = findKnownRule(name, reading);
      const { clusterNames, complain } = reading;
      const isOn = result.mode !== "off" && !wrong;
      const fault = isOn ? rule?.checkSettings?.(result.settings, clusterNames) : undefined;
      if (fault !== undefined) complain(settingsPlace, fault);
      if (isOn && rule?.exemptionRequired && result.exempt === undefined)
        complain(place, "must have exempt with namespaces, namespaceLabels, users or groups");
      return [name, result];
    }),
  );

/**
 * Returns the configs of the general section. A rule whose general config isn't valid alone, because each cluster adds
 * something to it, is off in the result.
 */
export const finishGeneralRuleConfigs = (
  general: ReadonlyMap<string, RuleConfigDraft>,
  reading: ConfigReading,
): Map<string, RuleConfig> =>
  new Map(
    [...general].flatMap(([name, draft]) => {
      let isComplete = true;
      const complain = () => {
        isComplete = false;
      };
      const checked = checkMergedRuleConfigs(new Map([[name, draft]]), { ...reading, complain });
      return [...checked].map(([rule, config]) => [rule, isComplete ? config : { ...config, mode: "off" as const }]);
    }),
  );

/** Reads a rule's section at `path`. `before` is the rule's config in the general section. */
const readRule = (
  section: RuleSection,
  { rule, path, before }: { rule: Rule | undefined; path: ConfigPath; before: RuleConfigDraft | undefined },
  reading: ConfigReading,
): RuleConfigDraft => {
  const { complain } = reading;
  const { settings, exempt, record, ...fields } = section;
  const settingsPath = [...path, "settings"];
  // A setting may name files of manifests. The objects in them become its value.
  const givenSettings = rule && replacePathsByManifests(rule, settings, settingsPath, reading);
  const mistakes = givenSettings == null ? [] : findSettingsMistakes(rule ?? {}, givenSettings);
  for (const mistake of mistakes) complain([...settingsPath, ...mistake.path], mistake.sentence);
  /** Reports a mistake in a kubeconfig that a setting names, and adds it to the mistakes in the settings. */
  const complainOfKubeconfig: ReportMistake = (path, sentence) => {
    mistakes.push({ path, sentence });
    complain([...settingsPath, ...path], sentence);
  };
  const merged = mergeWithDefaults(before?.settings ?? rule?.settings ?? {}, givenSettings);
  const filled =
    rule && isMap(givenSettings)
      ? fillSettingsFromKubeconfigs(rule, givenSettings, merged, { ...reading, complain: complainOfKubeconfig })
      : merged;
  return {
    mode: "enforce",
    ...before,
    ...fields,
    ...(exempt !== undefined && { exempt: readExempt(toMap(exempt), [...path, "exempt"], reading) }),
    ...(record === "off" && { record }),
    ...(isMap(record) && { record: readRecordConfig(record, [...path, "record"], complain) }),
    settings: filled,
    place: path,
    settingsPlace: settings === undefined ? before?.settingsPlace : settingsPath,
    wrong: before?.wrong === true || mistakes.length > 0,
  };
};

/** Reads the section `exempt` of a rule. */
const readExempt = (
  section: ExemptSection,
  path: ConfigPath,
  { complain, findPlace }: Pick<ConfigReading, "complain" | "findPlace">,
): RuleExemptions => {
  const { namespaceLabels, exceptions, ...exempt } = section;
  const labels = toMap(namespaceLabels);
  for (const [key, label] of Object.entries(labels))
    if (typeof label !== "string" || !labelKey.test(key) || !labelValue.test(label))
      complain([...path, "namespaceLabels", key], `must be a valid label and label value, not ${quoteValue(label)}`);
  for (const [index, namespace] of toList(exempt.namespaces).entries())
    if (typeof namespace === "string" && !dnsLabel.test(namespace))
      complain([...path, "namespaces", index], `must be the name of a namespace, not "${namespace}"`);
  return {
    ...exempt,
    ...(namespaceLabels !== undefined && { namespaceLabels: labels as Record<string, string> }),
    ...(exceptions !== undefined && {
      exceptions: toList(exceptions).map((exception, index) => {
        return { ...(exception as RuleException), place: findPlace([...path, "exceptions", index]) };
      }),
    }),
  };
};

/**
 * Fills settings of a rule from kubeconfigs. Each key of the rule's `kubeconfigs` is a setting that names the file of a
 * kubeconfig; its value is the setting that gets the url, ca and more in this file. `mergedSettings` has
 * `sectionSettings`, which are those of one section of postern.yaml, and the general settings.
 */
const fillSettingsFromKubeconfigs = (
  { kubeconfigs = {}, settings = {} }: Rule,
  sectionSettings: object,
  mergedSettings: object,
  { serviceSettingsByPath, complain }: ConfigReading,
): object => {
  let filled = mergedSettings;
  for (const [fileSetting, filledSetting] of Object.entries(kubeconfigs)) {
    const file = getSetting(mergedSettings, fileSetting);
    if (typeof file !== "string" || file === "") continue;
    if (Object.hasOwn(sectionSettings, filledSetting))
      complain([filledSetting], `must be left out, because ${fileSetting} names a kubeconfig`);
    // A kubeconfig that only the general section names has already filled the setting there.
    if (getSetting(sectionSettings, fileSetting) === undefined) continue;
    // Each kubeconfig was read before, unless the caller has only the text of postern.yaml.
    const settingsOrFault = serviceSettingsByPath.get(file) ?? `${file} is not read here`;
    if (typeof settingsOrFault === "string") complain(fileSetting.split("."), settingsOrFault);
    else filled = { ...filled, [filledSetting]: { ...Reflect.get(settings, filledSetting), ...settingsOrFault } };
  }
  return filled;
};

/** Returns the setting at a path such as `imagePolicy.kubeConfigFile`; undefined if there is none. */
export const getSetting = (settings: unknown, path: string): unknown =>
  path.split(".").reduce((holder, key) => toMap(holder)[key], settings);

/** Replaces paths in a rule's settings by the manifests in these files or folders. */
const replacePathsByManifests = (
  { manifests = {} }: Rule,
  settings: unknown,
  path: ConfigPath,
  reading: ConfigReading,
): unknown => {
  if (typeof settings !== "object" || settings === null) return settings;
  const readers: [string, (documents: readonly unknown[]) => ParsedManifests][] = Object.entries(manifests);
  const filled = readers.flatMap(([key, read]) => {
    const value: unknown = Reflect.get(settings, key);
    return value === undefined ? [] : [[key, readManifestSetting(value, read, [...path, key], reading)]];
  });
  return filled.length === 0 ? settings : { ...settings, ...Object.fromEntries(filled) };
};

/** Reads the objects of one setting: a path, or a list of paths and objects. Reports mistakes in the manifests. */
const readManifestSetting = (
  value: unknown,
  read: (documents: readonly unknown[]) => ParsedManifests,
  path: ConfigPath,
  { folder, manifestsByPath, complain }: ConfigReading,
): unknown => {
  const parts: unknown[] = typeof value === "string" ? [value] : toList(value);
  if (parts.length === 0) return value;
  return parts.flatMap((part, index): object[] => {
    const partPath = typeof value === "string" ? path : [...path, index];
    // Each path was read before, unless the caller has only the text of postern.yaml.
    const manifestsOrFault = typeof part === "string" ? (manifestsByPath.get(part) ?? `${part} is not read here`) : [];
    if (typeof manifestsOrFault === "string") {
      complain(partPath, manifestsOrFault);
      return [];
    }
    // An object that postern.yaml itself contains has no source, and is read alone.
    const files =
      typeof part === "string"
        ? [...Map.groupBy(manifestsOrFault, ({ source }) => source)]
        : [[undefined, []] as const];
    return files.flatMap(([source, manifests]) => {
      const { objects, faults } = read(source ? manifests.map(({ object }) => object) : [part]);
      for (const fault of faults) {
        const { sentence, document = -1, path = [] } = typeof fault === "string" ? { sentence: fault } : fault;
        const manifest = manifests[document];
        const { line, column } = manifest ? findPosition(manifest, path) : {};
        const position = line === undefined ? "" : `:${line}:${column}`;
        if (source) complain(partPath, `${relative(folder, source.name)}${position}: ${sentence}`);
        else complain([...partPath, ...path], sentence);
      }
      return objects;
    });
  });
};
