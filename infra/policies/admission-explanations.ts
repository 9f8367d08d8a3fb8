// This file explains admission policies in files: what they do, what an API server would refuse, and what may be a
// mistake.
import type { AnyBinding, AnyPolicy } from "#lib/admission-policies/types.ts";
import { getOwn, toList } from "#lib/json.ts";
import type {
  MatchResources,
  MutatingAdmissionPolicySpec,
  NamedRuleWithOperations,
  ParamRef,
  ValidatingAdmissionPolicySpec,
} from "#lib/kubernetes/admissionregistration/v1.ts";
import { joinApiVersion } from "#lib/objects/api-version.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { isCustomResourceGroup, standardKinds } from "../apiserver/kinds/kinds.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import type { FieldPath, Manifest } from "../manifests/manifests.ts";
import {
  type AdmissionPolicies,
  describeStrayBindings,
  formatFieldPosition,
  formatPolicyName,
  isBound,
} from "./admission-policies.ts";
import { formatExpression, formatPairs, joinWords } from "./descriptions.ts";

interface AdmissionExplanation {
  policy: string;
  does: string[];
  faults: string[];
  warnings: string[];
}

/** Explains documents with faults first, then each policy with its bindings, then bindings without a policy. */
export const explainAdmissionPolicies = (files: AdmissionPolicies): AdmissionExplanation[] => [
  ...files.documents.flatMap(({ manifest, name, faults }) => {
    const lines = faults.map(({ path, sentence }) => `${formatFieldPosition(manifest, path)} ${sentence}`);
    return lines.length > 0 ? [{ policy: name, does: [], faults: lines, warnings: [] }] : [];
  }),
  ...files.policies.map(({ manifest, policy }) => {
    const bindings = files.bindings.filter((bound) => bound.policy === formatPolicyName(policy));
    return {
      policy: formatPolicyName(policy),
      does: [...describePolicy(policy), ...bindings.map(({ binding }) => describeBinding(binding))],
      faults: [],
      warnings: [
        ...warnOfPolicy(manifest, policy, files),
        ...bindings.flatMap((bound) => warnOfBinding(bound.manifest, policy, bound.binding, files)),
      ],
    };
  }),
  ...describeStrayBindings(files).map(({ name, sentence }) => {
    return { policy: name, does: [], faults: [], warnings: [sentence] };
  }),
];

/** Returns sentences that say what a policy matches and demands or changes. */
const describePolicy = (policy: AnyPolicy): string[] => {
  // The casts are safe: the policy is valid.
  const { validations = [], auditAnnotations = [] } = policy.spec as ValidatingAdmissionPolicySpec;
  const { mutations = [], reinvocationPolicy } = policy.spec as MutatingAdmissionPolicySpec;
  const { matchConstraints, matchConditions = [], paramKind, failurePolicy = "Fail" } = policy.spec;
  return [
    `Matches ${describeMatchResources(matchConstraints)}.`,
    ...matchConditions.map(({ name, expression }) => `Only if (${name}): ${expression}`),
    ...(paramKind ? [`Has parameters: ${paramKind.kind} of ${paramKind.apiVersion}.`] : []),
    ...validations.map(({ expression, message, messageExpression, reason }) => {
      const constantMessage = message ? ` (message: ${message})` : "";
      const text = messageExpression ? ` (message by ${messageExpression})` : constantMessage;
      return `Demands${reason ? `, with reason ${reason}` : ""}: ${expression.trim()}${text}`;
    }),
    ...auditAnnotations.map(
      ({ key, valueExpression }) => `Writes the audit annotation ${policy.metadata.name}/${key}: ${valueExpression}`,
    ),
    ...mutations.map(({ patchType, jsonPatch, applyConfiguration }) =>
      patchType === "JSONPatch"
        ? `Applies the JSON patch: ${jsonPatch?.expression}`
        : `Merges the configuration: ${applyConfiguration?.expression}`,
    ),
    ...(reinvocationPolicy === "IfNeeded" ? ["Is applied once more if the object changed (reinvocationPolicy)."] : []),
    `${failurePolicy === "Ignore" ? "Ignores errors" : "Refuses the request on errors"} (failurePolicy ${failurePolicy}).`,
  ];
};

const actions: Readonly<Record<string, string>> = { Deny: "refuses", Warn: "warns of", Audit: "audits" };

const describeBinding = ({ metadata: { name }, spec }: AnyBinding): string => {
  const { matchResources, paramRef } = spec;
  const chosen = toList(getOwn(spec, "validationActions")).map((action) => actions[String(action)] ?? "");
  const act = chosen.length > 0 ? `${joinWords(chosen)} what is not as demanded` : "applies it";
  return `Binding ${name} ${act}${matchResources ? `, for ${describeMatchResources(matchResources)}` : ""}${paramRef ? `, with the parameters ${describeParamRef(paramRef)}` : ""}.`;
};

const describeParamRef = ({ name, selector, namespace, parameterNotFoundAction: action }: ParamRef): string => {
  const which = name ?? (describeSelector(selector) || "of any name");
  const act = action === "Deny" ? "refuses" : "admits";
  return `${which} in namespace ${namespace || "of the request"} (${act} if there are none)`;
};

