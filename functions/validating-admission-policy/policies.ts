import {
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

export const isPolicy = (object: ValidatingPolicy | ValidatingBinding): object is ValidatingPolicy =>
  object.kind === "ValidatingAdmissionPolicy";

/** Returns the bindings of a policy. A policy without bindings does nothing. */
export const listBindings = (
  objects: readonly (ValidatingPolicy | ValidatingBinding)[],
  { metadata }: ValidatingPolicy,
): ValidatingBinding[] =>
  objects.filter(
    (object): object is ValidatingBinding => !isPolicy(object) && object.spec.policyName === metadata.name,
  );

/** The compiled expressions of a policy. */
export interface CompiledPolicy {
  /** Whether an expression uses the namespace of a request. */
  usesNamespace: boolean;
  variables: PolicyCompiler["variables"];
  conditions: readonly PolicyExpression[];
  validations: readonly PolicyExpression[];
  /** One for each validation; undefined for those without a messageExpression. */
  messages: readonly (PolicyExpression | undefined)[];
  annotations: readonly PolicyExpression[];
}

const compiled = new WeakMap<ValidatingPolicy, CompiledPolicy>();

/** Returns the compiled expressions of a policy, which are compiled once for each object. */
export const compilePolicy = (policy: ValidatingPolicy): CompiledPolicy => {
  const known = compiled.get(policy);
  if (known) return known;
  const { variables = [], matchConditions = [], validations = [], auditAnnotations = [] } = policy.spec;
  const compiler = createPolicyCompiler(policy.spec);
  for (const { name, expression } of variables) compiler.addVariable(name, expression);
  const parts = {
    variables: compiler.variables,
    conditions: matchConditions.map(({ expression }) => compiler.compile(expression, [bool])),
    validations: validations.map(({ expression }) => compiler.compile(expression, [bool])),
    messages: validations.map(({ messageExpression }) =>
      messageExpression ? compiler.compile(messageExpression, [string], false) : undefined,
    ),
    annotations: auditAnnotations.map(({ valueExpression }) => compiler.compile(valueExpression, [string, nullType])),
  };
  // The texts are read one by one, because a recording has only the texts that a rule reads by their keys.
  const texts = [...parts.variables.values(), ...[parts.validations, parts.messages, parts.annotations].flat()];
  const made = { ...parts, usesNamespace: texts.some((part) => part?.text.includes("namespaceObject")) };
  compiled.set(policy, made);
  return made;
};

/** Returns the name of a policy's entry: the policy's name, changed if an entry can't have it. */
export const getVariantName = (policy: string): string => {
  if (/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(policy) && policy !== "mutate" && policy !== "validate")
    return policy;
  return `${policy.replaceAll(".", "-").slice(0, 50).replace(/-+$/, "")}-${hashText(policy)}`;
};

/** The FNV-1a hash of a text, which tells apart names that begin alike. */
const hashText = (text: string): string => {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash.toString(16).padStart(8, "0");
};
