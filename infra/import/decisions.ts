// For each plugin that the flags or the configuration of a self-managed API server name, decides what replaces it.
import { isAbsolute, relative, resolve } from "node:path";
import { isMap, isSame, type JsonMap, toMap } from "#lib/json.ts";
import type { Rule } from "#lib/rule.ts";
import { mergeWithDefaults, type SettingsMistake, typeMetaKeys } from "#lib/settings.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { findRuleByNameOrPlugin } from "../catalogue/rule-names.ts";
import { compiledInPlugins, isEffectiveByDefault } from "../catalogue/upstream-plugins.ts";
import { truncateText } from "../cli/terminal.ts";
import { getSetting } from "../config/rule-configs.ts";
import type { PluginConfiguration } from "./admission-configuration.ts";
import type { AdmissionFlags } from "./flags.ts";
import { allPlugins, explainNoRule } from "./plugins.ts";
import { type ImportTarget, isOnInTarget } from "./targets.ts";

/** What replaces a plugin, or why nothing does. */
export interface PluginOutcome {
  plugin: string;
  /**
   * `rule`: a rule replaces the plugin. `target`: the plugin is on in the target, too. `nothing`: the user has nothing
   * to do. `stays-on`: the plugin was off in the source, but it is on in the target and can't be turned off there.
   * `open`: the user must do a part of the work.
   */
  outcome: "rule" | "target" | "nothing" | "stays-on" | "open";
  reason: string;
  rule?: string;
  /** The settings of the rule that differ from its defaults. */
  settings?: object;
}

/** The flags and the plugin configurations of a self-managed API server. */
export interface ImportSource {
  flags: AdmissionFlags;
  /** The configurations by the current names of their plugins, even if the source has a former name. */
  configurations: ReadonlyMap<string, PluginConfiguration>;
}

/** Returns the outcomes of all plugins that the source names, and of those that were off but are on in the target. */
export const decideAboutPlugins = (
  source: ImportSource,
  target: ImportTarget,
  catalogue: readonly CatalogueRule[],
): PluginOutcome[] => {
  const names = catalogue.map(({ name }) => name);
  return allPlugins
    .filter(
      (plugin) =>
        isNamed(plugin, source) ||
        (isOnInTarget(plugin, target) && findReasonForNoEffect(plugin, source.flags, target) !== undefined),
    )
    .map((plugin) => {
      const rule = catalogue.find(({ name }) => name === findRuleByNameOrPlugin(plugin, names));
      const reasonForNoEffect = findReasonForNoEffect(plugin, source.flags, target);
      // With --admission-control, many plugins are off for the same reason. The text of postern.yaml lists them in one
      // line, so it doesn't say what each of them does.
      const ruleToDescribe = source.flags.onlyEnabled ? undefined : rule;
      const outcome =
        reasonForNoEffect === undefined
          ? decideAboutOnPlugin(plugin, source, target, rule)
          : decideAboutOffPlugin(plugin, reasonForNoEffect, target, ruleToDescribe);
      return { plugin, ...outcome };
    });
};

type Decision = Omit<PluginOutcome, "plugin">;

/**
 * Reports whether a flag or a configuration of the source is about a plugin. `onlyEnabled` are the plugins of the flag
 * --admission-control, `enabled` those of --enable-admission-plugins.
 */
const isNamed = (plugin: string, { flags, configurations }: ImportSource): boolean => {
  const { onlyEnabled = [], enabled, disabled, gates, notReadySeconds, unreachableSeconds } = flags;
  if ([...onlyEnabled, ...enabled, ...disabled].includes(plugin) || configurations.has(plugin)) return true;
  if (plugin === "DefaultTolerationSeconds") return (notReadySeconds ?? unreachableSeconds) !== undefined;
  const { gate } = compiledInPlugins[plugin] ?? {};
  return gate !== undefined && gates.has(gate.name);
};

/**
 * Returns why a plugin had no effect in the source: it, or a feature gate that it needs, was off. Returns undefined if
 * it had an effect. The source's version of Kubernetes isn't known: gates that no flag sets have the target's defaults.
 */
