// This file prepares cases of admission policies, and describes their results. It selects policies and bindings, adds
// the API server's defaults to objects, and adds objects that the case assumes.
import { collectObservations, type PolicyObservation } from "#lib/admission-policies/observations.ts";
import { getVariantName } from "#lib/admission-policies/policies.ts";
import type { AnyPolicy, PolicyObject } from "#lib/admission-policies/types.ts";
import type { RuleDecision } from "#lib/core/evaluation.ts";
import type { NamedKubernetesObject } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { getVariants } from "#lib/rule.ts";
import { fillDefaults } from "../apiserver/defaults/defaults.ts";
import { listKnownFields } from "../apiserver/defaults/typed-reading.ts";
import { getCasePhase } from "../catalogue/cases.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { parseFieldPath } from "../check/evaluation/field-paths.ts";
import { formatDidYouMean } from "../cli/did-you-mean.ts";
import { toStoredObject } from "../manifests/object-store.ts";
import type { PolicyMatch } from "../testing/results.ts";
import {
  type AdmissionPolicies,
  describeStrayBindings,
  formatFieldPosition,
  formatPolicyName,
  isBound,
} from "./admission-policies.ts";

/** The admission policies that one rule evaluates in cases. */
export interface TestedAdmissionPolicies {
  policies: readonly AnyPolicy[];
  /** The objects in the files. The cluster of each case has them. */
  objects: readonly NamedKubernetesObject[];
  /**
   * Returns the rule's setting `policies` for a case: its policies, compiled for its minor version, and bindings.
   * Policies that no binding in the files names get bindings, to parameters among `objectsOfCase`.
   */
  buildPolicySetting(ruleCase: Case, objectsOfCase: readonly KubernetesObject[]): PolicyObject[];
  /** Returns why the case's minor version of Kubernetes refuses one of its policies; undefined if it accepts all. */
  findVersionFault(ruleCase: Case): string | undefined;
}

/** Prepares for cases the policies of `files` that the rule `listed` evaluates: the validating or the mutating ones. */
export const createTestedPolicies = (
  listed: CatalogueRule,
  files: AdmissionPolicies,
  objects: readonly NamedKubernetesObject[],
): TestedAdmissionPolicies => {
  const { rule } = listed;
  const policies = files.policies.filter((document) => document.rule.name === listed.name).map(({ policy }) => policy);
  const byMinor = new Map<string | undefined, ReturnType<typeof compilePolicies>>();
  const compile = (kubernetes: string | undefined) => {
    const compiled = byMinor.get(kubernetes) ?? compilePolicies(rule, policies, kubernetes);
    byMinor.set(kubernetes, compiled);
    return compiled;
  };
  return {
    policies,
    objects,
    buildPolicySetting: (ruleCase, objectsOfCase) => {
      const selected = compile(ruleCase.kubernetes).policies.filter((policy) => isSelected(policy, ruleCase));
      const unbound = selected.filter((policy) => !isBound(policy, files));
      return [
        ...files.customKinds,
        ...selected,
        ...files.bindings.map(({ binding }) => binding),
        ...unbound.flatMap((policy) => buildBindings(policy, objectsOfCase)),
      ];
    },
    findVersionFault: (ruleCase) => {
      const found = compile(ruleCase.kubernetes).faults.find(({ policy }) => isSelected(policy, ruleCase));
      return found && `Kubernetes ${ruleCase.kubernetes} refuses ${formatPolicyName(found.policy)}: ${found.error}`;
    },
  };
};

/**
 * Compiles copies of policies for a minor version, because a rule compiles each policy object only once. Returns the
 * copies, for which the rule now has the compiled expressions, and the policies that the version refuses.
 */
const compilePolicies = (rule: CatalogueRule["rule"], originals: readonly AnyPolicy[], kubernetes?: string) => {
  const policies = structuredClone(originals);
  const settings = { ...rule.settings, policies };
  rule.compileExpressions?.(settings, kubernetes);
  // The rule has a variant for each policy, whose `native` is the policy and a function that checks its expressions.
  const nativePolicies = (getVariants(rule, settings) ?? []).flatMap(({ native }) => native ?? []);
  const faults = nativePolicies.flatMap(({ policy, findExpressionFault }) => {
    const error = kubernetes === undefined ? undefined : findExpressionFault(kubernetes);
    return error === undefined ? [] : [{ policy: policy as AnyPolicy, error }];
  });
  return { policies, faults };
};

