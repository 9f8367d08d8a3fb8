import { parseMinor, selectSince } from "#lib/since.ts";
import { knownMinors } from "../cli/minors.ts";

/** A compiled-in admission plugin of kube-apiserver. */
interface CompiledInPlugin {
  /** True if the plugin is on without `--enable-admission-plugins`. */
  isOn: boolean;
  /** The first minor version that has the plugin; absent if the oldest known one has it. */
  first?: string;
  /** The last minor version that has the plugin; absent if the newest known one has it. */
  last?: string;
  /** The feature gate that the plugin needs, and the minor version since which the gate is on by default, if it is. */
  gate?: { name: string; onSince?: string };
}

const on: CompiledInPlugin = { isOn: true };
const off: CompiledInPlugin = { isOn: false };

/** The compiled-in plugins of all known minor versions, in the order in which kube-apiserver runs them. */
export const compiledInPlugins: Readonly<Record<string, CompiledInPlugin>> = {
  AlwaysAdmit: off,
  NamespaceAutoProvision: off,
  NamespaceLifecycle: on,
  NamespaceExists: off,
  LimitPodHardAntiAffinityTopology: off,
  LimitRanger: on,
  ServiceAccount: on,
  NodeRestriction: off,
  TaintNodesByCondition: on,
  AlwaysPullImages: off,
  ImagePolicyWebhook: off,
  PodSecurity: on,
  PodNodeSelector: off,
  Priority: on,
  DefaultTolerationSeconds: on,
  PodTolerationRestriction: off,
  EventRateLimit: off,
  ExtendedResourceToleration: off,
  DefaultStorageClass: on,
  StorageObjectInUseProtection: on,
  PodGroupProtection: { isOn: true, first: "1.36", gate: { name: "GenericWorkload" } },
  OwnerReferencesPermissionEnforcement: off,
  PersistentVolumeClaimResize: on,
  RuntimeClass: on,
  CertificateApproval: on,
  CertificateSigning: on,
  ClusterTrustBundleAttest: { isOn: true, gate: { name: "ClusterTrustBundle", onSince: "1.37" } },
  CertificateSubjectRestriction: on,
  DefaultIngressClass: on,
  DenyServiceExternalIPs: off,
  PodTopologyLabels: { isOn: true, gate: { name: "PodTopologyLabelsAdmission", onSince: "1.35" } },
  PodGroupWorkloadExists: { isOn: true, first: "1.36", last: "1.36", gate: { name: "GenericWorkload" } },
  NodeDeclaredFeatureValidator: { isOn: true, first: "1.35", gate: { name: "NodeDeclaredFeatures", onSince: "1.36" } },
  JobValidation: { isOn: true, first: "1.36", last: "1.36", gate: { name: "WorkloadWithJob" } },
  PodResizeValidator: { isOn: true, first: "1.36" },
  MutatingAdmissionPolicy: { isOn: true, gate: { name: "MutatingAdmissionPolicy", onSince: "1.36" } },
  MutatingAdmissionWebhook: on,
  ValidatingAdmissionPolicy: on,
  ValidatingAdmissionWebhook: on,
  ResourceQuota: on,
  AlwaysDeny: off,
};

/**
 * Reports whether kube-apiserver of a minor version has a plugin, which must be one of `compiledInPlugins`. Without a
 * version, the newest one is meant.
 */
export const isCompiledIn = (plugin: string, kubernetes?: string): boolean => {
  // A plugin without `first` and `last` is in all minor versions.
  const { first, last } = compiledInPlugins[plugin] ?? {};
  const minor = kubernetes === undefined ? Number.POSITIVE_INFINITY : parseMinor(kubernetes);
  return (first === undefined || parseMinor(first) <= minor) && (last === undefined || minor <= parseMinor(last));
};

/** Reports whether a plugin has an effect in a minor version if no flags and feature gates are set. */
export const isEffectiveByDefault = (plugin: string, kubernetes?: string): boolean => {
  const { isOn = false, first = "1.0", gate } = compiledInPlugins[plugin] ?? {};
  const from = gate ? gate.onSince : first;
  return isOn && from !== undefined && Object.keys(selectSince({ [from]: true }, kubernetes)).length > 0;
};

/** The heading of a column with the texts of `describeCompiledInPlugin`. */
export const compiledInPluginHeading = `plugin in Kubernetes ${knownMinors}`;

/** Describes in which minor versions a plugin is compiled in, and whether it is on, for instance "from 1.36: on". */
export const describeCompiledInPlugin = (plugin: string | undefined): string => {
  const found = plugin === undefined ? undefined : compiledInPlugins[plugin];
  if (!found) return "-";
  const { isOn, first, last, gate } = found;
  const state = isOn ? "on" : "off";
  // Each `last` in the list is equal to `first`. Without both, all known minor versions have the plugin.
  const range = first === last ? `only ${first}: ` : `from ${first}: `;
  const minors = first === undefined ? "" : range;
  if (gate === undefined) return `${minors}${state}`;
  const whenGateIsOff = gate.onSince === undefined ? "" : ` before ${gate.onSince}`;
  return `${minors}${state}, without effect${whenGateIsOff}: the gate ${gate.name} is off`;
};
