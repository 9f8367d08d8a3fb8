import { getOwn, isMap } from "../../json.ts";
import { policyGroup } from "../types.ts";
import { checkCondition } from "./conditions.ts";
import { checkOrigin, checkOverriderPatches, checkTemplate } from "./overriders.ts";
import { checkSelector } from "./selectors.ts";
import {
  acceptAnything,
  checkEach,
  checkFields,
  checkKnownFields,
  checkOneOf,
  checkRequired,
  checkText,
  checkTexts,
  isTooDeep,
  type ValueCheck,
} from "./shape-checks.ts";

const checkSelectors = checkEach(checkSelector);

const checkOverrideRule = checkFields({
  targetOperations: checkTexts,
  overriders: checkRequired(
    checkFields({
      template: checkTemplate,
      renderedCue: checkText,
      cue: checkText,
      plaintext: checkOverriderPatches,
      origin: checkOrigin,
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
  overrideRules: checkRequired(checkEach(checkOverrideRule)),
});
const checkValidateSpec = checkFields({
  resourceSelectors: checkSelectors,
  validateRules: checkRequired(checkEach(checkValidateRule)),
});

const specChecks: Record<string, ValueCheck> = {
  OverridePolicy: checkOverrideSpec,
  ClusterOverridePolicy: checkOverrideSpec,
  ClusterValidatePolicy: checkValidateSpec,
};

const checkMetadata = checkKnownFields<{ name?: string; generateName?: string }>(
  { name: checkText, generateName: checkText, namespace: checkText },
  ({ name, generateName }, blame) => {
    if (!name && !generateName) blame("name", "is missing");
  },
);

export const policyVersion = `${policyGroup}/v1alpha1`;

export const policyKinds: readonly string[] = Object.keys(specChecks);

/** Returns all faults of a policy, each in a sentence that begins with the field. Doesn't compile scripts. */
export const findPolicyFaults = (policy: unknown): string[] => {
  const faults: string[] = [];
  if (!isMap(policy)) return ["a policy must be a map"];
  if (isTooDeep(policy)) return ["the policy is nested too deeply"];
  const kind = getOwn(policy, "kind");
  checkKnownFields({
    apiVersion: checkRequired(checkOneOf(policyVersion)),
    kind: checkRequired(checkOneOf(...policyKinds)),
    metadata: checkRequired(checkMetadata),
    spec: checkRequired(
      typeof kind === "string" && Object.hasOwn(specChecks, kind)
        ? (specChecks[kind] ?? acceptAnything)
        : acceptAnything,
    ),
  })(policy, "", faults);
  if (kind === "OverridePolicy" && faults.length === 0 && !getOwn(Object(policy.metadata), "namespace"))
    faults.push("metadata.namespace is missing; an OverridePolicy applies only in its own namespace");
  return faults;
};