/** Reports whether a case is about a policy: it may name one policy as `variant`, and otherwise is about all. */
export const isSelected = ({ metadata: { name } }: AnyPolicy, { variant }: Case): boolean =>
  variant === undefined || variant === name || variant === getVariantName(name);

const assumedBindingName = "everything"; // of a binding that no file has
/**
 * Returns bindings for a policy that has none. They bind it to all objects. If the policy has a paramKind, there is a
 * binding for each namespace in which `objects` has parameters of this kind, or one binding if there are no parameters.
 */
const buildBindings = ({ kind, metadata, spec }: AnyPolicy, objects: readonly KubernetesObject[]): PolicyObject[] => {
  const { paramKind } = spec;
  const parameters = objects.filter(
    (object) => object.apiVersion === paramKind?.apiVersion && object.kind === paramKind?.kind,
  );
  const namespaces = new Set(parameters.map((object) => object.metadata?.namespace));
  return [...(namespaces.size > 0 ? namespaces : [undefined])].map((namespace) => {
    const paramRef = { selector: {}, parameterNotFoundAction: "Deny", ...(namespace && { namespace }) };
    return {
      kind: `${kind}Binding`,
      metadata: { name: assumedBindingName },
      spec: {
        policyName: metadata.name,
        ...(paramKind && { paramRef }),
        ...(kind.startsWith("Validating") && { validationActions: ["Deny"] }),
      },
    };
  });
};

/** Returns warnings about the files, not about a case: policies without bindings, and bindings without policies. */
export const describeBindings = (files: AdmissionPolicies): string[] => [
  ...files.policies
    .filter(({ policy }) => !isBound(policy, files))
    .map(
      ({ manifest, policy }) =>
        `${formatFieldPosition(manifest, [])} ${formatPolicyName(policy)} has no binding: its cases run as if it had a binding with the name ${assumedBindingName}, for all objects${policy.spec.paramKind ? " and all parameters" : ""}${policy.kind.startsWith("Validating") ? ", with Deny" : ""}`,
    ),
  ...describeStrayBindings(files).map(({ sentence }) => sentence),
];

/** The members of a case that are Kubernetes objects. */
const objectMembers = ["mutate", "validate", "oldObject", "becomes"] as const;

/** Finds fields in the objects of a case that an API server doesn't know, and values that it refuses. */
export const findObjectMistakes = (ruleCase: Case): { path: string[]; sentence: string }[] =>
  objectMembers.flatMap((member) => {
    const object = ruleCase[member];
    if (object === undefined) return [];
    const { apiVersion = "", kind = "" } = object;
    const { unknownFields, decodingErrors } = fillDefaults(object, ruleCase.kubernetes);
    return [
      ...unknownFields.map((field) => {
        const steps = parseFieldPath(field);
        const known = listKnownFields(apiVersion, kind, ruleCase.kubernetes, steps.slice(0, -1));
        const advice = formatDidYouMean(String(steps.at(-1)), known).trim();
        const sentence = `has an unknown field in ${member}: ${field}${advice && `; ${advice}`}`;
        return { path: [member, ...steps.map(String)], sentence };
      }),
      ...decodingErrors.map((error) => {
        const sentence = `has a value that an API server refuses in ${member}: ${error}`;
        return { path: [member, ...parseFieldPath(error.split(" ", 1)[0] ?? "").map(String)], sentence };
      }),
    ];
  });

/** Returns a case whose objects have the API server's defaults. */
export const fillCase = (ruleCase: Case): Case => {
  const { mutate, validate, oldObject, becomes, kubernetes } = ruleCase;
  return {
    ...ruleCase,
    ...(mutate && { mutate: fillDefaults(mutate, kubernetes).object }),
    // Validation gets an object as it will be stored: after mutation, an API server changes some fields of Pods.
    ...(validate && { validate: toStoredObject(validate, kubernetes) }),
    ...(oldObject && { oldObject: toStoredObject(oldObject, kubernetes) }),
    ...(becomes && { becomes: fillDefaults(becomes, kubernetes).object }),
  };
};

/** Returns the objects in a case's cluster: the request's namespace, the objects in files, and those in the case. */
export const listCaseObjects = (ruleCase: Case, ofFiles: readonly NamedKubernetesObject[]): NamedKubernetesObject[] => {
  const object = ruleCase[getCasePhase(ruleCase)] ?? {};
  const isNamespace = object.kind === "Namespace";
  const name = isNamespace ? object.metadata?.name : (ruleCase.namespace ?? object.metadata?.namespace ?? "default");
  const labels = { "kubernetes.io/metadata.name": name };
  const requestNamespace = isNamespace
    ? (ruleCase.oldObject ?? object)
    : { apiVersion: "v1", kind: "Namespace", metadata: { name, labels }, status: { phase: "Active" } };
  // If two objects have the same name, the last one counts.
  return [requestNamespace as NamedKubernetesObject, ...ofFiles, ...(ruleCase.needs?.objects ?? [])].map(
    (item) => toStoredObject(item, ruleCase.kubernetes) as NamedKubernetesObject,
  );
};

