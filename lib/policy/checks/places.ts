import type { Policy, Reference } from "../kinds.ts";

/** Something in a policy, and the path of the field that holds it. */
export interface Place<T> {
  at: string;
  what: T;
}

/** Every reference of a policy whose shape is right. */
export const referencesIn = (policy: Policy): Place<Reference>[] => {
  const found: { at: string; what: Reference | undefined }[] =
    policy.kind === "ClusterValidatePolicy"
      ? policy.spec.validateRules.flatMap(({ template }, index) =>
          (["dataRef", "valueRef"] as const).map((field) => {
            return { at: `spec.validateRules[${index}].template.condition.${field}`, what: template?.condition[field] };
          }),
        )
      : policy.spec.overrideRules.map(({ overriders }, index) => {
          return {
            at: `spec.overrideRules[${index}].overriders.template.valueRef`,
            what: overriders.template?.valueRef,
          };
        });
  return found.filter((place): place is Place<Reference> => place.what !== undefined);
};

/** Every script that must compile: those of users, and renderings of templates. */
export const scriptsIn = (policy: Policy): Place<string>[] => {
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
