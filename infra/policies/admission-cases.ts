// What cases of admission policies need besides their rules: settings, defaults, assumed objects, and what is said of their results.
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
  /** What the cluster of each case has, of the files. */
  objects: readonly NamedKubernetesObject[];
  /** Returns the policies of a case, compiled for its minor of Kubernetes, with their bindings, as the rule's setting. */
  selectObjects(entry: Case, objects: readonly KubernetesObject[]): PolicyObject[];
  /** Returns why the case's minor of Kubernetes refuses a policy of the case; undefined if it doesn't. */
  findMinorFault(entry: Case): string | undefined;
}

export const createTestedPolicies = (
  listed: CatalogueRule,
  read: AdmissionPolicies,
  objects: readonly NamedKubernetesObject[],
): TestedAdmissionPolicies => {
  const { rule } = listed;
  const policies = read.policies.filter((one) => one.rule.name === listed.name).map(({ policy }) => policy);
  const byMinor = new Map<string | undefined, ReturnType<typeof compilePolicies>>();
  const compile = (kubernetes: string | undefined) => {
    const compiled = byMinor.get(kubernetes) ?? compilePolicies(rule, policies, kubernetes);
    byMinor.set(kubernetes, compiled);
    return compiled;
  };
  return {
    policies,
    objects,
    selectObjects: (entry, all) => {
      const selected = compile(entry.kubernetes).policies.filter((policy) => isSelected(policy, entry));
      const assumed = selected.filter((policy) => !isBound(policy, read));
      return [
        ...read.customKinds,
        ...selected,
        ...read.bindings.map(({ binding }) => binding),
        ...assumed.flatMap((policy) => buildBindings(policy, all)),
      ];
    },
    findMinorFault: (entry) => {
      const found = compile(entry.kubernetes).faults.find(({ policy }) => isSelected(policy, entry));
      return found && `Kubernetes ${entry.kubernetes} refuses ${formatPolicyName(found.policy)}: ${found.error}`;
    },
  };
};

/** Compiles copies of policies for a minor of Kubernetes, because a rule compiles each policy object once. */
const compilePolicies = (rule: CatalogueRule["rule"], originals: readonly AnyPolicy[], kubernetes?: string) => {
  const policies = structuredClone(originals);
  const settings = { ...rule.settings, policies };
  rule.compileExpressions?.(settings, kubernetes);
  const natives = (getVariants(rule, settings) ?? []).flatMap(({ native }) => native ?? []);
  const faults = natives.flatMap(({ policy, findExpressionFault }) => {
    const error = kubernetes === undefined ? undefined : findExpressionFault(kubernetes);
    return error === undefined ? [] : [{ policy: policy as AnyPolicy, error }];
  });
  return { policies, faults };
};

/** A case may name one policy as `variant`: each policy is an entry of its rule. */
export const isSelected = ({ metadata: { name } }: AnyPolicy, { variant }: Case): boolean =>
  variant === undefined || variant === name || variant === getVariantName(name);

/** Returns bindings of a policy that has none to everything, with all parameters of its kind. */
const buildBindings = ({ kind, metadata, spec }: AnyPolicy, objects: readonly KubernetesObject[]): PolicyObject[] => {
  const { paramKind } = spec;
  const found = objects.filter(
    (object) => object.apiVersion === paramKind?.apiVersion && object.kind === paramKind?.kind,
  );
  const places = new Set(found.map((object) => object.metadata?.namespace));
  return [...(places.size > 0 ? places : [undefined])].map((namespace) => {
    const paramRef = { selector: {}, parameterNotFoundAction: "Deny", ...(namespace && { namespace }) };
    return {
      kind: `${kind}Binding`,
      metadata: { name: "everything" },
      spec: {
        policyName: metadata.name,
        ...(paramKind && { paramRef }),
        ...(kind.startsWith("Validating") && { validationActions: ["Deny"] }),
      },
    };
  });
};

/** Returns the sentences about bindings that concern all cases. */
export const describeBindings = (read: AdmissionPolicies): string[] => [
  ...read.policies
    .filter(({ policy }) => !isBound(policy, read))
    .map(
      ({ manifest, policy }) =>
        `${formatFieldPosition(manifest, [])} ${formatPolicyName(policy)} has no binding: its cases run as if a binding named everything had it, for all objects${policy.spec.paramKind ? " and all parameters" : ""}${policy.kind.startsWith("Validating") ? ", with Deny" : ""}`,
    ),
  ...describeStrayBindings(read).map(({ sentence }) => sentence),
];

/** The members of a case that hold objects which an API server decodes. */
const decoded = ["mutate", "validate", "oldObject", "becomes"] as const;

/** Returns what an API server doesn't accept in the objects of a case, with the paths of the fields. */
export const findObjectMistakes = (entry: Case): { path: string[]; sentence: string }[] =>
  decoded.flatMap((member) => {
    const object = entry[member];
    if (object === undefined) return [];
    const { apiVersion = "", kind = "" } = object;
    const { strays, misfits } = fillDefaults(object, entry.kubernetes);
    return [
      ...strays.map((stray) => {
        const steps = parseFieldPath(stray);
        const known = listKnownFields(apiVersion, kind, entry.kubernetes, steps.slice(0, -1));
        const advice = formatDidYouMean(String(steps.at(-1)), known).trim();
        const sentence = `has an unknown field in ${member}: ${stray}${advice && `; ${advice}`}`;
        return { path: [member, ...steps.map(String)], sentence };
      }),
      ...misfits.map((misfit) => {
        const sentence = `has a value that an API server refuses in ${member}: ${misfit}`;
        return { path: [member, ...parseFieldPath(misfit.split(" ", 1)[0] ?? "").map(String)], sentence };
      }),
    ];
  });

