// ValidatingAdmissionPolicies and MutatingAdmissionPolicies in files: read by the rules that evaluate such policies.
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

/** The manifests in files of policies, by the part of Postern that reads them. */
export interface PolicyManifests {
  /** Policies of kinitiras. Without admission policies, all manifests are read as such, which finds mistakes in their group. */
  kinitiras: Manifest[];
  /** ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. */
  admission: Manifest[];
  /** Other objects of a cluster beside admission policies, such as parameters and CustomResourceDefinitions. */
  others: Manifest[];
}

export const partitionManifests = (manifests: readonly Manifest[]): PolicyManifests => {
  const groups = Map.groupBy(manifests, ({ object: { apiVersion, kind } }) => {
    const { group } = splitApiVersion(String(apiVersion));
    if (group === policyGroup) return "kinitiras";
    const isOfGroup = group === "admissionregistration.k8s.io" && !String(kind).endsWith("WebhookConfiguration");
    return isOfGroup || /^(Validating|Mutating)AdmissionPolicy(Binding)?$/.test(String(kind)) ? "admission" : "others";
  });
  const { kinitiras = [], admission = [], others = [] } = Object.fromEntries(groups);
  return admission.length > 0 ? { kinitiras, admission, others } : { kinitiras: [...manifests], admission, others: [] };
};

/** Returns `file:line` of a field, or of its nearest parent in the file. */
export const formatFieldPosition = (manifest: Manifest, path: FieldPath): string =>
  `${toSourceName(manifest.source.name)}:${findPosition(manifest, path).line}`;

/** A policy or a binding of a file. It has an object if it has no faults. */
export interface ReadPolicyDocument {
  manifest: Manifest;
  /** The kind and the name. */
  name: string;
  rule: CatalogueRule;
  object?: AnyPolicy | AnyBinding;
  faults: { path: FieldPath; sentence: string }[];
}

/** The admission policies of files, and what the files have besides. */
export interface AdmissionPolicies {
  documents: ReadPolicyDocument[];
  policies: { manifest: Manifest; rule: CatalogueRule; policy: AnyPolicy }[];
  bindings: { manifest: Manifest; policy: string; binding: AnyBinding }[];
  /** What the rules need of the CustomResourceDefinitions. */
  customKinds: PolicyObject[];
  others: Manifest[];
}

const ruleNames = ["mutating-admission-policy", "validating-admission-policy"];

/** Reads admission policies with the validation of the rules that evaluate them, which is that of an API server. */
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
    customKinds: others.flatMap(({ object }) =>
      object.kind === "CustomResourceDefinition"
        ? (readDocument(mutating, object).objects as PolicyObject[]).filter(isCustomKind)
        : [],
    ),
    others,
  };
};

const readDocument = ({ rule }: CatalogueRule, document: object) => {
  const readers = new Map(Object.entries(rule.manifests ?? {}));
  const { objects = [], faults = [] } = readers.get("policies")?.([document]) ?? {};
  return { objects, faults: faults.map(toFault) };
};

/** Returns a fault of a policy without the kind and the name, which its sentence begins with. */
const toFault = (fault: string | { sentence: string; path: readonly (string | number)[] }) => {
  const { sentence, path } = typeof fault === "string" ? { sentence: fault, path: [] } : fault;
  return { path, sentence: sentence.replace(/^(a document|(Validating|Mutating)\w+)[^:]*: /, "") };
};

export const formatPolicyName = ({ kind, metadata: { name } }: AnyPolicy): string => `${kind} ${name}`;

const formatBoundPolicy = ({ kind, spec: { policyName } }: AnyBinding): string =>
  `${kind.replace(/Binding$/, "")} ${policyName}`;

/** Returns sentences about bindings whose policy isn't in the files. */
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
