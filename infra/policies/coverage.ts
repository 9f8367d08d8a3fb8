// This file finds expressions of admission policies for which cases had only one result, for instance never false.
import type { PolicyObservation } from "#lib/admission-policies/observations.ts";
import type { AnyPolicy } from "#lib/admission-policies/types.ts";
import { getOwn, toList, toMap } from "#lib/json.ts";
import type { FieldPath } from "../manifests/manifests.ts";
import { findPosition } from "../manifests/positions.ts";
import { type AdmissionPolicies, formatPolicyName } from "./admission-policies.ts";

/** An expression that had only one result, or none, in all cases. */
export interface UntestedExpression {
  policy: string;
  file: string;
  line: number;
  /** For instance `spec.validations[0].expression`; `spec` if no case evaluated the policy. */
  field: string;
  sentence: string;
}

/** The results of expressions, as keys that `toKey` returns, and the names of policies that were evaluated. */
type SeenResults = ReadonlySet<string>;

const toKey = (policy: AnyPolicy, field: string, index: number, value?: unknown) =>
  JSON.stringify([formatPolicyName(policy), field, index, value]);

/** Collects which results policies' expressions have in cases. `seen` also has the names of evaluated policies. */
export const createCoverage = ({ policies }: AdmissionPolicies) => {
  const seen = new Set<string>();
  return {
    /** Adds what was observed in one case. */
    add: (observations: readonly PolicyObservation[]): void => {
      const mutated = new Set<string>();
      for (const observation of observations) {
        if (!("field" in observation)) continue;
        const { policy, field, firstIndex, results } = observation;
        if (results.length > 0) seen.add(formatPolicyName(policy));
        for (const [offset, result] of results.entries()) {
          if (!result || !("value" in result)) continue;
          const mutation = field === "mutations" ? toKey(policy, field, firstIndex + offset) : "";
          // An API server may repeat a mutation, which then usually changes nothing. Only its first result counts.
          if (mutated.has(mutation)) continue;
          if (mutation !== "") mutated.add(mutation);
          seen.add(toKey(policy, field, firstIndex + offset, result.value));
        }
      }
    },
    list: (): UntestedExpression[] =>
      policies.flatMap(({ manifest, policy }) => {
        const untested = listUntested(policy, seen);
        const isUnevaluated = untested.length > 0 && !seen.has(formatPolicyName(policy));
        const found = isUnevaluated ? [{ path: ["spec"], field: "spec", sentence: "no case evaluates it" }] : untested;
        return found.map(({ path, ...rest }) => {
          const { line } = findPosition(manifest, path);
          return { policy: formatPolicyName(policy), file: manifest.source.name, line, ...rest };
        });
      }),
  };
};

/** Lists the expressions of a policy that had only one result, or none. */
const listUntested = (policy: AnyPolicy, results: SeenResults) => {
  const list = (field: string) => toList(getOwn(policy.spec, field)).map(toMap);
  const conditions = ["matchConditions", "validations"].flatMap((name) =>
    list(name).flatMap(({ expression }, index) => {
      const path: FieldPath = ["spec", name, index, "expression"];
      const field = `spec.${name}[${index}].expression`;
      return [true, false]
        .filter((value) => !results.has(toKey(policy, name, index, value)))
        .map((value) => ({ path, field, sentence: `${field} is ${value} in no case: ${expression}` }));
    }),
  );
  const mutations = list("mutations").flatMap(({ jsonPatch, applyConfiguration }, index) => {
    const path: FieldPath = ["spec", "mutations", index];
    const field = `spec.mutations[${index}]`;
    const has = (value: boolean) => results.has(toKey(policy, "mutations", index, value));
    if (!has(true)) return [{ path, field, sentence: `${field} changes an object in no case` }];
    const hasConditionalOperator = /\s\?\s/.test(String(toMap(jsonPatch ?? applyConfiguration).expression));
    return hasConditionalOperator && !has(false)
      ? [{ path, field, sentence: `${field} leaves an object unchanged in no case` }]
      : [];
  });
  return [...conditions, ...mutations];
};
