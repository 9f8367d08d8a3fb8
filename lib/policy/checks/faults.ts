import { getOwn, isMap } from "../../json.ts";
import { policyGroup } from "../types.ts";
import { condition } from "./conditions.ts";
import { origin, plaintext, template } from "./overriders.ts";
import { selector } from "./selectors.ts";
import {
  anything,
  atLeast,
  type Check,
  fields,
  isTooDeep,
  listOf,
  oneOf,
  required,
  text,
  texts,
} from "./shape-checks.ts";

const resourceSelectors = listOf(selector);

const overrideRule = fields({
  targetOperations: texts,
  overriders: required(fields({ template, renderedCue: text, cue: text, plaintext, origin })),
});

const validateRule = fields({
  targetOperations: texts,
  template: fields({ type: required(oneOf("condition")), condition: required(condition) }),
  renderedCue: text,
  cue: text,
});

const override = fields({ resourceSelectors, overrideRules: required(listOf(overrideRule)) });
const validate = fields({ resourceSelectors, validateRules: required(listOf(validateRule)) });

const specs: Record<string, Check> = {
  OverridePolicy: override,
  ClusterOverridePolicy: override,
  ClusterValidatePolicy: validate,
};

const named = atLeast<{ name?: string; generateName?: string }>(
  { name: text, generateName: text, namespace: text },
  ({ name, generateName }, blame) => {
    if (!name && !generateName) blame("name", "is missing");
  },
);

export const policyVersion = `${policyGroup}/v1alpha1`;

export const policyKinds: readonly string[] = Object.keys(specs);

/** Returns all faults of a policy, each in a sentence that begins with the field. Doesn't compile scripts. */
export const faultsOf = (policy: unknown): string[] => {
  const faults: string[] = [];
  if (!isMap(policy)) return ["a policy must be a map"];
  if (isTooDeep(policy)) return ["the policy is nested too deeply"];
  const kind = getOwn(policy, "kind");
  atLeast({
    apiVersion: required(oneOf(policyVersion)),
    kind: required(oneOf(...policyKinds)),
    metadata: required(named),
    spec: required(typeof kind === "string" && Object.hasOwn(specs, kind) ? (specs[kind] ?? anything) : anything),
  })(policy, "", faults);
  if (kind === "OverridePolicy" && faults.length === 0 && !getOwn(Object(policy.metadata), "namespace"))
    faults.push("metadata.namespace is missing; an OverridePolicy concerns its own namespace alone");
  return faults;
};