/** Returns for instance "CREATE of pods (v1) in namespaces with labels a=b, but not CREATE of pods (v1) named web". */
const describeMatchResources = (resources: MatchResources): string => {
  const { resourceRules = [], excludeResourceRules = [], namespaceSelector, objectSelector } = resources;
  const [objects, namespaces] = [describeSelector(objectSelector), describeSelector(namespaceSelector)];
  return [
    resourceRules.length > 0 ? joinWords(resourceRules.map(describeRule), "or") : "everything that the policy matches",
    ...(objects ? [` with ${objects}`] : []),
    ...(namespaces ? [` in namespaces with ${namespaces}`] : []),
    ...(excludeResourceRules.length > 0
      ? [`, but not ${joinWords(excludeResourceRules.map(describeRule), "or")}`]
      : []),
  ].join("");
};

const describeRule = ({ operations = [], resources = [], resourceNames = [], ...rule }: NamedRuleWithOperations) => {
  const { apiGroups = [], apiVersions = [] } = rule;
  const versions = apiGroups.flatMap((group) => apiVersions.map((version) => joinApiVersion({ group, version })));
  const names = resourceNames.length > 0 ? ` named ${joinWords(resourceNames, "or")}` : "";
  return `${joinWords(operations, "or")} of ${joinWords(resources, "or")} (${versions.join(", ")})${names}`;
};

const describeSelector = ({ matchLabels = {}, matchExpressions = [] }: ParamRef["selector"] = {}): string => {
  const parts = [
    ...formatPairs(matchLabels),
    ...matchExpressions.map(({ key, operator, values }) => formatExpression(key, operator, values)),
  ];
  return parts.length > 0 ? `labels ${joinWords(parts)}` : "";
};

/** Returns warnings about a policy, such as a missing binding. */
const warnOfPolicy = (manifest: Manifest, policy: AnyPolicy, files: AdmissionPolicies): string[] => {
  const warn = (path: FieldPath, sentence: string) => `${formatFieldPosition(manifest, path)} ${sentence}`;
  // The rule that evaluates the policy gets it and custom kinds in the setting `policies`. Only a mutating policy can
  // have a fault: "must have the CustomResourceDefinition geese.example.com among its policies: …".
  const { rule } = files.policies.find((document) => document.policy === policy)?.rule ?? {};
  const fault = rule?.checkSettings?.({ ...rule.settings, policies: [...files.customKinds, policy] } as object);
  return [
    ...(isBound(policy, files) ? [] : [warn([], "no file has a binding of it: without one, it does nothing")]),
    ...warnOfResources(policy.spec.matchConstraints, warn),
    ...(fault
      ? [warn(["spec", "mutations"], `spec.mutations: the files ${fault.replace(" among its policies", "")}`)]
      : []),
  ];
};

/** Warns of resources that none of the named groups has. Groups of custom resources may have any resources. */
const warnOfResources = (
  { resourceRules = [] }: MatchResources,
  warn: (path: FieldPath, sentence: string) => string,
): string[] =>
  resourceRules.flatMap(({ apiGroups = [], resources = [] }, index) => {
    if (apiGroups.some((group) => group === "*" || isCustomResourceGroup(group))) return [];
    const known = standardKinds
      .filter(({ kind }) => apiGroups.includes(kind.group))
      .map(({ resource }) => resource.resource);
    return resources.flatMap((text, at) => {
      const [resource = ""] = text.split("/");
      if (resource === "*" || known.includes(resource)) return [];
      const others = standardKinds.filter((kind) => kind.resource.resource === resource);
      const elsewhere = [...new Set(others.map(({ kind: { group } }) => JSON.stringify(group)))].join(" and ");
      const advice = elsewhere ? `the group ${elsewhere} has it` : formatDidYouMean(resource, known).trim();
      const groups = apiGroups.map((group) => JSON.stringify(group)).join(", ");
      const path = ["spec", "matchConstraints", "resourceRules", index, "resources", at];
      return [
        warn(
          path,
          `spec.matchConstraints.resourceRules[${index}].resources[${at}] matches nothing: ${groups} of Kubernetes has no ${resource}${advice && `; ${advice}`}`,
        ),
      ];
    });
  });

/** Warns of a binding whose parameters don't fit its policy, or are in no file. */
const warnOfBinding = (
  manifest: Manifest,
  { spec: { paramKind } }: AnyPolicy,
  { metadata, spec: { paramRef } }: AnyBinding,
  { otherManifests }: AdmissionPolicies,
): string[] => {
  const warn = (path: FieldPath, sentence: string) => [
    `${formatFieldPosition(manifest, path)} binding ${metadata.name}: ${sentence}`,
  ];
  if (paramKind === undefined)
    return paramRef ? warn(["spec", "paramRef"], "spec.paramRef is ignored: the policy has no paramKind") : [];
  if (paramRef === undefined) return warn(["spec"], "spec.paramRef is missing: params is null in all expressions");
  const { name, namespace } = paramRef;
  const kind = `${paramKind.kind} of ${paramKind.apiVersion}`;
  const isThere = otherManifests
    .map(({ object }): KubernetesObject => object)
    .some(
      (object) =>
        object.apiVersion === paramKind.apiVersion &&
        object.kind === paramKind.kind &&
        (name === undefined || object.metadata?.name === name) &&
        (!namespace || (object.metadata?.namespace ?? namespace) === namespace),
    );
  const place = namespace ? ` in namespace ${namespace}` : "";
  return isThere ? [] : warn(["spec", "paramRef"], `no file has a ${kind}${name ? ` named ${name}` : ""}${place}`);
};