/**
 * Adds to a case what it may leave out: the text that an API server puts before a message, the code and the reason of a
 * refusal, and audit annotations. It takes these from the actual outcome, so that they count as expected.
 */
export const addUnstatedExpectations = (ruleCase: Case, { outcome }: RuleDecision): Case => {
  const { status, warnings = [], audit } = outcome;
  const complete = (expected: string, actual: string | undefined, start: RegExp) =>
    actual !== undefined && actual.replace(start, "") === expected ? actual : expected;
  return {
    ...ruleCase,
    // If the request was refused unexpectedly, only this is reported. The object of a refused request is unchanged, so
    // `becomes` is set to the unchanged object. Otherwise, a difference of the objects would be reported, too.
    ...(status && ruleCase.mutate && ruleCase.refused === undefined && { becomes: ruleCase.mutate }),
    ...(ruleCase.refused !== undefined && { refused: complete(ruleCase.refused, status?.message, beforeMessage) }),
    ...(ruleCase.warnings && {
      warnings: ruleCase.warnings.map((text, index) => complete(text, warnings[index], beforeWarning)),
    }),
    code: ruleCase.code ?? status?.code ?? 0,
    reason: ruleCase.reason === undefined ? (status?.reason ?? null) : ruleCase.reason,
    audit: ruleCase.audit ?? audit ?? {},
  };
};

/** Match what an API server puts before the message of a refusal or of a warning. */
const beforeMessage = /^.*? denied request: /;
const beforeWarning = /^Validation failed for ValidatingAdmissionPolicy '[^']*' with binding '[^']*': /;

/** Evaluates a case. Returns the decision, the results of all expressions, and whether each policy matched. */
export const observeCase = async (
  ruleCase: Case,
  tested: readonly TestedAdmissionPolicies[],
  evaluate: () => Promise<RuleDecision>,
) => {
  const { result: decision, observations } = await collectObservations(evaluate);
  const policies = tested.flatMap(({ policies }) => policies).filter((policy) => isSelected(policy, ruleCase));
  const matches = policies.map((policy) => describeMatch(policy, observations));
  return { decision, observations, matches };
};

/** Says whether a policy matched a request, and if not, why. */
const describeMatch = (policy: AnyPolicy, observations: readonly PolicyObservation[]): PolicyMatch => {
  const name = formatPolicyName(policy);
  const observationsOfPolicy = observations.filter((observation) => formatPolicyName(observation.policy) === name);
  // Fields other than matchConditions are evaluated only if the policy matches.
  if (observationsOfPolicy.some((observation) => "field" in observation && observation.field !== "matchConditions"))
    return { policy: name, matched: true };
  const reasons = observationsOfPolicy.flatMap((observation) => {
    if ("unmatched" in observation) return [observation.unmatched];
    return observation.results.flatMap((result, index) => {
      if (result && "error" in result) return [result.error];
      const isFalse = result && "value" in result && result.value === false;
      return isFalse ? [`its condition ${policy.spec.matchConditions?.[index]?.name} is false`] : [];
    });
  });
  const because = [...new Set(reasons)].join("; ") || "policies don't apply to this resource";
  return { policy: name, matched: false, because };
};

/** For an admitted object without warnings, returns lines about validations that are false or fail. */
export const describeIgnoredResults = (
  { outcome }: RuleDecision,
  observations: readonly PolicyObservation[],
): string[] => {
  if (!outcome.allowed || (outcome.warnings ?? []).length > 0) return [];
  const lines = observations.flatMap((observation) => {
    if (!("field" in observation) || observation.field === "matchConditions") return [];
    return observation.results.flatMap((result, offset) => {
      const { policy, field, firstIndex } = observation;
      const what = `${formatPolicyName(policy)}: spec.${field}[${firstIndex + offset}]`;
      if (result && "error" in result) return [`${what} fails, which its failurePolicy ignores: ${result.error}`];
      const isFalse = field === "validations" && result && "value" in result && result.value === false;
      return isFalse ? [`${what} is false, but no binding denies it`] : [];
    });
  });
  return [...new Set(lines)];
};
