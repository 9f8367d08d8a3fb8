import {
  evaluateMatchConditions,
  evaluatePass,
  mostPassCost,
  type PolicyInput,
} from "postern/admission-policies/expressions";
import { toConditionsInput } from "postern/admission-policies/input";
import { observe } from "postern/admission-policies/observations";
import { isFailingClosed } from "postern/admission-policies/types";
import { trimAsGo } from "postern/objects/go/trimmed";
import { compilePolicy, type ValidatingPolicy } from "./policies.ts";

/** A violation of a policy, or an error that counts as one. */
interface Violation {
  /** The index of the validation. */
  index: number;
  message: string;
  /** The reason of the refusal; by default Invalid. */
  reason?: string | undefined;
}

/** The result of a policy for a request with one value of `params`. */
export interface PolicyResult {
  violations: readonly Violation[];
  /** The values of audit annotations, by their keys. */
  annotations: readonly [key: string, value: string][];
  /** Errors of audit annotations. They refuse the request, even if the binding has no action Deny. */
  refusals: readonly string[];
}

const nothing: PolicyResult = { violations: [], annotations: [], refusals: [] };
/** The most bytes of a message and of an audit annotation, as in upstream. */
const longestMessage = 5 * 1024;
const longestAnnotation = 10 * 1024;

/**
 * Evaluates a policy with one value of `params`, in the passes of upstream: match conditions, validations with
 * messages, and audit annotations. Each pass has its own cost budget. `typedVariables` are the names of the variables
 * whose values upstream handles as Go structs, not as maps.
 */
export const evaluatePolicy = (
  policy: ValidatingPolicy,
  input: PolicyInput,
  typedVariables: readonly string[],
): PolicyResult => {
  const { spec } = policy;
  const isClosed = isFailingClosed(spec);
  const expressions = compilePolicy(policy);
  const { variables } = expressions;
  const fail = (message: string): PolicyResult =>
    isClosed ? { ...nothing, violations: [{ index: 0, message }] } : nothing;

  const matches = evaluateMatchConditions(
    expressions.conditions,
    variables,
    toConditionsInput(input),
    policy,
    typedVariables,
  );
  if (typeof matches === "object") return fail(matches.error);
  if (!matches) return nothing;

  const budget = { left: mostPassCost };
  const results = evaluatePass(expressions.validations, variables, input, budget, typedVariables);
  if ("exhausted" in results) return fail(results.exhausted);
  // Only tests of policies observe results. `firstIndex` is the index of the validation that gave `results[0]`.
  observe(() => ({ policy, field: "validations", firstIndex: 0, results }));
  const { authorizer: _, "authorizer.requestResource": __, ...withoutAuthorizer } = input;
  // Messages share the budget of the validations. They are evaluated even if all validations are true: if the budget is
  // exhausted, each validation has an error.
  const messages = evaluatePass(expressions.messages, variables, withoutAuthorizer, budget, typedVariables);
  const violations = results.flatMap((result, index): Violation[] => {
    if (result && "error" in result) return isClosed ? [{ index, message: result.error }] : [];
    if ("exhausted" in messages)
      return isClosed ? [{ index, message: `failed messageExpression: ${messages.exhausted}` }] : [];
    if (result === undefined || !("value" in result) || result.value === true) return [];
    const { reason, message = "", expression } = spec.validations?.[index] ?? { expression: "" };
    const messageResult = messages[index];
    const text = (messageResult && "value" in messageResult && toMessage(messageResult.value)) || trimAsGo(message);
    return [{ index, message: text || `failed expression: ${trimAsGo(expression)}`, reason }];
  });

  // Upstream compiles audit annotations with the variable `authorizer`, but evaluates them without it.
  const values = evaluatePass(
    expressions.annotations,
    variables,
    withoutAuthorizer,
    { left: mostPassCost },
    typedVariables,
  );
  if ("exhausted" in values) return fail(values.exhausted);
  const annotations: [string, string][] = [];
  const refusals: string[] = [];
  for (const [index, { key }] of (spec.auditAnnotations ?? []).entries()) {
    const result = values[index];
    if (result && "error" in result && isClosed) refusals.push(result.error);
    const value = result && "value" in result && typeof result.value === "string" ? trimAsGo(result.value) : "";
    if (value !== "") annotations.push([key, truncate(value)]);
  }
  return { violations, annotations, refusals };
};

/** Returns the value of a messageExpression; an empty text if it isn't a valid message. */
const toMessage = (value: unknown): string => {
  const message = typeof value === "string" ? trimAsGo(value) : "";
  return Buffer.byteLength(message) > longestMessage || message.includes("\n") ? "" : message;
};

/** Shortens a text to `longestAnnotation` bytes. Each unit of `length` takes at most 3 bytes, so short texts fit. */
const truncate = (text: string): string =>
  text.length <= longestAnnotation / 3 ? text : Buffer.from(text).subarray(0, longestAnnotation).toString();
