// What the rest of the import needs to know of single plugins.
import { compiledInPlugins } from "../catalogue/upstream-plugins.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import { truncateText } from "../cli/terminal.ts";

/** Plugins that kube-apiserver no longer has. Those without a reason here have a rule. */
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

/** The former names of plugins. */
const renamedPlugins: Readonly<Record<string, string>> = {
  GenericAdmissionWebhook: "ValidatingAdmissionWebhook",
  PVCProtection: "StorageObjectInUseProtection",
};

/** The plugins without a rule that could replace them, each with the reason. */
const withoutEffect: Readonly<Record<string, string>> = {
  AlwaysAdmit: "it admits every request, and so does a cluster without it",
  NamespaceAutoProvision:
    "no rule can replace it: NamespaceLifecycle refuses an object in a missing namespace before the API server calls webhooks",
};

/**
 * The plugins behind a gate whose rule works without the gate. The other ones are about objects or fields that a cluster
 * has only with the gate.
 */
const worksWithoutGate = ["MutatingAdmissionPolicy", "PodTopologyLabels"];

/** All plugins, in the order of kube-apiserver, and then those that it no longer has. */
export const allPlugins = [...Object.keys(compiledInPlugins), ...Object.keys(removedPlugins)];

/** Returns the present name of a plugin. */
export const renamePlugin = (name: string): string =>
  (Object.hasOwn(renamedPlugins, name) ? renamedPlugins[name] : undefined) ?? name;

/** Returns what is wrong with the name of a plugin, after a verb: `"X", which is no admission plugin`. */
export const findPluginNameFault = (name: string): string | undefined => {
  if (allPlugins.includes(renamePlugin(name))) return undefined;
  const isShort = name.length <= 64;
  const suggestion = isShort ? formatDidYouMean(name, [...allPlugins, ...Object.keys(renamedPlugins)]).trim() : "";
  return `${JSON.stringify(truncateText(name, 64))}, which is no admission plugin${suggestion && `; ${suggestion}`}`;
};

/** Returns why there is nothing to turn on for a plugin that the target lacks; undefined if a rule can do its work. */
export const explainNoRule = (plugin: string, target: string): string | undefined => {
  const { gate } = compiledInPlugins[plugin] ?? {};
  if (gate && !worksWithoutGate.includes(plugin))
    return `${target} has the gate ${gate.name} off, and with it what the plugin is about`;
  return removedPlugins[plugin] ?? withoutEffect[plugin];
};
