// Reads `rules` of postern.yaml: at the top level for all clusters, and under each cluster.
import type { Mode } from "#lib/decide.ts";
import type { ParsedManifests, Rule } from "#lib/rule.ts";
import { mergeWithDefaults, mistakes } from "#lib/settings.ts";
import type { File } from "../apiserver/manifest-cluster.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { findRule } from "../catalogue/rule-names.ts";
import { didYouMean } from "../cli/did-you-mean.ts";
import type { Exemptions, RecordConfig, RuleConfig } from "./config.ts";
import type { Checker, Path } from "./field-checker.ts";
import { keepingOf, recordKeys, unfitKeeping } from "./record-section.ts";

/** The manifest files for settings, by their path in postern.yaml, or the reason why a path has none. */
export type Places = ReadonlyMap<string, File[] | string>;

export interface Known {
  catalogue: CatalogueRule[];
  /** All rules, including rules that can't be loaded. */
  names: readonly string[];
  places: Places;
}

/** The config of a rule while postern.yaml is read, before settleRules. */
export interface Said extends Omit<RuleConfig, "record"> {
  /** "off" cancels the setting of a more general place. */
  record?: RecordConfig | "off";
  place: Path;
  settingsPlace?: Path | undefined;
  /** Whether its settings have the wrong shape. */
  wrong: boolean;
}

const modes: unknown[] = ["enforce", "warn", "audit", "off"];
export const dnsLabel = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const labelKey = /^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$/;
const labelValue = /^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$/;

export const validateRules = (
  value: unknown,
  path: Path,
  general: ReadonlyMap<string, Said>,
  known: Known,
  checker: Checker,
): Map<string, Said> => {
  const rules = new Map(general);
  const seen = new Set<string>();
  for (const [given, said] of Object.entries(checker.map(value, path))) {
    const name = findRule(given, known.names);
    const here = [...path, given];
    if (name === undefined) {
      checker.complain(here, noRule(given, known.names));
      continue;
    }
    if (seen.has(name)) checker.complain(here, `is ${name}, which stands here already`);
    seen.add(name);
    rules.set(name, readRule(ruleNamed(name, known), said, here, general.get(name), known.places, checker));
  }
  return rules;
};

export const noRule = (name: string, names: readonly string[]): string => {
  const suggestion = didYouMean(name, names).trim();
  return `is no rule; there is no folder functions/${name}${suggestion && `; ${suggestion}`}`;
};

const ruleNamed = (name: string, { catalogue }: Known) => catalogue.find((listed) => listed.name === name)?.rule;

/** Checks what depends on all places together. A rule that is off needs no valid settings. */
export const settleRules = (
  rules: Map<string, Said>,
  known: Known,
  { complainOnce }: Checker,
): Map<string, RuleConfig> =>
  new Map(
    [...rules].map(([name, { place, settingsPlace = place, wrong, record, ...said }]) => {
      const result = { ...said, ...(record && record !== "off" && { record }) };
      const rule = ruleNamed(name, known);
      const isOn = result.mode !== "off" && !wrong;
      const unfit = isOn ? rule?.checkSettings?.(result.settings) : undefined;
      if (unfit !== undefined) complainOnce(settingsPlace, unfit);
      if (isOn && rule?.exemptionRequired && result.exempt === undefined)
        complainOnce(place, "must say under exempt who is spared: namespaces, namespaceLabels, users or groups");
      return [name, result];
    }),
  );

