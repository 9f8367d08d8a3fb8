import type {
  MatchResources,
  MutatingAdmissionPolicyBindingSpec,
  ValidatingAdmissionPolicySpec,
} from "../kubernetes/admissionregistration/v1.ts";
import type { Status } from "../review.ts";

/** The fields that the specs of both kinds of policies have. */
export type PolicySpec = Pick<
  ValidatingAdmissionPolicySpec,
  "failurePolicy" | "matchConditions" | "matchConstraints" | "paramKind" | "variables"
>;
/** The fields that the specs of both kinds of bindings have. */
export type BindingSpec = Pick<MutatingAdmissionPolicyBindingSpec, "policyName" | "matchResources" | "paramRef">;

/** A policy or a binding that upstream's validation accepts. An absent field stands for its default in upstream. */
interface NamedObject<Spec> {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: Spec;
}

export type Policy<Spec extends PolicySpec> = NamedObject<Spec & { matchConstraints: MatchResources }>;
export type Binding<Spec extends BindingSpec> = NamedObject<Spec & { policyName: string }>;
export type AnyPolicy = Policy<PolicySpec>;
export type AnyBinding = Binding<BindingSpec>;
/** The part of a CustomResourceDefinition that a rule needs: the schemas of a kind. */
export type CustomKind = NamedObject<{
  group: string;
  names: { kind: string; plural: string };
  versions: readonly object[];
}>;
/** An object in the setting `policies`. */
export type PolicyObject = AnyPolicy | AnyBinding | CustomKind;

/** An error in the configuration of a policy or a binding, with upstream's text. failurePolicy decides its effect. */
export class PolicyConfigurationError extends Error {}

/** An error that refuses the request with a status, independently of failurePolicy. */
export class PolicyStatusError extends Error {
  readonly status: Status;
  constructor(status: Status) {
    super(status.message);
    this.status = status;
  }
}

/** Reports whether errors of a policy refuse the request. */
export const isFailingClosed = ({ failurePolicy = "Fail" }: PolicySpec): boolean => failurePolicy !== "Ignore";
