// Some rules have admission policies in their settings. This file decides which of these policies the API server of a
// cluster can evaluate itself (native policies). For the others, the API server calls the rule.

import { toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { NativePolicy } from "#lib/rule.ts";
import { oldestKubernetes, parseMinor } from "#lib/since.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { isEffectiveByDefault } from "../catalogue/upstream-plugins.ts";
import type { ClusterConfig, PolicySupport, RuleConfig } from "../config/config.ts";
import {
  buildExemptConditions,
  buildExemptNamespaceSelector,
  buildRuleWebhookEntries,
  combineSelectors,
  type VariantWebhookEntry,
  type WebhookEntrySettings,
} from "./entry.ts";
import { buildObjectLabels } from "./labels.ts";
import { findUnsupportedValue } from "./unsupported-values.ts";

/** Where a policy is evaluated. */
export interface PolicyPlacement {
  rule: string;
  policy: string;
  /** True if the API server evaluates the policy itself; false if a webhook entry calls the rule. */
  native: boolean;
  /** Why the API server can't evaluate the policy. */
  reason?: string;
}

/** The annotation with the name that a policy or a binding has in the files of postern.yaml. */
export const policyNameAnnotation = "postern.dev/name";

/** The label with the name of the rule that a policy or a binding belongs to. */
export const ruleLabel = "postern.dev/rule";

const apiVersion = "admissionregistration.k8s.io/v1";
const policyKinds = ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"];

/** The API server's limits for matchConditions and for the characters of a name. */
const mostConditions = 64;
const longestName = 253;

/** Says which kinds of policies a minor version of Kubernetes supports without flags; undefined if it isn't known. */
export const toPolicySupport = (kubernetes: string | undefined): PolicySupport | undefined =>
  kubernetes === undefined
    ? undefined
    : { kubernetes, kinds: policyKinds.filter((kind) => isEffectiveByDefault(kind, kubernetes)) };

/** Returns, for each policy of a cluster's rules, where it is evaluated. */
export const placePolicies = (catalogue: CatalogueRule[], cluster: ClusterConfig): PolicyPlacement[] =>
  listPolicyEntries(catalogue, cluster).map(({ listed, setup, variantEntry }) => {
    const reason = explainWhyWebhookIsNeeded(setup, variantEntry, cluster);
    const policy = variantEntry.native.policy.metadata.name;
    return { rule: listed.name, policy, native: reason === undefined, ...(reason !== undefined && { reason }) };
  });

/** Describes where policies are evaluated: one line for native policies, and one for each reason why others aren't. */
export const describePlacements = (placements: readonly PolicyPlacement[]): string[] => {
  const byReason = Map.groupBy(placements, ({ reason }) => reason);
  return [...byReason].map(([reason, placed]) => {
    const names = placed.map(({ policy }) => policy).join(", ");
    return reason === undefined
      ? `evaluated by the API server: ${names}`
      : `evaluated by the Lambda: ${names} (${reason})`;
  });
};

/** Returns the policies and bindings for a cluster's API server. `name` is the name of the webhook configurations. */
export const buildNativePolicies = (catalogue: CatalogueRule[], cluster: ClusterConfig, name: string): object[] =>
  listPolicyEntries(catalogue, cluster)
    .filter(({ setup, variantEntry }) => explainWhyWebhookIsNeeded(setup, variantEntry, cluster) === undefined)
    .flatMap((entry) => buildNativeObjects(entry, name));

/**
 * Returns a function that reports whether an object is a policy or a binding that `buildNativePolicies` has made from
 * the settings of a cluster's rules.
 */
export const createNativeCopyPredicate = (catalogue: CatalogueRule[], cluster: ClusterConfig) => {
  const originals = listPolicyEntries(catalogue, cluster).flatMap(({ listed, variantEntry: { native } }) =>
    [native.policy, ...native.bindings].map(({ kind, metadata }) => `${listed.name} ${kind} ${metadata.name}`),
  );
  return ({ kind, metadata }: KubernetesObject): boolean => {
    // The object comes from a manifest, so its fields may have wrong types.
    const { name, annotations, labels } = toMap(metadata);
    const original = toMap(annotations)[policyNameAnnotation];
    const isNamed = typeof name === "string" && name.endsWith(`.${original}`);
    return isNamed && originals.includes(`${toMap(labels)[ruleLabel]} ${kind} ${original}`);
  };
};

/** A policy of a rule, with the webhook entry that calls the rule if the API server can't evaluate the policy. */
interface PolicyEntry {
  listed: CatalogueRule;
  setup: RuleConfig;
  variantEntry: VariantWebhookEntry & { native: NativePolicy }; // A rule has a variant for each policy (`native`).
}

/** Lists policies that an API server could evaluate itself (`native`), each with the webhook entry to use otherwise. */
const listPolicyEntries = (catalogue: CatalogueRule[], { rules }: ClusterConfig): PolicyEntry[] =>
  catalogue.flatMap((listed) => {
    const setup = rules.get(listed.name);
    // A rule that evaluates policies has a variant for each policy, and so a webhook entry for each.
    if (setup === undefined || setup.mode === "off" || listed.rule.variants === undefined) return [];
    // `harden` makes entries of security rules fail closed. Policies have a failurePolicy of their own instead.
    return listed.phases.flatMap((phase) =>
      buildRuleWebhookEntries(listed, phase, setup, /* harden */ false).flatMap(({ native, ...rest }) =>
        native ? [{ listed, setup, variantEntry: { ...rest, native } }] : [],
      ),
    );
  });

/** Returns why the API server can't evaluate a policy itself, so that a webhook is needed; undefined if it can. */
export const explainWhyWebhookIsNeeded = (
  { mode, record, exempt }: RuleConfig,
  { native, entry }: VariantWebhookEntry,
  { policySupport }: Pick<ClusterConfig, "policySupport">,
): string | undefined => {
  if (native === undefined) return "it is no policy";
  const { policy, bindings } = native;
  const { kind, spec } = policy;
  if (policySupport === undefined) return "the cluster's version isn't known";
  const { kubernetes, kinds, unapplied = [] } = policySupport;
  if (!kinds.includes(kind)) return `its Kubernetes ${kubernetes} doesn't serve ${kind} ${apiVersion}`;
  if (unapplied.includes(kind)) return `its API server doesn't apply a new ${kind}; the admission plugin must be on`;
  if (parseMinor(kubernetes) < parseMinor(oldestKubernetes))
    return `it isn't known which CEL functions Kubernetes ${kubernetes} has`;
  if (record) return "its reviews are recorded";
  if (exempt?.exceptions?.length) return "it has exceptions, and API servers have no clock to end them";
  if (mode !== "enforce" && kind === "MutatingAdmissionPolicy") return `API servers have no mode ${mode} for changes`;
  // With failurePolicy Fail, errors of parameters or audit annotations refuse requests, even if the bindings only warn
  // or audit.
  const mayRefuseInAnyMode = spec.paramKind !== undefined || "auditAnnotations" in spec;
  if (mode !== "enforce" && spec.failurePolicy !== "Ignore" && mayRefuseInAnyMode)
    return `in the mode ${mode}, API servers would refuse requests for errors of its parameters and audit annotations`;
  if (listConditions(native, entry).length > mostConditions)
    return `with exemptions it has more than ${mostConditions} matchConditions`;
  const longest = Math.max(...[policy, ...bindings].map(({ metadata }) => metadata.name.length));
  if (longest > longestName - "postern.".length) return "its name, or that of a binding, is too long for a prefix";
  const fault = native.findExpressionFault(kubernetes);
  if (fault !== undefined) return `Kubernetes ${kubernetes} refuses an expression: ${toFirstIssue(fault)}`;
  return findUnsupportedValue(spec, kubernetes);
};

/** Returns the message of the first error, for instance from "ERROR: <input>:1:5: undeclared reference". */
const toFirstIssue = (fault: string) => /ERROR: <input>:\d+:\d+: (.*)/.exec(fault)?.[1] ?? fault;

/** Returns the matchConditions of a native policy: those of its exemptions, then the policy's own. */
const listConditions = ({ policy }: NativePolicy, { exempt }: WebhookEntrySettings) => [
  ...Object.entries(buildExemptConditions(exempt)).map(([name, expression]) => ({ name, expression })),
  ...(policy.spec.matchConditions ?? []),
];

/** Builds a native policy and its bindings, with prefixed names, exemptions, labels and the mode of the rule. */
const buildNativeObjects = (
  { listed, setup: { mode }, variantEntry: { native, entry } }: PolicyEntry,
  name: string,
) => {
  const { policy, bindings } = native;
  const namespaceSelector = combineSelectors(entry.namespaceSelector, buildExemptNamespaceSelector(entry.exempt));
  const conditions = listConditions(native, entry);
  const addPrefix = (nameInFile: string) => `${name}.${nameInFile}`;
  const buildObject = ({ kind, metadata }: NativePolicy["policy"] | NativePolicy["bindings"][number], spec: object) => {
    const labels = { ...buildObjectLabels(name), [ruleLabel]: listed.name };
    const annotations = { [policyNameAnnotation]: metadata.name };
    return { apiVersion, kind, metadata: { name: addPrefix(metadata.name), labels, annotations }, spec };
  };
  const { matchConditions: _, ...spec } = policy.spec;
  return [
    buildObject(policy, {
      ...spec,
      matchConstraints: { ...spec.matchConstraints, ...(namespaceSelector && { namespaceSelector }) },
      ...(conditions.length > 0 && { matchConditions: conditions }),
    }),
    ...bindings.map((binding) => {
      const { validationActions: actions } = toMap(binding.spec);
      return buildObject(binding, {
        ...binding.spec,
        policyName: addPrefix(binding.spec.policyName),
        ...(Array.isArray(actions) && { validationActions: softenActions(actions, mode) }),
      });
    }),
  ];
};

/**
 * Returns the validationActions of a binding in a mode: outside of `enforce`, Warn or Audit is in place of Deny. `off`
 * is only there for the type: a rule that is off has no bindings.
 */
const softenActions = (actions: readonly string[], mode: RuleConfig["mode"]): string[] => {
  const insteadOfDeny = { warn: "Warn", audit: "Audit", enforce: "Deny", off: "Audit" }[mode];
  return [...new Set(actions.map((action) => (action === "Deny" ? insteadOfDeny : action)))];
};
