import type { Rule, UpstreamPlugin } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { certificateGates } from "./generators/certificates.ts";
import { eventLimits } from "./generators/events.ts";
import { podCertificateGates } from "./generators/nodes.ts";
import { podSecuritySettings } from "./generators/pod-security.ts";
import type { Scene } from "./generators/scenes.ts";

export type Port = CatalogueRule & { rule: Rule & { upstreamPlugin: UpstreamPlugin<object> } };

/** Returns the rules that are ports of a plugin. */
export const portsAmong = (catalogue: CatalogueRule[]): Port[] =>
  catalogue.filter((listed): listed is Port => listed.rule.upstreamPlugin !== undefined);

/** What a plugin and its port need around them to be compared, on both sides alike. */
export interface Stage {
  /** Where the requests' objects live, beside two of them in `default`; `own` is a namespace that doesn't exist. */
  homes?: Record<string, number>;
  scenes?: readonly Scene[];
  /**
   * Whether all other plugins are off. The API server calls webhooks after most of its plugins: where others refuse what
   * the plugin looks at, or change it, they come after the plugin and before the port, and what differs is their order.
   */
  alone?: true;
  /** Of a plugin that is alone: those that stay on all the same, on both sides. */
  beside?: readonly string[];
  /** Further flags of kube-apiserver. */
  flags?: readonly string[];
  /** Whether RBAC says what users may do. */
  rbac?: true;
  /** What both are configured with, where the rule's own settings don't show enough. */
  settings?: object;
  /** The head of the plugin's configuration file, below which the settings stand; without it, it has none. */
  configuration?: { apiVersion?: string; kind?: string };
  /** Whether both ask a backend about images. */
  needsBackend?: true;
}

/** Pod groups, workloads and jobs that have some are behind gates. */
const gates = [
  "--feature-gates=GenericWorkload=true,WorkloadWithJob=true",
  "--runtime-config=scheduling.k8s.io/v1alpha2=true",
];

const exists = (key: string, effect?: string) => ({ key, operator: "Exists", ...(effect && { effect }) });

