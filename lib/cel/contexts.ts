import type { Environment } from "./environment.ts";
import type { Type } from "./types.ts";

/** Which variables and functions an expression may use. */
export interface ExpressionContext {
  /** The cluster's minor version, such as `1.35`; without it, the newest. */
  kubernetes?: string;
  hasParams?: boolean;
  hasAuthorizer?: boolean;
  /** Whether the expression makes a mutation, so that it knows `Object` and `JSONPatch`. */
  isMutation?: boolean;
  /** The static types of a policy's own variables; undefined if it may have none. */
  variables?: ReadonlyMap<string, Type>;
}

/** An environment, and the context for which it was created. */
export interface AdmissionEnvironment extends Environment {
  readonly context: ExpressionContext;
}

/** Formats a type with the names that types have at run time, such as `list(google.protobuf.Duration)`. */
export const formatRuntimeType = ({ name, parameters }: Type): string =>
  parameters.length === 0 ? name : `${name}(${parameters.map(formatRuntimeType).join(", ")})`;

/** Returns a key for a context. In two contexts with the same key, the check of an expression has the same result. */
export const describeContext = (
  { kubernetes, hasParams, hasAuthorizer, isMutation, variables }: ExpressionContext,
  results: readonly Type[] | undefined,
): string => {
  const declared = variables && Array.from(variables, ([name, type]) => [name, formatRuntimeType(type)]);
  return JSON.stringify([kubernetes, hasParams, hasAuthorizer, isMutation, declared, results?.map(formatRuntimeType)]);
};