const findReasonForNoEffect = (
  plugin: string,
  { onlyEnabled, enabled, disabled, gates }: AdmissionFlags,
  target: ImportTarget,
): string | undefined => {
  const { isOn: isOnByDefault = false, gate } = compiledInPlugins[plugin] ?? {};
  if (onlyEnabled && !onlyEnabled.includes(plugin)) return "--admission-control didn't name it";
  if (disabled.includes(plugin)) return "--disable-admission-plugins turned it off";
  if (!onlyEnabled && !isOnByDefault && !enabled.includes(plugin)) return "no flag turned it on";
  if (gate === undefined) return undefined;
  // AllAlpha turns on the gates that are alpha, and AllBeta those that are beta. Which of the two this gate was in the
  // source's version isn't known, so either of them counts.
  const isTurnedOnWithOthers = gates.get("AllAlpha") === true || gates.get("AllBeta") === true;
  const isGateOn = gates.get(gate.name) ?? (isTurnedOnWithOthers || isEffectiveByDefault(plugin, target.kubernetes));
  return isGateOn ? undefined : `without the gate ${gate.name} it did nothing`;
};

/** Returns what becomes of a plugin that had no effect in the source. */
const decideAboutOffPlugin = (
  plugin: string,
  reasonForNoEffect: string,
  target: ImportTarget,
  catalogueRule: CatalogueRule | undefined,
): Decision => {
  if (!isOnInTarget(plugin, target)) return { outcome: "nothing", reason: reasonForNoEffect };
  const summary = catalogueRule ? `. ${catalogueRule.rule.summary.replace(/\.$/, "")}` : "";
  return {
    outcome: "stays-on",
    reason: `${reasonForNoEffect}, but it is on in ${target.name} and can't be turned off there${summary}`,
  };
};

/** Returns what replaces a plugin that was on: a rule, the target's plugin, nothing, or "open": the user decides. */
const decideAboutOnPlugin = (
  plugin: string,
  source: ImportSource,
  target: ImportTarget,
  catalogueRule: CatalogueRule | undefined,
): Decision => {
  const isOn = isOnInTarget(plugin, target);
  const onInTarget = `on in ${target.name}`;
  const configuration = source.configurations.get(plugin);
  if (catalogueRule === undefined && isOn) {
    const members = Object.keys(toMap(configuration?.value)).filter((member) => !typeMetaKeys.includes(member));
    if (members.length === 0) return { outcome: "target", reason: onInTarget };
    return { outcome: "open", reason: `${onInTarget}, but without ${members.join(" and ")}, which needs a flag` };
  }
  const noRuleReason = isOn ? undefined : explainNoRule(plugin, target.name);
  if (noRuleReason !== undefined || catalogueRule === undefined)
    return { outcome: "nothing", reason: noRuleReason ?? "it has no rule" };

  const { name, rule } = catalogueRule;
  const settings = selectDifferences(readSettings(plugin, rule, source), rule);
  // Settings that admit more requests have no effect if the plugin is on in the target: a rule can't admit what the
  // plugin refuses. The settings of NodeRestriction's rule are feature gates; values other than the defaults admit more,
  // except for one gate.
  const admitsMore = (key: string) =>
    plugin === "NodeRestriction" ? key !== "recoverVolumeExpansionFailure" : key === "exemptions";
  const lost = isOn ? Object.keys(settings).filter(admitsMore) : [];
  const note = lost.length > 0 ? `; the plugin there has no ${lost.join(", ")}, and refuses what they would admit` : "";
  if (isOn && lost.length === Object.keys(settings).length)
    return { outcome: "target", reason: `${onInTarget}${note}` };
  // If the settings come from a configuration, its mistakes are reported later, with their lines in the file.
  const fault = configuration ? undefined : rule.checkSettings?.(mergeWithDefaults(rule.settings ?? {}, settings));
  const missing = findMissingPart(rule, settings) ?? fault;
  if (missing !== undefined) {
    const reason = `the rule ${name} does its work, and ${missing}; its README describes the settings`;
    return { outcome: "open", reason };
  }
  // The target's plugin runs first, so the rule must replace the seconds that it has set.
  const replacesDefaults = isOn && plugin === "DefaultTolerationSeconds";
  return {
    outcome: "rule",
    reason: isOn ? `${onInTarget}, but not with these settings${note}` : `not on in ${target.name}`,
    rule: name,
    settings: replacesDefaults ? { ...settings, replaceDefaults: true } : settings,
  };
};

