import {
  compileOnce,
  createPolicyCompiler,
  type PolicyCompiler,
  type PolicyExpression,
} from "postern/admission-policies/expressions";
import type { PolicySettings } from "postern/admission-policies/settings";
import type { Binding, CustomKind, Policy } from "postern/admission-policies/types";
import { bool, listOf, struct } from "postern/cel/types";
import type {
  MutatingAdmissionPolicyBindingSpec,
  MutatingAdmissionPolicySpec,
  Mutation,
} from "postern/kubernetes/admissionregistration/v1";

export type MutatingPolicy = Policy<MutatingAdmissionPolicySpec>;
export type MutatingBinding = Binding<MutatingAdmissionPolicyBindingSpec>;
export type MutatingPolicySettings = PolicySettings<MutatingPolicy | MutatingBinding | CustomKind>;

/** The operations whose requests have an object to change. */
export const mutatingOperations = ["CREATE", "UPDATE", "CONNECT"] as const;

export const jsonPatchType = listOf(struct("JSONPatch"));
export const applyConfigurationType = struct("Object");

/** The compiled expressions of a policy. */
export interface CompiledPolicy {
  /** The first error of the expressions; undefined if all are valid. */
  error: string | undefined;
  /** Whether an expression uses the namespace of a request. */
  usesNamespace: boolean;
  variables: PolicyCompiler["variables"];
  conditions: readonly PolicyExpression[];
  mutations: readonly CompiledMutation[];
}

interface CompiledMutation {
  isJsonPatch: boolean;
  expression: PolicyExpression;
}

/** Returns the first error of a policy's expressions in a minor version of Kubernetes. */
export const findExpressionFault = (policy: MutatingPolicy, kubernetes: string): string | undefined =>
  compile(policy, kubernetes).error;

/** Compiles all CEL expressions of a policy, as an API server of this minor version of Kubernetes does. */
const compile = (policy: MutatingPolicy, kubernetes?: string): CompiledPolicy => {
  const { variables = [], matchConditions = [], mutations = [] } = policy.spec;
  const compiler = createPolicyCompiler(policy.spec, { isMutation: true, kubernetes });
  for (const { name, expression } of variables) compiler.addVariable(name, expression);
  const compileMutation = ({ patchType, jsonPatch, applyConfiguration }: Mutation): CompiledMutation => {
    const isJsonPatch = patchType === "JSONPatch";
    const { expression = "" } = (isJsonPatch ? jsonPatch : applyConfiguration) ?? {};
    const type = isJsonPatch ? jsonPatchType : applyConfigurationType;
    return { isJsonPatch, expression: compiler.compile(expression, [type]) };
  };
  const parts = {
    variables: compiler.variables,
    conditions: matchConditions.map(({ expression }) => compiler.compile(expression, [bool])),
    mutations: mutations.map(compileMutation),
  };
  // The texts are read by their keys, not by JSON.stringify(policy): a review that is recorded for a replay lacks texts
  // that the rule reads only in a loop over all members. So the replay would not find `namespaceObject`.
  const texts = [...parts.variables.values(), ...parts.mutations.map(({ expression }) => expression)];
  const usesNamespace = texts.some(({ text }) => text.includes("namespaceObject"));
  return { ...parts, usesNamespace, error: compiler.errors[0] };
};

export const compilePolicy = compileOnce(compile);