/** Returns a case whose objects have the API server's defaults. */
export const fillCase = (entry: Case): Case => {
  const { mutate, validate, oldObject, becomes, kubernetes } = entry;
  return {
    ...entry,
    ...(mutate && { mutate: fillDefaults(mutate, kubernetes).object }),
    ...(validate && { validate: toStoredObject(validate, kubernetes) }),
    ...(oldObject && { oldObject: toStoredObject(oldObject, kubernetes) }),
    ...(becomes && { becomes: fillDefaults(becomes, kubernetes).object }),
  };
};

/** Returns the objects of a case's cluster: those of the files and of the case, and the request's namespace. */
export const listCaseObjects = (entry: Case, ofFiles: readonly NamedKubernetesObject[]): NamedKubernetesObject[] => {
  const object = entry[getCasePhase(entry)] ?? {};
  const isNamespace = object.kind === "Namespace";
  const name = isNamespace ? object.metadata?.name : (entry.namespace ?? object.metadata?.namespace ?? "default");
  const labels = { "kubernetes.io/metadata.name": name };
  const home = isNamespace
    ? (entry.oldObject ?? object)
    : { apiVersion: "v1", kind: "Namespace", metadata: { name, labels }, status: { phase: "Active" } };
  // Of two objects with one name, the last counts.
  return [home as NamedKubernetesObject, ...ofFiles, ...(entry.needs?.objects ?? [])].map(
    (one) => toStoredObject(one, entry.kubernetes) as NamedKubernetesObject,
  );
};

/** Returns the case with the texts that an API server adds: a case may leave these out, and what else it doesn't say. */
export const completeExpectations = (entry: Case, { outcome }: RuleDecision): Case => {
  const { status, warnings = [], audit } = outcome;
  const complete = (expected: string, whole: string | undefined, start: RegExp) =>
    whole !== undefined && whole.replace(start, "") === expected ? whole : expected;
  return {
    ...entry,
    // An object that is refused isn't compared.
    ...(status && entry.mutate && entry.refused === undefined && { becomes: entry.mutate }),
    ...(entry.refused !== undefined && { refused: complete(entry.refused, status?.message, beforeMessage) }),
    ...(entry.warnings && {
      warnings: entry.warnings.map((text, index) => complete(text, warnings[index], beforeWarning)),
    }),
    code: entry.code ?? status?.code ?? 0,
    reason: entry.reason === undefined ? (status?.reason ?? null) : entry.reason,
    audit: entry.audit ?? audit ?? {},
  };
};

const beforeMessage = /^.*? denied request: /;
const beforeWarning = /^Validation failed for ValidatingAdmissionPolicy '[^']*' with binding '[^']*': /;

/** Evaluates a case, and also returns the results of the expressions of its policies. */
export const observeCase = async (
  entry: Case,
  tested: readonly TestedAdmissionPolicies[],
  evaluate: () => Promise<RuleDecision>,
) => {
  const { result: decision, observations } = await collectObservations(evaluate);
  const policies = tested.flatMap((one) => one.policies).filter((policy) => isSelected(policy, entry));
  const matches = policies.map((policy) => describeMatch(policy, observations));
  return { decision, observations, matches };
};

const describeMatch = (policy: AnyPolicy, observations: readonly PolicyObservation[]): PolicyMatch => {
  const name = formatPolicyName(policy);
  const observationsOfPolicy = observations.filter((one) => formatPolicyName(one.policy) === name);
  if (observationsOfPolicy.some((one) => "field" in one && one.field !== "matchConditions"))
    return { policy: name, matched: true };
  const reasons = observationsOfPolicy.flatMap((one) => {
    if ("unmatched" in one) return [one.unmatched];
    return one.results.flatMap((result, index) => {
      if (result && "error" in result) return [result.error];
      const isFalse = result && "value" in result && result.value === false;
      return isFalse ? [`its condition ${policy.spec.matchConditions?.[index]?.name} is false`] : [];
    });
  });
  const because = [...new Set(reasons)].join("; ") || "policies don't apply to this resource";
  return { policy: name, matched: false, because };
};

/** Returns lines about validations of an admitted object that are not true, although no warning says so. */
export const describeIgnoredResults = (
  { outcome }: RuleDecision,
  observations: readonly PolicyObservation[],
): string[] => {
  if (!outcome.allowed || (outcome.warnings ?? []).length > 0) return [];
  const lines = observations.flatMap((one) => {
    if (!("field" in one) || one.field === "matchConditions") return [];
    return one.results.flatMap((result, index) => {
      const what = `${formatPolicyName(one.policy)}: spec.${one.field}[${one.first + index}]`;
      if (result && "error" in result) return [`${what} fails, which its failurePolicy ignores: ${result.error}`];
      const isFalse = one.field === "validations" && result && "value" in result && result.value === false;
      return isFalse ? [`${what} is false, but no binding denies it`] : [];
    });
  });
  return [...new Set(lines)];
};
