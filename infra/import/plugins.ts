// Facts about admission plugins: former names, removed plugins, and plugins that no rule can replace.
import { compiledInPlugins } from "../catalogue/upstream-plugins.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import { truncateText } from "../cli/terminal.ts";

/** Plugins that kube-apiserver no longer has. A reason says why the plugin needs no rule; the others have a rule. */
const removedPlugins: Readonly<Record<string, string | undefined>> = {
  DenyEscalatingExec: undefined,
  DenyExecOnPrivileged: undefined,
  InitialResources: undefined,
  Initializers: "removed in Kubernetes 1.14 with the kind InitializerConfiguration, without which it does nothing",
  PersistentVolumeLabel: undefined,
  PodPreset: "removed in Kubernetes 1.20 with the kind PodPreset, without which it does nothing",
  PodSecurityPolicy: undefined,
  SecurityContextDeny: undefined,
};

/** Former names of plugins, with the current names. */
const renamedPlugins: Readonly<Record<string, string>> = {
  GenericAdmissionWebhook: "ValidatingAdmissionWebhook",
  PVCProtection: "StorageObjectInUseProtection",
};

/** Plugins that no rule replaces, each with the reason. */
const withoutReplacement: Readonly<Record<string, string>> = {
  AlwaysAdmit: "it admits every request, and so does a cluster without it",
  NamespaceAutoProvision:
    "no rule can replace it: NamespaceLifecycle refuses an object in a missing namespace before the API server calls webhooks",
};

/**
 * Plugins that need a feature gate, but whose rules work without the gate. Other plugins with a gate process objects or
 * fields that a cluster has only with the gate.
 */
const worksWithoutGate = ["MutatingAdmissionPolicy", "PodTopologyLabels"];

/** All plugins: first those of kube-apiserver, in its order, then those that it no longer has. */
export const allPlugins = [...Object.keys(compiledInPlugins), ...Object.keys(removedPlugins)];

/** Returns the current name of a plugin. */
export const renamePlugin = (name: string): string =>
  (Object.hasOwn(renamedPlugins, name) ? renamedPlugins[name] : undefined) ?? name;

/** Returns what is wrong with a plugin's name, as the end of a sentence: `"X", which is no admission plugin`. */
export const findPluginNameFault = (name: string): string | undefined => {
  if (allPlugins.includes(renamePlugin(name))) return undefined;
  const isShort = name.length <= 64;
  const suggestion = isShort ? formatDidYouMean(name, [...allPlugins, ...Object.keys(renamedPlugins)]).trim() : "";
  return `${JSON.stringify(truncateText(name, 64))}, which is no admission plugin${suggestion && `; ${suggestion}`}`;
};

/** Returns why a plugin that is off in the target needs no rule; undefined if a rule can replace the plugin. */
export const explainNoRule = (plugin: string, target: string): string | undefined => {
  const { gate } = compiledInPlugins[plugin] ?? {};
  if (gate && !worksWithoutGate.includes(plugin))
    return `${target} has the gate ${gate.name} off, and with it what the plugin is about`;
  return removedPlugins[plugin] ?? withoutReplacement[plugin];
};