/** Returns a required part of a rule's settings that the configuration of an API server can't contain. */
const findMissingPart = ({ exemptionRequired, manifests = {} }: Rule, settings: JsonMap): string | undefined => {
  if (exemptionRequired) return "must have exempt in postern.yaml, so that the cluster keeps working";
  const missing = Object.keys(manifests).find((key) => !Object.hasOwn(settings, key));
  return missing && `must have ${missing}, files or folders of manifests`;
};

/** Returns the settings of a plugin's rule, which come from the plugin's configuration or from flags. */
const readSettings = (plugin: string, rule: Rule, { flags, configurations }: ImportSource): JsonMap => {
  const { notReadySeconds, unreachableSeconds, gates } = flags;
  if (plugin === "DefaultTolerationSeconds")
    return {
      ...(notReadySeconds !== undefined && { notReadySeconds }),
      ...(unreachableSeconds !== undefined && { unreachableSeconds }),
    };
  // The rule has a setting for each gate that changes the plugin, with the gate's name in another case.
  if (plugin === "NodeRestriction")
    return Object.fromEntries(
      Object.keys(rule.settings ?? {}).flatMap((key) =>
        [...gates].filter(([gate]) => gate.toLowerCase() === key.toLowerCase()).map(([, isOn]) => [key, isOn]),
      ),
    );
  const configuration = configurations.get(plugin);
  if (configuration === undefined) return {};
  const { value, folder, complain } = configuration;
  if (value !== undefined && value !== null && !isMap(value)) complain([{ path: [], sentence: "must be a map" }]);
  if (plugin === "PodSecurity" && isMap(value)) complain(findTypeMistakes(value));
  const { staticManifestsDir, ...settings } = toMap(value);
  // If the rule has the setting `policies`, this replaces the plugin's staticManifestsDir, a folder of policies.
  const hasPolicyFolder = typeof staticManifestsDir === "string" && "policies" in (rule.settings ?? {});
  if (hasPolicyFolder) return { ...settings, policies: [movePath(staticManifestsDir, folder)] };
  // Changes the paths of kubeconfig files. The keys of `kubeconfigs` are paths of settings, such as `a.b`.
  return Object.keys(rule.kubeconfigs ?? {}).reduce((changed, settingPath) => {
    const file = getSetting(changed, settingPath);
    if (typeof file !== "string" || file === "") return changed;
    return setAt(changed, settingPath.split("."), movePath(file, folder));
  }, toMap(value));
};

/** Returns what is wrong with the type of PodSecurity's configuration. kube-apiserver refuses other types. */
const findTypeMistakes = (configuration: JsonMap): SettingsMistake[] => {
  const types = {
    apiVersion: ["v1", "v1beta1", "v1alpha1"].map((version) => `pod-security.admission.config.k8s.io/${version}`),
    kind: ["PodSecurityConfiguration"],
  };
  return Object.entries(types).flatMap(([key, accepted]) => {
    const value = configuration[key];
    if (accepted.some((type) => type === value)) return [];
    const found = value === undefined ? "" : `, not ${truncateText(JSON.stringify(value), 64)}`;
    return [{ path: [key], sentence: `must be ${accepted.join(" or ")}${found}` }];
  });
};

/** Changes a path relative to a folder to one relative to the working directory, as postern.yaml needs. */
const movePath = (path: string, folder: string): string =>
  isAbsolute(path) ? path : relative(process.cwd(), resolve(folder, path));

/** Returns the map with another value at a path of keys. */
const setAt = (map: JsonMap, [key = "", ...rest]: string[], value: unknown): JsonMap => {
  return { ...map, [key]: rest.length === 0 ? value : setAt(toMap(map[key]), rest, value) };
};

/** Returns the settings that differ from the rule's defaults, without apiVersion and kind. */
const selectDifferences = (settings: JsonMap, { settings: defaults = {} }: Rule): JsonMap => {
  const merged = mergeWithDefaults(defaults, settings);
  const differsFromDefault = (key: string) =>
    !typeMetaKeys.includes(key) &&
    !(Object.hasOwn(defaults, key) && isSame(Reflect.get(merged, key), Reflect.get(defaults, key)));
  return Object.fromEntries(Object.entries(settings).filter(([key]) => differsFromDefault(key)));
};