/** By plugin. The others look at nothing but the request, and are on beside all that are on by default. */
export const stages: Record<string, Stage> = {
  // Each of these finds a missing namespace, and no other plugin does where the others are off.
  NamespaceAutoProvision: { alone: true, homes: { own: 4, ending: 1 }, scenes: ["accessReviews"] },
  NamespaceLifecycle: {
    alone: true,
    scenes: ["namespaces", "accessReviews"],
    homes: { own: 1, nowhere: 1, ending: 2, limited: 1 },
  },
  NamespaceExists: {
    alone: true,
    scenes: ["namespaces", "accessReviews"],
    // It fails for a pod whose namespace is missing, and is on in every API server.
    beside: ["PodSecurity"],
    homes: { own: 1, nowhere: 1, ending: 1 },
  },

  LimitRanger: {
    alone: true,
    homes: { limited: 3, "limited-twice": 1 },
    scenes: ["resources", "resources", "claims", "growth", "resizes"],
  },
  ServiceAccount: {
    // Where an account is missing, the plugin waits a second or two for it.
    alone: true,
    homes: { accounted: 6, unaccounted: 1 },
    scenes: ["accounts", "accounts", "debugging"],
  },
  PodNodeSelector: {
    alone: true,
    scenes: ["selectors"],
    configuration: {},
    homes: {
      selecting: 2,
      "selecting-nothing": 1,
      "selecting-badly": 1,
      "selecting-keylessly": 1,
      "selecting-within": 1,
      "selecting-beyond": 1,
    },
    settings: {
      podNodeSelectorPluginConfig: {
        clusterDefaultNodeSelector: "pool=default",
        "selecting-within": "disk=ssd,env=prod",
        "selecting-beyond": "env=prod",
      },
    },
  },
  PodTolerationRestriction: {
    alone: true,
    scenes: ["tolerations"],
    homes: {
      tolerating: 2,
      "tolerating-nothing": 1,
      "tolerating-little": 1,
      "tolerating-badly": 1,
      "tolerating-otherwise": 1,
      "tolerating-within": 1,
    },
    configuration: { apiVersion: "podtolerationrestriction.admission.k8s.io/v1alpha1", kind: "Configuration" },
    settings: {
      default: [exists("a", "NoSchedule")],
      whitelist: ["a", "dedicated", "tier", "node.kubernetes.io/memory-pressure", "example.com/gpu"].map((key) =>
        exists(key),
      ),
    },
  },
  ImagePolicyWebhook: {
    alone: true,
    scenes: ["images"],
    configuration: {},
    needsBackend: true,
    // No answer is remembered, and a backend that failed is asked again at once.
    settings: { imagePolicy: { allowTTL: -1, denyTTL: -1, retryBackoff: -1 } },
  },
  PodSecurity: {
    alone: true,
    scenes: ["securedPods", "securedPods", "securedWorkloads", "securedNamespaces"],
    homes: {
      secured: 3,
      "secured-little": 2,
      "secured-softly": 2,
      "secured-as-before": 2,
      "secured-ahead": 1,
      "secured-by-version": 1,
      "secured-badly": 1,
      "secured-worse": 1,
      "secured-open": 1,
      "secured-not": 1,
    },
    configuration: { apiVersion: "pod-security.admission.config.k8s.io/v1", kind: "PodSecurityConfiguration" },
    settings: podSecuritySettings,
  },
  EventRateLimit: {
    scenes: ["events"],
    configuration: { apiVersion: "eventratelimit.admission.k8s.io/v1alpha1", kind: "Configuration" },
    settings: eventLimits,
  },
  Priority: { alone: true, scenes: ["priorities", "priorities", "priorityClasses"] },
  RuntimeClass: { alone: true, scenes: ["runtimeClasses"] },
  PodTopologyLabels: { alone: true, scenes: ["bindings", "placements"] },
  NodeDeclaredFeatureValidator: { alone: true, scenes: ["resizes"] },
  PodResizeValidator: { alone: true, scenes: ["resizes"] },
  // RuntimeClass stays on: that it comes between is known.
  DefaultTolerationSeconds: { scenes: ["tolerantClasses"] },
  ExtendedResourceToleration: { scenes: ["tolerantClasses"] },

  // No other plugin reads the class.
  DefaultStorageClass: { scenes: ["claims"] },
  PersistentVolumeClaimResize: { alone: true, scenes: ["claims", "growth", "growth"] },

  PodGroupProtection: { alone: true, flags: gates, scenes: ["podGroups"] },
  PodGroupWorkloadExists: { alone: true, flags: gates, scenes: ["podGroups"] },
  JobValidation: { alone: true, flags: gates, scenes: ["jobs", "groupedJobs", "groupedJobs"] },

  // Without RBAC every user may do everything, and the plugin refuses nothing.
  OwnerReferencesPermissionEnforcement: { alone: true, rbac: true, scenes: ["owners"] },
  CertificateApproval: { alone: true, rbac: true, scenes: ["approvals"] },
  CertificateSigning: { alone: true, rbac: true, scenes: ["signatures"] },
  ClusterTrustBundleAttest: { alone: true, rbac: true, flags: certificateGates, scenes: ["attestations"] },

  CertificateSubjectRestriction: { scenes: ["subjects"] },

  // Where everybody may do everything, tokens are for everybody.
  NodeRestriction: {
    alone: true,
    rbac: true,
    flags: podCertificateGates,
    settings: { podCertificateRequest: true },
    scenes: [
      ...(["mirrors", "kubeletsPods", "kubeletsNodes", "kubeletsClaims", "kubeletsTokens"] as const),
      ...(["kubeletsLeases", "kubeletsDevices", "kubeletsCertificates"] as const),
    ],
  },
};

/** The flags with which every object of the surroundings can be created. */
export const everything: readonly string[] = [...gates, ...certificateGates];
