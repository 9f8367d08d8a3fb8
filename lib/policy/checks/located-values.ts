import type { KinitirasPolicy, OverrideTemplate, ValueReference } from "../types.ts";
import { findSetField, needsComparison } from "../values/constants.ts";

/** A value in a policy (`what`), and the path of its field in the policy (`at`). */
export interface LocatedValue<T> {
  at: string;
  what: T;
}

/** A reference in a policy, and the path of its field. `isUsed` is false if the evaluation ignores the reference. */
export interface LocatedPolicyReference extends LocatedValue<ValueReference> {
  isUsed: boolean;
}

/** Lists the references in the templates of a policy's rules. */
export const listPolicyReferences = (policy: KinitirasPolicy): LocatedPolicyReference[] => {
  const candidates: (Omit<LocatedPolicyReference, "what"> & { what: ValueReference | undefined })[] =
    policy.kind === "ClusterValidatePolicy"
      ? policy.spec.validateRules.flatMap(({ template }, index) =>
          (["dataRef", "valueRef"] as const).map((field) => {
            const at = `spec.validateRules[${index}].template.condition.${field}`;
            const isUsed = field === "dataRef" || (template !== undefined && needsComparison(template.condition));
            return { at, what: template?.condition[field], isUsed };
          }),
        )
      : policy.spec.overrideRules.map(({ overriders: { template } }, index) => {
          const at = `spec.overrideRules[${index}].overriders.template.valueRef`;
          return { at, what: template?.valueRef, isUsed: template !== undefined && usesReference(template) };
        });
  return candidates.filter((place): place is LocatedPolicyReference => place.what !== undefined);
};

/** Reports whether an override template uses its `valueRef`: only annotations and labels without a value do. */
const usesReference = ({ type, operation, value }: OverrideTemplate): boolean =>
  (type === "annotations" || type === "labels") && operation !== "remove" && findSetField(value) === undefined;

/** Lists the CUE in a policy that must compile: the scripts (`cue`), and the rendered templates (`renderedCue`). */
export const listPolicyCueScripts = (policy: KinitirasPolicy): LocatedValue<string>[] => {
  const rules =
    policy.kind === "ClusterValidatePolicy"
      ? policy.spec.validateRules.map((rule, index) => ({ at: `spec.validateRules[${index}]`, rule }))
      : policy.spec.overrideRules.map(({ overriders: rule }, index) => ({
          at: `spec.overrideRules[${index}].overriders`,
          rule,
        }));
  return rules.flatMap(({ at, rule: { cue, renderedCue, template } }) => [
    ...(cue ? [{ at: `${at}.cue`, what: cue }] : []),
    ...(renderedCue && template ? [{ at: `${at}.renderedCue`, what: renderedCue }] : []),
  ]);
};