const readRule = (
  rule: Rule | undefined,
  value: unknown,
  path: Path,
  before: Said | undefined,
  places: Places,
  checker: Checker,
): Said => {
  const { complain } = checker;
  const said = checker.map(value, path, ["mode", "failurePolicy", "timeoutSeconds", "exempt", "record", "settings"]);
  if (said.mode !== undefined && !modes.includes(said.mode))
    complain([...path, "mode"], `must be one of ${modes.join(", ")}`);
  if (said.failurePolicy !== undefined && said.failurePolicy !== "Fail" && said.failurePolicy !== "Ignore")
    complain([...path, "failurePolicy"], "must be Fail or Ignore");
  const seconds = said.timeoutSeconds;
  if (seconds !== undefined && !(Number.isInteger(seconds) && Number(seconds) >= 1 && Number(seconds) <= 30))
    complain([...path, "timeoutSeconds"], "must be a whole number from 1 to 30");
  const settingsPath = [...path, "settings"];
  const own = rule && withObjects(rule, said.settings, settingsPath, places, checker);
  const wrong = own == null ? [] : mistakes(rule?.settings ?? {}, own, []);
  for (const mistake of wrong) complain([...settingsPath, ...mistake.path], mistake.sentence);

  const { settings: _, ...general } = before ?? { mode: "enforce" as const, wrong: false };
  return {
    ...general,
    // The casts are safe: wrong values are reported above, and parseConfig then throws.
    ...definedOnly({
      mode: said.mode as Mode | undefined,
      failurePolicy: said.failurePolicy as RuleConfig["failurePolicy"],
      timeoutSeconds: seconds as number | undefined,
      exempt: readExempt(said.exempt, [...path, "exempt"], checker),
      record: readRecord(said.record, [...path, "record"], checker),
    }),
    settings: mergeWithDefaults(before?.settings ?? rule?.settings ?? {}, own),
    place: path,
    settingsPlace: said.settings === undefined ? before?.settingsPlace : settingsPath,
    wrong: general.wrong || wrong.length > 0,
  };
};

const readExempt = (value: unknown, path: Path, { complain, map, texts }: Checker): Exemptions | undefined => {
  if (value === undefined) return undefined;
  const keys = ["namespaces", "namespaceLabels", "users", "groups"];
  const { namespaces, namespaceLabels, users, groups } = map(value, path, keys);
  const labels = map(namespaceLabels, [...path, "namespaceLabels"]);
  for (const [key, label] of Object.entries(labels))
    if (typeof label !== "string" || !labelKey.test(key) || !labelValue.test(label))
      complain([...path, "namespaceLabels", key], "must be a label and its value, as Kubernetes has them");
  const names = texts(namespaces, [...path, "namespaces"]);
  for (const [index, one] of (names ?? []).entries())
    if (!dnsLabel.test(one)) complain([...path, "namespaces", index], `must be the name of a namespace, not "${one}"`);
  return definedOnly({
    namespaces: names,
    namespaceLabels: namespaceLabels === undefined ? undefined : (labels as Record<string, string>),
    users: texts(users, [...path, "users"]),
    groups: texts(groups, [...path, "groups"]),
  });
};

const readRecord = (value: unknown, path: Path, { complain, map }: Checker): RecordConfig | "off" | undefined => {
  if (value === undefined || value === "off") return value;
  const said = map(value, path, recordKeys);
  if (said !== value) {
    if (value === null) complain(path, "must be a map with a bucket, or off");
    return undefined;
  }
  for (const [key, sentence] of unfitKeeping(said)) complain(key === "" ? path : [...path, key], sentence);
  return keepingOf(said);
};

const withObjects = (
  { manifests = {} }: Rule,
  settings: unknown,
  path: Path,
  places: Places,
  checker: Checker,
): unknown => {
  if (typeof settings !== "object" || settings === null) return settings;
  const readers: [string, (documents: readonly unknown[]) => ParsedManifests][] = Object.entries(manifests);
  const filled = readers.flatMap(([key, read]) => {
    const value: unknown = Reflect.get(settings, key);
    return value === undefined ? [] : [[key, objectsIn(value, read, [...path, key], places, checker)]];
  });
  return filled.length === 0 ? settings : { ...settings, ...Object.fromEntries(filled) };
};

const objectsIn = (
  value: unknown,
  read: (documents: readonly unknown[]) => ParsedManifests,
  path: Path,
  places: Places,
  { complain }: Checker,
): unknown => {
  const parts: unknown[] = typeof value === "string" ? [value] : Array.isArray(value) ? value : [];
  if (parts.length === 0) return value;
  return parts.flatMap((part, index): object[] => {
    const at = typeof value === "string" ? path : [...path, index];
    const files =
      typeof part === "string" ? (places.get(part) ?? `${part} is not read here`) : [{ name: "", documents: [part] }];
    if (typeof files === "string") {
      complain(at, files);
      return [];
    }
    return files.flatMap(({ name, documents }) => {
      const { objects, faults } = read(documents);
      for (const fault of faults) complain(at, name === "" ? fault : `${name}: ${fault}`);
      return objects;
    });
  });
};

const definedOnly = <T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
