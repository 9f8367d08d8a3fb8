// What an evaluation of policies finds besides its verdict. Tests of policies collect it; in functions, nothing does.
import type { ExpressionResult } from "../cel/kubernetes.ts";
import type { AnyPolicy } from "./types.ts";

/** The parts of a policy whose results are observed. */
export type ObservedField = "matchConditions" | "validations" | "mutations";

/** Why a policy, or a binding of it, isn't evaluated; or the results of a list of its expressions. */
export type PolicyObservation = { readonly policy: AnyPolicy } & (
  | { readonly unmatched: string }
  | {
      readonly field: ObservedField;
      /** The index of the first result. */
      readonly first: number;
      /** The value of a mutation is whether it changed the object. */
      readonly results: readonly (ExpressionResult | undefined)[];
    }
);

let collected: PolicyObservation[] | undefined;

/** Adds an observation if observations are collected. */
export const observe = (create: () => PolicyObservation): void => void collected?.push(create());

/** Returns a function that removes the observations since this call, because their evaluation is repeated. */
export const markObservations = (): (() => void) => {
  const length = collected?.length;
  return () => {
    if (collected && length !== undefined) collected.length = length;
  };
};

/** Returns the result of an action, and what was observed while it ran. Only one such action may run at a time. */
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
