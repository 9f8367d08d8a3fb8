// Collects facts about an evaluation of policies besides the verdict, for tests of policies. Functions collect nothing.
import type { ExpressionResult } from "../cel/kubernetes.ts";
import type { MatchResources } from "../kubernetes/admissionregistration/v1.ts";
import "../features.ts"; // declares POSTERN_OBSERVED
import type { AnyPolicy } from "./types.ts";

/** The parts of a policy whose results are observed. */
export type ObservedField = "matchConditions" | "validations" | "mutations";

/** Why a policy, or a binding of it, isn't evaluated; or the results of a list of its expressions. */
export type PolicyObservation = { readonly policy: AnyPolicy } & (
  | { readonly unmatched: string }
  | {
      readonly field: ObservedField;
      /** The index, in the policy's list `field`, of the expression that gave `results[0]`. */
      readonly firstIndex: number;
      /** The value of a mutation is true if the mutation changed the object. */
      readonly results: readonly (ExpressionResult | undefined)[];
    }
);

let collected: PolicyObservation[] | undefined;
let marked = 0;
let lastComparedField = "";

// In a bundle, the next four functions are empty, so that the bundler drops their calls.

/**
 * Adds the observation that `create` returns, if observations are collected. `create` gets the field of a policy's
 * matchConstraints or a binding's matchResources that was compared last: the reason if the request doesn't match.
 */
export function observe(create: (lastComparedField: string) => PolicyObservation | false): void {
  if (!POSTERN_OBSERVED || collected === undefined) return;
  const observation = create(lastComparedField);
  if (observation) collected.push(observation);
}

/** Notes which field of the constraints is compared now. If the request doesn't match, an observation names it. */
export function noteComparedField(field: keyof MatchResources): void {
  if (POSTERN_OBSERVED) lastComparedField = field;
}

/** Marks the beginning of an evaluation. If it must be repeated, the observations since the mark are dropped. */
export function markObservations(): void {
  if (POSTERN_OBSERVED) marked = collected?.length ?? 0;
}

/** Removes the observations since the mark, because their evaluation is repeated. */
export function dropObservationsSinceMark(): void {
  if (POSTERN_OBSERVED) collected?.splice(marked);
}

/** Calls `act`. Returns its result, and the observations during the call. Only one such call may run at a time. */
export const collectObservations = async <T>(
  act: () => Promise<T>,
): Promise<{ result: T; observations: readonly PolicyObservation[] }> => {
  const observations: PolicyObservation[] = [];
  collected = observations;
  try {
    return { result: await act(), observations };
  } finally {
    collected = undefined;
  }
};
