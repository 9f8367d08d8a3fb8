import {
  compileOnce,
  createPolicyCompiler,
  type PolicyCompiler,
  type PolicyExpression,
} from "postern/admission-policies/expressions";
import type { Binding, Policy } from "postern/admission-policies/types";
import { bool, nullType, string } from "postern/cel/types";
import type {
  ValidatingAdmissionPolicyBindingSpec,
  ValidatingAdmissionPolicySpec,
} from "postern/kubernetes/admissionregistration/v1";

export type ValidatingPolicy = Policy<ValidatingAdmissionPolicySpec>;
export type ValidatingBinding = Binding<ValidatingAdmissionPolicyBindingSpec>;

/** The compiled expressions of a policy. */
export interface CompiledPolicy {
  /** The first error of the expressions; undefined if all are valid. */
  error: string | undefined;
  /** Whether an expression uses the namespace of a request. */
  usesNamespace: boolean;
  variables: PolicyCompiler["variables"];
  conditions: readonly PolicyExpression[];
  validations: readonly PolicyExpression[];
  /** One for each validation; undefined for a validation without a messageExpression. */
  messages: readonly (PolicyExpression | undefined)[];
  annotations: readonly PolicyExpression[];
}

/** Returns the first error of a policy's expressions in a minor version of Kubernetes. */
export const findExpressionFault = (policy: ValidatingPolicy, kubernetes: string): string | undefined =>
  compile(policy, kubernetes).error;

/** Compiles all CEL expressions of a policy, as an API server of this minor version of Kubernetes does. */
const compile = (policy: ValidatingPolicy, kubernetes?: string): CompiledPolicy => {
  const { variables = [], matchConditions = [], validations = [], auditAnnotations = [] } = policy.spec;
  const compiler = createPolicyCompiler(policy.spec, { kubernetes });
  for (const { name, expression } of variables) compiler.addVariable(name, expression);
  const parts = {
    variables: compiler.variables,
    conditions: matchConditions.map(({ expression }) => compiler.compile(expression, [bool])),
    validations: validations.map(({ expression }) => compiler.compile(expression, [bool])),
    // `false`: these expressions can't use the authorizer.
    messages: validations.map(({ messageExpression }) =>
      messageExpression ? compiler.compile(messageExpression, [string], false) : undefined,
    ),
    annotations: auditAnnotations.map(({ valueExpression }) => compiler.compile(valueExpression, [string, nullType])),
  };
  // Doesn't search JSON.stringify(policy), which reads all members in a loop. If a loop has read a text, such as a
  // `message`, before the rule reads it by name, a recording redacts the text, and a replay would answer differently.
  const texts = [...parts.variables.values(), ...parts.validations, ...parts.messages, ...parts.annotations];
  const usesNamespace = texts.some((part) => part?.text.includes("namespaceObject"));
  return { ...parts, usesNamespace, error: compiler.errors[0] };
};

export const compilePolicy = compileOnce(compile);
