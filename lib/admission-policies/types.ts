import type {
  MatchResources,
  MutatingAdmissionPolicyBindingSpec,
  ValidatingAdmissionPolicySpec,
} from "../kubernetes/admissionregistration/v1.ts";
import type { Status } from "../review.ts";

/** What the specs of both kinds of policies have. */
export type PolicySpec = Pick<
  ValidatingAdmissionPolicySpec,
  "failurePolicy" | "matchConditions" | "matchConstraints" | "paramKind" | "variables"
>;
/** What the specs of both kinds of bindings have. */
export type BindingSpec = Pick<MutatingAdmissionPolicyBindingSpec, "policyName" | "matchResources" | "paramRef">;

/** A policy or a binding that upstream's validation accepts. Absent fields have upstream's defaults. */
interface NamedObject<Spec> {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: Spec;
}

export type Policy<Spec extends PolicySpec> = NamedObject<Spec & { matchConstraints: MatchResources }>;
export type Binding<Spec extends BindingSpec> = NamedObject<Spec & { policyName: string }>;
export type AnyPolicy = Policy<PolicySpec>;
export type AnyBinding = Binding<BindingSpec>;
/** What a rule needs of a CustomResourceDefinition: the schemas of a kind. */
export type CustomKind = NamedObject<{
  group: string;
  names: { kind: string; plural: string };
  versions: readonly object[];
}>;
/** An object that the setting `policies` has. */
export type PolicyObject = AnyPolicy | AnyBinding | CustomKind;

/** An error of a policy's or a binding's configuration, with upstream's text; failurePolicy decides what it means. */
export class PolicyConfigurationError extends Error {}

/** An error that refuses the request with a status, whatever failurePolicy says. */
export class PolicyStatusError extends Error {
  readonly status: Status;
  constructor(status: Status) {
    super(status.message);
    this.status = status;
  }
}

/** Reports whether errors refuse the request. */
export const isFailingClosed = ({ failurePolicy = "Fail" }: PolicySpec): boolean => failurePolicy !== "Ignore";
