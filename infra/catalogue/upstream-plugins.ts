import { knownMinors, parseMinor, selectSince } from "#lib/since.ts";

/** A compiled-in admission plugin of kube-apiserver. */
interface CompiledInPlugin {
  /** Whether kube-apiserver has it on without `--enable-admission-plugins`, in all minors that have it. */
  isOn: boolean;
  /** The first minor of Kubernetes that has it, if the oldest here doesn't, and the last if the newest doesn't. */
  first?: string;
  last?: string;
  /** The feature gate without which it does nothing, and the minor in which the gate is on by default, if one is. */
  gate?: { name: string; onSince?: string };
}

const on: CompiledInPlugin = { isOn: true };
const off: CompiledInPlugin = { isOn: false };

/**
 * The compiled-in plugins of all known minors of Kubernetes, in kube-apiserver's order. Each minor has some of them, in
 * the same order.
 */
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

/** Reports whether kube-apiserver of a minor version has a plugin; without a version, whether the newest has it. */
export const isCompiledIn = (plugin: string, kubernetes?: string): boolean => {
  const { first, last } = compiledInPlugins[plugin] ?? {};
  const minor = kubernetes === undefined ? Number.POSITIVE_INFINITY : parseMinor(kubernetes);
  return (first === undefined || parseMinor(first) <= minor) && (last === undefined || minor <= parseMinor(last));
};

/** Reports whether a plugin does something in a minor version of Kubernetes that has no flags about it. */
export const isEffectiveByDefault = (plugin: string, kubernetes?: string): boolean => {
  const { isOn = false, first = "1.0", gate } = compiledInPlugins[plugin] ?? {};
  const from = gate ? gate.onSince : first;
  return isOn && from !== undefined && Object.keys(selectSince({ [from]: true }, kubernetes)).length > 0;
};

/** The heading of a column with the texts of `describeCompiledInPlugin`. */
export const compiledInPluginHeading = `plugin in Kubernetes ${knownMinors}`;

/** Describes in which minors of Kubernetes a plugin is compiled in, and whether it is on; "-" for no plugin. */
export const describeCompiledInPlugin = (plugin: string | undefined): string => {
  const found = plugin === undefined ? undefined : compiledInPlugins[plugin];
  if (!found) return "-";
  const { isOn, first, last, gate } = found;
  const state = isOn ? "on" : "off";
  const range = first === last ? `only ${first}: ` : `from ${first}: `;
  const minors = first === undefined ? "" : range;
  const isGateOff = gate && (gate.onSince === undefined ? "" : ` before ${gate.onSince}`);
  return `${minors}${state}${gate ? `, without effect${isGateOff}: the gate ${gate.name} is off` : ""}`;
};
