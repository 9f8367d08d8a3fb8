// This file reads ValidatingAdmissionPolicies and MutatingAdmissionPolicies in files. The rules that evaluate such
// policies validate them.
import { isBinding, isCustomKind, isPolicy } from "#lib/admission-policies/policies.ts";
import type { AnyBinding, AnyPolicy, PolicyObject } from "#lib/admission-policies/types.ts";
import { splitApiVersion } from "#lib/objects/api-version.ts";
import { policyGroup } from "#lib/policy/types.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { type CatalogueRule, loadRules } from "../catalogue/registry.ts";
import { listRuleFolders, posternCatalogue, resolveCatalogue } from "../catalogue/sources.ts";
import { Complaint } from "../cli/complaint.ts";
import { type FieldPath, type Manifest, toSourceName } from "../manifests/manifests.ts";
import { findPosition } from "../manifests/positions.ts";

/** The manifests in files of policies, by kind. */
export interface PolicyManifests {
  /** Policies of kinitiras. */
  kinitiras: Manifest[];
  /** ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. */
  admission: Manifest[];
  /** Other objects that admission policies use, such as parameters and CustomResourceDefinitions. */
  others: Manifest[];
}

/**
 * Separates kinitiras' policies, Kubernetes' admission policies, and other manifests. If there are no admission
 * policies, all manifests count as kinitiras' policies, so that a wrong API group is reported as a mistake.
 */
export const partitionManifests = (manifests: readonly Manifest[]): PolicyManifests => {
  const groups = Map.groupBy(manifests, ({ object: { apiVersion, kind } }) => {
    const { group } = splitApiVersion(String(apiVersion));
    if (group === policyGroup) return "kinitiras";
    const hasPolicyGroup = group === "admissionregistration.k8s.io" && !String(kind).endsWith("WebhookConfiguration");
    return hasPolicyGroup || /^(Validating|Mutating)AdmissionPolicy(Binding)?$/.test(String(kind))
      ? "admission"
      : "others";
  });
  const { kinitiras = [], admission = [], others = [] } = Object.fromEntries(groups);
  return admission.length > 0 ? { kinitiras, admission, others } : { kinitiras: [...manifests], admission, others: [] };
};

/** Returns `file:line` of a field. If the file doesn't have the field, it is the line of the nearest parent. */
export const formatFieldPosition = (manifest: Manifest, path: FieldPath): string =>
  `${toSourceName(manifest.source.name)}:${findPosition(manifest, path).line}`;

/** A policy or a binding in a file. `object` is absent if it has faults. */
export interface ReadPolicyDocument {
  manifest: Manifest;
  /** The kind and the name. */
  name: string;
  rule: CatalogueRule;
  object?: AnyPolicy | AnyBinding;
  faults: { path: FieldPath; sentence: string }[];
}

/** The admission policies and bindings in files, and the other objects in the files. */
export interface AdmissionPolicies {
  /** All policies and bindings, also those with faults. The next two members have those without faults. */
  documents: ReadPolicyDocument[];
  /** `rule` is Postern's rule that evaluates policies of this kind. */
  policies: { manifest: Manifest; rule: CatalogueRule; policy: AnyPolicy }[];
  /** `policy` is the kind and the name of the policy that the binding names. */
  bindings: { manifest: Manifest; policy: string; binding: AnyBinding }[];
  /** The custom kinds in the CustomResourceDefinitions, in the format of the rules' settings. */
  customKinds: PolicyObject[];
  otherManifests: Manifest[];
}

const ruleNames = ["mutating-admission-policy", "validating-admission-policy"];

/** Reads admission policies. The rules that evaluate them validate them as an API server does. */
export const readAdmissionPolicies = async ({ admission, others }: PolicyManifests): Promise<AdmissionPolicies> => {
  const folders = await listRuleFolders([await resolveCatalogue(posternCatalogue)]);
  const { rules, broken } = await loadRules(folders.filter(({ name }) => ruleNames.includes(name)));
  const [mutating, validating] = ruleNames.map((name) => rules.find((rule) => rule.name === name));
  if (mutating === undefined || validating === undefined) throw new Complaint(broken[0]?.sentence ?? "");
  const names = new Set<string>();
  const documents = admission.map((manifest): ReadPolicyDocument => {
    const { kind, metadata } = manifest.object as KubernetesObject;
    const rule = String(kind).startsWith("Mutating") ? mutating : validating;
    const { objects, faults } = readDocument(rule, manifest.object);
    const name = `${kind} ${metadata?.name ?? ""}`.trim();
    if (faults.length === 0 && names.has(name)) faults.push({ path: [], sentence: "is there twice" });
    names.add(name);
    const [object] = objects as (AnyPolicy | AnyBinding)[];
    return { manifest, name, rule, faults, ...(faults.length === 0 && object && { object }) };
  });
  return {
    documents,
    policies: documents.flatMap(({ manifest, rule, object }) =>
      object && isPolicy(object) ? [{ manifest, rule, policy: object }] : [],
    ),
    bindings: documents.flatMap(({ manifest, object }) =>
      object && isBinding(object) ? [{ manifest, policy: formatBoundPolicy(object), binding: object }] : [],
    ),
    // Only the mutating rule reads CustomResourceDefinitions: it needs the schemas of custom kinds to merge objects.
    customKinds: others.flatMap(({ object }) =>
      object.kind === "CustomResourceDefinition"
        ? (readDocument(mutating, object).objects as PolicyObject[]).filter(isCustomKind)
        : [],
    ),
    otherManifests: others,
  };
};

/** Reads a document with the reader that the rule has for the setting `policies`. */
const readDocument = ({ rule }: CatalogueRule, document: object) => {
  const readersBySetting = new Map(Object.entries(rule.manifests ?? {}));
  const { objects = [], faults = [] } = readersBySetting.get("policies")?.([document]) ?? {};
  return { objects, faults: faults.map(toFault) };
};

/** Returns a fault of a policy. The kind and the name at the beginning of its sentence are removed. */
const toFault = (fault: string | { sentence: string; path: readonly (string | number)[] }) => {
  const { sentence, path } = typeof fault === "string" ? { sentence: fault, path: [] } : fault;
  return { path, sentence: sentence.replace(/^[^:]*: /, "") };
};

export const formatPolicyName = ({ kind, metadata: { name } }: AnyPolicy): string => `${kind} ${name}`;

const formatBoundPolicy = ({ kind, spec: { policyName } }: AnyBinding): string =>
  `${kind.replace(/Binding$/, "")} ${policyName}`;

/** Returns a sentence about each binding whose policy isn't in the files. */
export const describeStrayBindings = ({ documents, bindings }: AdmissionPolicies) => {
  const known = new Set(documents.map(({ name }) => name));
  return bindings
    .filter(({ policy }) => !known.has(policy))
    .map(({ manifest, policy, binding: { kind, metadata } }) => {
      const sentence = `${formatFieldPosition(manifest, ["spec", "policyName"])} spec.policyName names ${policy}, which no file has`;
      return { name: `${kind} ${metadata.name}`, sentence };
    });
};

export const isBound = (policy: AnyPolicy, { bindings }: AdmissionPolicies): boolean =>
  bindings.some((binding) => binding.policy === formatPolicyName(policy));
