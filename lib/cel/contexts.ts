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

/** An environment, and what it was created for. */
export interface AdmissionEnvironment extends Environment {
  readonly context: ExpressionContext;
}

/** Returns a type by the names that types have at run time, such as `google.protobuf.Duration`. */
export const formatRuntimeType = ({ name, parameters }: Type): string =>
  parameters.length === 0 ? name : `${name}(${parameters.map(formatRuntimeType).join(", ")})`;

/** Returns a key that differs between contexts in which the same expression is checked differently. */
export const describeContext = (
  { kubernetes, hasParams, hasAuthorizer, isMutation, variables }: ExpressionContext,
  results: readonly Type[] | undefined,
): string => {
  const declared = variables && Array.from(variables, ([name, type]) => [name, formatRuntimeType(type)]);
  return JSON.stringify([kubernetes, hasParams, hasAuthorizer, isMutation, declared, results?.map(formatRuntimeType)]);
};
