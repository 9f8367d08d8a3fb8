import { getOwn, isMap } from "../../json.ts";
import { policyGroup } from "../types.ts";
import { checkCondition } from "./conditions.ts";
import { checkOriginOverriders, checkOverriderPatches, checkTemplate } from "./overriders.ts";
import { checkResourceSelector } from "./selectors.ts";
import {
  acceptAnything,
  checkEachListElement,
  checkFields,
  checkFieldsAllowingUnknown,
  checkOneOf,
  checkRequired,
  checkText,
  checkTexts,
  isTooDeep,
  type ValueCheck,
} from "./shape-checks.ts";

const checkSelectors = checkEachListElement(checkResourceSelector);

/** Checks a rule of an override policy. */
const checkOverrideRule = checkFields({
  targetOperations: checkTexts,
  overriders: checkRequired(
    checkFields({
      template: checkTemplate,
      renderedCue: checkText,
      cue: checkText,
      plaintext: checkOverriderPatches,
      origin: checkOriginOverriders,
    }),
  ),
});

const checkValidateRule = checkFields({
  targetOperations: checkTexts,
  template: checkFields({ type: checkRequired(checkOneOf("condition")), condition: checkRequired(checkCondition) }),
  renderedCue: checkText,
  cue: checkText,
});

const checkOverrideSpec = checkFields({
  resourceSelectors: checkSelectors,
  overrideRules: checkRequired(checkEachListElement(checkOverrideRule)),
});
const checkValidateSpec = checkFields({
  resourceSelectors: checkSelectors,
  validateRules: checkRequired(checkEachListElement(checkValidateRule)),
});

const specChecks: Record<string, ValueCheck> = {
  OverridePolicy: checkOverrideSpec,
  ClusterOverridePolicy: checkOverrideSpec,
  ClusterValidatePolicy: checkValidateSpec,
};

const checkMetadata = checkFieldsAllowingUnknown<{ name?: string; generateName?: string }>(
  { name: checkText, generateName: checkText, namespace: checkText },
  ({ name, generateName }, reportFault) => {
    if (!name && !generateName) reportFault("name", "is missing");
  },
);

export const kinitirasApiVersion = `${policyGroup}/v1alpha1`;

export const kinitirasPolicyKinds: readonly string[] = Object.keys(specChecks);

/** Returns all faults of a policy, each in a sentence that begins with the field. Scripts are not compiled. */
export const findPolicyFaults = (policy: unknown): string[] => {
  const faults: string[] = [];
  if (!isMap(policy)) return ["a policy must be a map"];
  if (isTooDeep(policy)) return ["the policy is nested too deeply"];
  const kind = getOwn(policy, "kind");
  checkFieldsAllowingUnknown({
    apiVersion: checkRequired(checkOneOf(kinitirasApiVersion)),
    kind: checkRequired(checkOneOf(...kinitirasPolicyKinds)),
    metadata: checkRequired(checkMetadata),
    spec: checkRequired(
      typeof kind === "string" && Object.hasOwn(specChecks, kind)
        ? (specChecks[kind] ?? acceptAnything)
        : acceptAnything,
    ),
  })(policy, "", faults);
  if (kind === "OverridePolicy" && faults.length === 0 && !getOwn(policy.metadata, "namespace"))
    faults.push("metadata.namespace is missing; an OverridePolicy applies only in its own namespace");
  return faults;
};
